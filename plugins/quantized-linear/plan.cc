#include "plan.h"

#include <algorithm>

#include "graft/checked.h"
#include "kernel.h"

namespace graft {
namespace quantized {
namespace {

// Numbers whose range, or whose integers, take about ten microseconds.
constexpr int64_t kRangeChunk = 32768, kRoundChunk = 16384;

// Rows that share the panels that a task reads.
constexpr int64_t kRowBlock = 64;

// Tasks for each thread, so that one that is held up leaves its share to the others.
constexpr int64_t kTasksAThread = 4;

// Products of a task, at least: about ten microseconds.
constexpr int64_t kTaskProducts = 2000000;

// Problems of fewer products stay on the caller's thread.
constexpr int64_t kSerialProducts = 500000;

}  // namespace

Plan MakePlan(const Problem& problem, int64_t threads) {
  Require(problem.rows >= 0 && problem.depth >= 0, "a matmul of ", problem.rows, " rows of ",
          problem.depth);
  Plan plan{};
  threads = std::max<int64_t>(1, threads);
  const Size rows = problem.rows, depth = problem.depth;
  Size groups = 0, columns = 0;
  for (int i = 0; i < problem.weight_count; ++i) {
    const int64_t n = problem.weights[i].columns;
    Require(n >= 0, "a matmul with ", n, " columns");
    columns += RoundUp(Size(n), kPanelColumns);
    groups += DivideUp(Size(n), kPanelColumns * kTilePanels);
  }
  plan.groups = groups;
  plan.steps = DivideUp(depth, kDepthStep);
  plan.x_stride = Size(plan.steps) * kDepthStep;
  const Size products = rows * depth * columns;
  if (products < kSerialProducts) threads = 1;

  plan.range_chunk = kRangeChunk;
  plan.range_tasks =
      problem.x == nullptr || problem.x_range_known ? Size(0) : DivideUp(rows * depth, kRangeChunk);
  plan.round_rows = std::max<int64_t>(1, kRoundChunk / std::max<int64_t>(1, depth));
  plan.round_tasks = DivideUp(rows, plan.round_rows);

  plan.row_blocks = std::max<int64_t>(1, DivideUp(rows, kRowBlock));
  plan.row_block = RoundUp(Size(std::max<int64_t>(1, DivideUp(rows, plan.row_blocks))), kTileRows);
  plan.row_blocks = std::max<int64_t>(1, DivideUp(rows, plan.row_block));
  const int64_t wanted = DivideUp(Size(threads) * kTasksAThread, plan.row_blocks);
  const int64_t most = std::max<int64_t>(1, Size(plan.row_block) * depth * columns / kTaskProducts);
  plan.shares = threads == 1 ? 1 : std::max<int64_t>(1, std::min({wanted, most, int64_t{groups}}));
  plan.share = std::max<int64_t>(1, DivideUp(groups, plan.shares));
  plan.shares = std::max<int64_t>(1, DivideUp(groups, plan.share));
  const int64_t tasks = Size(plan.row_blocks) * plan.shares;
  plan.workers = std::min(threads, std::max({tasks, plan.range_tasks, plan.round_tasks}));

  Scratch scratch;
  plan.counters = scratch.Take(3, 2 * Scratch::kLine);
  plan.ranges = scratch.Take(plan.range_tasks, 3 * sizeof(float));
  plan.integers = scratch.Take(rows, static_cast<size_t>(plan.x_stride));
  plan.row_sums = scratch.Take(rows, sizeof(int32_t));
  plan.shares_done = scratch.Take(problem.norm.wanted ? plan.row_blocks : 0, sizeof(int64_t));
  plan.y_ranges = scratch.Take(problem.y_range_wanted ? tasks : 0, sizeof(Range));
  plan.total_bytes = scratch.bytes();
  return plan;
}

}  // namespace quantized
}  // namespace graft
