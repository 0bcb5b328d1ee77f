// Scores of one task over a pool, and the means of values that are too large to be summed.
#if defined(GRAFT_FLASH_DECODE_POOL_MEAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_MEAN_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_MEAN_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_MEAN_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "cached.h"
#include "cached_plan.h"
#include "hwy/highway.h"
#include "lanes-inl.h"
#include "listed-inl.h"
#include "memory-inl.h"
#include "pool_output-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Makes scores of products, and computes rows again whose sums of weighted values overflowed.
class PoolMean : public PoolOutput {
 protected:
  using PoolOutput::PoolOutput;

  // From q k^T to scores: query row r of KV head h over positions j .. j+count-1.
  void AdjustScores(int64_t h, int64_t r, int64_t j, int64_t count, float* scores) const {
    const int64_t i = r / plan_.group_heads;
    if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
    if (problem_.bias != nullptr) {
      AddDistanceBias(h * head_rows_ + r, high_[i] - 1 - j, count, scores);
    }
    ApplyLimits(low_[i] - j, high_[i] - j, count, scores);
  }

  HWY_INLINE float Take(float& maximum, float* sums, int64_t count, float* scores) const {
    return base2_ ? TakeTile<true>(maximum, sums, count, scores)
                  : TakeTile<false>(maximum, sums, count, scores);
  }

  // Writes the rows again whose sum of weighted values was no number. Weights are divided by their
  // sum before they multiply, and keys come in their order, as in a softmax before a matmul: a mean
  // of numbers is a number, where their sum need not be one.
  HWY_NOINLINE void WriteMeans() {
    const bool packed = packed_;
    packed_ = false;  // a row alone takes tiles as stored
    for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
      if (overflown_[q]) WriteMean(q);
    }
    packed_ = packed;
  }

 private:
  void WriteMean(int64_t q) {
    const int64_t head = head0_ + q / head_rows_;
    float* accumulator = accumulator_ + q * plan_.value_stride;
    float* sums = sums_ + q * kLanes;
    maximum_[q] = kNegativeInfinity;
    std::memset(sums, 0, static_cast<size_t>(kLanes) * sizeof(float));
    StartSink(q);
    std::memset(accumulator, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
    // Scores of both passes are the same ones: those of the matmuls before may round otherwise.
    ForTiles(q,
             [&](const PoolTile& tile, int64_t) { Take(maximum_[q], sums, tile.count, scores_); });
    const OnlineRow row = State(q);
    const float inverse = 1.0f / row.sum;
    const float rescale = 1.0f;
    ForTiles(q, [&](const PoolTile& tile, int64_t at) {
      if (base2_) {
        NormalizeTile<true>(row.maximum, inverse, tile.count, scores_);
      } else {
        NormalizeTile<false>(row.maximum, inverse, tile.count, scores_);
      }
      AddValues(q, 1, tile, at, head, LaterRows{nullptr, nullptr, 0}, &rescale);
    });
    StoreRow(Type::kFloat32, accumulator, 1.0f, pool_.value_size, OutputOf(q), 1);
  }

  // Calls body(tile, where the row's list begins) for each tile of keys that query row q sees, with
  // its scores.
  template <class Body>
  void ForTiles(int64_t q, const Body& body) {
    const int64_t h = q / head_rows_, r = q % head_rows_, i = r / plan_.group_heads;
    PoolTile& tile = tiles_[0];
    for (int64_t j = low_[i]; j < high_[i]; j += tile.count) {
      List(j, high_[i], tile);
      const int64_t at = tile.lists > 1 ? i * tile.padded : 0;
      DotKeys(q, 1, tile, at, head0_ + h, LaterRows{nullptr, nullptr, 0});
      AdjustScores(h, r, j, tile.count, scores_);
      body(tile, at);
    }
  }

  // Adds the bias of query row q; the first key is `distance` before the query.
  void AddDistanceBias(int64_t q, int64_t distance, int64_t count, float* scores) const {
    const float* bias =
        problem_.bias + RowOf(q) * problem_.bias_stride + HeadOf(q) * problem_.distances;
    for (int64_t k = 0; k < count; ++k) {
      // A key that a causal row does not see has a negative distance.
      const int64_t d = std::max<int64_t>(0, std::min(distance - k, problem_.distances - 1));
      scores[k] = bias[d] == kNegativeInfinity ? kNegativeInfinity : scores[k] + bias[d];
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_MEAN_INL_H_
