// What one task over a pool writes, and how the parts of a group are joined.
#if defined(GRAFT_FLASH_DECODE_POOL_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_OUTPUT_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_OUTPUT_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_OUTPUT_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <limits>

#include "cached.h"
#include "cached_plan.h"
#include "graft/merge-inl.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "pool_tiles-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Writes what the current task's rows have added up: to the output, or beside the other parts'.
class PoolOutput : public PoolTiles {
 protected:
  using PoolTiles::PoolTiles;

  // The row of the call and the query head that query row q of this task is.
  int64_t RowOf(int64_t q) const { return group_->first + row0_ + q / plan_.group_heads % rows_; }
  int64_t HeadOf(int64_t q) const {
    return (head0_ + q / head_rows_) * plan_.group_heads + q % plan_.group_heads;
  }

  // Lets query row q of this task begin with its head's sink.
  void StartSink(int64_t q) {
    if (problem_.sinks == nullptr) return;
    const float sink = problem_.sinks[HeadOf(q)];
    TakeSink(base2_ ? sink * kLog2E : sink, maximum_[q], sums_ + q * kLanes);
  }

  // Where the output of query row q of this task stands.
  float* OutputOf(int64_t q) const {
    const int64_t stride =
        problem_.output_stride != 0 ? problem_.output_stride : problem_.heads * pool_.value_size;
    return problem_.output + RowOf(q) * stride + HeadOf(q) * pool_.value_size;
  }

  // Writes the output of query row q of this task from its finished state.
  void WriteOutput(int64_t q, const OnlineRow& state, float* accumulator) {
    float factor = 1.0f / state.sum;
    if (state.empty()) {
      // No key has any weight. Without a single key the sums are empty: zeros.
      std::memset(accumulator, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      factor = group_->keys() == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    const VF probe =
        StoreRow(Type::kFloat32, accumulator, factor, pool_.value_size, OutputOf(q), 1);
    if (HWY_UNLIKELY(!AllFinite(probe))) NoteOverflow(q, state.sum);
    if (problem_.lse != nullptr) {
      // A maximum of -inf stays: the logarithm of the sum is -inf, or 0 at most.
      const float maximum = base2_ ? state.maximum * 0.693147181f : state.maximum;
      problem_.lse[RowOf(q) * problem_.heads + HeadOf(q)] = maximum + std::log(state.sum);
    }
  }

  // Sums and states of a part, of all heads of the group.
  float* PartSums(int64_t part) const {
    const int64_t floats = group_->rows * problem_.heads * (2 + plan_.value_stride);
    return reinterpret_cast<float*>(workspace_ + plan_.partial_offset) + group_->first_partial +
           part * floats;
  }
  float* PartStates(int64_t part) const {
    return PartSums(part) + group_->rows * problem_.heads * plan_.value_stride;
  }

  void StorePartial(int64_t part) const {
    const int64_t first = head0_ * head_rows_;
    float* states = PartStates(part) + 2 * first;
    for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
      const OnlineRow state = State(q);
      states[2 * q] = state.maximum;
      states[2 * q + 1] = state.sum;
    }
    std::memcpy(PartSums(part) + first * plan_.value_stride, accumulator_,
                static_cast<size_t>(heads_ * head_rows_ * plan_.value_stride) * sizeof(float));
  }

  // Joins the parts of the task's rows.
  void Merge() {
    const int64_t first = head0_ * head_rows_;
    for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
      std::memset(accumulator_, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      const OnlineRow total = kit::MergeParts(
          group_->parts,
          [&](int64_t part) {
            const float* state = PartStates(part) + 2 * (first + q);
            return OnlineRow{state[0], state[1]};
          },
          [this](float x) {
            return base2_ ? PowerOfNonPositive<true>(x) : PowerOfNonPositive<false>(x);
          },
          [&](int64_t part, float weight) {
            kit::AddScaled(weight, PartSums(part) + (first + q) * plan_.value_stride,
                           value_vectors_ * kLanes, accumulator_);
          });
      WriteOutput(q, total, accumulator_);
    }
  }

 private:
  // Notes a row whose weighted values add up to no number while its weights do: their mean may be
  // one all the same.
  HWY_NOINLINE void NoteOverflow(int64_t q, float sum) {
    if (std::isnan(sum)) return;
    const auto rows = static_cast<size_t>(heads_ * head_rows_);
    if (!any_overflown_) std::memset(overflown_, 0, rows * sizeof(bool));
    any_overflown_ = overflown_[q] = true;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_OUTPUT_INL_H_
