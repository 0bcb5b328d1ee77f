#include "plan.h"

#include <algorithm>

namespace graft {
namespace linear {
namespace {

// Rows from which on W is packed: arithmetic outweighs memory by then.
constexpr int64_t kManyRows = 33;

// Columns of a panel: pieces of rows of 12 KiB, so that few of them begin a page anew; the sums of
// a few rows then wait in the second cache.
constexpr int64_t kPanel = 3072;

// Columns of the widest blocks of a blocked matmul.
constexpr int64_t kMaxBlockedColumns = 512;

// Floats of W in a task: at least about 10 microseconds of reading.
constexpr int64_t kTaskFloats = 65536;

// Rows of a panel that are multiplied at once, rows of x that no group goes beyond, and floats of x
// that fit beside them into a private cache.
constexpr int64_t kPanelDepth = 192;
constexpr int64_t kGroupRows = 16;
constexpr int64_t kPanelFloats = 131072;

// Row blocks for each thread whose panels are shared out, and in how many shares.
constexpr int64_t kTopKBlocks = 2;
constexpr int64_t kTopKShares = 4;

// Tasks for each thread, so that one that is held up leaves its share to the others.
constexpr int64_t kTasksAThread = 4;

// Matmuls below this many multiplications stay on the caller's thread: handing work out costs some
// microseconds.
constexpr int64_t kSerialWork = 100000;

constexpr size_t kAlignment = 64;

size_t Align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void PlanStream(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  const int64_t n = std::max<int64_t>(1, problem.columns), k = problem.depth;
  const int64_t wanted =
      std::min(threads * kTasksAThread, std::max<int64_t>(1, n * k / kTaskFloats));
  plan->panels = DivideUp(n, kPanel);
  plan->panel = tuning.panel > 0 ? tuning.panel : RoundUp(DivideUp(n, plan->panels), 2 * kLine);
  plan->panels = DivideUp(n, plan->panel);
  plan->splits = std::max<int64_t>(1, tuning.splits > 0 ? tuning.splits
                                                        : std::min(DivideUp(wanted, plan->panels),
                                                                   DivideUp(k, 8 * kStreamBlock)));
  plan->split_depth =
      std::max(kMaxStreamBlock, RoundUp(DivideUp(k, plan->splits), kMaxStreamBlock));
  plan->splits = std::max<int64_t>(1, DivideUp(k, plan->split_depth));
  // A whole tile may be written where a part of one is needed; a line more holds rows of sums
  // out of each other's way in the cache.
  plan->sums_stride = RoundUp(plan->panel, 2 * kLine) + kLine;
  plan->sums_floats = static_cast<size_t>(problem.rows * plan->sums_stride);
  if (plan->splits == 1) plan->worker_bytes = Align(sizeof(float) * plan->sums_floats);
}

void PlanDots(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  const int64_t n = std::max<int64_t>(1, problem.columns);
  const int64_t k = std::max<int64_t>(1, problem.depth);
  const int64_t share = DivideUp(n, threads * kTasksAThread);
  plan->panel = tuning.panel > 0
                    ? tuning.panel
                    : RoundUp(std::max<int64_t>(1, std::min(share, DivideUp(kTaskFloats, k))), 4);
  plan->panels = DivideUp(n, plan->panel);
}

void PlanBlocked(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  // Wide blocks are read in longer stretches, and lie better in a cache where rows of W are a power
  // of two apart; they must leave every thread its share.
  plan->panel = kBlockedColumns;
  while (2 * plan->panel <= kMaxBlockedColumns &&
         problem.columns >= 2 * plan->panel * threads * kTasksAThread) {
    plan->panel *= 2;
  }
  if (tuning.panel > 0) plan->panel = RoundUp(tuning.panel, kBlockedColumns);
  plan->pack_depth = std::max<int64_t>(1, kBlockedFloats / plan->panel);
  plan->panels = DivideUp(problem.columns, plan->panel);
  plan->row_blocks = std::max<int64_t>(1, DivideUp(problem.rows, kBlockedRows));
  plan->row_block = DivideUp(problem.rows, plan->row_blocks);
  plan->worker_bytes = Align(sizeof(float) * static_cast<size_t>(plan->pack_depth * plan->panel));
}

void PlanPanels(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  // A stretch of a panel and one of a group of x lie in the first cache, x in the second.
  const int64_t k = std::max<int64_t>(1, problem.depth);
  plan->pack_depth = DivideUp(k, DivideUp(k, kPanelDepth));
  const int64_t fitting = std::max<int64_t>(1, kPanelFloats / k / kGroupRows) * kGroupRows;
  const int64_t maximum = std::min(kMaxRowBlock, fitting);
  const int64_t rows = std::max<int64_t>(1, problem.rows);
  plan->row_blocks = DivideUp(rows, maximum);
  plan->row_block = plan->row_blocks == 1 ? rows : maximum;

  // Large tasks first, so that little is done twice, and small ones last, so that all end together.
  const int64_t all = std::max<int64_t>(1, DivideUp(problem.columns, kLine));
  const int64_t max_shares = DivideUp(all * kLine * k, kTaskFloats);
  int64_t small = all;
  if (plan->row_blocks > kTopKBlocks * threads) {
    plan->whole_blocks = plan->row_blocks - kTopKBlocks * threads;
    plan->panels = kTopKShares;
  } else if (plan->row_blocks > 1 || max_shares < kTopKShares * threads) {
    plan->panels = DivideUp(kTopKBlocks * kTopKShares * threads, plan->row_blocks);
  } else {
    plan->large_shares = threads;
    plan->large_panel = all * 2 / 3 / threads;
    small -= plan->large_shares * plan->large_panel;
    plan->panels = kTopKShares * threads;
  }
  plan->panels = std::max<int64_t>(1, std::min(plan->panels, max_shares));
  plan->panel = DivideUp(small, plan->panels);
  if (tuning.panel > 0) {
    plan->whole_blocks = plan->large_shares = 0;
    plan->panel = DivideUp(tuning.panel, kLine);
    small = all;
  }
  plan->panels = plan->large_shares + DivideUp(small, plan->panel);
  const int64_t copies = problem.norm ? 2 : 1;  // of x
  plan->worker_bytes = Align(
      sizeof(float) * static_cast<size_t>(plan->row_block * (copies * problem.depth + kLine)));
}

}  // namespace

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning) {
  Plan plan{};
  plan.splits = 1;
  plan.row_blocks = 1;
  plan.split_depth = problem.depth;
  threads = std::max<int64_t>(1, threads);
  if (problem.rows * problem.depth * problem.columns < kSerialWork) threads = 1;
  const int64_t many = tuning.blocked_rows > 0 ? tuning.blocked_rows : kManyRows;
  if (problem.panels) {
    plan.path = Path::kPanels;
    PlanPanels(problem, threads, tuning, &plan);
  } else if (problem.rows >= many) {
    plan.path = Path::kBlocked;
    PlanBlocked(problem, threads, tuning, &plan);
  } else if (problem.transposed) {
    plan.path = Path::kDots;
    PlanDots(problem, threads, tuning, &plan);
  } else {
    plan.path = Path::kStream;
    PlanStream(problem, threads, tuning, &plan);
  }
  plan.tasks =
      plan.whole_blocks + plan.panels * plan.splits * (plan.row_blocks - plan.whole_blocks);
  plan.workers = std::min(threads, plan.tasks);

  plan.counter_count = 1 + static_cast<size_t>(plan.splits > 1 ? plan.panels : 0);
  plan.partial_offset = Align(plan.counter_count * sizeof(int64_t));
  plan.worker_offset = plan.partial_offset;
  if (plan.splits > 1) {
    plan.worker_offset += Align(sizeof(float) * plan.sums_floats * static_cast<size_t>(plan.tasks));
  }
  plan.total_bytes = plan.worker_offset + plan.worker_bytes * static_cast<size_t>(plan.workers);
  return plan;
}

}  // namespace linear
}  // namespace graft
