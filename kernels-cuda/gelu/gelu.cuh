// GELU in one pass: y = x/2 (1 + erf(x / sqrt 2)), or its tanh form (Hendrycks and Gimpel, 2016).
#ifndef GRAFT_KERNELS_CUDA_GELU_GELU_CUH_
#define GRAFT_KERNELS_CUDA_GELU_GELU_CUH_

#include "../device/launch.cuh"
#include "../device/number.cuh"
#include "plan.h"

namespace graft {
namespace cuda {
namespace gelu {

template <bool kTanh>
GRAFT_DEVICE float Apply(float x) {
  const float inner =
      kTanh ? tanhf(0.7978845608f * (x + 0.044715f * x * x * x)) : erff(0.7071067812f * x);
  return 0.5f * x * (1.0f + inner);
}

template <typename T, bool kTanh>
__global__ void __launch_bounds__(kThreads)
    GeluKernel(const T* x, T* y, int64_t count, int64_t vectors) {
  constexpr int32_t kLanes = kVector<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first; i < vectors; i += step) {
    float v[kLanes];
    LoadVector(x + i * kLanes, v);
#pragma unroll
    for (float& e : v) e = Apply<kTanh>(e);
    StoreVector(y + i * kLanes, v);
  }
  int64_t i = vectors * kLanes + first;
  if (Seeded(1)) i += 1;
  for (; i < count; i += step) y[i] = FromFloat<T>(Apply<kTanh>(ToFloat(x[i])));
}

// y[i] = gelu(x[i]) for i in [0, count), enqueued on the stream. x and y are aligned to their
// elements, and are the same array or apart.
template <typename T>
Status Gelu(const T* x, T* y, int64_t count, bool tanh, const DeviceLimits& limits, Stream stream) {
  if (count == 0) return kOk;
  const Plan plan = PlanGelu(x, y, count, sizeof(T), limits);
  return Launch(tanh ? &GeluKernel<T, true> : &GeluKernel<T, false>, plan.shape, stream, x, y,
                count, plan.vectors);
}

}  // namespace gelu
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_GELU_GELU_CUH_
