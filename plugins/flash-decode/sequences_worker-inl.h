// One worker of sequences: takes items of all of them until none is left.
#if defined(GRAFT_FLASH_DECODE_SEQUENCES_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_SEQUENCES_WORKER_INL_H_
#undef GRAFT_FLASH_DECODE_SEQUENCES_WORKER_INL_H_
#else
#define GRAFT_FLASH_DECODE_SEQUENCES_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "attention.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "sequences.h"
#include "sequences_plan.h"
#include "worker-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// The problem and the plan of the sequence that a worker is at. Before Worker among the bases of
// SequencesWorker, which refers to them.
struct CurrentSequence {
  CurrentSequence(const Problem& problem, const Plan& plan)
      : current_problem(problem), current_plan(plan) {}
  Problem current_problem;
  Plan current_plan;
};

class SequencesWorker : private CurrentSequence, public Worker {
 public:
  SequencesWorker(const Sequences& sequences, const SequencesPlan& plan, char* workspace,
                  int64_t index)
      : CurrentSequence(sequences.problem, plan.worker),
        Worker(current_problem, current_plan, workspace, index),
        sequences_(sequences),
        sequences_plan_(plan),
        order_(reinterpret_cast<const int32_t*>(workspace + plan.order_offset)),
        items_(reinterpret_cast<const int64_t*>(workspace + plan.items_offset)),
        shown_(reinterpret_cast<const Shown*>(workspace + plan.shown_offset)),
        next_(reinterpret_cast<const int32_t*>(workspace + plan.next_offset)) {}

  void TakeItems() {
    int64_t at = -1;  // in the order of the sequences: a worker only goes forward
    SequenceCut cut{};
    for (;;) {
      const int64_t item = Counters()[0].fetch_add(1, std::memory_order_relaxed);
      if (item >= sequences_plan_.items) break;
      if (at < 0 || item >= items_[at + 1]) {
        do ++at;
        while (item >= items_[at + 1]);
        cut = Enter(order_[at]);
      }
      const int64_t first = (item - items_[at]) * cut.step;
      const int64_t end = std::min(first + cut.step, cut.tasks);
      for (int64_t task = first; task < end; ++task) {
        ComputeItem(task);
        if (any_alike_) WriteAlike();
      }
    }
  }

 private:
  // Makes sequence b the problem.
  SequenceCut Enter(int64_t b) {
    const Problem& all = sequences_.problem;
    const int64_t begin = sequences_.offsets[b];
    const int64_t length = sequences_.offsets[b + 1] - begin;
    Problem& p = current_problem;
    p.queries = p.fresh = length;
    Advance(all.query, begin, p.query);
    Advance(all.key, begin, p.key);
    Advance(all.value, begin, p.value);
    p.output.data =
        static_cast<char*>(all.output.data) + begin * all.output.strides.position * element_;
    p.mask = Input();
    const Shown& shown = shown_[b];
    visible_ = nullptr;
    mean_of_ = -1;
    if (shown.hides && sequences_plan_.narrows) {
      current_visible_ = sequences_plan_.visible;
      current_visible_.begin = shown.begin;
      current_visible_.end = shown.end;
      current_visible_.next = sequences_plan_.limits ? next_ + begin : nullptr;
      visible_ = &current_visible_;
    }
    if (shown.masked) {
      p.mask_hides = true;
      p.mask.data = sequences_.hidden + begin * sequences_.hidden_stride;
      p.mask.strides = {0, 0, 0, sequences_.hidden_stride};
    }
    if (all.bias.data != nullptr) {
      const Strides& s = all.bias.strides;
      const int64_t first = sequences_.first != nullptr ? sequences_.first[b] : 0;
      p.bias.data = static_cast<const char*>(all.bias.data) +
                    (b * s.batch + first * (s.position + s.feature)) * element_;
    }
    const SequenceCut cut = CutSequence(sequences_plan_, length);
    Plan& plan = current_plan;
    plan.rows = cut.rows;
    plan.row_chunk = cut.row_chunk;
    plan.row_chunks = cut.row_chunks;
    plan.keys = plan.split_keys = length;
    plan.packed = cut.packed;
    plan.tile = cut.packed ? kMaxTile : sequences_plan_.few_tile;
    StartProblem();
    return cut;
  }

  // Writes the rows to which all keys of the sequence are alike: the mean of its values.
  HWY_NOINLINE void WriteAlike() {
    if (mean_of_ != g_) {
      mean_of_ = g_;
      std::fill(mean_, mean_ + plan_.value_stride, 0.0f);
      std::fill(scores_, scores_ + kMaxTile, 1.0f / static_cast<float>(plan_.keys));
      rescale_[0] = 1.0f;
      for (int64_t j = 0, stop; j < plan_.keys; j = stop) {
        stop = TileEnd(j, plan_.keys);
        AddWeightedTile(scores_, plan_.score_stride, 1, Values(j, stop - j, false), stop - j,
                        value_vectors_, CopyTarget{nullptr, 0}, rescale_, mean_,
                        plan_.value_stride);
      }
    }
    for (int64_t r = 0; r < rows_; ++r) {
      if (high_[r] != kAllAlike) continue;
      StoreRow(problem_.type, mean_, 1.0f, problem_.value_size,
               At(problem_.output, HeadOf(r), QueryOf(r)), problem_.output.strides.feature);
    }
  }

  void Advance(const Input& all, int64_t begin, Input& input) const {
    input.data = static_cast<const char*>(all.data) + begin * all.strides.position * element_;
  }

  const Sequences& sequences_;
  const SequencesPlan& sequences_plan_;
  const int32_t* order_;
  const int64_t* items_;
  const Shown* shown_;
  const int32_t* next_;
  VisibleKeys current_visible_{};
  int64_t mean_of_ = -1;  // the KV head whose mean mean_ holds
};

// Entry of this target: runs worker `index` of the plan.
void RunSequencesWorker(const Sequences& sequences, const SequencesPlan& plan, char* workspace,
                        int64_t index) {
  SequencesWorker(sequences, plan, workspace, index).TakeItems();
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_SEQUENCES_WORKER_INL_H_
