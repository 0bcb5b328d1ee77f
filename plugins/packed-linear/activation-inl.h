// Activations of a vector.
#if defined(GRAFT_PACKED_LINEAR_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_ACTIVATION_INL_H_
#undef GRAFT_PACKED_LINEAR_ACTIVATION_INL_H_
#else
#define GRAFT_PACKED_LINEAR_ACTIVATION_INL_H_
#endif

#include "common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// z P(z^2) / Q(z^2) up to `limit`, 1 beyond: minimax fits of erf (relative error 2e-8) and tanh
// (1e-8).
struct OddFit {
  float limit, p[6], q[6];
};
constexpr OddFit kErfFit{
    3.92f,
    {1.12837915f, 0.190405276f, 0.0527485445f, 3.76556054e-3f, 2.84880613e-4f, 2.05008526e-6f},
    {1.0f, 0.502075024f, 0.114108601f, 0.0149691036f, 1.16252029e-3f, 3.80915837e-5f}};
constexpr OddFit kTanhFit{
    9.1f,
    {1.0f, 0.133744631f, 3.4877966e-3f, 2.04809515e-5f, 1.31772081e-8f, 0.0f},
    {1.0f, 0.467077768f, 0.0258473337f, 3.27289662e-4f, 7.70391469e-7f, 0.0f}};

// p[0] + u (p[1] + u (p[2] + ...)).
HWY_INLINE VF Polynomial(const float (&p)[6], VF u) {
  const DF d;
  VF sum = hn::Set(d, p[5]);
  for (int i = 4; i >= 0; --i) sum = hn::MulAdd(sum, u, hn::Set(d, p[i]));
  return sum;
}

// x/2 (1 + odd(scale (x + cubic x^3))).
HWY_INLINE VF GeluOf(const OddFit& odd, float scale, float cubic, VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  // Far beyond the limit, and no infinities.
  const VF near = hn::Min(hn::Max(x, hn::Set(d, -20.0f)), hn::Set(d, 20.0f));
  const VF bent = hn::MulAdd(hn::Mul(hn::Set(d, cubic), near), near, one);
  const VF z = hn::Mul(hn::Mul(hn::Set(d, scale), near), bent);
  const VF u = hn::Mul(z, z);
  const VF inner = hn::Div(hn::Mul(z, Polynomial(odd.p, u)), Polynomial(odd.q, u));
  const VF odd_z =
      hn::IfThenElse(hn::Gt(hn::Abs(z), hn::Set(d, odd.limit)), hn::CopySign(one, z), inner);
  return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(one, odd_z));
}

HWY_INLINE VF Activate(Activation activation, VF x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
      return GeluOf(kErfFit, 0.7071067812f, 0.0f, x);
    case Activation::kGeluTanh:
      return GeluOf(kTanhFit, 0.7978845608f, 0.044715f, x);
    case Activation::kGeluQuick:  // the logistic function as a tanh
      return GeluOf(kTanhFit, 0.851f, 0.0f, x);
    case Activation::kSilu:
      return GeluOf(kTanhFit, 0.5f, 0.0f, x);
    case Activation::kRelu:
      // NaN stays NaN.
      return hn::IfThenElse(hn::Lt(x, hn::Zero(DF())), hn::Zero(DF()), x);
  }
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_ACTIVATION_INL_H_
