// What a node of a CUDA session is given: device, stream, memory. The runtime is simulated, so the
// test runs on any machine; nothing is computed.
#include <gtest/gtest.h>
#include <onnxruntime_c_api.h>

#include <cstring>
#include <map>

#define GRAFT_PLUGIN_NAME "device-test"
#include "graft/ort.h"

namespace graft::test {
namespace {

// What the kernel saw.
struct Seen {
  graft_device created;
  bool has_constant[2];
  graft_tensor constants[2];
  void* stream;
  void* workspace;
  graft_tensor inputs[2];
  graft_tensor output;
};
Seen seen;

class Looks {
 public:
  static Operator Describe() {
    return Operator("Looks", "notes what it is given")
        .Input("x", kFloat32)
        .Input("list", kInt64, GRAFT_PARAMETER_HOST_MEMORY)
        .Output("y", kFloat32);
  }
  explicit Looks(const CreateContext& context) {
    seen.created = context.device();
    for (uint32_t i = 0; i < 2; ++i) {
      const Tensor constant = context.Constant(i);
      seen.has_constant[i] = static_cast<bool>(constant);
      if (constant) seen.constants[i] = *constant.get();
    }
  }
  void Infer(InferContext& context) const { context.SetOutputLike(0, 0); }
  uint64_t Workspace(const WorkspaceContext&) const { return 1000; }
  void Run(const RunContext& context) const {
    seen.stream = context.stream();
    seen.workspace = context.workspace();
    for (uint64_t i = 0; i < 2; ++i) seen.inputs[i] = *context.inputs[i].get();
    seen.output = *context.outputs[0].get();
  }
};

// A value of the played runtime.
struct Played {
  ONNXTensorElementDataType type;
  OrtMemoryInfoDeviceType place;
  bool constant;
};
Played x{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, OrtMemoryInfoDeviceType_GPU, false};
Played list{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, OrtMemoryInfoDeviceType_CPU, false};
Played y{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, OrtMemoryInfoDeviceType_GPU, false};
Played* const kInputs[] = {&x, &list};

char scratch[2048], plain[2048];
int arena;  // its address stands for the OrtMemoryInfo of the device's memory
void* stream_handle;
std::map<const void*, int> freed;
size_t scratch_size, plain_size;
bool allocator_released;

template <typename To, typename From>
To As(From* from) {
  return reinterpret_cast<To>(from);
}

const Played* PlayedOf(const OrtValue* value) { return reinterpret_cast<const Played*>(value); }

OrtAllocator MakeAllocator() {
  OrtAllocator allocator{};
  allocator.version = 18;
  allocator.Alloc = [](OrtAllocator*, size_t size) -> void* {
    plain_size = size;
    return plain + 1;
  };
  allocator.Free = [](OrtAllocator*, void* block) { ++freed[block]; };
  allocator.Info = [](const OrtAllocator*) { return As<const OrtMemoryInfo*>(&arena); };
  return allocator;
}
OrtAllocator allocator = MakeAllocator();

OrtApi MakeApi() {
  OrtApi api{};
  api.CreateStatus = [](OrtErrorCode, const char* text) noexcept {
    return As<OrtStatus*>(strdup(text));
  };
  api.GetErrorMessage = [](const OrtStatus* status) noexcept {
    return reinterpret_cast<const char*>(status);
  };
  api.ReleaseStatus = [](OrtStatus* status) noexcept { free(status); };
  api.KernelInfoGetAllocator = [](const OrtKernelInfo*, OrtMemType type,
                                  OrtAllocator** out) noexcept -> OrtStatus* {
    EXPECT_EQ(type, OrtMemTypeDefault);
    *out = &allocator;
    return nullptr;
  };
  api.ReleaseAllocator = [](OrtAllocator*) noexcept { allocator_released = true; };
  api.MemoryInfoGetId = [](const OrtMemoryInfo* info, int* id) noexcept -> OrtStatus* {
    EXPECT_EQ(info, As<const OrtMemoryInfo*>(&arena));
    *id = 3;
    return nullptr;
  };
  api.KernelInfo_GetInputCount = [](const OrtKernelInfo*, size_t* n) noexcept -> OrtStatus* {
    *n = 2;
    return nullptr;
  };
  api.KernelInfo_GetOutputCount = [](const OrtKernelInfo*, size_t* n) noexcept -> OrtStatus* {
    *n = 1;
    return nullptr;
  };
  api.KernelInfoGetConstantInput_tensor = [](const OrtKernelInfo*, size_t i, int* is,
                                             const OrtValue** out) noexcept -> OrtStatus* {
    *is = kInputs[i]->constant;
    *out = As<const OrtValue*>(kInputs[i]);
    return nullptr;
  };
  api.GetTensorMemoryInfo = [](const OrtValue* value,
                               const OrtMemoryInfo** out) noexcept -> OrtStatus* {
    *out = reinterpret_cast<const OrtMemoryInfo*>(&PlayedOf(value)->place);
    return nullptr;
  };
  api.MemoryInfoGetDeviceType = [](const OrtMemoryInfo* info, OrtMemoryInfoDeviceType* out) {
    *out = *reinterpret_cast<const OrtMemoryInfoDeviceType*>(info);
  };
  api.GetTensorTypeAndShape = [](const OrtValue* value,
                                 OrtTensorTypeAndShapeInfo** out) noexcept -> OrtStatus* {
    *out = As<OrtTensorTypeAndShapeInfo*>(const_cast<Played*>(PlayedOf(value)));
    return nullptr;
  };
  api.ReleaseTensorTypeAndShapeInfo = [](OrtTensorTypeAndShapeInfo*) noexcept {};
  api.GetTensorElementType = [](const OrtTensorTypeAndShapeInfo* info,
                                ONNXTensorElementDataType* out) noexcept -> OrtStatus* {
    *out = reinterpret_cast<const Played*>(info)->type;
    return nullptr;
  };
  api.GetDimensionsCount = [](const OrtTensorTypeAndShapeInfo*,
                              size_t* out) noexcept -> OrtStatus* {
    *out = 1;
    return nullptr;
  };
  api.GetDimensions = [](const OrtTensorTypeAndShapeInfo*, int64_t* out,
                         size_t) noexcept -> OrtStatus* {
    out[0] = 5;
    return nullptr;
  };
  api.GetTensorMutableData = [](OrtValue* value, void** out) noexcept -> OrtStatus* {
    *out = value;
    return nullptr;
  };
  api.KernelContext_GetInput = [](const OrtKernelContext*, size_t i,
                                  const OrtValue** out) noexcept -> OrtStatus* {
    *out = As<const OrtValue*>(kInputs[i]);
    return nullptr;
  };
  api.KernelContext_GetOutput = [](OrtKernelContext*, size_t, const int64_t*, size_t,
                                   OrtValue** out) noexcept -> OrtStatus* {
    *out = As<OrtValue*>(&y);
    return nullptr;
  };
  api.KernelContext_GetGPUComputeStream = [](const OrtKernelContext*,
                                             void** out) noexcept -> OrtStatus* {
    *out = stream_handle;
    return nullptr;
  };
  api.KernelContext_GetScratchBuffer = [](const OrtKernelContext*, const OrtMemoryInfo* info,
                                          size_t size, void** out) noexcept -> OrtStatus* {
    EXPECT_EQ(info, As<const OrtMemoryInfo*>(&arena));
    scratch_size = size;
    *out = scratch + 1;
    return nullptr;
  };
  return api;
}
const OrtApi api = MakeApi();

void RunNode(int32_t device_type, void* stream) {
  seen = {};
  freed.clear();
  scratch_size = plain_size = 0;
  allocator_released = false;
  stream_handle = stream;
  {
    const ort::NodeKernel kernel(&api, nullptr, EntryOf<Looks>(), 0, device_type);
    kernel.Compute(nullptr);
    EXPECT_FALSE(allocator_released);
  }
  EXPECT_TRUE(allocator_released);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.workspace) % 64, 0u);
}

