// The vector code, compiled once for each instruction set.
#include "kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "pool_worker-inl.h"
#include "worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

constexpr Kernel kKernel = {&RunWorker, &RunCachedWorker, &ExpForTest, &Exp2ForTest, &TanhForTest};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {
namespace attention {
namespace {

const Kernels<Kernel>& All() {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  return kernels;
}

}  // namespace

const Kernel* FindKernel(Isa isa) { return All().Find(isa); }

const Kernel* ChooseKernel(Isa isa, bool streams_floats) {
  return streams_floats ? All().FindForLoads(isa) : All().Find(isa);
}

}  // namespace attention
}  // namespace graft
#endif  // HWY_ONCE
