#include "cached.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "cached_plan.h"
#include "graft/checked.h"
#include "graft/error.h"
#include "kernel.h"

namespace graft {
namespace attention {
namespace {

constexpr int64_t kVector = 16;  // floats of the widest vector, to which scratch rows are padded

// Parts of a group's keys. A part of this cost, in positions read, outweighs its merge by far; the
// cut depends on the group alone, so that its results do not depend on its company.
constexpr int64_t kPartCost = 256;
constexpr int64_t kMaxParts = 8;
// Groups of more rows are cut along rows and heads only.
constexpr int64_t kMaxSplitRows = 16;

// Tokens of a task, and rows of query heads: their state stays in the second-level cache.
constexpr int64_t kMaxRows = 96;
constexpr int64_t kMaxQueryRows = 256;

constexpr int64_t kTasksPerThread = 6;

// As in plan.cc: guesses that only decide whether waking other threads can pay.
constexpr double kNanosecondsPerByte = 0.1;
constexpr double kNanosecondsPerFlop = 0.02;
constexpr double kSerialNanoseconds = 8000;

// The first of `count` slots outside [least, slots), or -1. The usual answer costs one pass without
// a branch.
int64_t FirstOutside(const int32_t* list, int64_t count, int32_t least, int64_t slots) {
  const uint64_t span = static_cast<uint64_t>(slots - least);
  const uint32_t max_value = static_cast<uint32_t>(
      std::min<uint64_t>(span, (uint64_t{1} << 31) - static_cast<uint64_t>(int64_t{least})));
  uint32_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    wrong |= static_cast<uint32_t>(list[i]) - static_cast<uint32_t>(least) >= max_value ? 1u : 0u;
  }
  if (wrong == 0) return -1;
  for (int64_t i = 0; i < count; ++i) {
    if (list[i] < least || list[i] >= slots) return i;
  }
  return -1;
}

std::string Slot(const char* list, int64_t index, int32_t slot, int64_t slots) {
  return Text(list, "[", index, "] is slot ", slot, ", the pool has ", slots);
}

// What is wrong with sizes that a plan is made from.
std::string ValidateSizes(const CachedProblem& p) {
  const Pool& pool = p.pool;
  if (pool.kv_heads < 1 || pool.head_size < 1 || pool.value_size < 1) {
    return Text("the pool has ", pool.kv_heads, " heads of ", pool.head_size, " and ",
                pool.value_size, ", needed are at least 1 of 1");
  }
  if (p.rows < 0 || p.groups < 0 || p.shared_length < 0 || p.private_length < 0) {
    return "a size is negative";
  }
  if (p.heads < 1 || p.heads % pool.kv_heads != 0) {
    return Text("there are ", p.heads, " query heads, needed is a multiple of ", pool.kv_heads,
                " key and value heads");
  }
  return std::string();
}

std::string ValidateStep(const CachedProblem& p, int64_t g) {
  const int32_t* step = SequenceOf(p.sequences, g);
  const Size first = step[kSequenceFirstToken], rows = step[kSequenceTokens];
  const Size so = step[kSequenceSharedOffset], shared = step[kSequenceShared];
  const Size oo = step[kSequencePrivateOffset], private_count = step[kSequencePrivate];
  const auto fault = [g](const auto&... parts) { return Text("group ", g, " ", parts...); };
  if (rows < 1 || !HoldsRange(p.rows, first, rows)) {
    return fault("has rows ", first, " .. ", first + rows - 1, ", there are ", p.rows);
  }
  if (!HoldsRange(p.shared_length, so, shared)) {
    return fault("takes shared_slots[", so, " .. ", so + shared, "), which has ", p.shared_length);
  }
  if (private_count < 0 || !HoldsRange(p.private_length, oo, rows * private_count)) {
    return fault("takes private_slots[", oo, " .. ", oo + rows * private_count, "), which has ",
                 p.private_length);
  }
  const int32_t causal = step[kSequenceCausal];
  if (causal != 0 && causal != 1) return fault("has causal ", causal, ", needed is 0 or 1");
  if (causal == 1 && (private_count != 0 || shared < rows)) {
    return fault("is causal with ", rows, " rows, ", shared, " shared positions and ",
                 private_count, " private ones; needed are at least ", rows, " and 0");
  }
  if (step[kSequenceReserved] != 0) {
    return fault("has ", step[kSequenceReserved], " in the reserved column, needed is 0");
  }
  const int64_t slots = p.pool.slots();
  int64_t wrong = FirstOutside(p.shared_slots + so, shared, 0, slots);
  if (wrong >= 0) return Slot("shared_slots", so + wrong, p.shared_slots[so + wrong], slots);
  wrong = FirstOutside(p.private_slots + oo, rows * private_count, 0, slots);
  if (wrong >= 0) return Slot("private_slots", oo + wrong, p.private_slots[oo + wrong], slots);
  return std::string();
}

// Whether each row is in exactly one group. Groups usually come in the order of their rows.
std::string ValidateCover(const CachedProblem& p) {
  Size next = 0;
  int64_t g = 0;
  for (; g < p.groups && SequenceOf(p.sequences, g)[kSequenceFirstToken] == next; ++g) {
    next += SequenceOf(p.sequences, g)[kSequenceTokens];
  }
  if (g < p.groups) {
    std::vector<int64_t> order(static_cast<size_t>(p.groups));
    for (int64_t i = 0; i < p.groups; ++i) order[static_cast<size_t>(i)] = i;
    std::sort(order.begin(), order.end(), [&p](int64_t a, int64_t b) {
      return SequenceOf(p.sequences, a)[kSequenceFirstToken] <
             SequenceOf(p.sequences, b)[kSequenceFirstToken];
    });
    next = 0;
    for (int64_t i : order) {
      const int32_t* step = SequenceOf(p.sequences, i);
      if (step[kSequenceFirstToken] != next) {
        return Text("group ", i, " begins with row ", step[kSequenceFirstToken],
                    ", the groups before it end at ", next);
      }
      next += step[kSequenceTokens];
    }
  }
  if (next != p.rows) return Text("the groups hold ", next, " rows, there are ", p.rows);
  return std::string();
}

// Sizes that do not depend on what the lists hold.
CachedPlan MakePlan(const CachedProblem& problem, int64_t threads, const CachedTuning& tuning) {
  const std::string fault = ValidateSizes(problem);
  Require(fault.empty(), "attention over a pool: ", fault);
  CachedPlan plan{};
  const Pool& pool = problem.pool;
  plan.group_heads = problem.heads / pool.kv_heads;
  plan.scale =
      problem.scale != 0.0f ? problem.scale : 1.0f / std::sqrt(static_cast<float>(pool.head_size));
  plan.key_stride = RoundUp(Size(pool.head_size), kVector);
  plan.value_stride = RoundUp(Size(pool.value_size), kVector);
  plan.row_chunk = std::min(problem.rows, std::max(kMaxSplitRows, kMaxRows / plan.group_heads));
  plan.head_rows = Size(plan.row_chunk) * plan.group_heads;
  plan.query_rows = std::max(plan.head_rows,
                             std::min<int64_t>(kMaxQueryRows, Size(problem.rows) * problem.heads));
  plan.workers = std::max<int64_t>(1, threads);
  plan.write_rows = std::max<int64_t>(1, 16384 / (Size(pool.kv_heads) * plan.key_stride));
  plan.writes = problem.key != nullptr ? int64_t{DivideUp(Size(problem.rows), plan.write_rows)} : 0;

  const Size listed = Size(problem.shared_length) + problem.private_length;
  int64_t max_parts = std::min<int64_t>(kMaxParts, DivideUp(listed, kPartCost));
  if (tuning.parts > 0) max_parts = tuning.parts;
  const Size split_tokens = std::min<int64_t>(problem.rows, Size(problem.groups) * kMaxSplitRows);
  const Size units = Size(problem.groups) * pool.kv_heads;

  Scratch scratch;
  plan.counter_count =
      (max_parts > 1 ? units + int64_t{kCachedCounters} : Size(int64_t{kCachedCounters}))
          .To<size_t>();
  plan.counter_offset = scratch.Take(plan.counter_count, sizeof(int64_t));
  plan.group_offset = scratch.Take(problem.groups, sizeof(CachedGroup));
  const Size partials = split_tokens * problem.heads * max_parts * (Size(plan.value_stride) + 2);
  plan.partial_offset = scratch.Take(max_parts > 1 ? partials : Size(0), sizeof(float));
  plan.worker_bytes = LayOutCachedWorker(plan).total;
  plan.worker_offset = scratch.Take(plan.workers, plan.worker_bytes);
  plan.total_bytes = scratch.bytes();
  return plan;
}

// Cuts each group into tasks, those of many rows first because they take longest.
void FillGroups(const CachedProblem& problem, const CachedTuning& tuning, CachedPlan& plan,
                CachedGroup* groups) {
  const Pool& pool = problem.pool;
  const double sizes = static_cast<double>(Size(pool.head_size) + pool.value_size);
  double positions = 0.0;  // that are read, once a KV head
  double pairs = 0.0;      // of rows and positions
  for (int64_t g = 0; g < problem.groups; ++g) {
    const int32_t* step = SequenceOf(problem.sequences, g);
    CachedGroup& group = groups[g];
    group.first = step[kSequenceFirstToken];
    group.rows = step[kSequenceTokens];
    group.shared_slots = &problem.shared_slots[step[kSequenceSharedOffset]];
    group.shared_count = step[kSequenceShared];
    group.private_slots = &problem.private_slots[step[kSequencePrivateOffset]];
    group.private_count = step[kSequencePrivate];
    group.causal = step[kSequenceCausal] != 0;
    const double rows = static_cast<double>(group.rows);
    positions +=
        static_cast<double>(group.shared_count) + rows * static_cast<double>(group.private_count);
    pairs += rows * static_cast<double>(group.keys());
  }
  const double cost =
      positions * static_cast<double>(pool.kv_heads) * sizes * (1 << pool.shift()) *
          kNanosecondsPerByte +
      2.0 * pairs * static_cast<double>(problem.heads) * sizes * kNanosecondsPerFlop;
  const double serial =
      tuning.serial_cost >= 0 ? static_cast<double>(tuning.serial_cost) : kSerialNanoseconds;
  if (cost < serial) plan.workers = 1;

  // What a task should cost, in positions of one KV head.
  const double task = plan.workers == 1
                          ? std::numeric_limits<double>::max()
                          : positions * static_cast<double>(pool.kv_heads) /
                                static_cast<double>(Size(plan.workers) * kTasksPerThread);
  Size items = 0, units = 0, partial = 0;
  for (bool many : {true, false}) {
    for (int64_t g = 0; g < problem.groups; ++g) {
      CachedGroup& group = groups[g];
      if ((group.rows > kMaxSplitRows) != many) continue;
      group.row_chunk = DivideUp(group.rows, DivideUp(group.rows, plan.row_chunk));
      if (tuning.row_chunk > 0 && many) {
        group.row_chunk = std::min(group.row_chunk, tuning.row_chunk);
      }
      group.row_chunks = DivideUp(group.rows, group.row_chunk);
      const Size read = Size(group.rows) * group.private_count + group.shared_count;
      group.parts = 1;
      if (!many) {
        group.parts =
            tuning.parts > 0
                ? tuning.parts
                : std::max<int64_t>(1, std::min<int64_t>(kMaxParts, DivideUp(read, kPartCost)));
      }
      const double head_cost =
          static_cast<double>(std::max<int64_t>(1, read)) / static_cast<double>(group.parts);
      int64_t heads = static_cast<int64_t>(
          std::min(static_cast<double>(pool.kv_heads), std::max(1.0, task / head_cost)));
      if (tuning.head_chunk > 0) heads = tuning.head_chunk;
      if (many) heads = 1;
      heads =
          std::min<int64_t>(heads, plan.query_rows / (Size(group.row_chunk) * plan.group_heads));
      heads = std::max<int64_t>(1, std::min(heads, pool.kv_heads));
      group.head_chunk = DivideUp(pool.kv_heads, DivideUp(pool.kv_heads, heads));
      group.head_chunks = DivideUp(pool.kv_heads, group.head_chunk);
      group.first_item = items;
      group.first_unit = units;
      group.first_partial = partial.To<size_t>();
      items += group.items();
      if (group.parts > 1) {
        units += group.head_chunks;
        partial += Size(group.parts) * group.rows * problem.heads * (Size(plan.value_stride) + 2);
      }
    }
    if (many) plan.many_items = items;
  }
  plan.items = items;
  plan.workers =
      std::max<int64_t>(1, std::min(plan.workers, std::max<int64_t>(items, plan.writes)));
}

struct Call {
  const CachedProblem* problem;
  const CachedPlan* plan;
  const Kernel* many;
  const Kernel* few;
  char* workspace;
};

void RunTask(void* argument, int64_t index) {
  const Call& call = *static_cast<const Call*>(argument);
  if (call.plan->many_items > 0) {
    call.many->run_cached(*call.problem, *call.plan, call.workspace, index, CachedStage::kManyRows);
  }
  if (call.plan->many_items < call.plan->items) {
    call.few->run_cached(*call.problem, *call.plan, call.workspace, index, CachedStage::kFewRows);
  }
}

}  // namespace

CachedWorkerLayout LayOutCachedWorker(const CachedPlan& plan) {
  CachedWorkerLayout layout{};
  Scratch scratch;
  const Size queries = plan.query_rows, head_rows = plan.head_rows;
  layout.query = scratch.Take(queries * plan.key_stride, sizeof(float));
  layout.accumulator = scratch.Take(queries * plan.value_stride, sizeof(float));
  // With a vector of room: rows are taken in whole vectors.
  layout.maximum = scratch.Take(queries + kVector, sizeof(float));
  layout.sums = scratch.Take(queries * kVector, sizeof(float));
  layout.rescale = scratch.Take(head_rows + kVector, sizeof(float));
  layout.overflown = scratch.Take(plan.query_rows, sizeof(bool));
  layout.scores = scratch.Take(head_rows * kMaxTile, sizeof(float));
  layout.low = scratch.Take(plan.row_chunk, sizeof(int64_t));
  layout.high = scratch.Take(plan.row_chunk, sizeof(int64_t));
  const Size listed = Size(plan.row_chunk) * kPrivateTile + kMaxTile;
  for (int i = 0; i < 2; ++i) {
    layout.key_offsets[i] = scratch.Take(listed, sizeof(int64_t));
    layout.value_offsets[i] = scratch.Take(listed, sizeof(int64_t));
    layout.scale_offsets[i] = scratch.Take(listed, sizeof(int64_t));
  }
  layout.key_rows = scratch.Take(Size(plan.key_stride) * kSharedTile, sizeof(float));
  layout.value_rows = scratch.Take(Size(plan.value_stride) * kMaxTile, sizeof(float));
  layout.packed_keys = scratch.Take(Size(plan.key_stride) * kMaxTile, sizeof(float));
  layout.total = scratch.bytes();
  return layout;
}

std::string Validate(const CachedProblem& p) {
  std::string fault = ValidatePool(p.pool);
  if (!fault.empty()) return fault;
  if (p.pool.slots() > 0 && p.pool.data == nullptr) return "the pool has no memory";
  fault = ValidateSizes(p);
  if (!fault.empty()) return fault;
  if (p.rows > 0 && (p.query == nullptr || p.output == nullptr)) {
    return "query and output are required";
  }
  const bool writes = p.key != nullptr;
  if (p.rows > 0 && (writes != (p.value != nullptr) || writes != (p.slot_mapping != nullptr))) {
    return "key, value and slot_mapping must be given together";
  }
  if (p.groups > 0 && p.sequences == nullptr) return "sequence descriptors are required";
  if (p.window < 0) return Text("window is ", p.window, ", needed is 0 or more");
  if (p.bias != nullptr && p.distances < 1) return "the bias has no distances";
  for (int64_t g = 0; g < p.groups; ++g) {
    fault = ValidateStep(p, g);
    if (!fault.empty()) return fault;
  }
  fault = ValidateCover(p);
  if (!fault.empty() || !writes) return fault;
  const int64_t wrong = FirstOutside(p.slot_mapping, p.rows, -1, p.pool.slots());
  return wrong < 0 ? fault : Slot("slot_mapping", wrong, p.slot_mapping[wrong], p.pool.slots());
}

size_t WorkspaceSize(const CachedProblem& problem, int64_t threads, const CachedTuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + 64;
}

void Run(const CachedProblem& problem, void* workspace, const Runner& runner,
         const CachedTuning& tuning) {
  if (problem.rows == 0) return;
  CachedPlan plan = MakePlan(problem, runner.threads, tuning);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + 63) &
                                          ~static_cast<uintptr_t>(63));
  FillGroups(problem, tuning, plan, reinterpret_cast<CachedGroup*>(aligned + plan.group_offset));
  char* counters = aligned + plan.counter_offset;
  for (size_t i = 0; i < plan.counter_count; ++i) {
    new (counters + i * sizeof(int64_t)) std::atomic<int64_t>(0);
  }
  const auto choose = [&tuning](bool streams_floats) {
    const Kernel* kernel = ChooseKernel(tuning.isa, streams_floats);
    return kernel != nullptr ? kernel : ChooseKernel(Isa::kBest, streams_floats);
  };
  Call call{&problem, &plan, choose(false), choose(true), aligned};
  if (plan.workers == 1 || runner.parallel_for == nullptr) {
    plan.workers = 1;
    RunTask(&call, 0);
  } else {
    runner.parallel_for(runner.context, plan.workers, RunTask, &call);
  }
}

