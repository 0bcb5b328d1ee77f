// Sixteen numbers at a time, with AVX-512.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_VECTORS_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_VECTORS_H_

#if defined(__x86_64__)

// GCC 12 takes the undefined operands of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstdint>

#include "exponential.h"
#include "norm.h"

#define GRAFT_VNNI __attribute__((target("fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define GRAFT_UNROLL _Pragma("GCC unroll 8")

namespace graft {
namespace quantized {

constexpr int64_t kLanes = 16;

GRAFT_VNNI inline __mmask16 Lanes(int64_t count) {
  return count >= kLanes ? static_cast<__mmask16>(0xffff)
                         : static_cast<__mmask16>((1u << count) - 1);
}

// A range in the making.
struct RangeOf {
  __m512 least, greatest;
  __mmask16 nan = 0;

  GRAFT_VNNI RangeOf() : least(_mm512_setzero_ps()), greatest(_mm512_setzero_ps()) {}
  GRAFT_VNNI void Include(__m512 v, __mmask16 lanes) {
    nan = static_cast<__mmask16>(nan | _mm512_mask_cmp_ps_mask(lanes, v, v, _CMP_UNORD_Q));
    least = _mm512_mask_min_ps(least, lanes, least, v);
    greatest = _mm512_mask_max_ps(greatest, lanes, greatest, v);
  }
  GRAFT_VNNI void Join(Range* range) const {
    const float low = _mm512_reduce_min_ps(least), high = _mm512_reduce_max_ps(greatest);
    if (low < range->least) range->least = low;
    if (high > range->greatest) range->greatest = high;
    if (nan != 0) range->numbers = 0.0f;
  }
};

// A polynomial in Horner's form.
template <int kTerms>
GRAFT_VNNI inline __m512 Horner(const float (&terms)[kTerms], __m512 x) {
  __m512 p = _mm512_set1_ps(terms[0]);
  GRAFT_UNROLL
  for (int i = 1; i < kTerms; ++i) p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(terms[i]));
  return p;
}

GRAFT_VNNI inline __m512 Exp(__m512 x, const float (&terms)[kExpTerms]) {
  const __m512 round = _mm512_set1_ps(kRound);
  const __m512 m = _mm512_sub_ps(_mm512_fmadd_ps(_mm512_set1_ps(kLog2E), x, round), round);
  x = _mm512_fmadd_ps(m, _mm512_set1_ps(kMinusLn2High), x);
  x = _mm512_fmadd_ps(m, _mm512_set1_ps(kMinusLn2Low), x);
  return _mm512_scalef_ps(Horner(terms, x), m);
}

// 0.5 x (1 + erf(x / sqrt(2))). Beyond the split the sign is that of 1 - exp, which is not
// negative.
GRAFT_VNNI inline __m512 Gelu(__m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  const __m512 in = _mm512_mul_ps(x, _mm512_set1_ps(kInverseSqrt2));
  const __m512 a = _mm512_min_ps(_mm512_set1_ps(kErfGreatest), _mm512_andnot_ps(sign, in));
  const __m512 small = _mm512_fmadd_ps(Horner(kErfSmall, _mm512_mul_ps(a, a)), a, a);
  const __m512 power = _mm512_fmadd_ps(Horner(kErfBig, a), a, a);
  const __m512 big = _mm512_sub_ps(_mm512_set1_ps(1.0f), Exp(_mm512_xor_ps(power, sign), kErfExp));
  const __mmask16 split = _mm512_cmp_ps_mask(a, _mm512_set1_ps(kErfSplit), _CMP_GT_OQ);
  const __m512 erf = _mm512_or_ps(_mm512_mask_blend_ps(split, small, big), _mm512_and_ps(in, sign));
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.5f), x),
                       _mm512_add_ps(erf, _mm512_set1_ps(1.0f)));
}

}  // namespace quantized
}  // namespace graft

#endif

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_VECTORS_H_
