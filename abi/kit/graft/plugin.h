// The table of functions for a plugin, generated from its operator classes, and the macros that
// export it.
#ifndef GRAFT_KIT_PLUGIN_H_
#define GRAFT_KIT_PLUGIN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "graft/fold.h"
#include "graft/kernel.h"
#include "graft/note.h"
#include "graft/ort.h"
#include "graft_plugin_layout.h"

namespace graft {

// Hooks of a plugin that has no Fold and no Probe of its own.
struct NoHooks {};

template <typename Hooks, typename = void>
struct HasFold : std::false_type {};
template <typename Hooks>
struct HasFold<Hooks, std::void_t<decltype(&Hooks::Fold)>> : std::true_type {};
template <typename Hooks, typename = void>
struct HasProbe : std::false_type {};
template <typename Hooks>
struct HasProbe<Hooks, std::void_t<decltype(&Hooks::Probe)>> : std::true_type {};

// The C functions over operator classes. Hooks may have
//   static void Fold(const FoldContext&);
//   static int32_t Probe(const graft_device&, std::string* reason);   // score, 0 with a reason
template <typename Hooks, typename... Kernels>
class Plugin {
 public:
  static const graft_plugin* Table() {
    static const graft_ort_ops ort_ops{sizeof(graft_ort_ops), nullptr, GRAFT_EXTENSION_ORT_OPS,
                                       &OrtOps};
    static const graft_plugin table{
        sizeof(graft_plugin),
        reinterpret_cast<const graft_extension*>(&ort_ops),
        GRAFT_ABI_MAJOR,
        GRAFT_ABI_MINOR,
        &Describe,
        &Probe,
        HasFold<Hooks>::value ? &Fold : nullptr,
        &Create,
        &InferShapes,
        &WorkspaceSize,
        &Run,
        &Destroy,
    };
    return &table;
  }

  static OrtStatus* Register(OrtSessionOptions* options, const OrtApiBase* base) {
    if (const graft_plugin_info* info = Describe()) {
      return ort::Register(options, base, info, Entries());
    }
    return ort::GuardOrt(base->GetApi(1), GRAFT_PLUGIN_NAME, [] { RequireDescribed(); });
  }

 private:
  // What the operators' Describe says, or why one threw.
  struct Described {
    std::vector<OperatorEntry> entries;
    std::string failure;
  };

  static const Described& All() {
    static const Described all = [] {
      Described made;
      char text[1024] = "";
      graft_message message{sizeof message, nullptr, text, sizeof text};
      const int32_t code = Guard(&message, [&] {
        made.entries = {EntryOf<Kernels>()...};
        return GRAFT_OK;
      });
      if (code != GRAFT_OK) made.failure = Text("Describe threw: ", text);
      return made;
    }();
    return all;
  }

  static const std::vector<OperatorEntry>& Entries() { return All().entries; }

  static void RequireDescribed() {
    if (!All().failure.empty()) throw Error(GRAFT_ERROR_INTERNAL, All().failure);
  }

  static const graft_plugin_info* Describe() {
    if (!All().failure.empty()) return nullptr;  // probe says why
    static const std::vector<const graft_operator*> descriptions = [] {
      std::vector<const graft_operator*> all;
      for (const OperatorEntry& entry : Entries()) all.push_back(entry.description);
      return all;
    }();
    static const graft_plugin_info info{sizeof(graft_plugin_info),
                                        nullptr,
                                        GRAFT_PLUGIN_NAME,
                                        GRAFT_PLUGIN_VERSION,
                                        GRAFT_PLUGIN_SUMMARY,
                                        DeviceType(),
                                        uint32_t{sizeof...(Kernels)},
                                        descriptions.data()};
    return &info;
  }

  static int32_t DeviceType() {
    return std::string(GRAFT_PLUGIN_DEVICE) == "cuda" ? GRAFT_DEVICE_CUDA : GRAFT_DEVICE_CPU;
  }

  static int32_t Probe(const graft_device* device, graft_probe_result* result,
                       graft_message* message) {
    return Guard(message, [&] {
      result->score = 0;
      RequireDescribed();
      if (device->type != DeviceType()) {
        Put(message, "this library runs on " GRAFT_PLUGIN_DEVICE " only");
        return GRAFT_OK;
      }
      if constexpr (HasProbe<Hooks>::value) {
        std::string reason;
        result->score = Hooks::Probe(*device, &reason);
        Put(message, reason.c_str());
      } else {
        result->score = 50;
      }
      return GRAFT_OK;
    });
  }

