// One domain "graft" in the session options of one program, shared by all libraries that it
// registers.
#ifndef GRAFT_KIT_ORT_REGISTRAR_H_
#define GRAFT_KIT_ORT_REGISTRAR_H_

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "graft/ort_api.h"
#include "graft/ort_types.h"

namespace graft::ort {

// The domain of one set of options, and which plugin brought which operator.
class Registrar {
 public:
  explicit Registrar(const OrtApi* api) : api_(api) {
    OrtCustomOpDomain* domain = nullptr;
    Check(api, api->CreateCustomOpDomain(GRAFT_ONNX_DOMAIN, &domain));
    c_.registrar = {sizeof c_.registrar, nullptr, &Join, domain};
    c_.self = this;
  }
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  const graft_ort_registrar* c() const { return &c_.registrar; }

 private:
  struct C {
    graft_ort_registrar registrar;  // first, so that Join finds self beside it
    Registrar* self;
  };

  static int32_t Join(const graft_ort_registrar* registrar, const char* plugin,
                      const void* const* ops, uint64_t num_ops, graft_message* message) {
    return Guard(message, [&] {
      reinterpret_cast<const C*>(registrar)->self->Add(plugin, ops, num_ops);
      return GRAFT_OK;
    });
  }

  void Add(const char* plugin, const void* const* ops, uint64_t num_ops) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<const OrtCustomOp*> fresh;
    for (uint64_t i = 0; i < num_ops; ++i) {
      const auto* op = static_cast<const OrtCustomOp*>(ops[i]);
      const char* provider = op->GetExecutionProviderType(op);
      const std::string key = std::string(op->GetName(op)) + '\n' + (provider ? provider : "");
      const auto owner = owners_.find(key);
      if (owner == owners_.end()) {
        fresh.push_back(op);
      } else {
        Require(owner->second == plugin, "operator ", op->GetName(op), " is registered by plugin ",
                owner->second, " already; leave one of the two out");
      }
    }
    for (const OrtCustomOp* op : fresh) {
      auto* domain = static_cast<OrtCustomOpDomain*>(c_.registrar.domain);
      Check(api_, api_->CustomOpDomain_Add(domain, op));
      const char* provider = op->GetExecutionProviderType(op);
      owners_[std::string(op->GetName(op)) + '\n' + (provider ? provider : "")] = plugin;
    }
  }

  const OrtApi* api_;
  C c_{};
  std::mutex mutex_;
  std::map<std::string, std::string> owners_;  // operator and provider -> plugin
};

inline const graft_ort_registrar* FindRegistrar(const OrtApi* api,
                                                const OrtSessionOptions* options) {
  int present = 0;
  Check(api, api->HasSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, &present));
  if (present == 0) return nullptr;
  char text[32];
  size_t size = sizeof text;
  Check(api, api->GetSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, text, &size));
  const uint64_t address = std::strtoull(text, nullptr, 16);
  Require(address != 0, "session config entry " GRAFT_ORT_DOMAIN_KEY " is ", text,
          ", needed is the address that a plugin wrote; remove the entry");
  return reinterpret_cast<const graft_ort_registrar*>(address);
}

// Adds operators to the options' domain, which is made when there is none. The domain and its
// registrar, some hundred bytes, are never freed: options are copied and freed without notice,
// and the runtime holds only pointers.
inline void JoinDomain(const OrtApi* api, OrtSessionOptions* options, const char* plugin,
                       const std::vector<const void*>& ops) {
  if (ops.empty()) return;
  const graft_ort_registrar* registrar = FindRegistrar(api, options);
  if (registrar == nullptr) {
    static std::mutex mutex;
    static auto* const kept = new std::vector<Registrar*>;  // reachable, so no leak to a checker
    auto* made = new Registrar(api);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      kept->push_back(made);
    }
    registrar = made->c();
    char text[32];
    std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(registrar));
    Check(api, api->AddCustomOpDomain(options, static_cast<OrtCustomOpDomain*>(registrar->domain)));
    Check(api, api->AddSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, text));
  }
  char text[512] = "";
  graft_message message{sizeof message, nullptr, text, sizeof text};
  const int32_t code = registrar->join(registrar, plugin, ops.data(), ops.size(), &message);
  if (code != GRAFT_OK) throw Error(code, text);
}

}  // namespace graft::ort

#endif  // GRAFT_KIT_ORT_REGISTRAR_H_
