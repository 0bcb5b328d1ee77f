// What CUDA variants share: whether a device serves, its limits, a run's stream, and errors.
//
//   GRAFT_PLUGIN_WITH(graft::cuda::Hooks, MyOp);
//
// and in MyOp::Run: enqueue on StreamOf(context), check what the launch said, return. A library so
// made loads on any machine: the runtime inside of it opens the driver at the first call.
#ifndef GRAFT_KIT_CUDA_H_
#define GRAFT_KIT_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/launch.h"
#include "device/number.h"
#include "graft.h"
#include "graft/cuda_probe.h"

namespace graft {

// Views of tensors as what kernels take: tensor.data<graft::cuda::Half>().
template <>
struct TypeOf<cuda::Half> {
  static constexpr DataType value = kFloat16;
};
template <>
struct TypeOf<cuda::BFloat16> {
  static constexpr DataType value = kBFloat16;
};

namespace cuda {

// Throws graft::Error of GRAFT_ERROR_DEVICE (or OUT_OF_MEMORY) unless a call of the runtime
// succeeded. `what` names it.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call of anybody's on this thread would be told of it
  throw Error(error == cudaErrorMemoryAllocation ? GRAFT_ERROR_OUT_OF_MEMORY : GRAFT_ERROR_DEVICE,
              Text(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

// The same for what a launch of kernels-cuda gave.
inline void Check(Status status, const char* kernel) {
  if (status == kBadLaunch) {
    throw Error(GRAFT_ERROR_INTERNAL,
                Text(kernel, ": planned a launch that no device takes; report this"));
  }
  Check(static_cast<cudaError_t>(status), kernel);
}

// Where a run enqueues its work.
inline Stream StreamOf(const RunContext& context) { return static_cast<Stream>(context.stream()); }

// The type as kernels name it; throws where they have none.
inline Type KernelType(DataType type) {
  if (type == kFloat32) return Type::kFloat32;
  if (type == kFloat16) return Type::kFloat16;
  Require(type == kBFloat16, "found element type ", NameOf(type),
          ", need float, float16 or bfloat16");
  return Type::kBFloat16;
}

// What the device `id` allows, asked of the driver. Makes no context.
inline DeviceLimits ReadLimits(int32_t id) {
  const auto attribute = [id](cudaDeviceAttr which) {
    int value = 0;
    Check(cudaDeviceGetAttribute(&value, which, id), "cudaDeviceGetAttribute");
    return value;
  };
  DeviceLimits limits;
  limits.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  limits.major = attribute(cudaDevAttrComputeCapabilityMajor);
  limits.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  limits.shared_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  limits.shared_per_processor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  limits.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  return limits;
}

// The limits of the device that is current on this thread, read once a process.
inline const DeviceLimits& Limits() {
  static const std::vector<DeviceLimits> all = [] {
    int count = 0;
    Check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<DeviceLimits> list;
    for (int i = 0; i < count; ++i) list.push_back(ReadLimits(i));
    return list;
  }();
  int current = 0;
  Check(cudaGetDevice(&current), "cudaGetDevice");
  Require(current >= 0 && static_cast<size_t>(current) < all.size(), "device ", current,
          " is current, ", all.size(), " are known");
  return all[static_cast<size_t>(current)];
}

// Asks the driver about a device, without a context.
inline Found Look(int32_t id) {
  Found found;
  const auto holds = [&found](cudaError_t error) {
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    found.problem = Text(cudaGetErrorName(error), ": ", cudaGetErrorString(error));
    return false;
  };
  if (!holds(cudaDriverGetVersion(&found.driver)) || found.driver < kNeededDriver) return found;
  const cudaError_t counted = cudaGetDeviceCount(&found.devices);
  if (counted == cudaErrorNoDevice) {
    cudaGetLastError();
    found.devices = 0;
    return found;
  }
  if (!holds(counted) || id < 0 || id >= found.devices) return found;
  holds(cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, id)) &&
      holds(cudaDeviceGetAttribute(&found.minor, cudaDevAttrComputeCapabilityMinor, id));
  return found;
}

// The hooks of a CUDA plugin that folds nothing; one that does derives from it and adds Fold.
struct Hooks {
  static int32_t Probe(const graft_device& device, std::string* reason) {
    return Judge(Look(device.id), device.id, reason);
  }
};

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KIT_CUDA_H_
