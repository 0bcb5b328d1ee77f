// How one call over a pool is cut into tasks, and how its workspace is laid out.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_CACHED_PLAN_H_
#define GRAFT_PLUGINS_FLASH_DECODE_CACHED_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "cached.h"
#include "plan.h"

namespace graft {
namespace attention {

// Positions of a step over shared positions, and over private ones: whole vectors of scores.
constexpr int64_t kSharedTile = 32;
constexpr int64_t kPrivateTile = 16;

// One group of rows. Its tasks are (rows, KV heads, part of the keys).
struct CachedGroup {
  int64_t first, rows;
  const int32_t* shared_slots;
  int64_t shared_count;  // S
  const int32_t* private_slots;
  int64_t private_count;  // m
  bool causal;

  int64_t row_chunk, row_chunks;
  int64_t head_chunk, head_chunks;
  int64_t parts;
  int64_t first_item;  // its tasks are first_item .. first_item + items - 1
  // Where parts > 1, and then row_chunks is 1:
  int64_t first_unit;    // counters of finished tasks, one a head chunk
  size_t first_partial;  // floats: a part's sums [rows * heads][value_stride], then its [2] states

  int64_t items() const { return row_chunks * head_chunks * parts; }
  int64_t keys() const { return shared_count + private_count; }
  int64_t position(int64_t row) const { return causal ? shared_count - rows + row : keys() - 1; }
  // The first key of a part; parts cost the same in bytes, a private position counting once a row.
  int64_t PartBegin(int64_t part) const {
    if (part >= parts) return keys();
    const int64_t cost = (shared_count + rows * private_count) * part / parts;
    if (cost < shared_count) return cost / kBlockSlots * kBlockSlots;
    return shared_count + (cost - shared_count) / rows / kPrivateTile * kPrivateTile;
  }
};

struct CachedPlan {
  int64_t group_heads;  // query heads of a KV head
  float scale;
  int64_t key_stride;  // floats of a row in scratch: sizes padded to full vectors
  int64_t value_stride;
  int64_t query_rows;  // most rows of query heads that one task holds
  int64_t head_rows;   // most of them that share a KV head
  int64_t row_chunk;   // most tokens of a task

  int64_t items;
  int64_t many_items;  // the first of them, of groups of many rows
  int64_t writes;      // tasks of writing new keys and values
  int64_t write_rows;  // rows of each
  int64_t workers;

  // Byte offsets into the 64-byte aligned workspace.
  size_t counter_offset;  // int64: next write, finished writes, next item, then finished of units
  size_t counter_count;
  size_t group_offset;  // CachedGroup[groups]
  size_t partial_offset;
  size_t worker_offset;
  size_t worker_bytes;
  size_t total_bytes;
};
enum CachedCounter {
  kNextWrite,
  kFinishedWrites,
  kTakenManyItems,
  kTakenFewItems,
  kCachedCounters
};

// Tasks of many rows are arithmetic, those of few are reading: they may want different registers.
enum class CachedStage { kManyRows, kFewRows };

// Offsets, in bytes, of the parts of one worker's scratch.
struct CachedWorkerLayout {
  size_t query, accumulator, maximum, sums, rescale, overflown, scores, low, high;
  size_t key_offsets[2], value_offsets[2], scale_offsets[2], key_rows, value_rows, packed_keys;
  size_t total;
};
CachedWorkerLayout LayOutCachedWorker(const CachedPlan& plan);

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_CACHED_PLAN_H_
