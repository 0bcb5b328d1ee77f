// One task over a pool: tokens of a group and some of their KV heads, against a part of the keys.
#if defined(GRAFT_FLASH_DECODE_POOL_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_TASK_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_TASK_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_TASK_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "cached.h"
#include "cached_plan.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Positions of one step. All rows of a KV head use shared ones at once; private ones belong to one
// row each.
struct PoolTile {
  int64_t begin, count;
  int64_t lists;         // 1, or one a row
  int64_t padded;        // length of a list
  int64_t* key_offsets;  // [kSharedTile] or [rows][kOwnTile]
  int64_t* value_offsets;
  int64_t* scale_offsets;  // of int8 alone
  bool adjacent;           // whether the slots of every full vector of a list lie side by side
};

// The rows of a worker's current task, what is known of them, and the worker's scratch.
class PoolTask {
 public:
  PoolTask(const CachedProblem& problem, const CachedPlan& plan, char* workspace, int64_t index)
      : problem_(problem),
        pool_(problem.pool),
        plan_(plan),
        workspace_(workspace),
        groups_(reinterpret_cast<const CachedGroup*>(workspace + plan.group_offset)),
        key_vectors_(DivideUp(problem.pool.head_size, kLanes)),
        value_vectors_(DivideUp(problem.pool.value_size, kLanes)),
        scaled_(problem.pool.storage == Storage::kInt8),
        // Weights are powers of 2 where nothing is done to scores but a softmax.
        base2_(problem.bias == nullptr && problem.softcap <= 0.0f) {
    char* scratch = workspace + plan.worker_offset + static_cast<size_t>(index) * plan.worker_bytes;
    const CachedWorkerLayout layout = LayOutCachedWorker(plan);
    query_ = reinterpret_cast<float*>(scratch + layout.query);
    accumulator_ = reinterpret_cast<float*>(scratch + layout.accumulator);
    maximum_ = reinterpret_cast<float*>(scratch + layout.maximum);
    sums_ = reinterpret_cast<float*>(scratch + layout.sums);
    rescale_ = reinterpret_cast<float*>(scratch + layout.rescale);
    overflown_ = reinterpret_cast<bool*>(scratch + layout.overflown);
    scores_ = reinterpret_cast<float*>(scratch + layout.scores);
    low_ = reinterpret_cast<int64_t*>(scratch + layout.low);
    high_ = reinterpret_cast<int64_t*>(scratch + layout.high);
    for (int i = 0; i < 2; ++i) {
      tiles_[i].key_offsets = reinterpret_cast<int64_t*>(scratch + layout.key_offsets[i]);
      tiles_[i].value_offsets = reinterpret_cast<int64_t*>(scratch + layout.value_offsets[i]);
      tiles_[i].scale_offsets = reinterpret_cast<int64_t*>(scratch + layout.scale_offsets[i]);
    }
    key_rows_ = reinterpret_cast<float*>(scratch + layout.key_rows);
    value_rows_ = reinterpret_cast<float*>(scratch + layout.value_rows);
    packed_keys_ = reinterpret_cast<float*>(scratch + layout.packed_keys);
    scale_ = base2_ ? plan.scale * kLog2E : plan.scale;
  }

 protected:
  // Reads the queries, scaled, and the range of positions that each row sees. Query rows stand as
  // [KV head][row][query head of the KV head].
  void StartRows() {
    const CachedGroup& group = *group_;
    lowest_ = std::numeric_limits<int64_t>::max();
    highest_ = 0;
    any_overflown_ = false;
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t position = group.position(row0_ + i);
      low_[i] = problem_.window > 0 ? std::max<int64_t>(0, position - problem_.window + 1) : 0;
      high_[i] = position + 1;
      lowest_ = std::min(lowest_, low_[i]);
      highest_ = std::max(highest_, high_[i]);
    }
    float* to = query_;
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t i = 0; i < rows_; ++i) {
        const float* from = problem_.query + (group.first + row0_ + i) * problem_.query_stride +
                            (head0_ + h) * plan_.group_heads * pool_.head_size;
        for (int64_t n = 0; n < plan_.group_heads; ++n, to += plan_.key_stride) {
          LoadRow(Type::kFloat32, from + n * pool_.head_size, 1, pool_.head_size, plan_.key_stride,
                  scale_, to);
        }
      }
    }
    const int64_t count = heads_ * head_rows_;
    for (int64_t q = 0; q < count; ++q) maximum_[q] = kNegativeInfinity;
    std::memset(sums_, 0, static_cast<size_t>(count * kLanes) * sizeof(float));
    std::memset(accumulator_, 0, static_cast<size_t>(count * plan_.value_stride) * sizeof(float));
  }

  OnlineRow State(int64_t q) const {
    const DF d;
    return {maximum_[q], hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums_ + q * kLanes)))};
  }

  const CachedProblem& problem_;
  const Pool& pool_;
  const CachedPlan& plan_;
  char* workspace_;
  const CachedGroup* groups_;
  const int64_t key_vectors_;
  const int64_t value_vectors_;
  const bool scaled_;  // whether keys and values have scales
  const bool base2_;
  float scale_;

  bool packed_;  // whether this worker's tasks are of many rows

  // Of the current task.
  const CachedGroup* group_;
  int64_t row0_, rows_;       // tokens
  int64_t head0_, heads_;     // KV heads
  int64_t head_rows_;         // query rows of a KV head
  int64_t lowest_, highest_;  // positions that some row may see
  bool any_overflown_;        // whether values of some row were too large to be summed

  float* query_;        // [query rows][key_stride], scaled
  float* accumulator_;  // [query rows][value_stride]
  float* maximum_;      // [query rows], of the scores seen so far
  float* sums_;         // [query rows][kLanes], of the weights relative to it
  float* rescale_;      // [query rows of a KV head]
  bool* overflown_;     // [query rows], of rows that any_overflown_ tells of
  float* scores_;       // [query rows of a KV head][kMaxTile]
  int64_t* low_;        // [rows]
  int64_t* high_;       // [rows]
  PoolTile tiles_[2];   // the one that is computed, and the one after it
  float* key_rows_;     // [kSharedTile][key_stride]
  float* value_rows_;   // [kMaxTile][value_stride]
  float* packed_keys_;  // [key_stride][kMaxTile]
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_TASK_INL_H_
