// How one problem is cut into tasks, and how the workspace is laid out.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_PLAN_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace graft {
namespace quantized {

// Three phases, each begun when the one before is done: the range of x, its integers, and products.
struct Plan {
  int64_t workers;
  int64_t range_chunk;  // numbers of a task of the first phase
  int64_t range_tasks;
  int64_t round_rows;  // rows of a task of the second
  int64_t round_tasks;
  int64_t row_block;  // rows of a task of the third
  int64_t row_blocks;
  int64_t share;   // groups of kTilePanels panels of such a task
  int64_t shares;  // tasks of one row block

  int64_t groups;    // of all weights
  int64_t steps;     // of the depth
  int64_t x_stride;  // bytes of a row of integers

  // Byte offsets into the aligned workspace.
  size_t counters;     // int64 of each phase: next and finished
  size_t ranges;       // of each task of the first phase: least, greatest, whether there is NaN
  size_t integers;     // [M][x_stride]
  size_t row_sums;     // [M]
  size_t shares_done;  // int64 of each row block that is normalised
  size_t y_ranges;     // of each task of the third phase, where that of y is wanted
  size_t total_bytes;
};

Plan MakePlan(const Problem& problem, int64_t threads);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_PLAN_H_
