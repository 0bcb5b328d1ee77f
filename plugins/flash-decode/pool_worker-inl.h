// One worker of a call over a pool: writes new keys and values, then takes attention tasks until
// none is left.
#if defined(GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cached.h"
#include "cached_plan.h"
#include "graft/tasks.h"
#include "hwy/highway.h"
#include "listed-inl.h"
#include "packed-inl.h"
#include "pool_mean-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

class CachedWorker : public PoolMean {
 public:
  using PoolMean::PoolMean;

  void Work(CachedStage stage) {
    WriteAll();
    packed_ = stage == CachedStage::kManyRows;
    const int64_t begin = packed_ ? 0 : plan_.many_items;
    const int64_t end = packed_ ? plan_.many_items : plan_.items;
    std::atomic<int64_t>& taken = Counters()[packed_ ? kTakenManyItems : kTakenFewItems];
    int64_t g = 0;
    for (;;) {
      const int64_t item = begin + taken.fetch_add(1, std::memory_order_relaxed);
      if (item >= end) break;
      // Tasks do not stand in the order of their groups.
      while (item < groups_[g].first_item || item >= groups_[g].first_item + groups_[g].items()) {
        if (++g == problem_.groups) g = 0;
      }
      ComputeItem(groups_[g], item - groups_[g].first_item);
    }
  }

 private:
  std::atomic<int64_t>* Counters() const {
    return reinterpret_cast<std::atomic<int64_t>*>(workspace_ + plan_.counter_offset);
  }

  // Takes part in writing this call's keys and values and returns when all are written.
  void WriteAll() {
    if (plan_.writes == 0) return;
    std::atomic<int64_t>* counters = Counters();
    TakeTasks(counters[kNextWrite], counters[kFinishedWrites], plan_.writes, [this](int64_t task) {
      const int64_t end = std::min(problem_.rows, (task + 1) * plan_.write_rows);
      for (int64_t row = task * plan_.write_rows; row < end; ++row) WriteRow(row);
    });
    WaitForTasks(counters[kFinishedWrites], plan_.writes);
  }

  void WriteRow(int64_t row) const {
    const int32_t slot = problem_.slot_mapping[row];
    if (slot < 0) return;
    const float* key = problem_.key + row * problem_.key_stride;
    const float* value = problem_.value + row * problem_.value_stride;
    for (int64_t h = 0; h < pool_.kv_heads; ++h) {
      const float key_scale = StoreStored(pool_.storage, key + h * pool_.head_size, 1,
                                          pool_.head_size, pool_.Key(slot, h));
      const float value_scale = StoreStored(pool_.storage, value + h * pool_.value_size, 1,
                                            pool_.value_size, pool_.Value(slot, h));
      pool_.Scale(slot, h, key_scale, value_scale);
    }
  }

  void ComputeItem(const CachedGroup& group, int64_t item) {
    group_ = &group;
    const int64_t part = item % group.parts;
    const int64_t unit = item / group.parts;
    // The last rows of a prompt see the most keys: the longest tasks go first.
    const int64_t chunk = group.row_chunks - 1 - unit / group.head_chunks;
    row0_ = chunk * group.row_chunk;
    rows_ = std::min(group.row_chunk, group.rows - row0_);
    head0_ = unit % group.head_chunks * group.head_chunk;
    heads_ = std::min(group.head_chunk, pool_.kv_heads - head0_);
    head_rows_ = rows_ * plan_.group_heads;

    StartRows();
    for (int64_t q = 0; part == 0 && q < heads_ * head_rows_; ++q) StartSink(q);
    const int64_t begin = std::max(group.PartBegin(part), lowest_);
    const int64_t end = std::min(group.PartBegin(part + 1), highest_);
    PoolTile* tile = &tiles_[0];
    PoolTile* next = &tiles_[1];
    if (begin < end) List(begin, end, *tile);
    for (int64_t j = begin; j < end; std::swap(tile, next)) {
      j += tile->count;
      if (j < end) List(j, end, *next);
      if (packed_ && tile->lists == 1) {
        StepPacked(*tile);
      } else {
        Step(*tile, j < end ? next : nullptr);
      }
    }
    if (group.parts == 1) {
      for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
        WriteOutput(q, State(q), accumulator_ + q * plan_.value_stride);
      }
      if (any_overflown_) WriteMeans();
      return;
    }
    StorePartial(part);
    // Whoever finishes a head chunk last merges it; the others' stores happen before its load.
    std::atomic<int64_t>& finished = Counters()[kCachedCounters + group.first_unit + unit];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 != group.parts) return;
    Merge();
    if (any_overflown_) WriteMeans();
  }

  // One tile, for all KV heads of the task. While one head is computed, memory is prefetched for
  // the next head, or for the next tile after the last. All rows of a tile come before the next
  // tile, so that rows that share slots find them in the nearest cache.
  void Step(const PoolTile& tile, const PoolTile* next) {
    const int64_t rows = rows_ / tile.lists;
    for (int64_t h = 0; h < heads_; ++h) {
      const PoolTile* later = h + 1 < heads_ ? &tile : next;
      const int64_t later_head = head0_ + (h + 1 < heads_ ? h + 1 : 0);
      for (int64_t i = 0; i < tile.lists; ++i) {
        LaterRows after{nullptr, nullptr, later_head};
        if (later != nullptr && !ReadsPlainly(rows, *later)) {
          after.keys = later->key_offsets + i * tile.padded;
          after.values = later->value_offsets + i * tile.padded;
          if (scaled_) {
            PrefetchScales(later->scale_offsets + i * tile.padded, later->count, later_head);
          }
        }
        StepRows(h, i * rows, rows, tile, after);
      }
    }
  }

  // Whether one query row reads numbers that lie side by side, each of them once: what a CPU
  // prefetches itself, and better where no other requests take the place of its own (measured: 5 to
  // 15 %). Where numbers have fewer bytes the arithmetic between two lines is too long for that.
  bool ReadsPlainly(int64_t rows, const PoolTile& tile) const {
    return rows * plan_.group_heads == 1 && tile.adjacent && pool_.storage == Storage::kFloat32;
  }

  // One shared tile of many rows, for all KV heads of the task: keys are packed for a
  // register-tiled matmul. Scores of all rows first, then all weighted values, so that one packed
  // tile at a time lives in the nearest cache.
  void StepPacked(const PoolTile& tile) {
    for (int64_t h = 0; h < heads_; ++h) StepPackedHead(h, tile);
  }
  void StepPackedHead(int64_t h, const PoolTile& tile) {
    const int64_t first = h * head_rows_;
    const int64_t head = head0_ + h;
    PackTile(head, tile);
    for (int64_t r0 = 0, rows; r0 < head_rows_; r0 += rows) {
      rows = std::min(kBatchRows, head_rows_ - r0);
      float* scores = scores_ + r0 * kMaxTile;
      const int64_t seen = SeenBy(r0 + rows - 1, tile);
      if (seen == 0) continue;
      ForBlocks(r0, rows, [&](int64_t r, int64_t height) {
        const int64_t columns = SeenBy(r + height - 1, tile);
        if (columns == 0) return;
        Product(query_ + (first + r) * plan_.key_stride, plan_.key_stride, height, packed_keys_,
                kMaxTile, pool_.head_size, DivideUp(columns, kLanes), nullptr,
                scores_ + r * kMaxTile, kMaxTile);
      });
      for (int64_t r = 0; r < rows; ++r) {
        AdjustScores(h, r0 + r, tile.begin, seen, scores + r * kMaxTile);
      }
      for (int64_t r = 0; r < rows; r += kLanes) {
        TakeRows(first + r0 + r, std::min(kLanes, rows - r), seen, scores + r * kMaxTile,
                 rescale_ + r0 + r);
      }
    }
    for (int64_t r0 = 0, rows; r0 < head_rows_; r0 += rows) {
      rows = std::min(kBatchRows, head_rows_ - r0);
      ForBlocks(r0, rows, [&](int64_t r, int64_t height) {
        const int64_t seen = SeenBy(r + height - 1, tile);
        if (seen == 0) return;
        Product(scores_ + r * kMaxTile, kMaxTile, height, value_rows_, plan_.value_stride, seen,
                value_vectors_, rescale_ + r, accumulator_ + (first + r) * plan_.value_stride,
                plan_.value_stride);
      });
    }
  }

  // Turns the scores of up to kLanes rows into weights.
  void TakeRows(int64_t first, int64_t rows, int64_t count, float* scores, float* rescale) {
    float* sums = sums_ + first * kLanes;
    if (base2_) {
      TakeTiles<true>(rows, count, scores, kMaxTile, maximum_ + first, sums, rescale);
    } else {
      TakeTiles<false>(rows, count, scores, kMaxTile, maximum_ + first, sums, rescale);
    }
  }

  // Cuts a batch of rows into blocks of equal height: one of one or two rows would leave the
  // arithmetic units waiting. Calls body(first row, rows).
  template <class Body>
  static void ForBlocks(int64_t r0, int64_t rows, const Body& body) {
    const int64_t blocks = DivideUp(rows, kBlockRows);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = rows * block / blocks;
      body(r0 + first, rows * (block + 1) / blocks - first);
    }
  }

  // One step of the online softmax: rows `row` .. `row + rows - 1` of KV head h over a tile.
  void StepRows(int64_t h, int64_t row, int64_t rows, const PoolTile& tile,
                const LaterRows& later) {
    const int64_t j = tile.begin;
    const int64_t count = tile.count;
    const int64_t at = tile.lists > 1 ? row * tile.padded : 0;
    const int64_t first = h * head_rows_ + row * plan_.group_heads;
    const int64_t queries = rows * plan_.group_heads;
    const int64_t head = head0_ + h;
    DotKeys(first, queries, tile, at, head, later);
    for (int64_t q = 0; q < queries; ++q) {
      float* scores = scores_ + q * kMaxTile;
      AdjustScores(h, row * plan_.group_heads + q, j, count, scores);
      float& maximum = maximum_[first + q];
      float* sums = sums_ + (first + q) * kLanes;
      rescale_[q] = Take(maximum, sums, count, scores);
    }
    AddValues(first, queries, tile, at, head, later, rescale_);
  }
};

// Entry of this target: runs worker `index` of the plan.
void RunCachedWorker(const CachedProblem& problem, const CachedPlan& plan, char* workspace,
                     int64_t index, CachedStage stage) {
  CachedWorker(problem, plan, workspace, index).Work(stage);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
