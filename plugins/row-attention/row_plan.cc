#include "row_plan.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <new>

#include "graft/checked.h"

namespace graft {
namespace row_attention {
namespace {

constexpr int64_t kVector = 16;    // floats of the widest vector
constexpr int64_t kMaxHeight = 6;  // rows of the tallest register tile

// Positions of a part of a group's rows, and parts at most. The cut depends on the group alone, so
// that its results do not depend on its company.
constexpr int64_t kPartCost = 512;
constexpr int64_t kMaxParts = 8;
// Groups of more rows are not cut: their partial sums would outweigh what they are made of.
constexpr int64_t kMaxSplitRows = 128;

// Floats of a tile, and of the expanded queries and sums of a task: together they stay in the
// second-level cache.
constexpr int64_t kTileFloats = 32768;
constexpr int64_t kTaskFloats = 163840;
constexpr int64_t kMaxRows = 192;

constexpr int64_t kWeightFloats = 32768;  // of W_K that a task of expanding takes at once
constexpr int64_t kTasksPerThread = 4;

// Keys and values in scratch, floats: as many heads at once as fit.
constexpr int64_t kPromptFloats = int64_t{4} << 20;
// Tokens from which on it pays to use keys and values that the call brings along.
constexpr int64_t kLeastNewTokens = 16;

// Guesses that only decide whether waking other threads can pay.
constexpr double kNanosecondsPerFlop = 0.012;
constexpr double kSerialNanoseconds = 8000;

// Tokens of a group, not causal, from which on making keys and values is less arithmetic: they cost
// 2 width kv_heads (head_size + value_size) a position, and scores and sums 2 (head_size +
// value_size) a pair of query head and position instead of 4 width. Rows of keys need values only.
double BreakEven(const Problem& p) {
  const double sizes = static_cast<double>(Size(p.head_size) + p.value_size);
  const double width = static_cast<double>(p.pool.width), heads = static_cast<double>(p.heads);
  const bool keys = p.kind == RowKind::kKeys;
  const double make =
      2.0 * width *
      (keys ? heads * static_cast<double>(p.value_size) : static_cast<double>(p.kv_heads) * sizes);
  const double saved = heads * (keys ? 2.0 * (width - static_cast<double>(p.value_size))
                                     : 4.0 * width - 2.0 * sizes);
  return saved > 0.0 ? make / saved : std::numeric_limits<double>::infinity();
}

bool AllowsPrompt(const Problem& p, const Group& group) {
  return group.private_count == 0 && group.second == 0 && group.shared_count > 0 &&
         (p.skip == 0.0f || group.tokens > 1);
}

Way Choose(const Problem& p, const Tuning& tuning, const Group& group) {
  if (group.keys() == 0) return Way::kSecondPart;
  if (!AllowsPrompt(p, group) || tuning.prompt == 0) return Way::kRows;
  if (tuning.prompt == 1) return Way::kMadeKeys;
  const double n = static_cast<double>(group.tokens), s = static_cast<double>(group.shared_count);
  const double pairs =
      (n * s - (group.causal ? n * (n - 1.0) / 2.0 : 0.0)) * static_cast<double>(p.heads);
  const double sizes = static_cast<double>(Size(p.head_size) + p.value_size);
  const double width = static_cast<double>(p.pool.width);
  double made = 2.0 * pairs * sizes, rows = 4.0 * pairs * width;
  if (p.kind == RowKind::kKeys) {
    made += 2.0 * s * width * static_cast<double>(Size(p.heads) * p.value_size);
    rows = 2.0 * pairs * (width + static_cast<double>(p.head_size));
  } else {
    if (UsesNewKeys(p, group) && group.tokens >= kLeastNewTokens) return Way::kMadeKeys;
    made += 2.0 * s * width * static_cast<double>(p.kv_heads) * sizes;
  }
  return made < rows ? Way::kMadeKeys : Way::kRows;
}

// Whether some group may be a prompt, as far as shapes tell.
bool MayBePrompt(const Problem& p, const Tuning& tuning) {
  if (tuning.prompt >= 0) return tuning.prompt == 1;
  const Size max_value = Size(p.tokens) - p.groups + 1;  // of one group
  return static_cast<double>(max_value) > BreakEven(p) ||
         (p.key != nullptr && max_value >= kLeastNewTokens);
}

// Tokens that are computed from rows, at most.
int64_t MaxFewTokens(const Problem& p, const Tuning& tuning) {
  const double max_value =
      2.0 * BreakEven(p) + 1.0;  // a causal prompt has at least half of all pairs
  // Groups that are no prompts for another reason may hold any number of tokens.
  const Size others = Size(p.private_length) + p.kv_shared_length + p.kv_private_length;
  if (tuning.prompt == 0 || others > 0 || !(max_value < static_cast<double>(p.tokens)))
    return p.tokens;
  return std::min<int64_t>(p.tokens, Size(p.groups) * static_cast<int64_t>(max_value));
}

void ChooseRows(const Problem& p, Plan& plan) {
  const bool turned = p.rotary != Rotary::kNone;
  const bool floats = p.pool.storage == Storage::kFloat32;
  plan.width = RoundUp(Size(p.pool.width), kPanel);
  plan.direct_sums = floats && p.pool.width == plan.width && !(turned && p.rotated);
  plan.keys = KeyRows::kSums;
  plan.query_stride = plan.width;
  plan.slice = 0;
  plan.key_width = 0;
  if (p.kind == RowKind::kHiddenStates) return;
  plan.query_stride = RoundUp(Size(p.head_size), kPanel);
  plan.slice = p.head_size;
  if ((turned && !p.rotated) || p.head_size != plan.query_stride || (turned && !floats)) {
    plan.keys = KeyRows::kMade;
    plan.slice = plan.query_stride;
    plan.key_width = Size(p.heads) * plan.slice;
  } else if (turned) {
    plan.keys = KeyRows::kPool;
  }
}

// Room for a prompt's keys and values, and for attention over keys and values in general.
void TakePrompt(const Problem& p, int64_t threads, const Tuning& tuning, Plan& plan,
                Scratch& scratch) {
  size_t inner = 0;
  attention::CachedTuning inner_tuning;
  inner_tuning.isa = tuning.isa;
  inner_tuning.serial_cost = tuning.serial_cost;
  attention::CachedProblem q;
  q.heads = p.heads;
  q.rows = p.tokens;
  q.pool.head_size = p.head_size;
  q.pool.value_size = p.value_size;
  if (p.kv_sequences != nullptr) {
    q.pool.kv_heads = p.kv_heads;
    q.groups = p.groups;
    q.shared_length = p.kv_shared_length;
    q.private_length = p.kv_private_length;
    q.key = p.kv_slot_mapping != nullptr ? p.query : nullptr;
    inner = attention::WorkspaceSize(q, threads, inner_tuning);
  }
  plan.prompt_heads = 0;
  plan.prompt_pool = plan.prompt_list = scratch.bytes();
  if (MayBePrompt(p, tuning) && p.shared_length > 0) {
    const Size features = Size(p.head_size) + p.value_size;
    const Size head_floats = RoundUp(Size(p.shared_length), kBlockSlots) * features;
    plan.prompt_heads =
        std::max<int64_t>(1, std::min<int64_t>(p.kv_heads, kPromptFloats / head_floats));
    plan.prompt_pool = scratch.Take(head_floats * plan.prompt_heads, sizeof(float));
    plan.prompt_list = scratch.Take(p.shared_length, sizeof(int32_t));
    q.pool.kv_heads = plan.prompt_heads;
    q.heads = Size(plan.prompt_heads) * plan.group_heads;
    q.groups = 1;
    q.rows = p.tokens;
    q.shared_length = p.shared_length;
    q.private_length = 0;
    q.key = nullptr;
    inner = std::max(inner, attention::WorkspaceSize(q, threads, inner_tuning));
  }
  plan.inner_offset = scratch.Take(inner, 1);
}

}  // namespace

WorkerLayout LayOutWorker(const Plan& plan) {
  WorkerLayout layout{};
  Scratch scratch;
  const bool prompts = plan.prompt_heads > 0;
  const Size width = plan.width;
  // With a vector of room: rows are taken in whole vectors.
  const Size rows = Size(plan.row_chunk) + kVector;
  const Size score_rows = std::max<int64_t>(rows, prompts ? kPromptTile : 0);
  const bool made = plan.key_width > 0 || !plan.direct_sums, sums = !plan.direct_sums || prompts;
  const Size key_floats = Size(plan.key_width) * kMaxRowTile + width;
  layout.scores = scratch.Take(score_rows * kMaxRowTile, sizeof(float));
  layout.maximum = scratch.Take(rows, sizeof(float));
  layout.sums = scratch.Take(rows * kVector, sizeof(float));
  layout.rescale = scratch.Take(rows, sizeof(float));
  layout.skipped = scratch.Take(rows, sizeof(float));
  layout.low = scratch.Take(rows, sizeof(int64_t));
  layout.high = scratch.Take(rows, sizeof(int64_t));
  layout.sum_rows = scratch.Take(sums ? width * kMaxRowTile : Size(), sizeof(float));
  layout.key_rows = scratch.Take(made ? key_floats : Size(), sizeof(float));
  layout.outputs = scratch.Take(Size(plan.value_stride) * kMaxHeight, sizeof(float));
  layout.merged = scratch.Take(width * kMaxHeight, sizeof(float));
  layout.total = scratch.bytes();
  return layout;
}

Plan MakePlan(const Problem& p, int64_t threads, const Tuning& tuning) {
  const std::string fault = ValidateSizes(p);
  Require(fault.empty(), "attention over rows: ", fault);
  Plan plan{};
  plan.group_heads = p.heads / p.kv_heads;
  plan.scale = p.scale != 0.0f ? p.scale : 1.0f / std::sqrt(static_cast<float>(p.head_size));
  plan.base2 = p.bias == nullptr && p.softcap <= 0.0f;
  plan.value_stride = RoundUp(Size(p.value_size), kPanel);
  ChooseRows(p, plan);
  const Size token_rows = Size(p.tokens) * p.heads;
  plan.tile = std::max(kPanel, std::min(kMaxRowTile, kTileFloats / plan.width / kPanel * kPanel));
  plan.row_chunk =
      std::min<int64_t>(kMaxRows, kTaskFloats / (Size(plan.width) + plan.query_stride));
  plan.row_chunk = std::max(kMaxHeight, plan.row_chunk / kMaxHeight * kMaxHeight);
  plan.row_chunk = std::min(plan.row_chunk, std::max<int64_t>(1, token_rows));
  plan.workers = std::max<int64_t>(1, threads);
  plan.write_rows = std::max<int64_t>(1, 16384 / plan.width);
  const Size writes = DivideUp(Size(p.tokens), plan.write_rows);
  plan.writes = p.slot_mapping != nullptr ? writes : Size();

  const Size few = MaxFewTokens(p, tuning), rows = few * p.heads;
  const Size listed = Size(p.shared_length) + p.private_length;
  int64_t max_parts = std::min<int64_t>(kMaxParts, DivideUp(listed, kPartCost));
  int64_t split_rows = std::min<int64_t>(rows, Size(p.groups) * kMaxSplitRows);
  if (tuning.parts > 0) {
    max_parts = tuning.parts;
    split_rows = rows;
  }
  const Size partial_rows = rows + Size(std::max<int64_t>(0, max_parts - 1)) * split_rows;

  Scratch scratch;
  plan.counter_offset = scratch.Take(int64_t{kCounters}, sizeof(int64_t));
  plan.group_offset = scratch.Take(p.groups, sizeof(Group));
  plan.token_offset = scratch.Take(few, sizeof(int32_t));
  plan.owner_offset = scratch.Take(few, sizeof(int32_t));
  plan.query_offset = scratch.Take(rows * plan.query_stride, sizeof(float));
  plan.shift_offset = scratch.Take(rows, sizeof(float));
  plan.partial_offset = scratch.Take(partial_rows * plan.width, sizeof(float));
  plan.state_offset = scratch.Take(partial_rows * int64_t{kStates}, sizeof(float));
  const bool second = p.kv_sequences != nullptr;
  plan.second_offset = scratch.Take(second ? token_rows * p.value_size : Size(), sizeof(float));
  plan.second_lse = scratch.Take(second ? token_rows : Size(), sizeof(float));
  TakePrompt(p, threads, tuning, plan, scratch);
  plan.worker_bytes = LayOutWorker(plan).total;
  plan.worker_offset = scratch.Take(plan.workers, plan.worker_bytes);
  plan.total_bytes = scratch.bytes();
  return plan;
}

namespace {

// Reads the steps, and says which groups are computed how.
double ReadGroups(const Problem& p, const Tuning& tuning, const Plan& plan, Group* groups) {
  double work = 0.0;
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* step = attention::SequenceOf(p.sequences, g);
    Group& group = groups[g];
    group.first = step[attention::kSequenceFirstToken];
    group.tokens = step[attention::kSequenceTokens];
    group.shared_slots = &p.shared_slots[step[attention::kSequenceSharedOffset]];
    group.shared_count = step[attention::kSequenceShared];
    group.private_slots = &p.private_slots[step[attention::kSequencePrivateOffset]];
    group.private_count = step[attention::kSequencePrivate];
    group.causal = step[attention::kSequenceCausal] != 0;
    group.second = 0;
    if (p.kv_sequences != nullptr) {
      const int32_t* kv = attention::SequenceOf(p.kv_sequences, g);
      group.second = Size(kv[attention::kSequenceShared]) + kv[attention::kSequencePrivate];
    }
    group.way = Choose(p, tuning, group);
    if (group.way == Way::kMadeKeys && plan.prompt_heads == 0) group.way = Way::kRows;
    group.rows = Size(group.tokens) * p.heads;
    group.row_chunk = std::min(group.rows, plan.row_chunk);
    if (tuning.row_chunk > 0) group.row_chunk = std::min(group.row_chunk, tuning.row_chunk);
    const Size read = Size(group.tokens) * group.private_count + group.shared_count;
    group.parts = 1;
    if (tuning.parts > 0) {
      group.parts = tuning.parts;
    } else if (group.rows < kMaxSplitRows) {
      group.parts = std::max<int64_t>(1, std::min<int64_t>(kMaxParts, DivideUp(read, kPartCost)));
    }
    work += static_cast<double>(group.rows) *
            (static_cast<double>(group.keys()) + static_cast<double>(p.head_size)) * 4.0 *
            static_cast<double>(plan.width);
  }
  return work;
}

// Cuts expanding and contracting, which any cut leaves the same, until all threads are busy.
void CutMatmuls(const Problem& p, int64_t threads, Plan& plan) {
  const int64_t panels = plan.width / kPanel, least = Size(threads) * kTasksPerThread;
  plan.expand_tokens = plan.contract_tokens =
      std::max<int64_t>(1, std::min(plan.few_tokens, 48 / plan.group_heads));
  plan.expand_panels = std::min<int64_t>(
      panels, std::max<int64_t>(4, kWeightFloats / (Size(p.head_size) * kPanel) / 4 * 4));
  const auto chunks = [&](int64_t tokens) { return DivideUp(Size(plan.few_tokens), tokens); };
  const auto expands = [&] {
    const Size shares = p.kind == RowKind::kKeys ? 1 : DivideUp(panels, plan.expand_panels);
    return shares * chunks(plan.expand_tokens) * p.kv_heads;
  };
  while (expands() < least && plan.expand_panels > 8 && p.kind != RowKind::kKeys) {
    plan.expand_panels = RoundUp(plan.expand_panels / 2, 4);
  }
  while (Size(p.kv_heads) * chunks(plan.contract_tokens) < least &&
         Size(plan.contract_tokens) * plan.group_heads > kMaxHeight && plan.contract_tokens > 1) {
    plan.contract_tokens = DivideUp(plan.contract_tokens, 2);
  }
  plan.expands = expands();
  plan.contracts = Size(p.kv_heads) * chunks(plan.contract_tokens);
}

}  // namespace

void FillPlan(const Problem& p, const Tuning& tuning, char* workspace, Plan& plan) {
  char* counters = &workspace[plan.counter_offset];
  for (int64_t i = 0; i < kCounters; ++i) {
    new (counters + Size(i) * sizeof(int64_t)) std::atomic<int64_t>(0);
  }
  Group* groups = reinterpret_cast<Group*>(&workspace[plan.group_offset]);
  int32_t* tokens = reinterpret_cast<int32_t*>(&workspace[plan.token_offset]);
  int32_t* owner = reinterpret_cast<int32_t*>(&workspace[plan.owner_offset]);
  const double cost = ReadGroups(p, tuning, plan, groups) * kNanosecondsPerFlop;
  const double serial =
      tuning.serial_cost >= 0 ? static_cast<double>(tuning.serial_cost) : kSerialNanoseconds;
  if (cost < serial) plan.workers = 1;

  // Where whole groups leave threads idle their rows are shared out, at the price of reading the
  // same positions several times.
  const auto count = [&](int64_t max_value) {
    Size items = 0;
    for (int64_t g = 0; g < p.groups; ++g) {
      if (groups[g].way != Way::kRows) continue;
      const int64_t chunk = std::min(max_value, groups[g].row_chunk);
      items += DivideUp(Size(groups[g].rows), chunk) * groups[g].parts;
    }
    return items;
  };
  int64_t chunk = plan.row_chunk;
  while (plan.workers > 1 && count(chunk) < plan.workers && chunk > 2 * kMaxHeight) {
    chunk = RoundUp(chunk / 2, kMaxHeight);
  }
  plan.items = plan.few_tokens = 0;
  Size partial = 0;
  for (int64_t g = 0; g < p.groups; ++g) {
    Group& group = groups[g];
    group.row_chunk = std::min(group.row_chunk, chunk);
    const Size rows = group.rows;
    group.row_chunk = DivideUp(rows, DivideUp(rows, group.row_chunk));
    group.row_chunks = DivideUp(rows, group.row_chunk);
    group.first_item = plan.items;
    group.first_query = Size(plan.few_tokens) * p.heads;
    group.first_partial = partial;
    plan.items += group.items();
    if (group.way != Way::kRows) continue;
    partial += rows * group.parts;
    for (int64_t i = 0; i < group.tokens; ++i, ++plan.few_tokens) {
      tokens[plan.few_tokens] = static_cast<int32_t>(Size(group.first) + i);
      owner[plan.few_tokens] = static_cast<int32_t>(g);
    }
  }
  plan.expands = plan.contracts = 0;
  if (plan.few_tokens > 0) CutMatmuls(p, plan.workers, plan);
}

}  // namespace row_attention
}  // namespace graft