void ExpectDevice(graft_device got, int32_t type, int32_t id) {
  EXPECT_EQ(got.type, type);
  EXPECT_EQ(got.id, id);
}

TEST(OrtDevice, ANodeOfCudaKnowsItsDeviceStreamAndMemory) {
  int stream = 0;
  RunNode(GRAFT_DEVICE_CUDA, &stream);
  ExpectDevice(seen.created, GRAFT_DEVICE_CUDA, 3);
  ExpectDevice(seen.inputs[0].device, GRAFT_DEVICE_CUDA, 3);
  ExpectDevice(seen.inputs[1].device, GRAFT_DEVICE_CPU, 0);
  ExpectDevice(seen.output.device, GRAFT_DEVICE_CUDA, 3);
  EXPECT_EQ(seen.stream, &stream);
  // From the stream's share of the arena, and given back.
  EXPECT_GE(static_cast<char*>(seen.workspace), scratch);
  EXPECT_LE(static_cast<char*>(seen.workspace) + 1000, scratch + 1 + scratch_size);
  EXPECT_EQ(plain_size, 0u);
  EXPECT_EQ(freed, (std::map<const void*, int>{{scratch + 1, 1}}));
}

TEST(OrtDevice, WithoutAStreamTheArenaServes) {
  RunNode(GRAFT_DEVICE_CUDA, nullptr);
  EXPECT_EQ(scratch_size, 0u);
  EXPECT_LE(static_cast<char*>(seen.workspace) + 1000, plain + 1 + plain_size);
  EXPECT_EQ(freed, (std::map<const void*, int>{{plain + 1, 1}}));
}

