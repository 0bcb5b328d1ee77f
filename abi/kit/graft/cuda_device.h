// The devices of this machine, as CUDA's runtime knows them; part of graft/cuda.h.
#ifndef GRAFT_KIT_CUDA_DEVICE_H_
#define GRAFT_KIT_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "device/launch.h"
#include "graft/cuda_probe.h"
#include "graft/error.h"

namespace graft::cuda {

// Throws graft::Error of GRAFT_ERROR_DEVICE (or OUT_OF_MEMORY) unless a call of the runtime
// succeeded. `what` names it.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call of anybody's on this thread would be told of it
  throw Error(error == cudaErrorMemoryAllocation ? GRAFT_ERROR_OUT_OF_MEMORY : GRAFT_ERROR_DEVICE,
              Text(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

// The same for the number of an error.
inline void CheckDevice(Status status, const char* what) {
  Check(static_cast<cudaError_t>(status), what);
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

}  // namespace graft::cuda

#endif  // GRAFT_KIT_CUDA_DEVICE_H_
