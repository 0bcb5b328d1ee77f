// Reductions among the lanes of a warp.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_WARP_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_WARP_CUH_

#include "device.cuh"

namespace graft {
namespace cuda {

constexpr uint32_t kAllLanes = 0xffffffffu;

GRAFT_DEVICE int32_t Lane() { return static_cast<int32_t>(threadIdx.x) & 31; }
GRAFT_DEVICE int32_t WarpIndex() { return static_cast<int32_t>(threadIdx.x) >> 5; }

// The sum, or the largest, over each run of `Lanes` lanes (a power of two), known to all of them.
template <int32_t Lanes = 32>
GRAFT_DEVICE float WarpSum(float x) {
#pragma unroll
  for (int32_t step = Lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
template <int32_t Lanes = 32>
GRAFT_DEVICE float WarpMax(float x) {
#pragma unroll
  for (int32_t step = Lanes / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_WARP_CUH_
