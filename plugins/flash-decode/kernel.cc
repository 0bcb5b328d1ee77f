// The vector code, compiled once for each instruction set.
#include "kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "math-inl.h"
#include "memory-inl.h"
#include "pool_worker-inl.h"
#include "sequences_worker-inl.h"
#include "stored-inl.h"
#include "worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Entries for tests, in place: exp(x) and 2^x, x <= 0, and tanh(x).
void ExpForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(ExpOfNonPositive(d, hn::LoadU(d, values + i)), d, values + i);
  }
}
void Exp2ForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(Exp2OfNonPositive(d, hn::LoadU(d, values + i)), d, values + i);
  }
}
void TanhForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(Tanh(d, hn::LoadU(d, values + i)), d, values + i);
  }
}

constexpr Kernel kKernel = {&RunWorker,  &RunSequencesWorker, &RunCachedWorker, &StoreStored,
                            &ExpForTest, &Exp2ForTest,        &TanhForTest};

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
