// Compiles the scanner once for each instruction set and picks one at run time, with Highway's
// headers alone: its own dispatcher lives in a shared library.
#include "scan.h"

#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scan.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "scan-inl.h"

#if HWY_ONCE
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace graft {
namespace ngram {
namespace {

constexpr Scanner kBaseline = HWY_NAMESPACE::kScanner;

const Scanner* FindSse4() {
#if HWY_TARGETS & HWY_SSE4
  static constexpr Scanner scanner = N_SSE4::kScanner;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("aes")) {
    return &scanner;
  }
#endif
  return nullptr;
}

const Scanner* FindAvx2() {
#if HWY_TARGETS & HWY_AVX2
  static constexpr Scanner scanner = N_AVX2::kScanner;
  // Clang before 15 does not know f16c by name.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool half = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (half && FindSse4() != nullptr && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2")) {
    return &scanner;
  }
#endif
  return nullptr;
}

const Scanner* FindAvx512() {
#if HWY_TARGETS & HWY_AVX3
  static constexpr Scanner scanner = N_AVX3::kScanner;
  if (FindAvx2() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    return &scanner;
  }
#endif
  return nullptr;
}

const Scanner* FindBest() {
  if (const Scanner* scanner = FindAvx512()) return scanner;
  if (const Scanner* scanner = FindAvx2()) return scanner;
  if (const Scanner* scanner = FindSse4()) return scanner;
  return &kBaseline;
}

}  // namespace

const Scanner* FindScanner(Isa isa) {
  // Asked once: in a virtual machine the question costs more than a scan.
  static const Scanner* const sse4 = FindSse4();
  static const Scanner* const avx2 = FindAvx2();
  static const Scanner* const avx512 = FindAvx512();
  static const Scanner* const best = FindBest();
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

}  // namespace ngram
}  // namespace graft
#endif  // HWY_ONCE
