// Layer normalization of a row.
#if defined(GRAFT_PACKED_LINEAR_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_NORM_INL_H_
#undef GRAFT_PACKED_LINEAR_NORM_INL_H_
#else
#define GRAFT_PACKED_LINEAR_NORM_INL_H_
#endif

#include <cmath>

#include "common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of term(x[i]) over a row. Four sums side by side round less than one.
template <class Term>
HWY_INLINE float SumOf(const float* HWY_RESTRICT x, int64_t count, const Term& term) {
  const DF d;
  VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      sum[j] = hn::Add(sum[j], term(hn::LoadU(d, x + i + j * kLanes)));
    }
  }
  for (; i + kLanes <= count; i += kLanes) sum[0] = hn::Add(sum[0], term(hn::LoadU(d, x + i)));
  float rest = 0.0f;
  for (; i < count; ++i) rest += hn::GetLane(term(hn::Set(d, x[i])));
  const VF total = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  return hn::GetLane(hn::SumOfLanes(d, total)) + rest;
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias; the mean counts as 0 where a
// normalization is not centred. y may be x.
HWY_INLINE void Normalize(const Norm& norm, int64_t count, const float* x, float* y) {
  const DF d;
  const auto size = static_cast<float>(count);
  const float mean = norm.centred ? SumOf(x, count, [](VF v) HWY_ATTR { return v; }) / size : 0.0f;
  const float variance = SumOf(x, count,
                               [mean](VF v) HWY_ATTR {
                                 const VF off = hn::Sub(v, hn::Set(DF(), mean));
                                 return hn::Mul(off, off);
                               }) /
                         size;
  const float factor = 1.0f / std::sqrt(variance + norm.epsilon);
  const float* scale = norm.scale;
  const float* bias = norm.bias;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF off = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    VF out = hn::Mul(hn::Mul(off, hn::Set(d, factor)), hn::LoadU(d, scale + i));
    if (bias != nullptr) out = hn::Add(out, hn::LoadU(d, bias + i));
    hn::StoreU(out, d, y + i);
  }
  for (; i < count; ++i) {
    y[i] = (x[i] - mean) * factor * scale[i] + (bias != nullptr ? bias[i] : 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_NORM_INL_H_
