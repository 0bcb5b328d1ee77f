// Attention of few queries over many keys: the entry.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_FLASH_DECODE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_FLASH_DECODE_CUH_

#include "../device/launch.cuh"
#include "float_decode.cuh"
#include "matrix_decode.cuh"
#include "simple.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

using DecodeKernel = void (*)(Problem, Cut, Partials);

template <typename T>
struct FastKernel {
  static DecodeKernel Of(const Plan& plan) {
    return plan.size_class == 64    ? &MatrixDecodeKernel<T, 64>
           : plan.size_class == 128 ? &MatrixDecodeKernel<T, 128>
                                    : &MatrixDecodeKernel<T, 256>;
  }
};
template <>
struct FastKernel<float> {
  template <int32_t kRows>
  static DecodeKernel OfRows(int32_t size_class) {
    return size_class == 64    ? &FloatDecodeKernel<kRows, 64>
           : size_class == 128 ? &FloatDecodeKernel<kRows, 128>
                               : &FloatDecodeKernel<kRows, 256>;
  }
  static DecodeKernel Of(const Plan& plan) {
    return plan.tile_rows == 1 ? OfRows<1>(plan.size_class) : OfRows<8>(plan.size_class);
  }
};

// Run, of a problem whose type is T.
template <typename T>
Status RunAs(const Problem& problem, const Plan& plan, void* workspace, Stream stream) {
  if (plan.cut.items == 0) return kOk;
  if (!plan.fast) return Launch(&SimpleKernel<T>, plan.attend, stream, problem, plan.cut);
  Partials partials;
  partials.states = static_cast<State*>(workspace);
  partials.sums = reinterpret_cast<float*>(static_cast<char*>(workspace) + plan.sums_at);
  const Status status =
      Launch(FastKernel<T>::Of(plan), plan.attend, stream, problem, plan.cut, partials);
  if (status != kOk || plan.cut.splits == 1 || plan.cut.clustered) return status;
  return Launch(&MergeKernel<T>, plan.merge, stream, problem, plan.cut, partials);
}

// Enqueues the problem as planned: one launch, and a second where that joins splits. `workspace` is
// plan.workspace_bytes on the device, 16-byte aligned.
inline Status Run(const Problem& problem, const Plan& plan, void* workspace, Stream stream) {
  switch (problem.type) {
    case Type::kFloat32:
      return RunAs<float>(problem, plan, workspace, stream);
    case Type::kFloat16:
      return RunAs<Half>(problem, plan, workspace, stream);
    case Type::kBFloat16:
      break;
  }
  return RunAs<BFloat16>(problem, plan, workspace, stream);
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_FLASH_DECODE_CUH_
