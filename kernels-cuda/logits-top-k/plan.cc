#include "plan.h"

#include <algorithm>

namespace graft {
namespace cuda {
namespace logits_top_k {
namespace {

constexpr int32_t kSimpleThreads = 512;
constexpr int64_t kHead = 1536;      // counters and scratch at the front of shared memory
constexpr int64_t kJoined = 64;      // bytes of a Joined
constexpr int64_t kReserved = 1024;  // shared memory that the system takes of each block
constexpr int64_t kMaxBlocks = int64_t{1} << 20;
// Scores below which another block costs more than it saves.
constexpr int64_t kLeastPart = 2048;
// Blocks for which a multiprocessor has room: a wave is then whole even where clusters cannot fill
// a part of the device evenly. The kernel's registers allow it (__launch_bounds__).
constexpr int64_t kResident = 3;

}  // namespace

TopKPlan PlanSimple(int32_t threads, const Shape& shape) {
  TopKPlan plan;
  plan.shape.threads = threads;
  plan.shape.shared_bytes = 512 + int64_t{8} * threads;  // numbers, scratch, a sum a thread
  plan.shape.grid_x = std::min(shape.groups, kMaxBlocks);
  plan.workspace = RoundUp(shape.rows * (shape.vocab + 1) * 4, 16);
  return plan;
}

TopKPlan PlanFast(int32_t parts, int32_t at_once, int32_t teams, int32_t team_threads,
                  int64_t bytes, const Shape& shape) {
  TopKPlan plan;
  plan.fast = true;
  plan.shape.threads = teams * team_threads;
  plan.shape.cluster = parts;
  plan.shape.grid_x = std::min(shape.groups, kMaxBlocks) * parts;

  Layout& layout = plan.layout;
  layout.parts = parts;
  layout.at_once = at_once;
  layout.teams = teams;
  layout.found = kHeld * team_threads;
  layout.kept = static_cast<int32_t>(std::min<int64_t>(2 * shape.width, layout.found));
  layout.ranked = static_cast<int32_t>(int64_t{parts} * at_once * layout.kept + shape.width +
                                       plan.shape.threads);
  const int64_t numbers = 16 / BytesOf(shape.type);  // of a vector
  const int64_t vectors = CeilDivide(shape.vocab / numbers, parts);
  // Of a part's tokens, which also may be those of a vector before and one after.
  if (shape.named) layout.words = static_cast<int32_t>((vectors + 2) * numbers / 32 + 2);

  int64_t at = kHead;
  const auto take = [&](int64_t size) {
    const int64_t first = at;
    at += RoundUp(size, 16);
    return first;
  };
  layout.lists = take(int64_t{8} * layout.found * teams);
  layout.gathered = take(parts * at_once * 4 * RecordWords(layout));
  layout.joined = take(at_once * kJoined);
  layout.best = take(16 * shape.width);
  layout.bitmaps = take(int64_t{4} * at_once * layout.words);
  layout.ring = at;

  layout.ranks = take(int64_t{16} * layout.ranked);
  layout.order = take(int64_t{4} * layout.ranked);
  const int64_t row_bans = shape.named ? RoundUp(CeilDivide(shape.vocab, 32) * 4, 16) : 0;
  if (shape.named) {
    layout.ban_rows =
        static_cast<int32_t>(std::clamp<int64_t>((bytes - at) / row_bans, 1, at_once));
  }
  layout.bans = take(layout.ban_rows * row_bans);

  const int64_t vector = int64_t{16} * teams * kSlots;  // a vector a slot
  const int64_t room = std::max<int64_t>((bytes - layout.ring) / vector, 1);
  layout.chunk =
      static_cast<int32_t>(std::min(room, std::max<int64_t>(CeilDivide(vectors, kSlots), 1)));
  layout.chunks = static_cast<int32_t>(std::max<int64_t>(CeilDivide(vectors, layout.chunk), 1));
  layout.bytes = std::max(at, layout.ring + vector * layout.chunk);
  plan.shape.shared_bytes = layout.bytes;
  return plan;
}

TopKPlan PlanTopK(const Shape& shape, const DeviceLimits& limits) {
  const TopKPlan simple = PlanSimple(kSimpleThreads, shape);
  if (shape.samples || shape.width > kMaxCandidates || shape.vocab > kMaxTokens) return simple;
  // Blocks of a cluster split each row, as long as two a multiprocessor hold all, and all clusters
  // run at once.
  int32_t parts = 1;
  for (int32_t i = 1; i < kClusterSizes && parts < kMaxParts; ++i) {
    if (limits.major < 9 || shape.groups * parts * 2 > int64_t{2} * limits.multiprocessors ||
        shape.groups > kResident * limits.clusters[i] || shape.vocab < 2 * parts * kLeastPart) {
      break;
    }
    parts *= 2;
  }
  const int64_t bytes =
      std::min(limits.shared_per_block, limits.shared_per_processor / kResident - kReserved);
  // A team has two threads for each of the candidates, so that its maxima tell them apart.
  const auto least = static_cast<int32_t>(std::max<int64_t>(RoundUp(2 * shape.width, kWarp), 64));
  const int64_t rows = std::max<int64_t>(shape.group_rows, 1);
  auto at_once = static_cast<int32_t>(CeilDivide(rows, CeilDivide(rows, kMaxRows)));
  TopKPlan plan;
  for (;; at_once /= 2) {
    const int32_t teams = std::min(at_once, kMaxThreads / least);
    const int32_t threads = kMaxThreads / teams / kWarp * kWarp;
    plan = PlanFast(parts, at_once, teams, threads, bytes, shape);
    if (plan.shape.shared_bytes <= bytes || at_once == 1) break;
  }
  return plan.shape.shared_bytes <= limits.shared_per_block ? plan : simple;
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft
