#include "session.h"

#include <dlfcn.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "onnx_model.h"

namespace graft::driven {
namespace {

using test::Proto;

void* Open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

Proto TypeOf(const Input& in) {
  Proto tensor;
  tensor.Int(1, static_cast<int64_t>(in.type));
  if (in.stated) {
    Proto shape;
    for (size_t i = 0; i < in.declared.size(); ++i) {
      const int64_t d = in.declared[i];
      Proto dim;
      if (d < 0) {
        dim.String(2, in.name + std::to_string(i));
      } else {
        dim.Int(1, d);
      }
      shape.Message(1, dim);
    }
    tensor.Message(2, shape);
  }
  return Proto().String(1, in.name).Message(2, Proto().Message(1, tensor));
}

Proto Valued(const Attribute& a) {
  Proto out;
  out.String(1, a.name);
  switch (a.kind) {
    case Attribute::kInt:
      return out.Int(3, a.number.i).Int(20, 2);
    case Attribute::kFloat:
      return out.Float(2, static_cast<float>(a.number.f)).Int(20, 1);
    case Attribute::kString:
      return out.String(4, a.text).Int(20, 3);
    case Attribute::kInts:
      for (const Number& n : a.list) out.Int(8, n.i);
      return out.Int(20, 7);
    case Attribute::kFloats:
      for (const Number& n : a.list) out.Float(7, static_cast<float>(n.f));
      return out.Int(20, 6);
  }
  return out;
}

std::vector<std::string> ParameterNames(const graft_parameter* const* all, uint32_t count,
                                        size_t given) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    if ((all[i]->flags & GRAFT_PARAMETER_VARIADIC) == 0) {
      names.push_back(all[i]->name);
      continue;
    }
    for (size_t k = 0; k < given; ++k) names.push_back(all[i]->name + std::to_string(k));
  }
  return names;
}

// The model of a case: one node, whose absent inputs and outputs have no name.
std::string ModelOf(const Case& c, const graft_operator* op) {
  Proto node, graph;
  const auto listed = [&](int field, const std::vector<std::string>& all, const auto& has) {
    size_t last = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (has(all[i])) last = i + 1;
    }
    for (size_t i = 0; i < last; ++i) node.String(field, has(all[i]) ? all[i] : "");
  };
  Case named = c;
  listed(1, ParameterNames(op->inputs, op->num_inputs, c.inputs.size()),
         [&](const std::string& name) { return named.Find(name) != nullptr; });
  listed(2, ParameterNames(op->outputs, op->num_outputs, c.outputs.size()),
         [&](const std::string& name) {
           for (const std::string& out : c.outputs) {
             if (out == name) return true;
           }
           return false;
         });
  node.String(4, c.op).String(7, GRAFT_ONNX_DOMAIN);
  for (const Attribute& a : c.attributes) node.Message(5, Valued(a));
  graph.Message(1, node).String(2, "case");
  for (const Input& in : c.inputs) {
    if (!in.constant) {
      graph.Message(11, TypeOf(in));
      continue;
    }
    Proto tensor;
    for (const int64_t d : in.dims) tensor.Int(1, d);
    graph.Message(
        5, tensor.Int(2, static_cast<int64_t>(in.type)).String(8, in.name).String(9, in.Bytes()));
  }
  for (const std::string& name : c.outputs) graph.Message(12, Proto().String(1, name));
  return Proto()
      .Int(1, 9)
      .Message(7, graph)
      .Message(8, Proto().String(1, "").Int(2, 18))
      .Message(8, Proto().String(1, GRAFT_ONNX_DOMAIN).Int(2, 1))
      .bytes();
}

constexpr unsigned char kFresh = 0xBE;  // see __asan_default_options

// What an output of our own holds before a run that is to write all of it.
constexpr unsigned char kOther = 0x41;

// Which elements, of at least four bytes, have only bytes of `fill`.
std::vector<size_t> Filled(const char* data, size_t count, size_t size, unsigned char fill) {
  std::vector<size_t> at;
  if (size < 4) return at;
  for (size_t k = 0; k < count; ++k) {
    const char* element = data + k * size;
    if (std::all_of(element, element + size,
                    [&](char c) { return static_cast<unsigned char>(c) == fill; })) {
      at.push_back(k);
    }
  }
  return at;
}

}  // namespace

