// What happens to the scores of one query row between the two matmuls.
#if defined(GRAFT_FLASH_DECODE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_SOFTMAX_INL_H_
#undef GRAFT_FLASH_DECODE_SOFTMAX_INL_H_
#else
#define GRAFT_FLASH_DECODE_SOFTMAX_INL_H_
#endif

#include <cstring>
#include <limits>

#include "attention.h"
#include "graft/merge-inl.h"
#include "hwy/highway.h"
#include "lanes-inl.h"
#include "math-inl.h"
#include "memory-inl.h"
#include "plan.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace kit = graft::HWY_NAMESPACE;
using kit::OnlineRow;

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504f;

// softcap * tanh(s / softcap)
HWY_INLINE void ApplySoftcap(float softcap, int64_t count, float* HWY_RESTRICT scores) {
  const DF d;
  const VF cap = hn::Set(d, softcap);
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF s = hn::LoadU(d, scores + i);
    hn::StoreU(hn::Mul(cap, Tanh(d, hn::Div(s, cap))), d, scores + i);
  }
}

// Adds the bias of one row. A bias of -inf makes the score -inf whatever it was, so that a key that
// is masked this way may hold anything.
HWY_INLINE void ApplyBias(Type type, const void* bias, int64_t stride, int64_t count,
                          float* HWY_RESTRICT scores) {
  const DF d;
  const VF lowest = hn::Set(d, kNegativeInfinity);
  if (stride == 0) {
    const VF b = hn::Set(d, LoadElement(type, bias, 0));
    for (int64_t i = 0; i < count; i += kLanes) {
      const VF s = hn::Add(hn::LoadU(d, scores + i), b);
      hn::StoreU(hn::IfThenElse(hn::Eq(b, lowest), lowest, s), d, scores + i);
    }
    return;
  }
  HWY_ALIGN float row[kMaxTile];
  for (int64_t j = 0; j < count; j += kMaxTile) {
    const int64_t part = count - j < kMaxTile ? count - j : kMaxTile;
    const char* from = static_cast<const char*>(bias) + j * stride * ElementSize(type);
    LoadRow(type, from, stride, part, RoundUp(part, kLanes), 1.0f, row);
    for (int64_t i = 0; i < part; i += kLanes) {
      const VF b = hn::Load(d, row + i);
      const VF s = hn::Add(hn::LoadU(d, scores + j + i), b);
      hn::StoreU(hn::IfThenElse(hn::Eq(b, lowest), lowest, s), d, scores + j + i);
    }
  }
}

// Replaces the scores whose mask byte is 0 by `fill`, or, where the mask hides, those of all
// others; or adds it, but for -inf, which makes the score -inf whatever it was.
HWY_INLINE void ApplyMask(const uint8_t* mask, int64_t stride, int64_t count, float fill,
                          bool hides, bool adds, float* HWY_RESTRICT scores) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> db;
  const VF vfill = hn::Set(d, fill);
  const auto flip = hn::Set(di, hides ? -1 : 0);
  adds = adds && fill != kNegativeInfinity;
  HWY_ALIGN uint8_t row[kMaxTile];
  for (int64_t j = 0; j < count; j += kMaxTile) {
    const int64_t part = count - j < kMaxTile ? count - j : kMaxTile;
    if (stride == 1) {
      std::memcpy(row, mask + j, static_cast<size_t>(part));
    } else {
      for (int64_t i = 0; i < part; ++i) row[i] = mask[(j + i) * stride];
    }
    std::memset(row + part, 0, static_cast<size_t>(kMaxTile - part));
    for (int64_t i = 0; i < part; i += kLanes) {
      const auto byte = hn::PromoteTo(di, hn::LoadU(db, row + i));
      const auto zero = hn::VecFromMask(di, hn::Eq(byte, hn::Zero(di)));
      const auto replaced = hn::RebindMask(d, hn::MaskFromVec(hn::Xor(zero, flip)));
      const VF s = hn::LoadU(d, scores + j + i);
      const VF fills = adds ? hn::Add(s, vfill) : vfill;
      hn::StoreU(hn::IfThenElse(replaced, fills, s), d, scores + j + i);
    }
  }
}

// Makes -inf of every score outside [low, high), up to the next full vector after count.
HWY_INLINE void ApplyLimits(int64_t low, int64_t high, int64_t count, float* HWY_RESTRICT scores) {
  if (HWY_LIKELY(low <= 0 && high >= count && count % kLanes == 0)) return;
  if (high > count) high = count;
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF lowest = hn::Set(d, kNegativeInfinity);
  for (int64_t i = 0; i < count; i += kLanes) {
    if (i >= low && i + kLanes <= high) continue;
    // Both fit in 32 bits beside a lane's number.
    const int64_t from = low - i < 0 ? 0 : low - i > kLanes ? kLanes : low - i;
    const int64_t to = high - i < 0 ? 0 : high - i > kLanes ? kLanes : high - i;
    const auto lane = hn::Iota(di, 0);
    const auto seen = hn::And(hn::Gt(lane, hn::Set(di, static_cast<int32_t>(from - 1))),
                              hn::Lt(lane, hn::Set(di, static_cast<int32_t>(to))));
    const VF s = hn::LoadU(d, scores + i);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(d, seen), s, lowest), d, scores + i);
  }
}

