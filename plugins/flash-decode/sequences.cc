#include "sequences.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>

#include "graft/checked.h"
#include "graft/error.h"
#include "kernel.h"
#include "plan.h"
#include "sequences_plan.h"

namespace graft {
namespace attention {
namespace {

// A thread multiplies and adds some 25 numbers a nanosecond. An item of 10 microseconds costs
// nothing to hand out; a call of less than 8 is not worth waking a thread for.
constexpr double kItemCost = 250e3;
constexpr double kSerialCost = 200e3;
constexpr int64_t kItemsOfThread = 8;

SequencesPlan MakePlan(const Sequences& s, int64_t threads, const Tuning& tuning) {
  const Problem& p = s.problem;
  if (const char* fault = ValidateSizes(p)) {
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("attention: ", fault));
  }
  SequencesPlan plan{};
  plan.group_size = p.heads / p.kv_heads;
  plan.kv_heads = p.kv_heads;
  plan.packed_rows = tuning.packed_rows > 0 ? tuning.packed_rows : kPackedRows;
  plan.item_cost = kItemCost;
  const Size rows = Size(plan.group_size) * p.fresh;
  const Size tasks = Size(p.kv_heads) * rows;  // no more than one a row
  plan.row_cap = tuning.row_chunk > 0 ? tuning.row_chunk : kMaxRows;

  Plan& worker = plan.worker;
  worker.rows = rows;
  worker.row_chunk = std::max<int64_t>(1, std::min<int64_t>(plan.row_cap, rows));
  worker.row_chunks = worker.splits = 1;
  worker.keys = p.fresh;
  worker.tile = kMaxTile;
  worker.packed = true;
  worker.scale = p.scale != 0.0f ? p.scale : 1.0f / std::sqrt(static_cast<float>(p.head_size));
  worker.key_stride = RoundUp(Size(p.head_size), kScratchVector);
  worker.value_stride = RoundUp(Size(p.value_size), kScratchVector);
  worker.score_stride = kMaxTile;
  const Size widest = Size(std::max(worker.key_stride, worker.value_stride)) * sizeof(float);
  plan.few_tile = std::min(kMaxTile, std::max(kScratchVector, int64_t{Size(8192) / widest} /
                                                                  kScratchVector * kScratchVector));
  plan.workers = std::max<int64_t>(1, std::min<int64_t>(threads, tasks));

  Scratch scratch;
  worker.counter_count = 1;
  worker.counter_offset = scratch.Take(1, sizeof(int64_t));
  plan.order_offset = scratch.Take(s.count, sizeof(int32_t));
  plan.items_offset = scratch.Take(Size(s.count) + 1, sizeof(int64_t));
  plan.hiding_offset = scratch.Take(s.count, sizeof(uint8_t));
  worker.worker_bytes = LayOutWorker(worker).total;
  worker.worker_offset = scratch.Take(plan.workers, worker.worker_bytes);
  worker.total_bytes = scratch.bytes();
  return plan;
}

int64_t LengthOf(const Sequences& s, int64_t b) { return int64_t{s.offsets[b + 1]} - s.offsets[b]; }

// Cuts the sequences into items, as many as threads can share.
void Cut(const Sequences& s, const Tuning& tuning, char* workspace, SequencesPlan& plan) {
  int32_t* order = reinterpret_cast<int32_t*>(workspace + plan.order_offset);
  int64_t* items = reinterpret_cast<int64_t*>(workspace + plan.items_offset);
  double cost = 0;
  const double features = static_cast<double>(plan.worker.key_stride + plan.worker.value_stride);
  for (int64_t b = 0; b < s.count; ++b) {
    order[b] = static_cast<int32_t>(b);
    const double length = static_cast<double>(LengthOf(s, b));
    cost += features * length * length * static_cast<double>(s.problem.heads);
  }
  std::sort(order, order + s.count, [&](int32_t a, int32_t b) {
    const int64_t la = LengthOf(s, a), lb = LengthOf(s, b);
    return la != lb ? la > lb : a < b;
  });
  const double serial =
      tuning.serial_cost >= 0 ? static_cast<double>(tuning.serial_cost) : kSerialCost;
  if (cost < serial) plan.workers = 1;
  plan.item_cost = std::min(kItemCost, cost / static_cast<double>(plan.workers * kItemsOfThread));
  for (;;) {
    items[0] = 0;
    for (int64_t i = 0; i < s.count; ++i) {
      items[i + 1] = items[i] + CutSequence(plan, LengthOf(s, order[i])).items;
    }
    plan.items = items[s.count];
    if (tuning.row_chunk > 0 || plan.workers == 1 || plan.items >= 4 * plan.workers ||
        plan.row_cap / 2 < kFewestRows) {
      break;
    }
    plan.row_cap /= 2;
  }
  plan.workers = std::max<int64_t>(1, std::min(plan.workers, plan.items));
}

struct Call {
  const Sequences* sequences;
  const SequencesPlan* plan;
  const Kernel* kernel;
  char* workspace;
};

void RunTask(void* argument, int64_t index) {
  const Call& call = *static_cast<const Call*>(argument);
  call.kernel->run_sequences(*call.sequences, *call.plan, call.workspace, index);
}

}  // namespace

std::string ValidateSequences(const Sequences& s) {
  const Problem& p = s.problem;
  if (const char* fault = ValidateSizes(p)) return fault;
  if (p.batch != 1 || p.queries != p.fresh || p.past != 0) {
    return "sequences have queries and keys of their own positions, in a batch of 1";
  }
  if (p.mask.data != nullptr || p.scores.data != nullptr || p.present_key.data != nullptr ||
      p.present_value.data != nullptr || p.lengths32 != nullptr || p.lengths64 != nullptr) {
    return "sequences have no mask, scores, present or lengths";
  }
  if (s.count < 0 || s.offsets == nullptr) return "sequences need offsets";
  if (s.offsets[0] != 0) return Text("offsets[0] is ", s.offsets[0], ", needed is 0");
  for (int64_t b = 0; b < s.count; ++b) {
    if (s.offsets[b + 1] < s.offsets[b]) {
      return Text("offsets[", b + 1, "] is ", s.offsets[b + 1],
                  ", needed is at least the one before it, ", s.offsets[b]);
    }
  }
  if (s.offsets[s.count] != p.fresh) {
    return Text("the last of offsets is ", s.offsets[s.count],
                ", needed is the number of positions, ", p.fresh);
  }
  if (p.fresh > 0 && (p.query.data == nullptr || p.key.data == nullptr || p.value.data == nullptr ||
                      p.output.data == nullptr)) {
    return "query, key, value and output are required";
  }
  if (p.bias.data == nullptr) return std::string();
  int64_t most = std::numeric_limits<int64_t>::max();
  if (p.bias.strides.position != 0) most = std::min(most, s.bias_rows);
  if (p.bias.strides.feature != 0) most = std::min(most, s.bias_columns);
  for (int64_t b = 0; b < s.count; ++b) {
    const int64_t length = LengthOf(s, b), first = s.first != nullptr ? s.first[b] : 0;
    if (length > 0 && !HoldsRange(most, first, length)) {
      return Text("sequence ", b, " is positions ", first, " to ", first + length - 1,
                  " of a bias that has ", most);
    }
  }
  return std::string();
}

size_t SequencesWorkspaceSize(const Sequences& sequences, int64_t threads, const Tuning& tuning) {
  return MakePlan(sequences, threads, tuning).worker.total_bytes + 64;
}

void RunSequences(const Sequences& sequences, void* workspace, const Runner& runner,
                  const Tuning& tuning) {
  if (sequences.problem.fresh == 0) return;
  SequencesPlan plan = MakePlan(sequences, runner.threads, tuning);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + 63) &
                                          ~static_cast<uintptr_t>(63));
  if (runner.parallel_for == nullptr) plan.workers = 1;
  Cut(sequences, tuning, aligned, plan);
  uint8_t* hiding = reinterpret_cast<uint8_t*>(aligned + plan.hiding_offset);
  for (int64_t b = 0; b < sequences.count; ++b) {
    uint8_t any = 0;
    if (sequences.hidden != nullptr) {
      for (int64_t i = sequences.offsets[b]; i < sequences.offsets[b + 1]; ++i) {
        any |= sequences.hidden[i * sequences.hidden_stride];
      }
    }
    hiding[b] = any;
  }
  const Kernel* kernel = ChooseKernel(tuning.isa, false);
  if (kernel == nullptr) kernel = ChooseKernel(Isa::kBest, false);
  new (aligned + plan.worker.counter_offset) std::atomic<int64_t>(0);
  Call call{&sequences, &plan, kernel, aligned};
  if (plan.workers == 1) {
    RunTask(&call, 0);
  } else {
    runner.parallel_for(runner.context, plan.workers, RunTask, &call);
  }
}

}  // namespace attention
}  // namespace graft
