// Launch: starts a kernel on a stream, by the CUDA runtime or on the emulator.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_

#include <mutex>
#include <set>
#include <utility>

#include "device.cuh"

namespace graft {
namespace cuda {

#if defined(__CUDACC__)

inline Status CurrentDevice(int32_t* device) { return cudaGetDevice(device); }

// The most dynamic shared memory, in bytes, that a block of `kernel` can have on `device`.
inline Status LargestShared(const void* kernel, int32_t device, int64_t* bytes) {
  int optin = 0;
  cudaFuncAttributes attributes;
  cudaError_t error =
      cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) *bytes = optin - static_cast<int64_t>(attributes.sharedSizeBytes);
  return error;
}

// And the most of a multiprocessor's memory as shared memory: by itself the driver may leave room
// for fewer blocks than a plan counts on.
inline Status SetSharedLimit(const void* kernel, int64_t bytes) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// A shape as the runtime takes it.
struct RuntimeLaunch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};

  explicit RuntimeLaunch(const LaunchShape& shape) {
    config.gridDim = dim3(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y),
                          static_cast<unsigned>(shape.grid_z));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.attrs = attributes;
    if (shape.cluster > 1) {
      cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
      cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    }
    if (shape.dependent) {
      cudaLaunchAttribute& dependent = attributes[config.numAttrs++];
      dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      dependent.val.programmaticStreamSerializationAllowed = 1;
    }
  }
  RuntimeLaunch(const RuntimeLaunch&) = delete;
  RuntimeLaunch& operator=(const RuntimeLaunch&) = delete;
};

#else

using emulator::CurrentDevice;
using emulator::LargestShared;
using emulator::SetSharedLimit;

#endif

// Clears the runtime's last error, or the next CUDA call on this thread, whoever makes it, would
// return it.
inline Status Forget(Status status) {
#if defined(__CUDACC__)
  if (status != kOk) cudaGetLastError();
#endif
  return status;
}

// Lets blocks of `kernel` have all the shared memory that the current device has, once a device.
// A limit set anew for what each launch needs could be lowered by another thread before the launch.
inline Status RaiseSharedLimit(const void* kernel) {
  static std::mutex mutex;
  static std::set<std::pair<const void*, int32_t>> raised;
  int32_t device = 0;
  Status status = CurrentDevice(&device);
  if (status != kOk) return status;
  const std::lock_guard<std::mutex> lock(mutex);
  if (raised.count({kernel, device}) != 0) return kOk;
  int64_t bytes = 0;
  status = LargestShared(kernel, device, &bytes);
  if (status == kOk) status = SetSharedLimit(kernel, bytes);
  if (status == kOk) raised.insert({kernel, device});
  return status;
}

// A parameter that says nothing of a template's arguments, so that what is given is converted.
template <typename T>
struct AsDeclared {
  using Type = T;
};

// Enqueues kernel(arguments...) and returns without waiting: kOk, kBadLaunch, or the runtime's
// error. Safe while a stream is being captured, and on several threads at once.
template <typename... Parameters>
Status Launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream stream,
              typename AsDeclared<Parameters>::Type... arguments) {
  if (!IsLegal(shape)) return kBadLaunch;
  const auto* const address = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > kSharedByDefault) {
    const Status status = RaiseSharedLimit(address);
    if (status != kOk) return Forget(status);
  }
#if defined(__CUDACC__)
  RuntimeLaunch launch(shape);
  launch.config.stream = stream;
  return Forget(cudaLaunchKernelEx(&launch.config, kernel, arguments...));
#else
  static_cast<void>(stream);
  return emulator::Launch(address, shape, [=] { kernel(arguments...); });
#endif
}

// Clusters of the shape's size, above 1, that run at once with this kernel on the current device,
// or on the emulator. 0: none, or the runtime cannot tell.
template <typename... Parameters>
int32_t ActiveClusters(void (*kernel)(Parameters...), const LaunchShape& shape) {
  if (!IsLegal(shape)) return 0;
#if defined(__CUDACC__)
  const auto* const address = reinterpret_cast<const void*>(kernel);
  const RuntimeLaunch launch(shape);
  int count = 0;
  Status status = RaiseSharedLimit(address);
  if (status == kOk) status = cudaOccupancyMaxActiveClusters(&count, address, &launch.config);
  return Forget(status) == kOk ? count : 0;
#else
  static_cast<void>(kernel);
  int32_t size = 0;
  while (1 << (size + 1) <= shape.cluster) ++size;
  return DeviceLimits().clusters[size];
#endif
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_CUH_
