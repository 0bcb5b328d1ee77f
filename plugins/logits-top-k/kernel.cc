// The vector code, compiled once for each instruction set.
#include "kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "pass-inl.h"

#if HWY_ONCE
namespace graft {
namespace top_k {

const Kernel* FindKernel(Isa isa) {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  return kernels.Find(isa);
}

}  // namespace top_k
}  // namespace graft
#endif  // HWY_ONCE
