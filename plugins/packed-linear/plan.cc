#include "plan.h"

#include <algorithm>

#include "graft/checked.h"
#include "quantized.h"

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
constexpr int64_t kIntegerDepth = 768;  // where both are integers
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

constexpr int64_t kAlignment = 64;

// Bytes of so many floats, in whole lines.
size_t FloatBytes(Size floats) { return RoundUp(floats * sizeof(float), kAlignment).To<size_t>(); }

void PlanStream(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  const Size n = std::max<int64_t>(1, problem.columns), k = problem.depth;
  const int64_t wanted =
      std::min<int64_t>(Size(threads) * kTasksAThread, std::max<int64_t>(1, n * k / kTaskFloats));
  plan->panels = DivideUp(n, kPanel);
  plan->panel =
      tuning.panel > 0 ? Size(tuning.panel) : RoundUp(DivideUp(n, plan->panels), 2 * kLine);
  plan->panels = DivideUp(n, plan->panel);
  plan->splits = std::max<int64_t>(
      1, tuning.splits > 0
             ? tuning.splits
             : std::min<int64_t>(DivideUp(wanted, plan->panels), DivideUp(k, 8 * kStreamBlock)));
  plan->split_depth =
      std::max<int64_t>(kMaxStreamBlock, RoundUp(DivideUp(k, plan->splits), kMaxStreamBlock));
  plan->splits = std::max<int64_t>(1, DivideUp(k, plan->split_depth));
  // A whole tile may be written where a part of one is needed; a line more holds rows of sums
  // out of each other's way in the cache.
  plan->sums_stride = RoundUp(Size(plan->panel), 2 * kLine) + kLine;
  plan->sums_floats = (Size(plan->sums_stride) * problem.rows).To<size_t>();
  if (plan->splits == 1) plan->worker_bytes = FloatBytes(plan->sums_floats);
}

void PlanDots(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  const Size n = std::max<int64_t>(1, problem.columns);
  const Size k = std::max<int64_t>(1, problem.depth);
  const int64_t share = DivideUp(n, Size(threads) * kTasksAThread);
  const int64_t chosen = std::max<int64_t>(1, std::min<int64_t>(share, DivideUp(kTaskFloats, k)));
  plan->panel = tuning.panel > 0 ? tuning.panel : RoundUp(chosen, 4);
  plan->panels = DivideUp(n, plan->panel);
}

void PlanBlocked(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  // Wide blocks are read in longer stretches, and lie better in a cache where rows of W are a power
  // of two apart; they must leave every thread its share.
  plan->panel = kBlockedColumns;
  const Size share = Size(threads) * kTasksAThread;
  for (Size wide = 2 * kBlockedColumns;
       wide <= kMaxBlockedColumns && problem.columns >= share * wide; wide *= 2) {
    plan->panel = wide;
  }
  if (tuning.panel > 0) plan->panel = RoundUp(tuning.panel, kBlockedColumns);
  plan->pack_depth = std::max<int64_t>(1, kBlockedFloats / plan->panel);
  plan->panels = DivideUp(Size(problem.columns), plan->panel);
  plan->row_blocks = std::max<int64_t>(1, DivideUp(Size(problem.rows), kBlockedRows));
  plan->row_block = DivideUp(Size(problem.rows), plan->row_blocks);
  plan->worker_bytes = FloatBytes(Size(plan->pack_depth) * plan->panel);
}

// The scratch of a worker that multiplies panels.
void PlanWorker(const Problem& problem, Plan* plan) {
  const Size rows = plan->row_block, x = rows * problem.depth;
  const bool rounds = RoundsX(problem), expands = ExpandsPanels(problem);
  Scratch scratch;
  scratch.Take(rows * kMaxPair * kLine, sizeof(float));
  plan->packed_offset = scratch.Take(rounds ? Size(0) : x, sizeof(float));
  plan->normal_offset = scratch.Take(problem.before.scale != nullptr ? x : Size(0), sizeof(float));
  plan->expanded_offset =
      scratch.Take(expands ? Size(plan->pack_depth) * kLine : Size(0), sizeof(float));
  if (rounds) {
    const Size padded = RoundUp(Size(problem.depth), kChunk);
    const Size groups = DivideUp(Size(problem.depth), problem.group);
    plan->integer_offset = scratch.Take(rows * padded, sizeof(int16_t));
    plan->integer_row_offset = scratch.Take(padded, sizeof(int16_t));
    plan->integer_scale_offset = scratch.Take(rows * groups, sizeof(float));
    plan->integer_sum_offset = scratch.Take(rows * groups, sizeof(int32_t));
  }
  plan->worker_bytes = scratch.bytes();
}

