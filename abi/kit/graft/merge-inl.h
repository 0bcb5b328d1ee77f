// Partial results of attention joined by log-sum-exp: keys are split among tasks, and each task's
// sum and accumulator count relative to its own maximum. Dao et al.: Flash-Decoding for
// long-context inference, 2023. Vector code: included once for each instruction set, as Highway's
// own -inl headers.
#if defined(GRAFT_KIT_MERGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_KIT_MERGE_INL_H_
#undef GRAFT_KIT_MERGE_INL_H_
#else
#define GRAFT_KIT_MERGE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace HWY_NAMESPACE {

// The softmax of one row over the keys seen so far.
// Milakov, Gimelshein: Online normalizer calculation for softmax, 2018, algorithm 3.
struct OnlineRow {
  float maximum;  // of the scores; -inf while no key was seen
  float sum;      // of exp(score - maximum)

  // Whether no key has any weight. Scores that are NaN, or infinite, are weights.
  bool empty() const { return maximum == -std::numeric_limits<float>::infinity() && sum == 0.0f; }
};

// Joins the parts of one row, and returns its state over all of them. state(part) is an OnlineRow;
// power(x) is exp(x), or 2^x where scores are taken times log2(e), for x <= 0. For each part that
// has seen a key calls add(part, weight): what the part accumulated counts `weight` times.
template <class State, class Power, class Add>
HWY_INLINE OnlineRow MergeParts(int64_t parts, const State& state, const Power& power,
                                const Add& add) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  OnlineRow total{kLowest, 0.0f};
  for (int64_t part = 0; part < parts; ++part) {
    const float maximum = state(part).maximum;
    if (maximum > total.maximum) total.maximum = maximum;
  }
  const float base = total.maximum == kLowest ? 0.0f : total.maximum;
  for (int64_t part = 0; part < parts; ++part) {
    const OnlineRow row = state(part);
    if (row.empty()) continue;
    const float weight = power(row.maximum - base);
    total.sum += weight * row.sum;
    add(part, weight);
  }
  return total;
}

// to[i] += weight * from[i] for i < floats, a multiple of 16.
HWY_INLINE void AddScaled(float weight, const float* HWY_RESTRICT from, int64_t floats,
                          float* HWY_RESTRICT to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  for (int64_t i = 0; i < floats; i += lanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_KIT_MERGE_INL_H_
