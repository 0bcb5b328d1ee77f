// Compiles the vector code once for each instruction set and picks one at run time, with Highway's
// headers alone: its own dispatcher lives in a shared library.
#include "kernel.h"

#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "pass-inl.h"

#if HWY_ONCE
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace graft {
namespace tail {
namespace {

constexpr Kernel kBaseline = HWY_NAMESPACE::kKernel;

const Kernel* FindSse4() {
#if HWY_TARGETS & HWY_SSE4
  static constexpr Kernel kernel = N_SSE4::kKernel;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("aes")) {
    return &kernel;
  }
#endif
  return nullptr;
}

const Kernel* FindAvx2() {
#if HWY_TARGETS & HWY_AVX2
  static constexpr Kernel kernel = N_AVX2::kKernel;
  // Clang before 15 does not know f16c by name.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool half = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (half && FindSse4() != nullptr && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2")) {
    return &kernel;
  }
#endif
  return nullptr;
}

const Kernel* FindAvx512() {
#if HWY_TARGETS & HWY_AVX3
  static constexpr Kernel kernel = N_AVX3::kKernel;
  if (FindAvx2() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    return &kernel;
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

}  // namespace

const Kernel* FindKernel(Isa isa) {
  // Asked once: in a virtual machine the question costs more than a small row.
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

}  // namespace tail
}  // namespace graft
#endif  // HWY_ONCE
