// libgraft_ep.so: graft as an execution provider of ONNX Runtime.
//
// A provider cannot change a graph, only claim nodes of it and compute them. So this one claims the
// whole graph of a model of which the command graft has a rewritten graph, and computes it in a
// session of that graph. Everything else is left to the other providers.
#include <onnxruntime_c_api.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "runtime.h"
#include "session.h"

namespace graft {
namespace {

constexpr uint32_t kApi = 23;  // the first with all that is used here
constexpr char kInner[] = "graft.provider.inner";

const OrtApi* ort = nullptr;
const OrtEpApi* eps = nullptr;
Runtime runtime;

#define GRAFT_TRY(call)                     \
  do {                                      \
    OrtStatus* status_ = (call);            \
    if (status_ != nullptr) return status_; \
  } while (false)

OrtStatus* Refuse(const char* text) { return ort->CreateStatus(ORT_EP_FAIL, text); }

// The options of the run that this thread is in: what cancels it cancels the inner run.
thread_local const OrtRunOptions* running = nullptr;

// The names of values.
OrtStatus* Names(const std::vector<const OrtValueInfo*>& values, std::vector<std::string>* names) {
  for (const OrtValueInfo* value : values) {
    const char* name = nullptr;
    GRAFT_TRY(ort->GetValueInfoName(value, &name));
    names->emplace_back(name);
  }
  return nullptr;
}

// The session of the rewritten graph, as the one node of the program's.
struct Node : OrtNodeComputeInfo {
  OrtSession* session = nullptr;
  std::vector<std::string> inputs, outputs;

  OrtStatus* Run(OrtKernelContext* context) const {
    std::vector<const char*> in, out;
    std::vector<const OrtValue*> values(inputs.size());
    std::vector<OrtValue*> results(outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      in.push_back(inputs[i].c_str());
      GRAFT_TRY(ort->KernelContext_GetInput(context, i, &values[i]));
    }
    for (const std::string& name : outputs) out.push_back(name.c_str());
    GRAFT_TRY(ort->Run(session, running, in.data(), values.data(), in.size(), out.data(),
                       out.size(), results.data()));
    OrtStatus* status = nullptr;
    for (size_t i = 0; i < results.size(); ++i) {
      if (status == nullptr) status = Give(context, i, results[i]);
      ort->ReleaseValue(results[i]);
    }
    return status;
  }

  // Copies a result, whose shape nobody knew before the run, to memory of the program's session.
  static OrtStatus* Give(OrtKernelContext* context, size_t i, OrtValue* from) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    GRAFT_TRY(ort->GetTensorTypeAndShape(from, &info));
    size_t rank = 0, size = 0;
    OrtStatus* status = ort->GetDimensionsCount(info, &rank);
    std::vector<int64_t> dims(rank);
    if (status == nullptr) status = ort->GetDimensions(info, dims.data(), rank);
    ort->ReleaseTensorTypeAndShapeInfo(info);
    if (status != nullptr) return status;
    OrtValue* to = nullptr;
    GRAFT_TRY(ort->KernelContext_GetOutput(context, i, dims.data(), rank, &to));
    if (to == nullptr) return nullptr;  // nobody reads it
    void *source = nullptr, *target = nullptr;
    GRAFT_TRY(ort->GetTensorSizeInBytes(from, &size));
    GRAFT_TRY(ort->GetTensorMutableData(from, &source));
    GRAFT_TRY(ort->GetTensorMutableData(to, &target));
    memcpy(target, source, size);
    return nullptr;
  }
};

// The provider of one session.
struct Provider : OrtEp {
  OrtEnv* env = nullptr;
  OrtSessionOptions* options = nullptr;  // of the inner session; null in it
  OrtSession* session = nullptr;

  ~Provider() {
    if (session != nullptr) ort->ReleaseSession(session);
    if (options != nullptr) ort->ReleaseSessionOptions(options);
    if (env != nullptr) ort->ReleaseEnv(env);
  }

