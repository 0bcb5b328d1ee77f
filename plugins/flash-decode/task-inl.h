// One task: rows of a KV head against a range of keys.
#if defined(GRAFT_FLASH_DECODE_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_TASK_INL_H_
#undef GRAFT_FLASH_DECODE_TASK_INL_H_
#else
#define GRAFT_FLASH_DECODE_TASK_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// The rows of a worker's current task, what is known of them, and the worker's scratch.
class Task {
 public:
  Task(const Problem& problem, const Plan& plan, char* workspace, int64_t index)
      : problem_(problem),
        plan_(plan),
        workspace_(workspace),
        group_size_(problem.heads / problem.kv_heads),
        key_vectors_(DivideUp(problem.head_size, kLanes)),
        value_vectors_(DivideUp(problem.value_size, kLanes)),
        element_(ElementSize(problem.type)) {
    char* scratch = workspace + plan.worker_offset + static_cast<size_t>(index) * plan.worker_bytes;
    const WorkerLayout layout = LayOutWorker(plan);
    query_ = reinterpret_cast<float*>(scratch + layout.query);
    scores_ = reinterpret_cast<float*>(scratch + layout.scores);
    accumulator_ = reinterpret_cast<float*>(scratch + layout.accumulator);
    maximum_ = reinterpret_cast<float*>(scratch + layout.maximum);
    sums_ = reinterpret_cast<float*>(scratch + layout.sums);
    rescale_ = reinterpret_cast<float*>(scratch + layout.rescale);
    head_ = reinterpret_cast<int64_t*>(scratch + layout.head);
    position_ = reinterpret_cast<int64_t*>(scratch + layout.position);
    low_ = reinterpret_cast<int64_t*>(scratch + layout.low);
    high_ = reinterpret_cast<int64_t*>(scratch + layout.high);
    begun_ = reinterpret_cast<bool*>(scratch + layout.begun);
    overflown_ = reinterpret_cast<bool*>(scratch + layout.overflown);
    packed_keys_ = reinterpret_cast<float*>(scratch + layout.packed_keys);
    key_rows_ = reinterpret_cast<float*>(scratch + layout.key_rows);
    value_rows_ = reinterpret_cast<float*>(scratch + layout.value_rows);
    mean_ = reinterpret_cast<float*>(scratch + layout.mean);
    StartProblem();
  }

 protected:
  // What follows from which tensors the problem has.
  void StartProblem() {
    // Scores that nothing is done to but a softmax are taken times log2(e), and weights as powers
    // of 2.
    base2_ = problem_.bias.data == nullptr && problem_.mask.data == nullptr &&
             problem_.softcap <= 0.0f && problem_.scores.data == nullptr;
    scale_ = base2_ ? plan_.scale * kLog2E : plan_.scale;
    masks_ = problem_.bias.data != nullptr || problem_.mask.data != nullptr;
  }

  int64_t HeadOf(int64_t row) const { return head_[row]; }
  int64_t QueryOf(int64_t row) const { return position_[row]; }

  const char* At(const Input& input, int64_t head, int64_t position) const {
    return static_cast<const char*>(input.data) +
           (b_ * input.strides.batch + head * input.strides.head +
            position * input.strides.position) *
               element_;
  }
  char* At(const Output& output, int64_t head, int64_t position) const {
    return static_cast<char*>(output.data) +
           (b_ * output.strides.batch + head * output.strides.head +
            position * output.strides.position) *
               element_;
  }

  // Reads the rows' queries, scaled, and the range of keys that each may see.
  void StartRows() {
    const int64_t valid = ValidKeys(problem_, b_);
    const int64_t offset =
        problem_.diagonal == DiagonalFrom::kPast ? problem_.past : valid - problem_.queries;
    lowest_ = every_high_ = std::numeric_limits<int64_t>::max();
    highest_ = every_low_ = 0;
    any_overflown_ = any_alike_ = false;
    if (rows_ == 0) return;
    // A packed matmul takes queries where they lie, if all rows are equally far apart; the scale
    // then goes into the keys while they are packed.
    const Strides& s = problem_.query.strides;
    const bool even = group_size_ == 1 || s.head == problem_.queries * s.position;
    const bool in_place = plan_.packed && even && s.feature == 1 && problem_.type == Type::kFloat32;
    queries_ = {query_, plan_.key_stride};
    key_scale_ = 1.0f;
    if (in_place) {
      queries_.first = reinterpret_cast<const float*>(At(
          problem_.query, g_ * group_size_ + row0_ / problem_.queries, row0_ % problem_.queries));
      queries_.stride = s.position;
      key_scale_ = scale_;
    }
    int64_t head = g_ * group_size_ + row0_ / problem_.queries;
    int64_t query = row0_ % problem_.queries;
    for (int64_t r = 0; r < rows_; ++r) {
      head_[r] = head;
      position_[r] = query;
      const int64_t position = query + offset;
      if (++query == problem_.queries) {
        query = 0;
        ++head;
      }
      int64_t low = 0;
      int64_t high = std::min(valid, problem_.key_limit);
      if (problem_.causal) high = std::max<int64_t>(0, std::min(high, position + 1));
      if (problem_.window > 0) low = std::max(low, position - problem_.window + 1);
      if (problem_.window_left >= 0 && problem_.window_left < position) {
        low = std::max(low, position - problem_.window_left);
      }
      if (problem_.window_right >= 0 && problem_.window_right < plan_.keys - position) {
        high = std::max<int64_t>(0, std::min(high, position + problem_.window_right + 1));
      }
      const bool alike = visible_ != nullptr && Narrow(low, high);
      if (low < high) {
        lowest_ = std::min(lowest_, low);
        highest_ = std::max(highest_, high);
      } else {
        low = high = alike ? kAllAlike : 0;
        any_alike_ |= alike;
      }
      low_[r] = low;
      high_[r] = high;
      every_low_ = std::max(every_low_, low);
      every_high_ = std::min(every_high_, high);
      if (!in_place) {
        LoadRow(problem_.type, At(problem_.query, HeadOf(r), QueryOf(r)),
                problem_.query.strides.feature, problem_.head_size, plan_.key_stride, scale_,
                query_ + r * plan_.key_stride);
      }
    }
    if (plan_.packed) std::memset(begun_, 0, static_cast<size_t>(PackedBlocks(rows_)));
    // A row that sees no key has a weight all the same where there is a sink.
    if (!plan_.packed || problem_.sinks != nullptr) {
      std::memset(accumulator_, 0, static_cast<size_t>(rows_ * plan_.value_stride) * sizeof(float));
    }
  }

