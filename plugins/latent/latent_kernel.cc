// The vector code, compiled once for each instruction set.
#include "latent_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "latent_kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "latent_worker-inl.h"
#include "prompt-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace latent {
namespace HWY_NAMESPACE {

constexpr Kernel kKernel = {&RunWorker, &MakeKeys, &WriteRowOf};

}  // namespace HWY_NAMESPACE
}  // namespace latent
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {
namespace latent {

const Kernel& ChooseKernel(Isa isa) {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  const Kernel* kernel = kernels.Find(isa);
  return kernel != nullptr ? *kernel : *kernels.Find(Isa::kBest);
}

}  // namespace latent
}  // namespace graft
#endif  // HWY_ONCE
