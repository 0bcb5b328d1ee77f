// How one problem is cut into tasks, and how the workspace is laid out.
#ifndef GRAFT_PLUGINS_PACKED_LINEAR_PLAN_H_
#define GRAFT_PLUGINS_PACKED_LINEAR_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace graft {
namespace linear {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Floats of a cache line.
constexpr int64_t kLine = 16;

// Blocked matmuls: rows of a task, columns of the narrowest, and floats of W that are packed at
// once: 192 KiB, with the next block on its way less than any recent private cache.
constexpr int64_t kBlockedRows = 240;
constexpr int64_t kBlockedColumns = 128;
constexpr int64_t kBlockedFloats = 49152;

// Rows of W that a streamed matmul takes at once, for few rows of x and for more.
constexpr int64_t kStreamBlock = 8;
constexpr int64_t kMaxStreamBlock = 16;

// Packed panels: rows of x that a task takes at most, and rows up to which x is read as stored.
constexpr int64_t kMaxRowBlock = 96;
constexpr int64_t kDirectRows = 4;

// Panels that are multiplied at once at most.
constexpr int64_t kMaxPair = 2;

enum class Path {
  kPanels,   // W lies in panels
  kStream,   // few rows, W [K, N]: rows of W go by, sums wait in the nearest cache
  kDots,     // few rows, W [N, K]: dot products
  kBlocked,  // many rows
};

// A task is a panel of columns and a part of the depth (kStream), a range of columns (kDots), or a
// block of rows and columns (kBlocked, and kPanels, where columns are counted in panels).
struct Plan {
  Path path;
  int64_t panel;         // columns of a task; kPanels: its panels
  int64_t panels;        // tasks along the columns
  int64_t splits;        // tasks along the depth
  int64_t split_depth;   // depth of a task
  int64_t row_blocks;    // tasks along the rows
  int64_t row_block;     // rows of a task
  int64_t whole_blocks;  // kPanels: row blocks whose panels are not shared out
  int64_t large_shares;  // kPanels: first shares of a block's panels, and their size
  int64_t large_panel;
  int64_t all_panels;  // kPanels: of the weight, or of half of it where it is gated
  int64_t pack_depth;  // rows of W that are packed, or multiplied, at once
  int64_t tasks;
  int64_t workers;  // tasks handed to the runtime; each takes tasks until none is left

  // Byte offsets into the 64-byte aligned workspace.
  // int64: next task, then one a panel: its finished splits, or one a row block that is shared out:
  // its finished shares
  size_t counter_offset;
  size_t counter_count;
  size_t partial_offset;  // sums of task 0, when splits > 1; else they lie with the worker
  size_t sums_floats;     // of one task
  int64_t sums_stride;    // floats from one row of sums to the next
  size_t worker_offset;   // scratch of worker 0: sums, a packed block, or both
  size_t worker_bytes;

  // kPanels: byte offsets into the scratch of a worker, whose sums come first.
  size_t packed_offset;         // x, packed
  size_t normal_offset;         // x, normalized
  size_t expanded_offset;       // a stretch of a panel as float32
  size_t integer_offset;        // x as integers
  size_t integer_row_offset;    // a row of them
  size_t integer_scale_offset;  // their scales
  size_t integer_sum_offset;    // their sums

  bool dots;  // kPanels: with the instructions for dot products of bytes
  size_t total_bytes;
};

// Whether x is rounded to integers, and whether panels are made float32 before they are multiplied.
inline bool RoundsX(const Problem& problem) {
  return problem.panels && problem.row_type != RowType::kFloat32 &&
         (problem.type == WeightType::kInt8 || problem.type == WeightType::kInt4);
}
inline bool ExpandsPanels(const Problem& problem) {
  return problem.panels && problem.type != WeightType::kFloat32 && !RoundsX(problem);
}

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning);

}  // namespace linear
}  // namespace graft

#endif  // GRAFT_PLUGINS_PACKED_LINEAR_PLAN_H_
