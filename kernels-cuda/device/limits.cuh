// What the device allows, as CUDA's runtime reports it. For sources that nvcc compiles.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_LIMITS_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_LIMITS_CUH_

#include "launch.cuh"

namespace graft {
namespace cuda {

// What clusters are counted with. It is never launched.
template <int32_t kThreads>
__global__ void ProbeKernel() {}

// Reads the limits of the device that is current on this thread: kOk, or the runtime's error. To
// count clusters makes the device's context.
inline Status ReadLimits(DeviceLimits* limits) {
  cudaError_t error = cudaSuccess;
  int device = 0;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, which, device);
    return value;
  };
  error = cudaGetDevice(&device);
  limits->multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  limits->major = attribute(cudaDevAttrComputeCapabilityMajor);
  limits->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  limits->shared_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  limits->shared_per_processor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  limits->l2_bytes = attribute(cudaDevAttrL2CacheSize);
  limits->clusters[0] = limits->multiprocessors;
  for (int32_t i = 1; i < kClusterSizes; ++i) {
    LaunchShape shape;
    shape.grid_x = shape.cluster = 1 << i;
    shape.threads = kWarp;
    shape.shared_bytes = limits->shared_per_block;
    limits->clusters[i] =
        error == cudaSuccess && limits->major >= 9 ? ActiveClusters(&ProbeKernel<kWarp>, shape) : 0;
  }
  return Forget(error);
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_LIMITS_CUH_