  // Makes the inner session from a graph that is a model of a file; without one nothing is claimed.
  OrtStatus* Claim(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
    const OrtNode* parent = nullptr;
    GRAFT_TRY(ort->Graph_GetParentNode(graph, &parent));
    const ORTCHAR_T* path = nullptr;
    GRAFT_TRY(ort->Graph_GetModelPath(graph, &path));
    size_t n = 0;
    GRAFT_TRY(ort->Graph_GetNumNodes(graph, &n));
    bool whole = true;
    GRAFT_TRY(IsWhole(graph, &whole));
    if (options == nullptr || parent != nullptr || path == nullptr || *path == 0 || n == 0 ||
        !whole) {
      return nullptr;
    }
    if (session == nullptr &&
        !CreatePatched({&runtime, env, path, nullptr, 0, options, nullptr, false,
                        reinterpret_cast<void**>(&session), nullptr})) {
      return nullptr;
    }
    bool tensors = true;
    GRAFT_TRY(GivesTensors(&tensors));
    if (!tensors) return nullptr;
    std::vector<const OrtNode*> nodes(n);
    GRAFT_TRY(ort->Graph_GetNodes(graph, nodes.data(), n));
    OrtNodeFusionOptions fusion = {};
    fusion.ort_version_supported = kApi;
    fusion.drop_constant_initializers = true;  // the inner session has its own
    return eps->EpGraphSupportInfo_AddNodesToFuse(support, nodes.data(), n, &fusion);
  }

  // Whether every input is read by a node, and every output comes of one: a fused node has no
  // others, and the inner session needs all.
  static OrtStatus* IsWhole(const OrtGraph* graph, bool* whole) {
    size_t n = 0;
    GRAFT_TRY(ort->Graph_GetNumInputs(graph, &n));
    std::vector<const OrtValueInfo*> values(n);
    GRAFT_TRY(ort->Graph_GetInputs(graph, values.data(), n));
    for (const OrtValueInfo* value : values) {
      size_t readers = 0;
      GRAFT_TRY(ort->ValueInfo_GetValueNumConsumers(value, &readers));
      *whole = *whole && readers > 0;
    }
    GRAFT_TRY(ort->Graph_GetNumOutputs(graph, &n));
    values.resize(n);
    GRAFT_TRY(ort->Graph_GetOutputs(graph, values.data(), n));
    for (const OrtValueInfo* value : values) {
      const OrtNode* node = nullptr;
      GRAFT_TRY(ort->ValueInfo_GetValueProducer(value, &node, nullptr));
      *whole = *whole && node != nullptr;
    }
    return nullptr;
  }

  // Whether all outputs are tensors whose bytes can be copied.
  OrtStatus* GivesTensors(bool* all) const {
    size_t n = 0;
    GRAFT_TRY(ort->SessionGetOutputCount(session, &n));
    for (size_t i = 0; i < n && *all; ++i) {
      OrtTypeInfo* type = nullptr;
      GRAFT_TRY(ort->SessionGetOutputTypeInfo(session, i, &type));
      const OrtTensorTypeAndShapeInfo* tensor = nullptr;
      ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
      OrtStatus* status = ort->CastTypeInfoToTensorInfo(type, &tensor);
      if (status == nullptr && tensor != nullptr) {
        status = ort->GetTensorElementType(tensor, &element);
      }
      ort->ReleaseTypeInfo(type);
      if (status != nullptr) return status;
      *all = tensor != nullptr && element != ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING;
    }
    return nullptr;
  }

  OrtStatus* Make(const OrtNode* fused, OrtNodeComputeInfo** out) const {
    size_t in = 0, results = 0;
    GRAFT_TRY(ort->Node_GetNumInputs(fused, &in));
    GRAFT_TRY(ort->Node_GetNumOutputs(fused, &results));
    std::vector<const OrtValueInfo*> inputs(in), outputs(results);
    GRAFT_TRY(ort->Node_GetInputs(fused, inputs.data(), in));
    GRAFT_TRY(ort->Node_GetOutputs(fused, outputs.data(), results));
    auto* node = new Node();
    *out = node;
    node->ort_version_supported = kApi;
    node->session = session;
    node->CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*,
                           void** state) noexcept {
      *state = self;
      return static_cast<OrtStatus*>(nullptr);
    };
    node->Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
      return static_cast<Node*>(self)->Run(context);
    };
    node->ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept {};
    GRAFT_TRY(Names(inputs, &node->inputs));
    return Names(outputs, &node->outputs);
  }
};

struct Factory : OrtEpFactory {
  std::string name;
};