// Takes in a sink, a score that weighs no value, before the first tile.
HWY_INLINE void TakeSink(float sink, float& row_maximum, float* HWY_RESTRICT sums) {
  row_maximum = sink;
  // An infinite one has no weight that is a number, but for -inf, which has none.
  sums[0] = sink == kNegativeInfinity ? 0.0f : 1.0f + (sink - sink);
}

// Takes in a tile of scores, turns them into weights relative to the new maximum, and returns the
// factor by which everything accumulated before must shrink. sums is a vector, its lanes together
// the row's sum: joining them waits for the end.
// Weights are powers of 2, or of e.
template <bool kBase2>
HWY_INLINE float TakeTile(float& row_maximum, float* HWY_RESTRICT sums, int64_t count,
                          float* HWY_RESTRICT scores) {
  const DF d;
  VF highest = hn::LoadU(d, scores);
  for (int64_t i = kLanes; i < count; i += kLanes) {
    highest = hn::Max(highest, hn::LoadU(d, scores + i));
  }
  // The maximum across lanes costs more than the question whether it changes, which it seldom does.
  // A NaN among the scores may or may not come out as the maximum; it reaches the sum either way.
  float maximum = row_maximum;
  if (!hn::AllFalse(d, hn::Gt(highest, hn::Set(d, maximum)))) {
    maximum = hn::GetLane(hn::MaxOfLanes(d, highest));
    if (!(maximum > row_maximum)) maximum = row_maximum;
  }
  // While all scores are -inf any finite base gives weights of 0.
  const float base = maximum == kNegativeInfinity ? 0.0f : maximum;
  const float rescale =
      row_maximum == maximum ? 1.0f : PowerOfNonPositive<kBase2>(row_maximum - base);
  const VF vbase = hn::Set(d, base);
  VF sum = hn::Mul(hn::Set(d, rescale), hn::Load(d, sums));
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF p = PowerOfNonPositive<kBase2>(d, hn::Sub(hn::LoadU(d, scores + i), vbase));
    hn::StoreU(p, d, scores + i);
    sum = hn::Add(sum, p);
  }
  hn::Store(sum, d, sums);
  row_maximum = maximum;
  return rescale;
}

// The probabilities of a tile of scores whose row's maximum is known, and the inverse of its sum.
template <bool kBase2>
HWY_INLINE void NormalizeTile(float row_maximum, float inverse, int64_t count,
                              float* HWY_RESTRICT scores) {
  const DF d;
  const VF base = hn::Set(d, row_maximum == kNegativeInfinity ? 0.0f : row_maximum);
  const VF factor = hn::Set(d, inverse);
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF p = PowerOfNonPositive<kBase2>(d, hn::Sub(hn::LoadU(d, scores + i), base));
    hn::StoreU(hn::Mul(p, factor), d, scores + i);
  }
}

// TakeTile for up to kLanes rows at once, whose maxima and factors are then vectors over rows: no
// row waits for its own, and nothing branches on them. Reads and writes kLanes of `maximum` and
// `rescale`, those beyond `rows` without a meaning.
template <bool kBase2>
HWY_INLINE void TakeTiles(int64_t rows, int64_t count, float* HWY_RESTRICT scores,
                          int64_t score_stride, float* HWY_RESTRICT maximum,
                          float* HWY_RESTRICT sums, float* HWY_RESTRICT rescale) {
  const DF d;
  const VF tile = JoinLanes(
      [&](int64_t r) {
        const float* row = scores + (r < rows ? r : rows - 1) * score_stride;
        VF highest = hn::LoadU(d, row);
        for (int64_t i = kLanes; i < count; i += kLanes) {
          highest = hn::Max(highest, hn::LoadU(d, row + i));
        }
        return highest;
      },
      Maximum());
  const VF before = hn::LoadU(d, maximum);
  const VF after = hn::Max(before, tile);
  const VF lowest = hn::Set(d, kNegativeInfinity);
  // 0 for NaN too: what is hidden from a row that is NaN has a weight of 0 like in any other.
  const VF base = hn::IfThenElse(hn::Gt(after, lowest), after, hn::Zero(d));
  const VF shrink = hn::IfThenElse(hn::Eq(before, after), hn::Set(d, 1.0f),
                                   PowerOfNonPositive<kBase2>(d, hn::Sub(before, base)));
  HWY_ALIGN float bases[kLanes];
  hn::StoreU(after, d, maximum);
  hn::Store(base, d, bases);
  hn::StoreU(shrink, d, rescale);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * score_stride;
    const VF row_base = hn::Set(d, bases[r]);
    VF sum = hn::Mul(hn::Set(d, rescale[r]), hn::Load(d, sums + r * kLanes));
    const auto take = [&](int64_t i) {
      const VF p = PowerOfNonPositive<kBase2>(d, hn::Sub(hn::LoadU(d, row + i), row_base));
      hn::StoreU(p, d, row + i);
      sum = hn::Add(sum, p);
    };
    if (count == kMaxTile) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kMaxTile; i += kLanes) take(i);
    } else {
      for (int64_t i = 0; i < count; i += kLanes) take(i);
    }
    hn::Store(sum, d, sums + r * kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_SOFTMAX_INL_H_
