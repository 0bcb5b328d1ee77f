// Compiles the vector code once for each instruction set and picks one at run time, as flash-decode
// does.
#include "latent_kernel.h"

#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "latent_kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "latent_worker-inl.h"
#include "prompt-inl.h"

#if HWY_ONCE
namespace graft {
namespace latent {
namespace {

constexpr Kernel kBaseline = {HWY_NAMESPACE::RunWorker, HWY_NAMESPACE::MakeKeys,
                              HWY_NAMESPACE::WriteRowOf};
#if HWY_TARGETS & HWY_SSE4
constexpr Kernel kSse4 = {N_SSE4::RunWorker, N_SSE4::MakeKeys, N_SSE4::WriteRowOf};
#endif
#if HWY_TARGETS & HWY_AVX2
constexpr Kernel kAvx2 = {N_AVX2::RunWorker, N_AVX2::MakeKeys, N_AVX2::WriteRowOf};
#endif
#if HWY_TARGETS & HWY_AVX3
constexpr Kernel kAvx512 = {N_AVX3::RunWorker, N_AVX3::MakeKeys, N_AVX3::WriteRowOf};
#endif

const Kernel* Find(Isa isa) {
  if (!attention::Supports(isa)) return nullptr;
  switch (isa) {
#if HWY_TARGETS & HWY_SSE4
    case Isa::kSse4:
      return &kSse4;
#endif
#if HWY_TARGETS & HWY_AVX2
    case Isa::kAvx2:
      return &kAvx2;
#endif
#if HWY_TARGETS & HWY_AVX3
    case Isa::kAvx512:
      return &kAvx512;
#endif
    case Isa::kBaseline:
      return &kBaseline;
    default:
      return nullptr;
  }
}

const Kernel& FindBest() {
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kSse4}) {
    if (const Kernel* kernel = Find(isa)) return *kernel;
  }
  return kBaseline;
}

}  // namespace

const Kernel& ChooseKernel(Isa isa) {
  static const Kernel& best = FindBest();
  const Kernel* kernel = Find(isa);
  return kernel != nullptr ? *kernel : best;
}

}  // namespace latent
}  // namespace graft
#endif  // HWY_ONCE
