// The vector code, compiled once for each instruction set.
#include "row_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "row_kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "prompt-inl.h"
#include "row_worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {

constexpr Kernel kKernel = {&RunWorker, &MakeKeys, &WriteRowOf};

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {
namespace row_attention {

const Kernel& ChooseKernel(Isa isa) {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  const Kernel* kernel = kernels.Find(isa);
  return kernel != nullptr ? *kernel : *kernels.Find(Isa::kBest);
}

}  // namespace row_attention
}  // namespace graft
#endif  // HWY_ONCE