std::string Validate(const StoreProblem& p) {
  std::string fault = ValidatePool(p.pool);
  if (!fault.empty()) return fault;
  if (p.pool.slots() > 0 && p.pool.data == nullptr) return "the pool has no memory";
  if (p.batch < 0 || p.positions < 0) return "a size is negative";
  const Size count = Size(p.batch) * p.positions;
  if (count > 0 &&
      (p.key.data == nullptr || p.value.data == nullptr || p.slot_mapping == nullptr)) {
    return "key, value and slot_mapping are required";
  }
  const int64_t wrong = FirstOutside(p.slot_mapping, count, -1, p.pool.slots());
  return wrong < 0 ? fault : Slot("slot_mapping", wrong, p.slot_mapping[wrong], p.pool.slots());
}

namespace {

// Stores one row and returns its scale.
float StoreOne(const Kernel& kernel, Storage storage, const Input& input, int64_t b, int64_t h,
               int64_t position, int64_t size, char* to) {
  const Strides& s = input.strides;
  const float* from =
      static_cast<const float*>(input.data) + b * s.batch + h * s.head + position * s.position;
  return kernel.store(storage, from, s.feature, size, to);
}

// Positions of one task: some 100 microseconds' worth at most.
constexpr int64_t kStorePositions = 64;

struct StoreCall {
  const StoreProblem* problem;
  const Kernel* kernel;
  int64_t chunks;  // of one batch row
};

void StoreTask(void* argument, int64_t index) {
  const StoreCall& call = *static_cast<const StoreCall*>(argument);
  const StoreProblem& p = *call.problem;
  const Pool& pool = p.pool;
  const int64_t b = index / call.chunks;
  const int64_t begin = index % call.chunks * kStorePositions;
  const int64_t end = std::min(p.positions, begin + kStorePositions);
  for (int64_t h = 0; h < pool.kv_heads; ++h) {
    for (int64_t j = begin; j < end; ++j) {
      const int32_t slot = p.slot_mapping[b * p.positions + j];
      if (slot < 0) continue;
      const float key =
          StoreOne(*call.kernel, pool.storage, p.key, b, h, j, pool.head_size, pool.Key(slot, h));
      const float value = StoreOne(*call.kernel, pool.storage, p.value, b, h, j, pool.value_size,
                                   pool.Value(slot, h));
      pool.Scale(slot, h, key, value);
    }
  }
}

}  // namespace

int64_t Run(const StoreProblem& problem, const Runner& runner) {
  const Size chunks = DivideUp(Size(problem.positions), kStorePositions);
  StoreCall call{&problem, FindKernel(Isa::kBest), chunks};
  const Size tasks = chunks * problem.batch;
  if (runner.parallel_for == nullptr || tasks <= 1) {
    for (int64_t i = 0; i < tasks; ++i) StoreTask(&call, i);
  } else {
    runner.parallel_for(runner.context, tasks, StoreTask, &call);
  }
  int64_t stored = 0;
  for (int64_t i = 0; i < problem.batch * problem.positions; ++i)
    stored += problem.slot_mapping[i] >= 0;
  return stored;
}

}  // namespace attention
}  // namespace graft
