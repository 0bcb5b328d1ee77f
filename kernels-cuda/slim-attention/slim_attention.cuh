// Slim attention: one call, as its plan says.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SLIM_ATTENTION_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SLIM_ATTENTION_CUH_

#include "contract.cuh"
#include "finish.cuh"
#include "simple.cuh"
#include "store.cuh"
#include "stream.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

// Enqueues a problem. `workspace` has plan.workspace bytes and is 64-byte aligned.
inline Status Run(const Problem& problem, const Plan& plan, void* workspace, Stream stream) {
  if (problem.tokens == 0) return kOk;
  auto* floats = static_cast<float*>(workspace);
  if (plan.way == Way::kSimple) return RunSimple(problem, nullptr, stream);
  if (plan.way == Way::kValues) {
    const Status status = RunValues({problem, floats, plan.value_rows}, stream);
    return status == kOk ? RunSimple(problem, floats, stream) : status;
  }
  auto* states = reinterpret_cast<float*>(static_cast<char*>(workspace) + plan.states);
  const Status status = RunStream({problem, plan.stream, floats, states}, plan.dependent, stream);
  if (status != kOk) return status;
  return RunFinish({problem, plan.finish, floats, states, plan.stream.parts()}, plan.dependent,
                   stream);
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SLIM_ATTENTION_CUH_
