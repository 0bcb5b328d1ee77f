// How one problem is cut into tasks, and how the workspace is laid out.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_PLAN_H_
#define GRAFT_PLUGINS_FLASH_DECODE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "attention.h"

namespace graft {
namespace attention {

// Keys that one step of the online softmax covers at most. Packed matmuls with half as many are
// two percent slower: maxima, factors and accumulators are touched twice as often.
constexpr int64_t kMaxTile = 128;

// Floats of the widest vector, to which scratch rows are padded.
constexpr int64_t kScratchVector = 16;

// Rows of a query block in the path that also returns scores.
constexpr int64_t kScoreRows = 8;

// Where rows are many, softmax takes them in batches of as many as the widest vector has lanes, and
// a matmul takes a batch in blocks of up to kBlockRows.
constexpr int64_t kBatchRows = 16;
constexpr int64_t kBlockRows = 6;
constexpr int64_t kBatchBlocks = (kBatchRows + kBlockRows - 1) / kBlockRows;

// From how many rows on a packed matmul beats one pass over the keys a row.
constexpr int64_t kPackedRows = 16;

// Rows of a task where there are many: enough that packing a tile of keys is a small share, few
// enough that their state stays in the second-level cache.
constexpr int64_t kMaxRows = 192;
constexpr int64_t kFewestRows = 48;

// Of numbers that a plan or a constant bounds; plans themselves round a Size (graft/checked.h).
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}
constexpr int64_t PackedBlocks(int64_t rows) { return DivideUp(rows, kBatchRows) * kBatchBlocks; }
constexpr int64_t ElementSize(Type type) { return type == Type::kFloat32 ? 4 : 2; }

// A task computes `row_chunk` query rows of one KV head against one of `splits` ranges of keys.
// A row is one (query head, query position) pair of those that share the KV head.
struct Plan {
  int64_t rows;        // H / G * S
  int64_t row_chunk;   // rows of a task
  int64_t row_chunks;  // tasks along the rows
  int64_t keys;        // P + N
  int64_t tile;        // keys of a step
  int64_t split_keys;  // keys of a task, a multiple of tile
  int64_t splits;      // tasks along the keys
  int64_t groups;      // B * G * row_chunks: what is merged at the end
  int64_t items;       // groups * splits
  int64_t workers;     // tasks handed to the runtime; each takes items until none is left
  bool packed;         // keys are packed for a matmul of many rows
  bool fetched;        // keys and values come from memory, not from a cache
  bool streamed;       // present bypasses the caches
  float scale;

  // Floats from one row to the next in scratch: sizes padded to full vectors.
  int64_t key_stride;
  int64_t value_stride;
  int64_t score_stride;

  // Byte offsets into the 64-byte aligned workspace.
  size_t counter_offset;  // int64: next item, then one per group: its finished splits
  size_t counter_count;
  size_t partial_offset;  // (row_chunk * (2 + value_stride)) floats an item, when splits > 1
  size_t partial_floats;
  size_t worker_offset;  // scratch of worker 0
  size_t worker_bytes;
  size_t total_bytes;
};

// Offsets, in bytes, of the parts of one worker's scratch.
struct WorkerLayout {
  size_t query, scores, accumulator, maximum, sums, rescale, head, position, low, high;
  size_t begun, overflown, packed_keys, key_rows, value_rows, mean, total;
};

// Where the visible keys of a problem with hidden ones lie, for rows that take no others.
struct VisibleKeys {
  int64_t begin, end;  // from the first to behind the last; equal where all are hidden
  const int32_t*
      next;           // [keys]: the first from each on, or `keys`. null: every row may see all keys
  bool gone;          // a row that sees none of them sees no key
  bool fills;         // all hidden keys have one score that is a number
  bool window_fills;  // so have those beyond the window
};

// Stands for the bounds of a row that sees no visible key, and gives all keys the same weight.
constexpr int64_t kAllAlike = -1;

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning);
WorkerLayout LayOutWorker(const Plan& plan);

// The number of valid keys of batch row b: all of them unless the problem has lengths.
inline int64_t ValidKeys(const Problem& problem, int64_t b) {
  const int64_t keys = problem.past + problem.fresh;
  int64_t length = keys;
  if (problem.lengths32 != nullptr) length = problem.lengths32[b];
  if (problem.lengths64 != nullptr) length = problem.lengths64[b];
  return length < 0 ? 0 : (length > keys ? keys : length);
}

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_PLAN_H_
