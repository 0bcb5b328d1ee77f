// Logits processing and top-k selection of a decode step: the launch that a plan chose.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_LAUNCH_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_LAUNCH_CUH_

#include "../device/launch.cuh"
#include "candidates.cuh"
#include "simple.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// For each row of a group, in this order: log-softmax (kLogProbs, and kSample with its flag); bans,
// then edits; warpers (kSample); log-softmax (the flag normalize); the bias. Then the k best pairs
// of row and token of each group, equal ones by the lower row, then the lower token; or k samples.
// One launch. `workspace` has plan.workspace bytes.
template <typename T>
Status TakeTopK(const Problem& problem, const Outputs& outputs, const TopKPlan& plan,
                void* workspace, Stream stream) {
  if (problem.count == 0) return kOk;
  if (plan.fast) {
    return Launch(Candidates<T>, plan.shape, stream, problem, outputs, plan.layout);
  }
  auto* values = static_cast<float*>(workspace);
  return Launch(Simple<T>, plan.shape, stream, problem, outputs,
                Workspace{values, values + problem.rows * problem.vocab});
}

inline Status TakeTopK(const Problem& problem, const Outputs& outputs, const TopKPlan& plan,
                       void* workspace, Stream stream) {
  switch (problem.type) {
    case Type::kFloat32:
      return TakeTopK<float>(problem, outputs, plan, workspace, stream);
    case Type::kFloat16:
      return TakeTopK<Half>(problem, outputs, plan, workspace, stream);
    default:
      return TakeTopK<BFloat16>(problem, outputs, plan, workspace, stream);
  }
}

// The first fault of all groups, in their order: what one thread of one block writes to `first`.
[[maybe_unused]] static __global__ void FindFirstFault(const int32_t* faults, int64_t count,
                                                       int32_t* first) {
  auto* place = reinterpret_cast<int32_t*>(SharedMemory());
  if (threadIdx.x == 0) *place = INT32_MAX;
  __syncthreads();
  for (int64_t g = threadIdx.x; g < count; g += blockDim.x) {
    if (faults[g * kFaultFields] != kNone) atomicMin(place, static_cast<int32_t>(g));
  }
  __syncthreads();
  if (threadIdx.x >= kFaultFields) return;
  const int32_t none[kFaultFields] = {kNone, -1, -1, 0};
  const auto i = static_cast<int32_t>(threadIdx.x);
  first[i] = *place == INT32_MAX ? none[i] : faults[int64_t{*place} * kFaultFields + i];
}

inline Status FirstFault(const int32_t* faults, int64_t count, int32_t* first, Stream stream) {
  LaunchShape shape;
  shape.threads = 128;
  shape.shared_bytes = 16;
  return Launch(FindFirstFault, shape, stream, faults, count, first);
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_LAUNCH_CUH_
