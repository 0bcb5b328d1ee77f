#include "plan.h"

#include <algorithm>

namespace graft {
namespace cuda {
namespace ngram_block {
namespace {

// Places a thread looks at, at most, before another block is worth its cost.
constexpr int64_t kPlaces = 8;
constexpr int32_t kMost = 256;  // threads of a block
// With more tasks than this a block takes several.
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

int32_t Threads(int64_t places) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(RoundUp(CeilDivide(places, 4), kWarp), kWarp, kMost));
}

}  // namespace

ScanPlan PlanScanAs(bool staged, int64_t chunk, int64_t parts, int32_t threads, int64_t blocks,
                    int64_t rows, int64_t columns, int64_t n, bool wide) {
  ScanPlan plan;
  plan.staged = staged;
  plan.chunk = staged ? chunk : 0;
  plan.parts = staged ? CeilDivide(columns, chunk) : parts;
  plan.shape.threads = threads;
  plan.shape.grid_x = std::min(blocks, rows * plan.parts);
  plan.shape.shared_bytes = staged ? StagedBytes(chunk, n, wide) : 16;
  return plan;
}

ScanPlan PlanScan(int64_t rows, int64_t columns, int64_t n, bool wide, const DeviceLimits& limits) {
  // Longer rows are dealt out among blocks, as soon as these are not too many for the device.
  int64_t chunk = std::min(columns, kMost * kPlaces);
  const int64_t wanted = int64_t{4} * limits.multiprocessors;
  while (chunk > 2 * kMost && rows * CeilDivide(columns, chunk) < wanted)
    chunk = CeilDivide(chunk, 2);
  const int32_t threads = Threads(chunk);
  if (n <= chunk + 1 && StagedBytes(chunk, n, wide) <= kSharedByDefault) {
    return PlanScanAs(true, chunk, 0, threads, kMaxBlocks, rows, columns, n, wide);
  }
  return PlanScanAs(false, 0, CeilDivide(columns, chunk), threads, kMaxBlocks, rows, columns, n,
                    wide);
}

IndexPlan PlanIndex(int64_t rows, int64_t columns) {
  IndexPlan plan;
  const int64_t tokens = rows * columns;
  plan.grow_at_once = tokens <= 2 * kMaxThreads;
  plan.begin.threads = static_cast<int32_t>(
      std::clamp<int64_t>(RoundUp(std::max(rows, plan.grow_at_once ? tokens : rows), kWarp),
                          int64_t{4} * kWarp, kMaxThreads));
  plan.begin.shared_bytes = 256;
  plan.grow.threads = kMost;
  plan.grow.grid_x = std::clamp<int64_t>(CeilDivide(tokens, kMost), 1, kMaxBlocks);
  plan.ban.threads = 4 * kWarp;  // a warp a row
  plan.ban.grid_x = std::clamp<int64_t>(CeilDivide(rows, 4), 1, kMaxBlocks);
  return plan;
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft
