// How GELU is launched, in plain C++.
#ifndef GRAFT_KERNELS_CUDA_GELU_PLAN_H_
#define GRAFT_KERNELS_CUDA_GELU_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "../device/launch.h"

namespace graft {
namespace cuda {
namespace gelu {

constexpr int32_t kThreads = 256;
constexpr int32_t kBlocksPerProcessor =
    8;  // enough to hide memory's latency; more would only queue

struct Plan {
  int64_t vectors = 0;  // of 16 bytes, from the first element on; the rest goes one by one
  LaunchShape shape;
};

// For `count` elements (1 or more) of `bytes` each, between the addresses x and y.
inline Plan PlanGelu(const void* x, const void* y, int64_t count, int64_t bytes,
                     const DeviceLimits& limits) {
  Plan plan;
  const bool aligned = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  const int64_t lanes = 16 / bytes;
  plan.vectors = aligned ? count / lanes : 0;
  const int64_t steps = std::max(plan.vectors, count - plan.vectors * lanes);
  plan.shape.threads = kThreads;
  plan.shape.grid_x =
      std::min(CeilDivide(steps, kThreads), int64_t{limits.multiprocessors} * kBlocksPerProcessor);
  return plan;
}

}  // namespace gelu
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_GELU_PLAN_H_
