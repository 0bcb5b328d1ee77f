#include "plan.h"

#include <algorithm>
#include <limits>

namespace graft {
namespace cuda {
namespace el_attention {
namespace {

// Partial results of one call, at most.
constexpr int64_t kMaxPartBytes = int64_t{64} << 20;
// Keys that a part of the simple kernel should have, so that joining it costs little beside it.
constexpr int64_t kLeastPartKeys = 256;
// What blocks of columns may number: their exchange must fit beside the tiles.
constexpr int32_t MaxColumns(int32_t warp_columns) { return warp_columns > 48 ? 2 : 4; }

bool HasPrivate(const Problem& p) {
  return p.lists.sequences != nullptr && p.lists.private_length > 0;
}

// Positions of a group, as far as shapes tell. One list holds those of all groups, taken as equal
// shares.
int64_t SharedKeys(const Problem& p) {
  if (p.lists.sequences == nullptr) return p.lists.group_keys;
  return CeilDivide(p.lists.shared_length, std::max(1, p.lists.groups));
}
int64_t OwnKeys(const Problem& p) {
  return HasPrivate(p) ? CeilDivide(p.lists.private_length, std::max(1, p.tokens)) : 0;
}

int64_t PartBytes(const Problem& p) {
  return int64_t{p.tokens} * p.heads * (int64_t{p.rows.width} * 4 + 4);
}

// Parts that fill `wanted` blocks, without making any too small.
int32_t FillingParts(const Problem& p, int64_t wanted, int64_t blocks, int64_t keys) {
  int64_t parts =
      std::min({wanted / std::max<int64_t>(1, blocks), keys / kLeastPartKeys,
                kMaxPartBytes / std::max<int64_t>(1, PartBytes(p)), int64_t{kMaxParts}});
  return static_cast<int32_t>(std::max<int64_t>(1, parts));
}

// Clusters of a cut that run at once; of sizes between, as many as of the next larger one.
int32_t Clusters(const ClusterCut& cut, const DeviceLimits& limits) {
  for (int32_t i = 0; i < kClusterSizes; ++i) {
    if (cut.columns * cut.splits <= 1 << i) return limits.clusters[i];
  }
  return 0;
}

bool FitsCluster(const ClusterCut& cut, const DeviceLimits& limits) {
  if (cut.columns > MaxColumns(cut.warp_columns)) return false;
  if (limits.major < 9 && (cut.columns * cut.splits > 1 || cut.warp_columns > 48)) return false;
  return Clusters(cut, limits) > 0 &&
         LayOut(cut.warp_columns, cut.columns).total <= limits.shared_per_block;
}

// Cycles that a block takes, by the bytes that go through its shared memory, 128 a cycle: README.md
// counts them.
constexpr int64_t kStartCycles = 4000;  // queries and the first tile on their way
constexpr int64_t TileCycles(const ClusterCut& cut) { return 800 + 24 * cut.warp_columns; }
// Sums through distributed shared memory at a quarter of that rate, and its two barriers.
constexpr int64_t JoinCycles(const ClusterCut& cut) {
  const int64_t sums = int64_t{kTileRows} * 8 * cut.warp_columns * 4;
  return cut.splits == 1 ? 0 : 1000 + sums * (cut.splits - 1) / cut.splits / 32;
}
// Another launch, and parts written and read at a device's 4 TB/s, in cycles at 1.75 GHz.
int64_t MergeCycles(const Problem& p, const ClusterCut& cut) {
  return cut.parts == 1 ? 0 : 3500 + 2 * cut.parts * PartBytes(p) / 2286;
}

// What `tiles` of rows over `keys` take, in waves of clusters.
int64_t PredictedCycles(const Problem& p, const ClusterCut& cut, int64_t tiles, int64_t keys,
                        const DeviceLimits& limits) {
  const int64_t waves = CeilDivide(tiles * cut.parts, Clusters(cut, limits));
  const int64_t steps = CeilDivide(CeilDivide(keys, kTileKeys), cut.parts * cut.splits);
  return waves * (kStartCycles + steps * TileCycles(cut) + JoinCycles(cut)) + MergeCycles(p, cut);
}

// The fewest blocks a row, then the fewest columns that are not there.
bool ChooseColumns(const Problem& p, const DeviceLimits& limits, const Tuning& tuning,
                   ClusterCut* cut) {
  bool found = false;
  for (const int32_t warp_columns : {16, 48, 64, 80}) {
    if (tuning.warp_columns != 0 && tuning.warp_columns != warp_columns) continue;
    ClusterCut one;
    one.warp_columns = warp_columns;
    one.columns = static_cast<int32_t>(CeilDivide(p.rows.width, 8 * warp_columns));
    if (!FitsCluster(one, limits)) continue;
    if (!found || one.columns < cut->columns) *cut = one;
    found = true;
  }
  return found;
}

// The parts of the keys, within the cluster and beyond it, that take the least time.
ClusterCut ChooseParts(const Problem& p, const DeviceLimits& limits, const Tuning& tuning,
                       const ClusterCut& columns, int64_t tiles) {
  const int64_t keys = SharedKeys(p);
  const int64_t maximum =
      std::clamp<int64_t>(kMaxPartBytes / std::max<int64_t>(1, PartBytes(p)), 1, kMaxParts);
  const auto cut_in = [&](int32_t splits) {
    ClusterCut cut = columns;
    cut.splits = splits;
    return cut;
  };
  const auto fits = [&](int32_t splits) {
    return columns.columns * splits <= 8 && FitsCluster(cut_in(splits), limits);
  };
  const int32_t forced = tuning.splits == 0 ? 0 : fits(tuning.splits) ? tuning.splits : 1;
  ClusterCut best = columns;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const int32_t splits : {1, 2, 4}) {
    if (forced != 0 ? splits != forced : !fits(splits)) continue;
    ClusterCut cut = cut_in(splits);
    const int64_t last = tuning.parts > 0 ? tuning.parts : maximum;
    for (cut.parts = std::max(1, tuning.parts); cut.parts <= last; ++cut.parts) {
      const int64_t cycles = PredictedCycles(p, cut, tiles, keys, limits);
      if (cycles < least) least = cycles, best = cut;
    }
  }
  return best;
}

bool PlanCluster(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, Plan* plan) {
  if (tuning.simple || p.rows.type == Type::kFloat32 || p.rows.width % 8 != 0) return false;
  ClusterCut cut;
  if (!ChooseColumns(p, limits, tuning, &cut)) return false;

  const int64_t rows = int64_t{p.tokens} * p.heads;
  int64_t maximum, likely;  // tiles of rows
  if (p.lists.sequences == nullptr) {
    maximum = likely =
        p.lists.groups * CeilDivide(int64_t{p.lists.group_tokens} * p.heads, kTileRows);
  } else {
    maximum = p.lists.groups + rows / kTileRows;
    likely = std::max<int64_t>(p.lists.groups, CeilDivide(rows, kTileRows));
  }
  cut = ChooseParts(p, limits, tuning, cut, likely);
  plan->cluster = true;
  plan->cluster_cut = cut;
  plan->cluster_shape.cluster = cut.columns * cut.splits;
  plan->cluster_shape.grid_x = maximum * plan->cluster_shape.cluster;
  plan->cluster_shape.grid_y = cut.parts;
  plan->cluster_shape.threads = kTileThreads;
  plan->cluster_shape.shared_bytes = LayOut(cut.warp_columns, cut.columns).total;
  return true;
}

int64_t SimpleBytes(int64_t heads, int64_t width) {
  return (2 * heads * width + kSimpleHeads * (kSimpleKeys + 2) + kSimpleKeys) * 4;
}

void PlanSimple(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, Plan* plan) {
  SimpleCut cut;
  cut.heads = tuning.heads > 0 ? std::min(tuning.heads, kSimpleHeads) : kSimpleHeads;
  cut.heads = std::min(cut.heads, p.heads);
  while (cut.heads > 1 && SimpleBytes(cut.heads, p.rows.width) > limits.shared_per_block) {
    --cut.heads;
  }
  const int64_t blocks = p.tokens * CeilDivide(p.heads, cut.heads);
  const int64_t keys = OwnKeys(p) + (plan->cluster ? 0 : SharedKeys(p));
  cut.parts = tuning.parts > 0 ? tuning.parts
                               : FillingParts(p, 4 * int64_t{limits.multiprocessors}, blocks, keys);
  plan->simple = true;
  plan->simple_cut = cut;
  plan->simple_shape.grid_x = blocks;
  plan->simple_shape.grid_y = cut.parts;
  plan->simple_shape.threads = kSimpleThreads;
  plan->simple_shape.shared_bytes = SimpleBytes(cut.heads, p.rows.width);
}

Plan MakePlanFor(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, bool aligned) {
  Plan plan;
  const bool cluster = aligned && PlanCluster(p, limits, tuning, &plan);
  if (!cluster || HasPrivate(p)) PlanSimple(p, limits, tuning, &plan);
  plan.parts =
      (plan.cluster ? plan.cluster_cut.parts : 0) + (plan.simple ? plan.simple_cut.parts : 0);
  plan.chained = limits.major >= 9;
  plan.workspace = plan.parts > 1 ? RoundUp(plan.parts * PartBytes(p), 16) : 0;
  plan.legal = p.rows.width >= 1 && p.rows.width <= kMaxWidth &&
               (!plan.cluster || IsLegal(plan.cluster_shape)) &&
               (!plan.simple || (IsLegal(plan.simple_shape) &&
                                 plan.simple_shape.shared_bytes <= limits.shared_per_block));
  return plan;
}

}  // namespace

bool IsAligned(const Problem& p) {
  const uintptr_t rows =
      reinterpret_cast<uintptr_t>(p.rows.data) | reinterpret_cast<uintptr_t>(p.query) |
      static_cast<uintptr_t>(p.rows.block_bytes) | static_cast<uintptr_t>(p.rows.row_bytes) |
      static_cast<uintptr_t>(p.query_stride * BytesOf(p.rows.type));
  const int64_t number = BytesOf(p.output_type);
  const uintptr_t output =
      reinterpret_cast<uintptr_t>(p.output) | static_cast<uintptr_t>(p.output_stride * number);
  return rows % 16 == 0 && output % static_cast<uintptr_t>(2 * number) == 0;
}

Plan MakePlan(const Problem& p, const DeviceLimits& limits, const Tuning& tuning) {
  return MakePlanFor(p, limits, tuning, IsAligned(p));
}

int64_t WorkspaceBytes(const Problem& p, const DeviceLimits& limits, const Tuning& tuning) {
  return std::max(MakePlanFor(p, limits, tuning, true).workspace,
                  MakePlanFor(p, limits, tuning, false).workspace);
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft
