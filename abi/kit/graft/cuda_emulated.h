// The device that the emulator of kernels-cuda is; part of graft/cuda.h.
#ifndef GRAFT_KIT_CUDA_EMULATED_H_
#define GRAFT_KIT_CUDA_EMULATED_H_

#include <cstdint>

#include "device/launch.h"
#include "graft/cuda_probe.h"
#include "graft/error.h"

namespace graft::cuda {

// Throws graft::Error unless `status` is kOk.
inline void CheckDevice(Status status, const char* what) {
  if (status != kOk) throw Error(GRAFT_ERROR_DEVICE, Text(what, ": the emulator gave ", status));
}

inline const DeviceLimits& Limits() {
  static const DeviceLimits limits;
  return limits;
}

inline Found Look(int32_t) {
  Found found;
  found.driver = kNeededDriver;
  found.devices = 1;
  found.major = Limits().major;
  found.minor = Limits().minor;
  return found;
}

}  // namespace graft::cuda

#endif  // GRAFT_KIT_CUDA_EMULATED_H_
