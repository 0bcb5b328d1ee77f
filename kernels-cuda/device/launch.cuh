// Launch: starts a kernel on a stream, by the CUDA runtime or on the emulator.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_

#include "device.cuh"

namespace graft {
namespace cuda {

// A parameter that says nothing of a template's arguments, so that what is given is converted.
template <typename T>
struct AsDeclared {
  using Type = T;
};

// Enqueues kernel(arguments...) and returns without waiting: kOk, kBadLaunch, or the runtime's
// error. Safe while a stream is being captured. Raises the kernel's limit of dynamic shared memory
// where the shape needs it.
template <typename... Parameters>
Status Launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream stream,
              typename AsDeclared<Parameters>::Type... arguments) {
  if (!IsLegal(shape)) return kBadLaunch;
#if defined(__CUDACC__)
  if (shape.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) {
      cudaGetLastError();
      return error;
    }
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y),
                        static_cast<unsigned>(shape.grid_z));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (error != cudaSuccess) cudaGetLastError();
  return error;
#else
  static_cast<void>(stream);
  return emulator::Launch(shape, [=] { kernel(arguments...); });
#endif
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_