  static int32_t Fold(const graft_fold_request* request, graft_message* message) {
    return Guard(message, [&] {
      if constexpr (HasFold<Hooks>::value) Hooks::Fold(FoldContext(request));
      return GRAFT_OK;
    });
  }

  static int32_t Create(const graft_create_request* request, void** kernel,
                        graft_message* message) {
    return Guard(message, [&] {
      Require(request->operator_index < Entries().size(), "operator ", request->operator_index,
              " asked for, the library has ", Entries().size());
      const OperatorEntry& entry = Entries()[request->operator_index];
      *kernel = entry.make(entry.description, CreateContext(entry.description, request)).release();
      return GRAFT_OK;
    });
  }

  static int32_t InferShapes(const void* kernel, const graft_tensor* const* inputs,
                             uint64_t num_inputs, graft_tensor* const* outputs,
                             uint64_t num_outputs, graft_message* message) {
    return Guard(message, [&] {
      const auto* base = static_cast<const KernelBase*>(kernel);
      const graft_operator* description = base->description();
      CheckTensors("input", description->inputs, description->num_inputs, inputs, num_inputs);
      InferContext context(inputs, num_inputs, outputs, num_outputs);
      base->Infer(context);
      for (uint64_t i = 0; i < num_outputs; ++i) {
        if (outputs[i] != nullptr) RequireMade(*description, i, *outputs[i]);
      }
      return GRAFT_OK;
    });
  }

  static int32_t WorkspaceSize(const void* kernel, const graft_tensor* const* inputs,
                               uint64_t num_inputs, const graft_tensor* const* outputs,
                               uint64_t num_outputs, int32_t concurrency, uint64_t* bytes,
                               graft_message* message) {
    return Guard(message, [&] {
      *bytes = static_cast<const KernelBase*>(kernel)->Workspace(
          {Tensors(inputs, num_inputs), Tensors(outputs, num_outputs), concurrency});
      return GRAFT_OK;
    });
  }

  static int32_t Run(const void* kernel, const graft_run_context* context,
                     const graft_tensor* const* inputs, uint64_t num_inputs,
                     graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message) {
    return Guard(message, [&] {
      const auto* base = static_cast<const KernelBase*>(kernel);
      const graft_operator* description = base->description();
      CheckTensors("input", description->inputs, description->num_inputs, inputs, num_inputs);
      CheckTensors("output", description->outputs, description->num_outputs, outputs, num_outputs);
      base->Run(RunContext(context, inputs, num_inputs, outputs, num_outputs));
      return GRAFT_OK;
    });
  }

  static void Destroy(void* kernel) { delete static_cast<KernelBase*>(kernel); }

  static int32_t OrtOps(const void* ort_api_base, const void* const** ops, uint64_t* num_ops,
                        graft_message* message) {
    return Guard(message, [&] {
      RequireDescribed();
      const ort::OpSet& set =
          ort::OpsFor(static_cast<const OrtApiBase*>(ort_api_base), Describe(), Entries());
      *ops = set.pointers.data();
      *num_ops = set.pointers.size();
      return GRAFT_OK;
    });
  }
};

}  // namespace graft

#define GRAFT_EXPORT extern "C" __attribute__((visibility("default")))

// Once a library, in any one source file: GRAFT_PLUGIN(FirstOperator, SecondOperator).
#define GRAFT_PLUGIN(...) GRAFT_PLUGIN_WITH(::graft::NoHooks, __VA_ARGS__)

// The same with a struct of hooks (see graft::Plugin); operators may then be none.
#define GRAFT_PLUGIN_WITH(...)                                                                    \
  GRAFT_NOTE(GRAFT_NOTE_ALL_LINES);                                                               \
  GRAFT_EXPORT const graft_plugin* graft_plugin_v1(void) {                                        \
    return ::graft::Plugin<__VA_ARGS__>::Table();                                                 \
  }                                                                                               \
  GRAFT_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) { \
    return ::graft::Plugin<__VA_ARGS__>::Register(options, base);                                 \
  }                                                                                               \
  static_assert(true, "")

#endif  // GRAFT_KIT_PLUGIN_H_
