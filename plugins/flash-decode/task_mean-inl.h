// Scores of one task, and the means of values that are too large to be summed.
#if defined(GRAFT_FLASH_DECODE_TASK_MEAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_TASK_MEAN_INL_H_
#undef GRAFT_FLASH_DECODE_TASK_MEAN_INL_H_
#else
#define GRAFT_FLASH_DECODE_TASK_MEAN_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "attention.h"
#include "hwy/highway.h"
#include "lanes-inl.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "softmax-inl.h"
#include "task_output-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Makes scores of products, and computes rows again whose sums of weighted values overflowed.
class TaskMean : public TaskOutput {
 protected:
  using TaskOutput::TaskOutput;

  // From q k^T to scores, for one row and keys j .. j+count-1.
  void AdjustScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
    MaskScores(r, j, count, scores);
  }
  void MaskScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    const int64_t columns = std::min(count, problem_.key_limit - j);
    if (masks_ && columns > 0) {
      if (problem_.mask_after_bias) BiasScores(r, j, columns, scores);
      if (problem_.mask.data != nullptr) {
        const Strides& s = problem_.mask.strides;
        const uint8_t* mask = static_cast<const uint8_t*>(problem_.mask.data) + b_ * s.batch +
                              HeadOf(r) * s.head + QueryOf(r) * s.position + j * s.feature;
        ApplyMask(mask, s.feature, columns, problem_.mask_fill, problem_.mask_hides,
                  problem_.mask_adds, scores);
      }
      if (!problem_.mask_after_bias) BiasScores(r, j, columns, scores);
    }
    ApplyLimits(low_[r] - j, high_[r] - j, count, scores);
  }
  void BiasScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    if (problem_.bias.data == nullptr) return;
    const int64_t feature = problem_.bias.strides.feature;
    ApplyBias(problem_.type, At(problem_.bias, HeadOf(r), QueryOf(r)) + j * feature * element_,
              feature, count, scores);
  }

  HWY_INLINE float Take(float& maximum, float* sums, int64_t count, float* scores) const {
    return base2_ ? TakeTile<true>(maximum, sums, count, scores)
                  : TakeTile<false>(maximum, sums, count, scores);
  }

  // Writes the rows again whose sum of weighted values was no number. Weights are divided by their
  // sum before they multiply, and keys come in their order, as in a softmax before a matmul: a mean
  // of numbers is a number, where their sum need not be one. All rows of the task take part, so
  // that what no row gives any weight stays unread.
  HWY_NOINLINE void WriteMeans() {
    for (int64_t r = 0; r < rows_; ++r) {
      LoadRow(problem_.type, At(problem_.query, HeadOf(r), QueryOf(r)),
              problem_.query.strides.feature, problem_.head_size, plan_.key_stride, scale_,
              query_ + r * plan_.key_stride);
    }
    StartStates(true);
    std::memset(accumulator_, 0, static_cast<size_t>(rows_ * plan_.value_stride) * sizeof(float));
    // Scores of both passes are the same ones: those of the matmuls before may round otherwise.
    ForTiles([&](int64_t, int64_t count) {
      for (int64_t r = 0; r < rows_; ++r) {
        Take(maximum_[r], sums_ + r * kLanes, count, scores_ + r * plan_.score_stride);
      }
    });
    ForTiles([&](int64_t j, int64_t count) {
      for (int64_t r = 0; r < rows_; ++r) {
        const OnlineRow row = State(r);
        const float inverse = row.empty() ? 0.0f : 1.0f / row.sum;
        float* scores = scores_ + r * plan_.score_stride;
        if (base2_) {
          NormalizeTile<true>(row.maximum, inverse, count, scores);
        } else {
          NormalizeTile<false>(row.maximum, inverse, count, scores);
        }
        rescale_[r] = 1.0f;
      }
      const Rows values = WeightedValues(j, count, false, scores_, plan_.score_stride);
      AddWeightedTile(scores_, plan_.score_stride, rows_, values, count, value_vectors_,
                      CopyTarget{nullptr, 0}, rescale_, accumulator_, plan_.value_stride);
    });
    for (int64_t r = 0; r < rows_; ++r) {
      if (!overflown_[r]) continue;
      StoreRow(problem_.type, accumulator_ + r * plan_.value_stride, 1.0f, problem_.value_size,
               At(problem_.output, HeadOf(r), QueryOf(r)), problem_.output.strides.feature);
    }
  }

 private:
  // Calls body(first key, keys) for each tile of keys that some row may see, with its scores.
  template <class Body>
  void ForTiles(const Body& body) {
    const int64_t end = std::min(plan_.keys, highest_);
    for (int64_t j = lowest_, count; j < end; j += count) {
      count = TileEnd(j, end) - j;
      DotTile(query_, plan_.key_stride, rows_, Keys(j, count, false), count, key_vectors_,
              CopyTarget{nullptr, 0}, scores_, plan_.score_stride);
      for (int64_t r = 0; r < rows_; ++r) {
        AdjustScores(r, j, count, scores_ + r * plan_.score_stride);
      }
      body(j, count);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_TASK_MEAN_INL_H_
