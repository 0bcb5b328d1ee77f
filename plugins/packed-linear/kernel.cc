// The vector code, compiled once for each instruction set.
#include "kernel.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {

constexpr Dots kDots = HWY_TARGET == HWY_AVX3                ? Dots::kVnni512
                       : HWY_TARGET == HWY_AVX2              ? Dots::kVnni256
                       : HWY_ARCH_ARM_A64 && GRAFT_HAVE_DOTS ? Dots::kNeon
                                                             : Dots::kNone;
constexpr Kernel kKernel = {&RunWorker, kDots};

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

bool CpuHasNow(Dots dots) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  switch (dots) {
    case Dots::kVnni512:
      return CpuRuns(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
    case Dots::kVnni256:
      return CpuRuns(Isa::kAvx2) && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 16) != 0;
    default:
      return false;
  }
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return dots == Dots::kNeon && (getauxval(AT_HWCAP) & kDotProduct) != 0;
#else
  return false;
#endif
}

const Kernels<Kernel>& All() {
  static const Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
  return kernels;
}

}  // namespace

bool CpuHas(Dots dots) {
  static const bool has[] = {false, CpuHasNow(Dots::kVnni512), CpuHasNow(Dots::kVnni256),
                             CpuHasNow(Dots::kNeon)};
  return has[static_cast<int>(dots)];
}

const Kernel* FindKernel(Isa isa) { return All().Find(isa); }

const Kernel* ChooseKernel(Isa isa, int64_t rows, Path path) {
  const int64_t maximum = path == Path::kPanels ? kFewRowsOfPanels : kFewRows;
  return rows <= maximum && path != Path::kBlocked ? All().FindForLoads(isa) : All().Find(isa);
}

}  // namespace linear
}  // namespace graft
#endif  // HWY_ONCE