Guarded::Guarded() {
  constexpr size_t kPage = 4096;
  char* at = static_cast<char*>(mmap(nullptr, kBytes + 2 * kPage, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (at == MAP_FAILED || mprotect(at + kPage, kBytes, PROT_READ | PROT_WRITE) != 0) {
    throw std::runtime_error("no memory for an input");
  }
  end_ = at + kPage + kBytes;
  ASAN_POISON_MEMORY_REGION(end_ - kBytes, kBytes);
}

char* Guarded::Take(const std::string& bytes) {
  if (bytes.size() > kBytes) throw std::runtime_error("an input is too large");
  ASAN_POISON_MEMORY_REGION(end_ - taken_, taken_);
  taken_ = bytes.size();
  ASAN_UNPOISON_MEMORY_REGION(end_ - taken_, taken_);
  std::memcpy(end_ - taken_, bytes.data(), taken_);
  return end_ - taken_;
}

Runtime::Runtime(const std::string& runtime, const std::vector<std::string>& libraries) {
  const auto* base =
      reinterpret_cast<const OrtApiBase* (*)()>(dlsym(Open(runtime), "OrtGetApiBase"))();
  api_ = base->GetApi(18);
  if (api_ == nullptr) throw std::runtime_error(runtime + ": older than 1.18");
  OrtThreadingOptions* threads = nullptr;
  const auto ok = [&](OrtStatus* status) {
    const std::string why = Refused(status);
    if (!why.empty()) throw std::runtime_error(why);
  };
  ok(api_->CreateThreadingOptions(&threads));
  ok(api_->SetGlobalIntraOpNumThreads(threads, 2));
  ok(api_->SetGlobalInterOpNumThreads(threads, 1));
  ok(api_->SetGlobalSpinControl(threads, 0));
  ok(api_->CreateEnvWithGlobalThreadPools(ORT_LOGGING_LEVEL_FATAL, "driven", threads, &env_));
  api_->ReleaseThreadingOptions(threads);
  ok(api_->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory_));
  for (const std::string& path : libraries) {
    const auto* table =
        reinterpret_cast<const graft_plugin* (*)()>(dlsym(Open(path), GRAFT_PLUGIN_SYMBOL))();
    const graft_extension* next = table->next;
    while (std::strcmp(next->name, GRAFT_EXTENSION_ORT_OPS) != 0) next = next->next;
    const void* const* ops = nullptr;
    uint64_t count = 0;
    if (reinterpret_cast<const graft_ort_ops*>(next)->get(base, &ops, &count, nullptr) != 0) {
      throw std::runtime_error(path + ": no operators");
    }
    const graft_plugin_info* info = table->describe();
    for (uint32_t i = 0; i < info->num_operators; ++i) {
      const std::string name = info->operators[i]->name;
      if (operators_.count(name) != 0) continue;  // of two plugins, from one source
      Made made{info->operators[i], nullptr};
      ok(api_->CreateCustomOpDomain(GRAFT_ONNX_DOMAIN, &made.domain));
      for (uint64_t k = 0; k < count; ++k) {
        const auto* op = static_cast<const OrtCustomOp*>(ops[k]);
        if (name == op->GetName(op)) ok(api_->CustomOpDomain_Add(made.domain, op));
      }
      operators_[name] = made;
    }
  }
}

const graft_operator* Runtime::Find(const std::string& op) const {
  const auto at = operators_.find(op);
  return at == operators_.end() ? nullptr : at->second.description;
}

std::string Runtime::Refused(OrtStatus* status) const {
  if (status == nullptr) return "";
  std::string text = api_->GetErrorMessage(status);
  api_->ReleaseStatus(status);
  return text.empty() ? "no reason" : text;
}

void Runtime::Load(const Case& c) {
  const std::string key = c.Key();
  if (key == key_) return;
  if (session_ != nullptr) api_->ReleaseSession(session_);
  session_ = nullptr;
  key_ = key;
  ++sessions_;
  const auto at = operators_.find(c.op);
  if (at == operators_.end()) throw std::runtime_error("no plugin has the operator " + c.op);
  const std::string model = ModelOf(c, at->second.description);
  OrtSessionOptions* options = nullptr;
  refusal_ = Refused(api_->CreateSessionOptions(&options));
  // No arena: every output is allocated by itself, between red zones.
  for (OrtStatus* status : {api_->DisableCpuMemArena(options), api_->DisableMemPattern(options),
                            api_->DisablePerSessionThreads(options),
                            api_->SetSessionGraphOptimizationLevel(options, ORT_DISABLE_ALL),
                            api_->AddCustomOpDomain(options, at->second.domain)}) {
    if (refusal_.empty()) refusal_ = Refused(status);
  }
  if (refusal_.empty()) {
    refusal_ =
        Refused(api_->CreateSessionFromArray(env_, model.data(), model.size(), options, &session_));
  }
  api_->ReleaseSessionOptions(options);
}

Outcome Runtime::Run(const Case& c) {
  Outcome outcome;
  Load(c);
  if (session_ == nullptr) {
    outcome.message = refusal_;
    return outcome;
  }
  outcome.stage = Outcome::kRun;
  std::vector<const char*> names, wanted;
  std::vector<OrtValue*> values;
  std::vector<std::pair<const char*, std::string>> fed;
  for (const Input& in : c.inputs) {
    if (in.constant) continue;
    while (guarded_.size() <= values.size()) guarded_.push_back(std::make_unique<Guarded>());
    std::string bytes = in.Bytes();
    char* data = guarded_[values.size()]->Take(bytes);
    OrtValue* value = nullptr;
    outcome.message = Refused(api_->CreateTensorWithDataAsOrtValue(
        memory_, data, bytes.size(), in.dims.data(), in.dims.size(),
        static_cast<ONNXTensorElementDataType>(in.type), &value));
    if (!outcome.message.empty()) break;
    names.push_back(in.name.c_str());
    values.push_back(value);
    fed.emplace_back(data, in.name == "cache" ? "" : std::move(bytes));
  }
  for (const std::string& name : c.outputs) wanted.push_back(name.c_str());
  std::vector<OrtValue*> got(wanted.size(), nullptr);
  if (outcome.message.empty()) {
    outcome.message = Refused(api_->Run(session_, nullptr, names.data(), values.data(),
                                        values.size(), wanted.data(), wanted.size(), got.data()));
  }
  for (size_t i = 0; i < fed.size(); ++i) {
    if (std::memcmp(fed[i].first, fed[i].second.data(), fed[i].second.size()) != 0) {
      outcome.fault = std::string("it changed its input ") + names[i];
    }
  }
  if (outcome.message.empty()) outcome.stage = Outcome::kDone;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == nullptr) continue;
    if (outcome.stage == Outcome::kDone && LeavesUnwritten(names, values, wanted, i, got[i])) {
      outcome.fault = std::string("it left an element unwritten of its output ") + wanted[i];
    }
    api_->ReleaseValue(got[i]);
  }
  for (OrtValue* value : values) api_->ReleaseValue(value);
  return outcome;
}

