// The vector code, compiled once for each instruction set.
#include "kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {

constexpr Kernel kKernel = {&RunWorker};

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace graft {
namespace linear {
namespace {

// Rows up to which reading outweighs arithmetic, so that loads decide.
constexpr int64_t kFewRows = 1, kFewRowsOfPanels = 4;

const Kernels<Kernel>& All() {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  return kernels;
}

}  // namespace

const Kernel* FindKernel(Isa isa) { return All().Find(isa); }

const Kernel* ChooseKernel(Isa isa, int64_t rows, Path path) {
  const int64_t maximum = path == Path::kPanels ? kFewRowsOfPanels : kFewRows;
  return rows <= maximum && path != Path::kBlocked ? All().FindForLoads(isa) : All().Find(isa);
}

}  // namespace linear
}  // namespace graft
#endif  // HWY_ONCE