void PlanPanels(const Problem& problem, int64_t threads, const Tuning& tuning, Plan* plan) {
  // A stretch of a panel and one of a group of x lie in the first cache, x in the second.
  const Size k = std::max<int64_t>(1, problem.depth);
  plan->pack_depth = DivideUp(k, DivideUp(k, kPanelDepth));
  if (ExpandsPanels(problem)) plan->pack_depth = RoundUp(Size(plan->pack_depth), kChunk);
  if (RoundsX(problem)) {
    plan->pack_depth = RoundUp(DivideUp(k, DivideUp(k, kIntegerDepth)), kMaxGroup);
  }
  const Size fitting = std::max<int64_t>(1, kPanelFloats / k / kGroupRows);
  const int64_t maximum = std::min<int64_t>(kMaxRowBlock, fitting * kGroupRows);
  const Size rows = std::max<int64_t>(1, problem.rows);
  plan->row_blocks = DivideUp(rows, maximum);
  plan->row_block = DivideUp(rows, plan->row_blocks);

  // Large tasks first, so that little is done twice, and small ones last, so that all end together.
  plan->all_panels = DivideUp(Size(problem.gated ? problem.columns / 2 : problem.columns), kLine);
  const Size all = std::max<int64_t>(1, plan->all_panels);
  const int64_t max_shares = DivideUp(all * kLine * k, kTaskFloats);
  const Size blocks = Size(threads) * kTopKBlocks, shares = Size(threads) * kTopKShares;
  Size small = all;
  if (plan->row_blocks > blocks) {
    plan->whole_blocks = plan->row_blocks - blocks;
    plan->panels = kTopKShares;
  } else if (plan->row_blocks > 1 || max_shares < shares) {
    plan->panels = DivideUp(blocks * kTopKShares, plan->row_blocks);
  } else {
    plan->large_shares = threads;
    plan->large_panel = all * 2 / 3 / threads;
    small -= Size(plan->large_shares) * plan->large_panel;
    plan->panels = shares;
  }
  plan->panels = std::max<int64_t>(1, std::min(plan->panels, max_shares));
  plan->panel = DivideUp(small, plan->panels);
  if (tuning.panel > 0) {
    plan->whole_blocks = plan->large_shares = 0;
    plan->panel = DivideUp(tuning.panel, kLine);
    small = all;
  }
  plan->panels = Size(plan->large_shares) + DivideUp(small, plan->panel);
  PlanWorker(problem, plan);
}

}  // namespace

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning) {
  Require(problem.rows >= 0 && problem.depth >= 0 && problem.columns >= 0, "a matmul of ",
          problem.rows, " rows of ", problem.depth, " with ", problem.columns, " columns");
  Require(problem.type == WeightType::kFloat32 ||
              (problem.panels &&
               (problem.group == 32 || problem.group == 64 || problem.group == kMaxGroup)),
          "a matmul with panels of fewer bits: group is ", problem.group,
          ", needed is 32, 64 or 128");
  Plan plan{};
  plan.splits = 1;
  plan.row_blocks = 1;
  plan.split_depth = problem.depth;
  threads = std::max<int64_t>(1, threads);
  if (Size(problem.rows) * problem.depth * problem.columns < kSerialWork) threads = 1;
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
  const Size shared = Size(plan.row_blocks) - plan.whole_blocks;
  const bool after = plan.path == Path::kPanels && problem.after.scale != nullptr;
  plan.tasks = shared * plan.panels * plan.splits + plan.whole_blocks;
  plan.workers = std::min(threads, plan.tasks);

  Scratch scratch;
  plan.counter_count = ((plan.splits > 1 ? Size(plan.panels)
                         : after         ? shared
                                         : Size(0)) +
                        1)
                           .To<size_t>();
  scratch.Take(plan.counter_count, sizeof(int64_t));
  plan.partial_offset = scratch.bytes();
  if (plan.splits > 1) scratch.Take(Size(plan.tasks) * plan.sums_floats, sizeof(float));
  plan.worker_offset = scratch.Take(plan.workers, plan.worker_bytes);
  plan.total_bytes = scratch.bytes();
  return plan;
}

}  // namespace linear
}  // namespace graft
