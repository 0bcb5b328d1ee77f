// What one task writes, and how the splits of a group are joined.
#if defined(GRAFT_FLASH_DECODE_TASK_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_TASK_OUTPUT_INL_H_
#undef GRAFT_FLASH_DECODE_TASK_OUTPUT_INL_H_
#else
#define GRAFT_FLASH_DECODE_TASK_OUTPUT_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"
#include "graft/merge-inl.h"
#include "hwy/highway.h"
#include "lanes-inl.h"
#include "memory-inl.h"
#include "plan.h"
#include "softmax-inl.h"
#include "task_positions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Writes what the current task's rows have added up: to the output, or beside the other splits'.
class TaskOutput : public TaskPositions {
 protected:
  using TaskPositions::TaskPositions;

  // Writes output of up to kBatchRows rows from their finished state.
  void WriteBatch(int64_t r0, int64_t rows) {
    const DF d;
    HWY_ALIGN float sums[kLanes];
    for (int64_t first = r0, part; first < r0 + rows; first += part) {
      part = std::min(kLanes, r0 + rows - first);
      hn::Store(JoinLanes(
                    [&](int64_t r) {
                      return hn::Load(d, sums_ + (first + std::min(r, part - 1)) * kLanes);
                    },
                    Sum()),
                d, sums);
      VF probe = hn::Zero(d);
      const auto accumulator = [&](int64_t r) {
        return accumulator_ + (first + r) * plan_.value_stride;
      };
      for (int64_t r = 0; r < part; ++r) {
        const OnlineRow row{maximum_[first + r], sums[r]};
        probe = hn::Add(probe, StoreOutput(first + r, row, accumulator(r)));
      }
      if (HWY_LIKELY(AllFinite(probe))) continue;
      for (int64_t r = 0; r < part; ++r) {
        WriteRow(first + r, {maximum_[first + r], sums[r]}, accumulator(r));
      }
    }
  }

  // The factor of a row's weights; `lost` is true where they are to count as zeros before it.
  float Factor(const OnlineRow& row, bool* lost) const {
    *lost = row.empty() || (problem_.clear_nan && std::isnan(row.sum));
    if (!*lost) return 1.0f / row.sum;
    // Without a single key the sums are empty: zeros.
    const bool zeros = problem_.zero_masked_rows || problem_.clear_nan || plan_.keys == 0;
    return zeros ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }

  // Writes output of row r from its finished state.
  void WriteRow(int64_t r, const OnlineRow& row, float* accumulator) {
    if (!AllFinite(StoreOutput(r, row, accumulator))) NoteOverflow(r, row.sum);
  }

  // The same, and returns what StoreRow does.
  VF StoreOutput(int64_t r, const OnlineRow& row, float* accumulator) {
    char* to = At(problem_.output, HeadOf(r), QueryOf(r));
    bool lost;
    const float factor = Factor(row, &lost);
    if (lost) std::memset(accumulator, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
    return StoreRow(problem_.type, accumulator, factor, problem_.value_size, to,
                    problem_.output.strides.feature);
  }

  // Notes a row whose weighted values add up to no number while its weights do: their mean may be
  // one all the same. float16's largest number is too small for that.
  HWY_NOINLINE void NoteOverflow(int64_t r, float sum) {
    if (problem_.type != Type::kFloat32 || std::isnan(sum)) return;
    if (!any_overflown_) std::memset(overflown_, 0, static_cast<size_t>(rows_) * sizeof(bool));
    any_overflown_ = overflown_[r] = true;
  }

  float* Partial(int64_t item) const {
    return reinterpret_cast<float*>(workspace_ + plan_.partial_offset) +
           item * static_cast<int64_t>(plan_.partial_floats);
  }

  void StorePartial(int64_t item) {
    float* partial = Partial(item);
    for (int64_t r = 0; r < rows_; ++r) {
      const OnlineRow row = State(r);
      partial[2 * r] = row.maximum;
      partial[2 * r + 1] = row.sum;
    }
    std::memcpy(partial + 2 * plan_.row_chunk, accumulator_,
                static_cast<size_t>(rows_ * plan_.value_stride) * sizeof(float));
  }

  // Joins the splits of a group.
  void MergeGroup(int64_t group) {
    const int64_t first = group * plan_.splits;
    for (int64_t r = 0; r < rows_; ++r) {
      std::memset(accumulator_, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      const OnlineRow total = kit::MergeParts(
          plan_.splits,
          [&](int64_t s) {
            const float* state = Partial(first + s) + 2 * r;
            return OnlineRow{state[0], state[1]};
          },
          [this](float x) {
            return base2_ ? PowerOfNonPositive<true>(x) : PowerOfNonPositive<false>(x);
          },
          [&](int64_t s, float weight) {
            const float* sums = Partial(first + s) + 2 * plan_.row_chunk;
            kit::AddScaled(weight, sums + r * plan_.value_stride, value_vectors_ * kLanes,
                           accumulator_);
          });
      WriteRow(r, total, accumulator_);
    }
  }

  // Stores count scores of row r, from key j on, into the output for scores.
  void WriteScores(int64_t r, int64_t j, int64_t count, float factor, const float* scores) {
    const int64_t feature = problem_.scores.strides.feature;
    StoreRow(problem_.type, scores, factor, count,
             At(problem_.scores, HeadOf(r), QueryOf(r)) + j * feature * element_, feature);
  }

  void WriteProbabilities(int64_t r, float* weights) {
    bool lost;
    const float factor = Factor(State(r), &lost);
    if (lost) std::memset(weights, 0, static_cast<size_t>(plan_.keys) * sizeof(float));
    WriteScores(r, 0, plan_.keys, factor, weights);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_TASK_OUTPUT_INL_H_
