#include "plan.h"

#include <algorithm>

namespace graft {
namespace cuda {
namespace flash_decode {
namespace {

constexpr int64_t kMaxSize = 256;    // of a head, in the fast kernel
constexpr int64_t kReserved = 1024;  // bytes of shared memory that a block costs besides its own
// What a block costs besides its keys, in turns of its loop; and what joining splits costs.
constexpr int64_t kBlockTurns = 2;
constexpr int64_t kClusterTurns = 1;
constexpr int64_t kLaunchTurns = 4;

bool IsAligned(const Input& input, int64_t words) {
  const Strides& s = input.strides;
  return reinterpret_cast<uintptr_t>(input.data) % 16 == 0 && s.feature == 1 &&
         s.batch % words == 0 && s.head % words == 0 && s.position % words == 0;
}

// What groups share and what each row has alone, on average: what steps list is not known here.
struct Lengths {
  int64_t shared, private_count;
};
Lengths LengthsOf(const Problem& p) {
  if (IsPool(p)) {
    return {CeilDivide(p.shared_length, std::max<int64_t>(p.groups, 1)),
            CeilDivide(p.private_length, std::max<int64_t>(p.rows, 1))};
  }
  if (p.places != Places::kIndirection) return {p.keys, 0};
  const int64_t shared = std::min(p.prefix, p.keys);
  return {shared, p.keys - shared};
}

int64_t RowsOfGroup(const Problem& p) {
  return !IsPool(p) ? p.rows : CeilDivide(p.rows, std::max<int64_t>(p.groups, 1));
}

// The most tiles that the groups can come to, each group ending with one that may not be full.
int64_t TilesOf(const Problem& p, int64_t tile_tokens, int64_t head_parts) {
  if (!IsPool(p)) return p.groups * CeilDivide(p.rows, tile_tokens) * head_parts;
  const int64_t groups = std::min(p.groups, p.rows);
  return (p.rows + groups * (tile_tokens - 1)) / tile_tokens * head_parts;
}

int64_t Blocks(int64_t items, const Tuning& tuning) {
  const int64_t maximum = tuning.max_blocks > 0 ? tuning.max_blocks : kMaxGridX;
  return std::max<int64_t>(1, std::min(items, maximum));
}

// Numbers between rows in shared memory, so that the rows of a matrix (or, in float32, the keys of
// neighbouring lanes) begin in different banks.
int32_t KeyStride(Type type, int64_t size) {
  const int64_t padded = RoundUp(size, 16);
  if (type != Type::kFloat32) return static_cast<int32_t>(padded + 8);
  return static_cast<int32_t>(padded % 32 == 0 ? padded + 16 : padded);
}
int32_t ValueStride(Type type, int64_t size) {
  return static_cast<int32_t>(RoundUp(size, 16) + (type == Type::kFloat32 ? 0 : 8));
}

int64_t SharedBytes(const Problem& p, const Plan& plan) {
  const int64_t ring =
      int64_t{plan.cut.stages} * KeysOf(p.type) * (plan.cut.key_stride + plan.cut.value_stride);
  return (plan.tile_rows * int64_t{plan.cut.key_stride} + kWarps * ring) * BytesOf(p.type) +
         kWarps * plan.tile_rows * 8;
}

// The most stages, up to 4, that let two blocks share a multiprocessor; else two or more in one.
int64_t ChooseStages(const Problem& p, const DeviceLimits& limits, Plan* plan) {
  for (plan->cut.stages = 4; plan->cut.stages > 2; --plan->cut.stages) {
    const int64_t bytes = SharedBytes(p, *plan) + kReserved;
    if (plan->cut.stages == 4
            ? 2 * bytes <= limits.shared_per_processor
            : (2 * bytes <= limits.shared_per_processor || plan->size_class > 128) &&
                  bytes - kReserved <= limits.shared_per_block) {
      break;
    }
  }
  return plan->cut.stages;
}

void PlanSimple(const Problem& p, const Tuning& tuning, Plan* plan) {
  plan->cut.tile_tokens = plan->cut.tile_heads = 1;
  plan->cut.head_parts = static_cast<int32_t>(p.heads / p.kv_heads);
  plan->cut.columns = static_cast<int32_t>(CeilDivide(p.value_size, kSimpleColumns));
  plan->cut.tiles = TilesOf(p, 1, plan->cut.head_parts);
  plan->cut.items = plan->cut.tiles * p.kv_heads * plan->cut.columns;
  plan->attend.grid_x = Blocks(plan->cut.items, tuning);
  plan->attend.threads = kSimpleThreads;
  plan->attend.shared_bytes = kSimpleColumns * 4 + kSimpleThreads * (4 + 8) + kWarps * 4;
}

// Blocks of the fast kernel that a multiprocessor holds at once.
int64_t Resident(const Problem& p, const DeviceLimits& limits, const Plan& plan) {
  const int64_t by_shared = limits.shared_per_processor / (plan.attend.shared_bytes + kReserved);
  const int64_t by_registers = ResidentByRegisters(p.type, plan.tile_rows, plan.size_class);
  return std::max<int64_t>(1, std::min(by_shared, by_registers));
}

// How `tiles` of several splits each come to one result each.
void PlanJoin(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, int64_t tiles,
              const Slots& slots, Plan* plan) {
  Cut& cut = plan->cut;
  cut.clustered = tuning.join != JoinBy::kLaunch && IsCluster(cut.splits, slots) &&
                  (tuning.join == JoinBy::kCluster || FitsAsClusters(tiles, cut.splits, slots));
  if (cut.clustered) {
    plan->attend.cluster = cut.splits;
    plan->attend.grid_x = std::max<int64_t>(1, plan->attend.grid_x / cut.splits) * cut.splits;
    return;
  }
  const int64_t rows = tiles * cut.tile_tokens * cut.tile_heads;
  plan->attend.followed = plan->merge.dependent = limits.major >= 9;
  plan->merge.grid_x = Blocks(CeilDivide(rows * CeilDivide(p.value_size, kWarp), kWarps), tuning);
  plan->merge.threads = kWarps * kWarp;
  plan->sums_at = RoundUp(rows * cut.splits * 8, 256);
  plan->workspace_bytes = plan->sums_at + rows * cut.splits * p.value_size * 4;
}

void PlanFast(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, Plan* plan) {
  Cut& cut = plan->cut;
  plan->fast = true;
  const auto group_heads = static_cast<int32_t>(p.heads / p.kv_heads);
  const int64_t size = std::max(p.head_size, p.value_size);
  plan->size_class = size <= 64 ? 64 : size <= 128 ? 128 : 256;
  cut.key_stride = KeyStride(p.type, p.head_size);
  cut.value_stride = ValueStride(p.type, p.value_size);
  const int32_t max_rows = p.type == Type::kFloat32 ? 8 : 16;
  cut.tile_heads = std::min(group_heads, max_rows);
  cut.head_parts = static_cast<int32_t>(CeilDivide(group_heads, cut.tile_heads));
  const int32_t max_tokens = max_rows / cut.tile_heads;
  plan->tile_rows = max_rows;
  cut.stages =
      tuning.stages > 0 ? tuning.stages : static_cast<int32_t>(ChooseStages(p, limits, plan));
  plan->attend.shared_bytes = SharedBytes(p, *plan);

  const int64_t step = int64_t{kWarps} * KeysOf(p.type);
  const Lengths lengths = LengthsOf(p);
  cut.tile_tokens =
      tuning.tile_tokens > 0
          ? std::min(tuning.tile_tokens, max_tokens)
          : ChooseTileTokens(p.groups, RowsOfGroup(p), lengths.shared, lengths.private_count,
                             p.kv_heads * cut.head_parts, max_tokens, step,
                             SlotsOf(limits, Resident(p, limits, *plan)));
  if (p.type == Type::kFloat32 && cut.tile_tokens * cut.tile_heads == 1) {
    plan->tile_rows = 1;
    plan->attend.shared_bytes = SharedBytes(p, *plan);
  }
  plan->resident = Resident(p, limits, *plan);
  const Slots slots = SlotsOf(limits, plan->resident);
  cut.tiles = TilesOf(p, cut.tile_tokens, cut.head_parts);
  const int64_t blocks = cut.tiles * p.kv_heads;
  const int64_t turns = CeilDivide(lengths.shared + cut.tile_tokens * lengths.private_count, step);
  cut.splits =
      tuning.splits > 0 ? std::min(tuning.splits, kMaxSplits) : ChooseSplits(blocks, turns, slots);
  cut.items = blocks * cut.splits;
  plan->attend.grid_x = Blocks(cut.items, tuning);
  plan->attend.threads = kWarps * kWarp;
  if (cut.splits > 1) PlanJoin(p, limits, tuning, blocks, slots, plan);
}

// The model of time: waves of blocks, times the turns of one.
int64_t TurnsOf(int64_t blocks, int64_t steps, int32_t splits, const Slots& slots) {
  const int64_t waves = CeilDivide(blocks * splits, slots.blocks);
  const int64_t join = splits == 1                             ? 0
                       : FitsAsClusters(blocks, splits, slots) ? kClusterTurns
                                                               : kLaunchTurns;
  return waves * (CeilDivide(steps, splits) + kBlockTurns) + join;
}

}  // namespace

bool IsFast(const Problem& p) {
  const int64_t words = 16 / BytesOf(p.type);
  return p.head_size <= kMaxSize && p.value_size <= kMaxSize && p.head_size % words == 0 &&
         p.value_size % words == 0 && p.scores.data == nullptr && IsAligned(p.key, words) &&
         IsAligned(p.value, words) && IsAligned(p.fresh_key, words) &&
         IsAligned(p.fresh_value, words);
}

Slots SlotsOf(const DeviceLimits& limits, int64_t resident) {
  Slots slots;
  slots.multiprocessors = limits.multiprocessors;
  slots.blocks = limits.multiprocessors * resident;
  // As many as blocks of whole multiprocessors make, for each block that shares one. Where groups
  // of multiprocessors are uneven there may be room for more, which is not counted on.
  for (int32_t i = 0; i < kClusterSizes; ++i) {
    slots.clusters[i] = limits.major >= 9 ? limits.clusters[i] * resident : 0;
  }
  return slots;
}

bool IsCluster(int32_t splits, const Slots& slots) {
  for (int32_t i = 1; i < kClusterSizes; ++i) {
    if (splits == 1 << i) return slots.clusters[i] > 0;
  }
  return false;
}

bool FitsAsClusters(int64_t tiles, int32_t splits, const Slots& slots) {
  for (int32_t i = 1; i < kClusterSizes; ++i) {
    if (splits == 1 << i) return tiles <= slots.clusters[i];
  }
  return false;
}

int32_t ChooseSplits(int64_t blocks, int64_t steps, const Slots& slots) {
  if (steps <= 4 || blocks * 10 >= slots.multiprocessors * 8) return 1;
  const auto maximum = static_cast<int32_t>(std::min({int64_t{kMaxSplits}, steps, slots.blocks}));
  int32_t best = 1;
  for (int32_t splits = 2; splits <= maximum; ++splits) {
    if (TurnsOf(blocks, steps, splits, slots) < TurnsOf(blocks, steps, best, slots)) best = splits;
  }
  return best;
}

int32_t ChooseTileTokens(int64_t groups, int64_t rows, int64_t shared, int64_t private_count,
                         int64_t kv_heads, int32_t maximum, int64_t step_keys, const Slots& slots) {
  const auto turns_of = [&](int64_t tokens) {
    const int64_t blocks = groups * CeilDivide(rows, tokens) * kv_heads;
    const int64_t steps = CeilDivide(shared + tokens * private_count, step_keys);
    return TurnsOf(blocks, steps, ChooseSplits(blocks, steps, slots), slots);
  };
  const auto together =
      static_cast<int32_t>(std::min<int64_t>(maximum, std::max<int64_t>(rows, 1)));
  return turns_of(together) <= turns_of(1) ? together : 1;
}

Plan MakePlan(const Problem& problem, const DeviceLimits& limits, const Tuning& tuning) {
  Plan plan;
  if (tuning.path != Path::kSimple && IsFast(problem)) {
    PlanFast(problem, limits, tuning, &plan);
    if (plan.attend.shared_bytes <= limits.shared_per_block) return plan;
    plan = Plan();
  }
  PlanSimple(problem, tuning, &plan);
  return plan;
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft
