// Elementary functions on vectors of float. Coefficients are fitted for this file: least weighted
// maximum of the relative error over the reduced range.
#if defined(GRAFT_FLASH_DECODE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_MATH_INL_H_
#undef GRAFT_FLASH_DECODE_MATH_INL_H_
#else
#define GRAFT_FLASH_DECODE_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 0, which is all that a softmax needs: within 2 units in the last place down to
// -87.3, exactly 0 below that (so for -inf), NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  // Adding 1.5 * 2^23 rounds to an integer n and leaves it in the low bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const V n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first with few bits so that n * part is exact without a fused
  // multiply-add.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // exp(r) = 1 + (r + r^2 P(r)) on |r| <= ln(2) / 2.
  V y = hn::MulAdd(r, hn::Set(d, 0.0013814539f), hn::Set(d, 0.008368745f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.04166839f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.16666521f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.49999994f));
  y = hn::Add(hn::MulAdd(hn::Mul(r, r), y, r), hn::Set(d, 1.0f));
  // 2^n: n + 127 in the exponent. A multiplication, not an integer sum, so that NaN stays NaN.
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127u)));
  y = hn::Mul(y, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), y);
}

// 2^x for x <= 0: within 2 units in the last place down to -126, exactly 0 below that, NaN for NaN.
// It spares a softmax whose scores come multiplied by log2(e) a third of the multiplications of
// exp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2OfNonPositive(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  // Two instructions take x apart and put 2^x together, both rounding down, so here the polynomial
  // is fitted to 0 <= r <= 1.
  const V r{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};
  V y = hn::MulAdd(r, hn::Set(d, 0.00021612915f), hn::Set(d, 0.0012467847f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.009675452f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.055485282f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.24022931f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.69314706f));
  y = hn::MulAdd(r, y, hn::Set(d, 1.0f));
  const __mmask16 kept = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return V{_mm512_maskz_scalef_ps(kept, y.raw, x.raw)};
#else
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::Add(x, magic);
  const V r = hn::Sub(x, hn::Sub(shifted, magic));
  // 2^r = 1 + r P(r) on |r| <= 1/2.
  V y = hn::MulAdd(r, hn::Set(d, 0.00015353257f), hn::Set(d, 0.0013399003f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.009618439f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.05550332f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.24022648f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.6931472f));
  y = hn::MulAdd(r, y, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127u)));
  y = hn::Mul(y, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), y);
#endif
}

// The power of 2 or of e, chosen by kBase2.
template <bool kBase2, class D, class V = hn::Vec<D>>
HWY_INLINE V PowerOfNonPositive(D d, V x) {
  return kBase2 ? Exp2OfNonPositive(d, x) : ExpOfNonPositive(d, x);
}
template <bool kBase2>
HWY_INLINE float PowerOfNonPositive(float x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(PowerOfNonPositive<kBase2>(d, hn::Set(d, x)));
}

// tanh(x), relative error below 3e-7; NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V magnitude = hn::Abs(x);
  // Near 0: x + x^3 P(x^2), because 1 - 2 / (e^2x + 1) would cancel.
  const V square = hn::Mul(x, x);
  V p = hn::MulAdd(square, hn::Set(d, -0.0057049864f), hn::Set(d, 0.020639086f));
  p = hn::MulAdd(square, p, hn::Set(d, -0.053739715f));
  p = hn::MulAdd(square, p, hn::Set(d, 0.13331442f));
  p = hn::MulAdd(square, p, hn::Set(d, -0.3333328f));
  const V near = hn::MulAdd(hn::Mul(square, x), p, x);
  // Elsewhere through e^-2|x|, which cannot overflow.
  const V e = ExpOfNonPositive(d, hn::Mul(hn::Set(d, -2.0f), magnitude));
  const V far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), near, far);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_MATH_INL_H_