TEST(OrtDevice, ANodeOfTheCpuAsksForNoDevice) {
  int stream = 0;
  RunNode(GRAFT_DEVICE_CPU, &stream);
  ExpectDevice(seen.created, GRAFT_DEVICE_CPU, 0);
  ExpectDevice(seen.inputs[0].device, GRAFT_DEVICE_CPU, 0);
  EXPECT_EQ(seen.stream, nullptr);
  EXPECT_EQ(scratch_size, 0u);
}

TEST(OrtDevice, ConstantsLieWhereTheRuntimePutThem) {
  x.constant = list.constant = true;
  int stream = 0;
  RunNode(GRAFT_DEVICE_CUDA, &stream);
  x.constant = list.constant = false;
  ASSERT_TRUE(seen.has_constant[0] && seen.has_constant[1]);
  ExpectDevice(seen.constants[0].device, GRAFT_DEVICE_CUDA, 3);
  ExpectDevice(seen.constants[1].device, GRAFT_DEVICE_CPU, 0);
}

// An operator that a device cannot run through the runtime.
class HostOutput {
 public:
  static Operator Describe() {
    return Operator("HostOutput", "wants an output on the host")
        .Input("x", kFloat32)
        .Output("count", kInt64, GRAFT_PARAMETER_HOST_MEMORY);
  }
  explicit HostOutput(const CreateContext&) {}
  void Infer(InferContext&) const {}
  void Run(const RunContext&) const {}
};

TEST(OrtDevice, OutputsInHostMemoryAreRefused) {
  static const OrtApiBase base{nullptr, []() noexcept { return "1.30.0"; }};
  ort::OpSet set;
  ort::AddOverloads(&base, &api, EntryOf<HostOutput>(), 0, GRAFT_DEVICE_CPU, &set);
  EXPECT_EQ(set.ops.size(), 1u);
  try {
    ort::AddOverloads(&base, &api, EntryOf<HostOutput>(), 0, GRAFT_DEVICE_CUDA, &set);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "HostOutput: output count is said to lie in host memory, which ONNX Runtime "
                 "cannot give it on a device");
  }
}

}  // namespace
}  // namespace graft::test
