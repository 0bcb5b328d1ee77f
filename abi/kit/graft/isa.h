// Instruction sets: those that vector code is compiled for, and which of them this CPU runs.
//
// Highway (github.com/google/highway) compiles one source for each. Its own dispatcher lives in a
// shared library that would have to be installed where the operator runs, so only its headers are
// used, and the choice is made here. A file of kernels:
//
//   #include "graft/isa.h"  // before Highway: it says for which instruction sets
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernel.cc"  // this file
//   #include "hwy/foreach_target.h"         // must come before highway.h
//   #include "hwy/highway.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace mine::HWY_NAMESPACE {
//   void Run(...) { ... }                  // compiled once for each
//   constexpr mine::Kernel kKernel{&Run};  // a struct of pointers to functions
//   }  // namespace mine::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   const mine::Kernel* mine::FindKernel(graft::Isa isa) {
//     static const graft::Kernels<Kernel> kernels = GRAFT_KERNELS(kKernel);
//     return kernels.Find(isa);
//   }
//   #endif
//
// graft_add_kernels builds it.
#ifndef GRAFT_KIT_ISA_H_
#define GRAFT_KIT_ISA_H_

#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(HWY_TARGETS)
#error "graft: include graft/isa.h before Highway: it says which instruction sets there is code for"
#endif

// Of the instruction sets below, those that a build leaves out: HWY_AVX2 | HWY_AVX3.
#if !defined(GRAFT_WITHOUT_ISAS)
#define GRAFT_WITHOUT_ISAS 0
#endif

// AVX3_DL adds little to AVX3, SSSE3 little to the baseline, and SVE has no fixed vector length.
#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | (GRAFT_WITHOUT_ISAS))

// What graft::Kernels is made from: `kernel`, a constant of each target's namespace, where HWY_ONCE
// holds.
#define GRAFT_KERNELS(kernel)                                                 \
  {                                                                           \
    &HWY_NAMESPACE::kernel, HWY_CHOOSE_SSE4(kernel), HWY_CHOOSE_AVX2(kernel), \
        HWY_CHOOSE_AVX3(kernel)                                               \
  }

namespace graft {

// kBest is the widest that the CPU has; kBaseline is what every CPU of the architecture has (NEON
// on arm64).
enum class Isa { kBest, kBaseline, kSse4, kAvx2, kAvx512 };

// For tests that go through them.
inline constexpr Isa kIsas[] = {Isa::kBest, Isa::kBaseline, Isa::kSse4, Isa::kAvx2, Isa::kAvx512};

// The instruction set that a command line calls "baseline", "sse4", "avx2" or "avx512"; kBest for
// anything else.
inline Isa IsaNamed(const std::string& name) {
  if (name == "baseline") return Isa::kBaseline;
  if (name == "sse4") return Isa::kSse4;
  if (name == "avx2") return Isa::kAvx2;
  if (name == "avx512") return Isa::kAvx512;
  return Isa::kBest;
}

// Whether this CPU has everything that Highway's code for `isa` may use. In a virtual machine the
// question costs microseconds: call this once.
inline bool CpuRuns(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kBest:
    case Isa::kBaseline:
      return true;
    case Isa::kSse4:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
             __builtin_cpu_supports("aes");
    case Isa::kAvx2: {
      // Clang before 15 does not know f16c by name. That the system saves the wide registers
      // follows from "avx2".
      unsigned a = 0, b = 0, c = 0, d = 0;
      const bool half = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
      return half && CpuRuns(Isa::kSse4) && __builtin_cpu_supports("avx2") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2");
    }
    case Isa::kAvx512:
      return CpuRuns(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw");
  }
  return false;
#else
  return isa == Isa::kBest || isa == Isa::kBaseline;
#endif
}

// AMD's family 19h (Zen 4) executes a 512-bit load as two. Arithmetic on packed tiles still gains
// from the larger register file; reading rows once does not, and 256-bit code has more misses in
// flight (measured: 10 to 40 % faster).
inline bool CpuHasNarrowLoads() {
#if defined(__x86_64__)
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

// One kernel, compiled for several instruction sets. `Kernel` is whatever the plugin calls it by: a
// struct of pointers to functions. Making it queries the CPU, so hold it in a static. Finding is
// an index, from any thread.
template <typename Kernel>
class Kernels {
 public:
  // nullptr where there is no code; never for the baseline. The kernels are not copied.
  Kernels(const Kernel* baseline, const Kernel* sse4, const Kernel* avx2, const Kernel* avx512)
      : kernels_{baseline, baseline, sse4, avx2, avx512} {
    for (const Isa isa : {Isa::kSse4, Isa::kAvx2, Isa::kAvx512}) {
      if (!CpuRuns(isa)) At(isa) = nullptr;
      if (At(isa) != nullptr) At(Isa::kBest) = At(isa);
    }
    const bool narrow = At(Isa::kAvx2) != nullptr && CpuHasNarrowLoads();
    best_for_loads_ = At(narrow ? Isa::kAvx2 : Isa::kBest);
  }

  // The kernel for `isa`, or nullptr when this CPU or this build has none. Never null for kBest and
  // kBaseline.
  const Kernel* Find(Isa isa) const { return kernels_[static_cast<int>(isa)]; }

  // The same for work that does little but read memory once: kBest is narrower on CPUs that have
  // wide registers but narrow loads.
  const Kernel* FindForLoads(Isa isa) const {
    return isa == Isa::kBest ? best_for_loads_ : Find(isa);
  }

 private:
  const Kernel*& At(Isa isa) { return kernels_[static_cast<int>(isa)]; }

  const Kernel* kernels_[5];
  const Kernel* best_for_loads_;
};

}  // namespace graft

#endif  // GRAFT_KIT_ISA_H_