OrtStatus* Devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t n,
                   OrtEpDevice** out, size_t most, size_t* found) noexcept {
  *found = 0;
  for (size_t i = 0; i < n && *found < most; ++i) {
    if (ort->HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
    GRAFT_TRY(eps->CreateEpDevice(self, devices[i], nullptr, nullptr, &out[*found]));
    ++*found;
  }
  return nullptr;
}

// Options of the inner session are the program's: its threads, its level of optimisation.
OrtStatus* Equip(Provider* p, const OrtSessionOptions* options) {
  int inner = 0;
  GRAFT_TRY(ort->HasSessionConfigEntry(options, kInner, &inner));
  if (inner != 0) return nullptr;
  GRAFT_TRY(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "graft", &p->env));  // the program's own
  GRAFT_TRY(ort->CloneSessionOptions(options, &p->options));
  return ort->AddSessionConfigEntry(p->options, kInner, "1");
}

OrtStatus* Create(OrtEpFactory* factory, const OrtHardwareDevice* const*,
                  const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* options,
                  const OrtLogger*, OrtEp** out) noexcept {
  auto* p = new Provider();
  p->ort_version_supported = kApi;
  static const std::string* name = nullptr;
  name = &static_cast<Factory*>(factory)->name;
  p->GetName = [](const OrtEp*) noexcept { return name->c_str(); };
  p->GetCapability = [](OrtEp* self, const OrtGraph* graph,
                        OrtEpGraphSupportInfo* support) noexcept {
    return static_cast<Provider*>(self)->Claim(graph, support);
  };
  p->Compile = [](OrtEp* self, const OrtGraph**, const OrtNode** fused, size_t count,
                  OrtNodeComputeInfo** nodes, OrtNode**) noexcept {
    return count == 1 ? static_cast<Provider*>(self)->Make(fused[0], nodes)
                      : Refuse("graft: found several groups of nodes to compile, needed one");
  };
  p->ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** nodes, size_t n) noexcept {
    for (size_t i = 0; i < n; ++i) delete static_cast<Node*>(nodes[i]);
  };
  p->OnRunStart = [](OrtEp*, const OrtRunOptions* options) noexcept {
    running = options;
    return static_cast<OrtStatus*>(nullptr);
  };
  p->OnRunEnd = [](OrtEp*, const OrtRunOptions*, bool) noexcept {
    running = nullptr;
    return static_cast<OrtStatus*>(nullptr);
  };
  OrtStatus* status = Equip(p, options);
  if (status != nullptr) {
    delete p;
    return status;
  }
  *out = p;
  return nullptr;
}

}  // namespace
}  // namespace graft

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char* name,
                                                                    const OrtApiBase* base,
                                                                    const OrtLogger*,
                                                                    OrtEpFactory** factories,
                                                                    size_t most, size_t* count) {
  using namespace graft;
  ort = base->GetApi(kApi);
  if (ort == nullptr) {  // a status can be had of any version
    return base->GetApi(1)->CreateStatus(
        ORT_NOT_IMPLEMENTED,
        "graft: found an ONNX Runtime without providers that compile, needed 1.23 or newer");
  }
  eps = ort->GetEpApi();
  const char* minor = After(base->GetVersionString(), "1.");
  runtime.table = reinterpret_cast<void**>(const_cast<OrtApi*>(ort));
  runtime.api = minor == nullptr ? static_cast<int>(kApi) : atoi(minor);
#define GRAFT_KEEP(name, index) runtime.original[kHook##name] = runtime.table[index];
  GRAFT_HOOKED_SLOTS(GRAFT_KEEP)
#undef GRAFT_KEEP
  Begin();
  if (most == 0 || !Enable(getenv("GRAFT_OPTIONS"))) {
    return ort->CreateStatus(ORT_INVALID_ARGUMENT,
                             "graft: GRAFT_OPTIONS: needed options of graft graph, one a line");
  }
  auto* f = new Factory();
  f->name = name;
  f->ort_version_supported = kApi;
  f->GetName = [](const OrtEpFactory* self) noexcept {
    return static_cast<const Factory*>(self)->name.c_str();
  };
  f->GetVendor = [](const OrtEpFactory*) noexcept { return "graft"; };
  f->GetVersion = [](const OrtEpFactory*) noexcept { return "0.1.0"; };
  f->GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
  f->GetSupportedDevices = Devices;
  f->CreateEp = Create;
  f->ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept { delete static_cast<Provider*>(ep); };
  f->CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                          OrtAllocator** out) noexcept {
    *out = nullptr;
    return static_cast<OrtStatus*>(nullptr);
  };
  f->ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
  f->CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** out) noexcept {
    *out = nullptr;
    return static_cast<OrtStatus*>(nullptr);
  };
  f->IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  factories[0] = f;
  *count = 1;
  return nullptr;
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<graft::Factory*>(factory);
  return nullptr;
}
}