  // Lets rows begin: with nothing, or with their heads' sinks, which one of several splits counts.
  void StartStates(bool sinks) {
    std::fill(maximum_, maximum_ + rows_, kNegativeInfinity);
    std::memset(sums_, 0, static_cast<size_t>(rows_ * kLanes) * sizeof(float));
    if (problem_.sinks == nullptr || !sinks) return;
    for (int64_t r = 0; r < rows_; ++r) {
      const float sink = LoadElement(problem_.type, problem_.sinks, HeadOf(r));
      TakeSink(base2_ ? sink * kLog2E : sink, maximum_[r], sums_ + r * kLanes);
    }
  }

  // Narrows the keys that a row may see to those from the first visible one to the last: the
  // others' weights are 0. Returns whether the row sees no visible key, and all keys alike.
  bool Narrow(int64_t& low, int64_t& high) const {
    const VisibleKeys& v = *visible_;
    const bool sees =
        v.next == nullptr ? v.begin < v.end : low < high && v.next[static_cast<size_t>(low)] < high;
    if (sees) {
      low = std::max(low, v.begin);
      high = std::min(high, v.end);
      return false;
    }
    const bool alike = v.fills && (v.window_fills || (low == 0 && high == plan_.keys));
    if (alike || v.gone) low = high = 0;
    return alike;
  }

  // The last key that any of these rows sees, or less than 0.
  int64_t LastKey(int64_t r0, int64_t rows) const {
    return *std::max_element(high_ + r0, high_ + r0 + rows) - 1;
  }

  // Whether every row sees every key of j .. j+count-1.
  bool SeenByAll(int64_t j, int64_t count) const {
    return every_low_ <= j && every_high_ >= j + count;
  }

  // Of the keys j .. j+count-1 those from `begin` to `end`, counted from j, are all that any of
  // these rows may see. `begin` is a multiple of kLanes.
  struct Span {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  Span SeenBy(int64_t r0, int64_t rows, int64_t j, int64_t count) const {
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t high = 0;
    for (int64_t r = r0; r < r0 + rows; ++r) {
      if (low_[r] == high_[r]) continue;
      low = std::min(low, low_[r]);
      high = std::max(high, high_[r]);
    }
    if (low >= j + count || high <= j) return {0, 0};
    return {low <= j ? 0 : (low - j) / kLanes * kLanes, std::min(high - j, count)};
  }

  OnlineRow State(int64_t r) const {
    const DF d;
    return {maximum_[r], hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums_ + r * kLanes)))};
  }

  const Problem& problem_;
  const Plan& plan_;
  char* workspace_;
  const int64_t group_size_;
  const int64_t key_vectors_;
  const int64_t value_vectors_;
  const int64_t element_;
  bool masks_;
  bool base2_;
  float scale_;

  // Of the current item.
  int64_t b_, g_, row0_, rows_;
  bool copies_;
  RowsOfType<float> queries_;             // what a packed matmul reads
  float key_scale_;                       // what packed keys are multiplied by
  int64_t lowest_, highest_;              // keys that some row may see
  int64_t every_low_, every_high_;        // keys that every row sees
  bool any_overflown_;                    // whether values of some row were too large to be summed
  bool any_alike_;                        // whether the bounds of some row are kAllAlike
  const VisibleKeys* visible_ = nullptr;  // of the problem; null: rows see hidden keys too

  float* query_;        // [row_chunk][key_stride], scaled
  float* scores_;       // [row_chunk][score_stride]
  float* accumulator_;  // [row_chunk][value_stride]
  float* maximum_;      // [row_chunk], of the scores seen so far
  float* sums_;         // [row_chunk][kLanes], of the weights relative to it
  float* rescale_;      // [row_chunk]
  int64_t* head_;       // [row_chunk], of the query
  int64_t* position_;   // [row_chunk], of the query
  int64_t* low_;        // [row_chunk]
  int64_t* high_;       // [row_chunk]
  bool* begun_;         // [PackedBlocks(row_chunk)], blocks whose accumulators hold something
  bool* overflown_;     // [row_chunk], of rows that any_overflown_ tells of
  float* packed_keys_;  // [key_stride][kMaxTile]
  float* key_rows_;     // [tile][key_stride]
  float* value_rows_;   // [tile][value_stride]
  float* mean_;         // [value_stride], of a head's values
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_TASK_INL_H_
