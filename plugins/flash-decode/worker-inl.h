// One worker: takes tasks of the plan until none is left.
#if defined(GRAFT_FLASH_DECODE_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_WORKER_INL_H_
#undef GRAFT_FLASH_DECODE_WORKER_INL_H_
#else
#define GRAFT_FLASH_DECODE_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "attention.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "packed-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "softmax-inl.h"
#include "task_mean-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

class Worker : public TaskMean {
 public:
  using TaskMean::TaskMean;

  void TakeItems() {
    std::atomic<int64_t>* counters = Counters();
    for (;;) {
      const int64_t item = counters[0].fetch_add(1, std::memory_order_relaxed);
      if (item >= plan_.items) break;
      ComputeItem(item);
    }
  }

 protected:
  std::atomic<int64_t>* Counters() const {
    return reinterpret_cast<std::atomic<int64_t>*>(workspace_ + plan_.counter_offset);
  }

  void ComputeItem(int64_t item) {
    const int64_t split = item % plan_.splits;
    const int64_t group = item / plan_.splits;
    // The last rows of a causal problem see the most keys: the longest tasks go first.
    const int64_t chunk = plan_.row_chunks - 1 - group % plan_.row_chunks;
    const int64_t head = group / plan_.row_chunks;
    b_ = head / problem_.kv_heads;
    g_ = head % problem_.kv_heads;
    row0_ = chunk * plan_.row_chunk;
    rows_ = std::min(plan_.row_chunk, plan_.rows - row0_);
    copies_ = chunk == 0;

    StartRows();
    StartStates(split == 0);
    const int64_t begin = split * plan_.split_keys;
    const int64_t end = std::min(plan_.keys, begin + plan_.split_keys);
    if (problem_.scores.data != nullptr) {
      ComputeWithScores();
      if (any_overflown_) WriteMeans();
      return;
    }
    // Where nothing is copied, tiles begin with the first key that is seen.
    const bool copied =
        problem_.present_key.data != nullptr || problem_.present_value.data != nullptr;
    for (int64_t j = copied ? begin : std::max(begin, lowest_), stop; j < end; j = stop) {
      stop = TileEnd(j, end);
      const int64_t first = std::max(j, lowest_);
      const int64_t last = std::min(stop, highest_);
      if (first < last) {
        if (plan_.packed) {
          StepPacked(first, last - first);
          CopyKeys(j, stop);
          CopyValues(j, stop);
        } else {
          StepRows(first, last - first, j, stop);
        }
      } else if (copies_) {
        CopyKeys(j, stop);
        CopyValues(j, stop);
      } else if (j >= highest_) {
        break;
      }
    }
    if (plan_.streamed) hwy::FlushStream();
    if (plan_.splits == 1) {
      for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
        rows = std::min(kBatchRows, rows_ - r0);
        // Many rows are written as soon as they have seen their last key.
        if (!plan_.packed || LastKey(r0, rows) < 0) WriteBatch(r0, rows);
      }
      if (any_overflown_) WriteMeans();
      return;
    }
    StorePartial(item);
    // Whoever finishes a group last merges it; the others' stores happen before its load.
    const int64_t finished = Counters()[1 + group].fetch_add(1, std::memory_order_acq_rel) + 1;
    if (finished != plan_.splits) return;
    MergeGroup(group);
    if (any_overflown_) WriteMeans();
  }

 private:
  // One step of a few rows over keys j .. j+count-1. It also copies copy_begin .. copy_end-1.
  void StepRows(int64_t j, int64_t count, int64_t copy_begin, int64_t copy_end) {
    const bool whole = j == copy_begin && j + count == copy_end;
    CopyTarget copied{nullptr, 0};
    const Rows keys = Keys(j, count, false);
    if (whole)
      copied = Passing(problem_.present_key, keys, key_rows_, j, count, problem_.head_size);
    if (copied.first == nullptr) {
      Fetch(problem_.past_key, problem_.key, j, count, problem_.head_size);
    }
    DotTile(query_, plan_.key_stride, rows_, keys, count, key_vectors_, copied, scores_,
            plan_.score_stride);
    // The values are on their way while the weights are computed.
    Fetch(problem_.past_value, problem_.value, j, count, problem_.value_size);
    if (copies_ && copied.first == nullptr) CopyKeys(copy_begin, copy_end);
    for (int64_t r = 0; r < rows_; ++r) {
      float* scores = scores_ + r * plan_.score_stride;
      AdjustScores(r, j, count, scores);
      rescale_[r] = Take(maximum_[r], sums_ + r * kLanes, count, scores);
    }
    const Rows values = WeightedValues(j, count, false, scores_, plan_.score_stride);
    copied.first = nullptr;
    if (whole) {
      copied = Passing(problem_.present_value, values, value_rows_, j, count, problem_.value_size);
    }
    AddWeightedTile(scores_, plan_.score_stride, rows_, values, count, value_vectors_, copied,
                    rescale_, accumulator_, plan_.value_stride);
    if (copies_ && copied.first == nullptr) CopyValues(copy_begin, copy_end);
  }

  // One step of many rows. Scores of all rows first, then all weighted values, so that one packed
  // tile at a time lives in the nearest cache.
  void StepPacked(int64_t j, int64_t count) {
    const bool half = problem_.type == Type::kFloat16;
    PackKeys(Keys(j, count, half).Of<float>(), count, problem_.head_size, key_scale_, key_rows_,
             packed_keys_);
    const bool all = SeenByAll(j, count);
    const bool plain = all && !masks_ && problem_.softcap <= 0.0f && count % kLanes == 0;
    for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
      rows = std::min(kBatchRows, rows_ - r0);
      const Span seen = all ? Span{0, count} : SeenBy(r0, rows, j, count);
      float* scores = scores_ + r0 * plan_.score_stride;
      // Weights that nobody computes below count as "not used" when masked values are dropped.
      if (masks_ && seen.size() < count) {
        std::memset(scores, 0, static_cast<size_t>(rows * plan_.score_stride) * sizeof(float));
      }
      if (seen.size() == 0) continue;
      scores += seen.begin;
      ForBlocks(r0, rows, [&](int64_t first, int64_t height, int64_t) {
        const Span columns = all ? Span{0, count} : SeenBy(first, height, j, count);
        if (columns.size() == 0) return;
        Product(queries_.first + first * queries_.stride, queries_.stride, height,
                packed_keys_ + columns.begin, kMaxTile, problem_.head_size,
                DivideUp(columns.size(), kLanes), nullptr,
                scores_ + first * plan_.score_stride + columns.begin, plan_.score_stride);
      });
      for (int64_t r = 0; r < rows && !plain; ++r) {
        AdjustScores(r0 + r, j + seen.begin, seen.size(), scores + r * plan_.score_stride);
      }
      for (int64_t r = 0; r < rows; r += kLanes) {
        const int64_t part = std::min(kLanes, rows - r);
        float* tile = scores + r * plan_.score_stride;
        if (base2_) {
          TakeTiles<true>(part, seen.size(), tile, plan_.score_stride, maximum_ + r0 + r,
                          sums_ + (r0 + r) * kLanes, rescale_ + r0 + r);
        } else {
          TakeTiles<false>(part, seen.size(), tile, plan_.score_stride, maximum_ + r0 + r,
                           sums_ + (r0 + r) * kLanes, rescale_ + r0 + r);
        }
      }
    }
    const Input& input = j < problem_.past ? problem_.past_value : problem_.value;
    const bool apart = input.strides.position != problem_.value_size;
    const bool gather = half || (apart && count > kFewApart);
    const RowsOfType<float> values =
        WeightedValues(j, count, gather, scores_, plan_.score_stride).Of<float>();
    for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
      rows = std::min(kBatchRows, rows_ - r0);
      ForBlocks(r0, rows, [&](int64_t first, int64_t height, int64_t block) {
        const Span seen = all ? Span{0, count} : SeenBy(first, height, j, count);
        if (seen.size() == 0) return;
        Product(scores_ + first * plan_.score_stride + seen.begin, plan_.score_stride, height,
                values.first + seen.begin * values.stride, values.stride, seen.size(),
                value_vectors_, begun_[block] ? rescale_ + first : nullptr,
                accumulator_ + first * plan_.value_stride, plan_.value_stride);
        begun_[block] = true;
      });
      // Written at once, finished rows are in the nearest cache, and stores wait after matmuls.
      const int64_t last = LastKey(r0, rows);
      if (plan_.splits == 1 && last >= j && last < j + count) WriteBatch(r0, rows);
    }
  }

  // Cuts a batch of rows into blocks of equal height: one of one or two rows would leave the
  // arithmetic units waiting. Calls body(first row, rows, index of the block).
  template <class Body>
  void ForBlocks(int64_t r0, int64_t rows, const Body& body) const {
    const int64_t blocks = DivideUp(rows, kBlockRows);
    const int64_t height = rows / blocks;
    const int64_t low = blocks - (rows - blocks * height);  // blocks of this height, not one more
    const int64_t index = r0 / kBatchRows * kBatchBlocks;
    for (int64_t block = 0, next; block < blocks; ++block, r0 = next) {
      next = r0 + height + (block < low ? 0 : 1);
      body(r0, next - r0, index + block);
    }
  }

  // A few rows with all their scores stored, because the caller wants them.
  void ComputeWithScores() {
    const ScoresStage stage = problem_.scores_stage;
    for (int64_t j = 0, count; j < plan_.keys; j += count) {
      count = TileEnd(j, plan_.keys) - j;
      DotTile(query_, plan_.key_stride, rows_, Keys(j, count, false), count, key_vectors_,
              CopyTarget{nullptr, 0}, scores_ + j, plan_.score_stride);
      CopyKeys(j, j + count);
      CopyValues(j, j + count);
      for (int64_t r = 0; r < rows_; ++r) {
        float* scores = scores_ + r * plan_.score_stride + j;
        if (stage == ScoresStage::kProduct) WriteScores(r, j, count, 1.0f, scores);
        if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
        if (stage == ScoresStage::kSoftcapped) WriteScores(r, j, count, 1.0f, scores);
        MaskScores(r, j, count, scores);
        if (stage == ScoresStage::kMasked) WriteScores(r, j, count, 1.0f, scores);
      }
    }
    if (plan_.streamed) hwy::FlushStream();
    if (plan_.keys > 0) {
      for (int64_t r = 0; r < rows_; ++r) {
        float* scores = scores_ + r * plan_.score_stride;
        ApplyLimits(0, plan_.keys, plan_.keys, scores);
        TakeTile<false>(maximum_[r], sums_ + r * kLanes, plan_.keys, scores);
        rescale_[r] = 1.0f;
        if (stage == ScoresStage::kProbabilities) WriteProbabilities(r, scores);
      }
    }
    const int64_t end = std::min(plan_.keys, highest_);
    for (int64_t j = 0, count; j < end; j += count) {
      count = TileEnd(j, end) - j;
      const Rows values = WeightedValues(j, count, false, scores_ + j, plan_.score_stride);
      AddWeightedTile(scores_ + j, plan_.score_stride, rows_, values, count, value_vectors_,
                      CopyTarget{nullptr, 0}, rescale_, accumulator_, plan_.value_stride);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      WriteRow(r, State(r), accumulator_ + r * plan_.value_stride);
    }
  }
};

// Entry of this target: runs worker `index` of the plan.
void RunWorker(const Problem& problem, const Plan& plan, char* workspace, int64_t index) {
  Worker(problem, plan, workspace, index).TakeItems();
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_WORKER_INL_H_