bool Runtime::LeavesUnwritten(const std::vector<const char*>& names,
                              const std::vector<OrtValue*>& values,
                              const std::vector<const char*>& wanted, size_t index,
                              const OrtValue* got) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  size_t count = 0, rank = 0;
  ONNXTensorElementDataType type;
  const void* data = nullptr;
  Refused(api_->GetTensorTypeAndShape(got, &info));
  Refused(api_->GetTensorShapeElementCount(info, &count));
  Refused(api_->GetTensorElementType(info, &type));
  Refused(api_->GetDimensionsCount(info, &rank));
  std::vector<int64_t> dims(rank);
  Refused(api_->GetDimensions(info, dims.data(), rank));
  Refused(api_->GetTensorData(got, &data));
  api_->ReleaseTensorTypeAndShapeInfo(info);
  const size_t size = SizeOf(static_cast<Type>(type));
  const std::vector<size_t> fresh = Filled(static_cast<const char*>(data), count, size, kFresh);
  if (fresh.empty()) return false;
  // Of some million floats that a case copies, one is what fresh memory holds by chance.
  std::vector<char> memory(count * size, static_cast<char>(kOther));
  std::vector<OrtValue*> outputs(wanted.size(), nullptr);
  std::string refused = Refused(api_->CreateTensorWithDataAsOrtValue(
      memory_, memory.data(), memory.size(), dims.data(), rank, type, &outputs[index]));
  if (refused.empty()) {
    refused = Refused(api_->Run(session_, nullptr, names.data(), values.data(), values.size(),
                                wanted.data(), wanted.size(), outputs.data()));
  }
  for (OrtValue* output : outputs) {
    if (output != nullptr) api_->ReleaseValue(output);
  }
  if (!refused.empty()) return true;  // what it answered before, it refuses now
  const std::vector<size_t> other = Filled(memory.data(), count, size, kOther);
  return std::any_of(fresh.begin(), fresh.end(),
                     [&](size_t k) { return std::binary_search(other.begin(), other.end(), k); });
}

}  // namespace graft::driven
