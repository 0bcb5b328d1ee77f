#include "plan.h"

#include <algorithm>

namespace graft {
namespace cuda {
namespace step_tail {
namespace {

constexpr int32_t kFastThreads = 256, kSimpleThreads = 512;
constexpr int64_t kHead = 3072;  // numbers and scratch at the front of shared memory
constexpr int64_t kMostBlocks = int64_t{1} << 20;
// Scores below which another block costs more than it saves.
constexpr int64_t kLeastPart = 2048;

Layout LayOut(int32_t parts, int32_t at_once, int32_t threads, const Shape& shape) {
  Layout layout;
  layout.parts = parts;
  layout.at_once = at_once;
  layout.found = 4 * threads;
  layout.kept = static_cast<int32_t>(std::min<int64_t>(2 * shape.width, layout.found));
  layout.ranked =
      static_cast<int32_t>(int64_t{parts} * at_once * layout.kept + shape.width + threads);
  const int64_t record = 4 * RecordWords(layout);
  int64_t at = kHead;
  const auto take = [&](int64_t bytes) {
    const int64_t first = at;
    at += RoundUp(bytes, 16);
    return first;
  };
  layout.bitmap = take(shape.named ? CeilDivide(shape.vocab, 32) * 4 : 0);
  layout.list = take(int64_t{8} * layout.found);
  layout.records = take(at_once * record);
  layout.gathered = take(parts * at_once * record);
  layout.ranks = take(int64_t{16} * layout.ranked);
  layout.best = take(16 * shape.width);
  layout.order = take(int64_t{4} * layout.ranked);
  layout.bytes = at;
  return layout;
}

}  // namespace

TailPlan PlanTailAs(bool fast, int32_t parts, int32_t at_once, int32_t threads,
                    const Shape& shape) {
  TailPlan plan;
  plan.fast = fast;
  plan.shape.threads = threads;
  if (fast) {
    plan.layout = LayOut(parts, at_once, threads, shape);
    plan.shape.shared_bytes = plan.layout.bytes;
    plan.shape.cluster = parts;
    plan.shape.grid_x = std::min(shape.groups, kMostBlocks) * parts;
  } else {
    plan.shape.shared_bytes = 512 + int64_t{8} * threads;  // numbers, scratch, a sum a thread
    plan.shape.grid_x = std::min(shape.groups, kMostBlocks);
    plan.workspace = RoundUp(shape.rows * (shape.vocab + 1) * 4, 16);
  }
  return plan;
}

TailPlan PlanTail(const Shape& shape, const DeviceLimits& limits) {
  const TailPlan simple = PlanTailAs(false, 1, 1, kSimpleThreads, shape);
  if (shape.samples || shape.width > kMostCandidates || shape.vocab > kMostTokens) return simple;
  // Blocks of a cluster split each row, as long as the device has room for more of them.
  int32_t parts = 1;
  const int64_t room = int64_t{limits.multiprocessors} * 4;
  while (limits.major >= 9 && parts < 8 && shape.groups * parts * 2 <= room &&
         shape.vocab >= 2 * parts * kLeastPart) {
    parts *= 2;
  }
  auto at_once = static_cast<int32_t>(std::clamp<int64_t>(shape.group_rows, 1, 4));
  TailPlan plan = PlanTailAs(true, parts, at_once, kFastThreads, shape);
  while (plan.shape.shared_bytes > kSharedWithoutAsking && at_once > 1) {
    at_once /= 2;
    plan = PlanTailAs(true, parts, at_once, kFastThreads, shape);
  }
  return plan.shape.shared_bytes <= limits.shared_per_block ? plan : simple;
}

}  // namespace step_tail
}  // namespace cuda
}  // namespace graft
