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

// From here on down a number hides whatever it is added to.
constexpr float kLeastSwallowing = -1e30f;

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
  plan.shown_offset = scratch.Take(s.count, sizeof(Shown));
  plan.limits = p.causal || p.window > 0 || p.window_left >= 0 || p.window_right >= 0;
  plan.next_offset = scratch.Take(plan.limits ? p.fresh : 0, sizeof(int32_t));
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

// What hidden keys are to rows, from what all sequences have in common.
void ChooseNarrowing(const Sequences& s, SequencesPlan& plan) {
  const Problem& p = s.problem;
  const bool gone = p.mask_fill == -std::numeric_limits<float>::infinity();
  const bool biased = p.bias.data != nullptr;
  // A score is less than what the last digit of such a number stands for: it swallows any score
  // that it is added to, and beside a visible key's score it weighs exp(-1e30) = 0. A bias may take
  // all visible keys away, and be added to the number. Beside greater numbers, such as -1e4, hidden
  // keys weigh 0 while scores are less than 9,900 apart: of any queries and keys that is not
  // certain, so there they are masked.
  const bool swallows = !gone && p.mask_fill <= kLeastSwallowing;
  plan.narrows = gone || (swallows && !biased);
  plan.visible.gone = gone;
  plan.visible.fills = plan.narrows && swallows;
  plan.visible.window_fills = plan.visible.fills && s.window_fill == p.mask_fill;
}

// Finds the visible keys of every sequence.
void FindVisible(const Sequences& s, char* workspace, SequencesPlan& plan) {
  ChooseNarrowing(s, plan);
  Shown* shown = reinterpret_cast<Shown*>(workspace + plan.shown_offset);
  int32_t* next = reinterpret_cast<int32_t*>(workspace + plan.next_offset);
  for (int64_t b = 0; b < s.count; ++b) {
    shown[b] = Shown{};
    if (s.hidden == nullptr) continue;
    const uint8_t* hidden = s.hidden + s.offsets[b] * s.hidden_stride;
    const auto any = [&](int64_t begin, int64_t end) {
      uint8_t all = 0;
      for (int64_t i = begin; i < end; ++i) all |= hidden[i * s.hidden_stride];
      return all != 0;
    };
    const int64_t length = LengthOf(s, b);
    if (!any(0, length)) continue;
    int64_t begin = 0, end = length;
    while (begin < length && hidden[begin * s.hidden_stride] != 0) ++begin;
    while (end > begin && hidden[(end - 1) * s.hidden_stride] != 0) --end;
    // Rows that see no visible key meet the hidden ones within their limits, unless those are gone
    // or all keys are alike.
    const bool met = plan.limits && !plan.visible.gone && !plan.visible.window_fills;
    shown[b] = {static_cast<int32_t>(begin), static_cast<int32_t>(end), true,
                !plan.narrows || met || any(begin, end)};
    if (!plan.limits || !plan.narrows) continue;
    int32_t* from = next + s.offsets[b];
    int32_t first = static_cast<int32_t>(length);
    for (int64_t i = length; i-- > 0;) {
      if (hidden[i * s.hidden_stride] == 0) first = static_cast<int32_t>(i);
      from[i] = first;
    }
  }
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
  if (s.window_fill != -std::numeric_limits<float>::infinity()) {
    if (!(s.window_fill <= kLeastSwallowing)) {
      return Text("the fill beyond windows is ", s.window_fill, ", needed is -inf or at most ",
                  kLeastSwallowing);
    }
    if (s.window_fill > p.mask_fill) {
      return Text("the fill beyond windows is ", s.window_fill,
                  ", needed is at most that of hidden keys, ", p.mask_fill);
    }
    if (p.causal || p.window > 0 || p.bias.data != nullptr) {
      return "a fill beyond windows leaves no place for is_causal, window or attn_bias";
    }
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
      const int64_t last = Size(first) + length - 1;
      return Text("sequence ", b, " is positions ", first, " to ", last, " of a bias that has ",
                  most);
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
  FindVisible(sequences, aligned, plan);
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
