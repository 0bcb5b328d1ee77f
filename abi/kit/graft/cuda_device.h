// The devices of this machine, as CUDA's runtime knows them; part of graft/cuda.h.
#ifndef GRAFT_KIT_CUDA_DEVICE_H_
#define GRAFT_KIT_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "device/limits.cuh"
#include "graft/cuda_probe.h"
#include "graft/error.h"

namespace graft::cuda {

// Throws graft::Error of GRAFT_ERROR_DEVICE (or OUT_OF_MEMORY) unless a call of the runtime
// succeeded. `what` names it.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next CUDA call on this thread, whoever makes it, would return it
  throw Error(error == cudaErrorMemoryAllocation ? GRAFT_ERROR_OUT_OF_MEMORY : GRAFT_ERROR_DEVICE,
              Text(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

// The same for the number of an error.
inline void CheckDevice(Status status, const char* what) {
  Check(static_cast<cudaError_t>(status), what);
}

// The limits of the device that is current on this thread, read once a process: for runs, as the
// first reading makes the device's context.
inline const DeviceLimits& Limits() {
  struct Device {
    std::once_flag once;
    DeviceLimits limits;
  };
  static std::vector<Device> all = [] {
    int count = 0;
    Check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return std::vector<Device>(static_cast<size_t>(count));
  }();
  int current = 0;
  Check(cudaGetDevice(&current), "cudaGetDevice");
  Require(current >= 0 && static_cast<size_t>(current) < all.size(), "device ", current,
          " is current, ", all.size(), " are known");
  Device& device = all[static_cast<size_t>(current)];
  std::call_once(device.once,
                 [&] { CheckDevice(ReadLimits(&device.limits), "limits of a device"); });
  return device.limits;
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
