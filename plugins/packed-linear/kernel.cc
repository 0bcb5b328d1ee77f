// Compiles the vector code once for each instruction set and picks one at run time. Highway's own
// dispatcher lives in a shared library; only its headers are used here, so nothing has to be
// installed where the operator runs.
#include "kernel.h"

// AVX3_DL adds nothing that this code uses, SSSE3 too little, and SVE has no fixed vector length.
#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "worker-inl.h"

#if HWY_ONCE
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace graft {
namespace linear {
namespace {

constexpr Kernel kBaseline = {HWY_NAMESPACE::RunWorker};
#if HWY_TARGETS & HWY_SSE4
constexpr Kernel kSse4 = {N_SSE4::RunWorker};
#endif
#if HWY_TARGETS & HWY_AVX2
constexpr Kernel kAvx2 = {N_AVX2::RunWorker};
#endif
#if HWY_TARGETS & HWY_AVX3
constexpr Kernel kAvx512 = {N_AVX3::RunWorker};
#endif

const Kernel* FindSse4() {
#if HWY_TARGETS & HWY_SSE4
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("aes")) {
    return &kSse4;
  }
#endif
  return nullptr;
}

#if HWY_TARGETS & HWY_AVX2
// Clang before 15 does not know the feature by name. That the system saves the wide registers
// follows from "avx2".
bool HasHalfConversion() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const Kernel* FindAvx2() {
#if HWY_TARGETS & HWY_AVX2
  if (FindSse4() != nullptr && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasHalfConversion()) {
    return &kAvx2;
  }
#endif
  return nullptr;
}

const Kernel* FindAvx512() {
#if HWY_TARGETS & HWY_AVX3
  if (FindAvx2() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    return &kAvx512;
  }
#endif
  return nullptr;
}

const Kernel* FindBest() {
  if (const Kernel* kernel = FindAvx512()) return kernel;
  if (const Kernel* kernel = FindAvx2()) return kernel;
  if (const Kernel* kernel = FindSse4()) return kernel;
  return &kBaseline;
}

// AMD's family 19h (Zen 4) executes a 512-bit load as two, and 256-bit code keeps more misses in
// flight.
bool HasNarrowLoads() {
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return false;
  if (b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
  return family == 0x19;
#else
  return false;
#endif
}

const Kernel* FindBestForFewRows() {
  const Kernel* kernel = HasNarrowLoads() ? FindAvx2() : nullptr;
  return kernel != nullptr ? kernel : FindBest();
}

// Rows up to which reading outweighs arithmetic, so that loads decide.
constexpr int64_t kFewRows = 1, kFewRowsOfPanels = 4;

}  // namespace

const Kernel* ChooseKernel(Isa isa, int64_t rows, Path path) {
  static const Kernel* const few = FindBestForFewRows();
  const int64_t most = path == Path::kPanels ? kFewRowsOfPanels : kFewRows;
  return isa == Isa::kBest && rows <= most && path != Path::kBlocked ? few : FindKernel(isa);
}

const Kernel* FindKernel(Isa isa) {
  // Asked once: in a virtual machine the question costs more than a small problem.
  static const Kernel* const sse4 = FindSse4();
  static const Kernel* const avx2 = FindAvx2();
  static const Kernel* const avx512 = FindAvx512();
  static const Kernel* const best = FindBest();
  switch (isa) {
    case Isa::kBest:
      return best;
    case Isa::kBaseline:
      return &kBaseline;
    case Isa::kSse4:
      return sse4;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
  }
  return nullptr;
}

}  // namespace linear
}  // namespace graft
#endif  // HWY_ONCE
