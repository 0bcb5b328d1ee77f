// One worker of a call: writes new rows, expands queries, attends, and contracts what it has added
// up, each phase after all tasks of the one before are done.
#if defined(GRAFT_ROW_ATTENTION_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_WORKER_INL_H_
#undef GRAFT_ROW_ATTENTION_WORKER_INL_H_
#else
#define GRAFT_ROW_ATTENTION_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "area-inl.h"
#include "contraction-inl.h"
#include "graft/tasks.h"
#include "hwy/highway.h"
#include "row_attention.h"
#include "row_plan.h"
#include "softmax-inl.h"
#include "tile_rows-inl.h"
#include "tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {
namespace simd = attention::HWY_NAMESPACE;
using simd::kNegativeInfinity;

class Worker {
 public:
  Worker(const Problem& problem, const Plan& plan, char* workspace, int64_t index)
      : problem_(problem),
        plan_(plan),
        workspace_(workspace),
        groups_(reinterpret_cast<const Group*>(workspace + plan.group_offset)),
        tokens_(At<const int32_t>(plan.token_offset)),
        queries_(At<float>(plan.query_offset)),
        shifts_(At<float>(plan.shift_offset)),
        partials_(At<float>(plan.partial_offset)),
        states_(At<float>(plan.state_offset)),
        vectors_(plan.width / kLanes),
        scratch_(workspace + plan.worker_offset + static_cast<size_t>(index) * plan.worker_bytes),
        layout_(LayOutWorker(plan)),
        rows_(problem, plan, reinterpret_cast<float*>(scratch_ + layout_.sum_rows),
              reinterpret_cast<float*>(scratch_ + layout_.key_rows)),
        contraction_(problem, plan, workspace, scratch_) {
    scores_ = Scratch<float>(layout_.scores);
    maximum_ = Scratch<float>(layout_.maximum);
    sums_ = Scratch<float>(layout_.sums);
    rescale_ = Scratch<float>(layout_.rescale);
    skipped_ = Scratch<float>(layout_.skipped);
    low_ = Scratch<int64_t>(layout_.low);
    high_ = Scratch<int64_t>(layout_.high);
  }

  void Work() {
    Phase(kNextWrite, plan_.writes, [this](int64_t task) { Write(task); });
    Phase(kNextExpand, plan_.expands, [this](int64_t task) { Expand(task); });
    Phase(kNextItem, plan_.items, [this](int64_t task) { Attend(task); });
    TakeTasks(Counters()[kNextContract], plan_.contracts,
              [this](int64_t task) { contraction_.Contract(task); });
  }

 private:
  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }
  template <typename T>
  T* Scratch(size_t offset) const {
    return reinterpret_cast<T*>(scratch_ + offset);
  }
  std::atomic<int64_t>* Counters() const { return At<std::atomic<int64_t>>(plan_.counter_offset); }

  // Takes tasks until none is left. The counter after `next` counts those that are done.
  template <class Body>
  void Phase(Counter next, int64_t tasks, const Body& body) {
    std::atomic<int64_t>* counters = Counters();
    TakeTasks(counters[next], counters[next + 1], tasks, body);
    WaitForTasks(counters[next + 1], tasks);
  }

  void Write(int64_t task) const {
    const RowPool& pool = problem_.pool;
    const int64_t end = std::min(problem_.tokens, (task + 1) * plan_.write_rows);
    for (int64_t t = task * plan_.write_rows; t < end; ++t) {
      const int32_t slot = problem_.slot_mapping[t];
      if (slot < 0) continue;
      WriteRow(pool.storage, problem_.input + t * problem_.input_stride, pool.width,
               reinterpret_cast<char*>(pool.data) + pool.RowOffset(slot));
    }
  }

  const float* QueryOf(int64_t token, int64_t head) const {
    return problem_.query + token * problem_.query_stride + head * problem_.head_size;
  }

  // Queries of some tokens and one KV head, through some panels of its weight: q W_K^T, scaled.
  // Where rows are keys, queries are scaled only.
  void Expand(int64_t task) const {
    const float scale = plan_.base2 ? plan_.scale * 1.44269504f : plan_.scale;
    const int64_t panels = plan_.width / kPanel;
    const bool keys = problem_.kind == RowKind::kKeys;
    const int64_t shares = keys ? 1 : DivideUp(panels, plan_.expand_panels);
    const int64_t share = task % shares;
    const int64_t g = task / shares % problem_.kv_heads;
    const int64_t chunk = task / shares / problem_.kv_heads;
    const int64_t begin = chunk * plan_.expand_tokens;
    const int64_t end = std::min(plan_.few_tokens, begin + plan_.expand_tokens);
    const int64_t rows = (end - begin) * plan_.group_heads;
    const auto at = [&](int64_t r) {
      return std::pair<int64_t, int64_t>(tokens_[begin + r / plan_.group_heads],
                                         g * plan_.group_heads + r % plan_.group_heads);
    };
    if (share == 0) {
      for (int64_t r = 0; r < rows; ++r) {
        const auto [token, head] = at(r);
        const int64_t row = (begin + r / plan_.group_heads) * problem_.heads + head;
        float* shift = shifts_ + row;
        *shift = 0.0f;
        if (problem_.key_bias != nullptr) {
          const float* q = QueryOf(token, head);
          const float* b = problem_.key_bias + g * problem_.head_size;
          float dot = 0.0f;
          for (int64_t c = 0; c < problem_.head_size; ++c) dot += q[c] * b[c];
          *shift = scale * dot;
        }
        if (keys) {
          simd::LoadRow(attention::Type::kFloat32, QueryOf(token, head), 1, problem_.head_size,
                        plan_.query_stride, scale, queries_ + row * plan_.query_stride);
        }
      }
    }
    if (keys) return;
    const Panels weight{problem_.key_weight + g * panels * problem_.head_size * kPanel,
                        problem_.head_size, panels};
    const int64_t first = share * plan_.expand_panels;
    const int64_t last = std::min(panels, first + plan_.expand_panels);
    ForTiles(rows, [&](int64_t r0, int64_t count) {
      const float* from[kTileRows];
      float* to[kTileRows];
      for (int64_t r = 0; r < count; ++r) {
        const auto [token, head] = at(r0 + r);
        from[r] = QueryOf(token, head);
        const int64_t row = (begin + (r0 + r) / plan_.group_heads) * problem_.heads + head;
        to[r] = queries_ + row * plan_.query_stride;
      }
      MultiplyPanels(from, count, weight, first, last, scale, to);
    });
  }

  // Some rows of a group against a part of its positions.
  void Attend(int64_t task) {
    while (task < groups_[g_].first_item || task >= groups_[g_].first_item + groups_[g_].items()) {
      if (++g_ == problem_.groups) g_ = 0;
    }
    group_ = &groups_[g_];
    const Group& group = *group_;
    const int64_t item = task - group.first_item;
    const int64_t part = item % group.parts;
    row0_ = item / group.parts * group.row_chunk;
    count_ = std::min(group.row_chunk, group.rows - row0_);
    const int64_t partial = group.first_partial + part * group.rows + row0_;
    accumulator_ = partials_ + partial * plan_.width;

    Start();
    const int64_t begin = group.PartBegin(part);
    const int64_t end = std::min(group.PartBegin(part + 1), highest_);
    const int64_t shared_end = std::min(end, group.shared_count);
    // Tiles begin where they would if nothing were hidden: a sum then does not depend on the rows
    // beside it.
    for (int64_t j = begin + FullTiles(begin, plan_.tile); j < shared_end;) {
      const int64_t tile = std::min(plan_.tile, shared_end - j);
      const int64_t after = std::min(plan_.tile, shared_end - j - tile);
      rows_.List(group.shared_slots + j, j, tile);
      prefetcher_ = rows_.Prefetch(group.shared_slots + j + tile, after);
      Step(0, count_, j, tile);
      j += tile;
    }
    const int64_t own_begin = std::max(begin, group.shared_count);
    for (int64_t j = own_begin + FullTiles(own_begin, kPrivateTile); j < end; j += kPrivateTile) {
      const int64_t tile = std::min(kPrivateTile, end - j);
      // All tokens of a tile come before the next tile: tokens that share slots then find them in
      // the nearest cache.
      for (int64_t r = 0, rows; r < count_; r += rows) {
        const int64_t token = (row0_ + r) / problem_.heads;
        rows = std::min(count_, (token + 1) * problem_.heads - row0_) - r;
        rows_.List(group.private_slots + token * group.private_count + (j - group.shared_count), j,
                   tile);
        Step(r, rows, j, tile);
      }
    }
    for (int64_t r = 0; r < count_; ++r) {
      const DF d;
      float* state = states_ + (partial + r) * kStates;
      state[kMaximum] = maximum_[r];
      state[kSum] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums_ + r * kLanes)));
      state[kSkipped] = skipped_[r];
    }
  }

  // Positions from `begin` on, in full tiles, that no row of the task sees.
  int64_t FullTiles(int64_t begin, int64_t tile) const {
    return std::max<int64_t>(0, lowest_ - begin) / tile * tile;
  }

  // Clears the state of all rows and finds the positions that each token sees.
  void Start() {
    const Group& group = *group_;
    const int64_t first = row0_ / problem_.heads;
    const int64_t last = (row0_ + count_ - 1) / problem_.heads;
    lowest_ = std::numeric_limits<int64_t>::max();
    highest_ = 0;
    for (int64_t i = first; i <= last; ++i) {
      const int64_t position = group.position(i);
      low_[i - first] =
          problem_.window > 0 ? std::max<int64_t>(0, position - problem_.window + 1) : 0;
      high_[i - first] = position + 1;
      lowest_ = std::min(lowest_, low_[i - first]);
      highest_ = std::max(highest_, high_[i - first]);
    }
    for (int64_t r = 0; r < count_; ++r) maximum_[r] = kNegativeInfinity;
    std::memset(skipped_, 0, static_cast<size_t>(count_) * sizeof(float));
    std::memset(sums_, 0, static_cast<size_t>(count_ * kLanes) * sizeof(float));
    std::memset(accumulator_, 0, static_cast<size_t>(count_ * plan_.width) * sizeof(float));
  }

  // One step of the online softmax: rows r0 .. r0 + rows - 1 of the task over a tile.
  void Step(int64_t r0, int64_t rows, int64_t j, int64_t tile) {
    Scores(r0, rows, tile);
    for (int64_t r = r0; r < r0 + rows; ++r) Adjust(r, j, tile, scores_ + (r - r0) * kMaxRowTile);
    for (int64_t r = 0; r < rows; r += kLanes) {
      const int64_t count = std::min(kLanes, rows - r);
      float* scores = scores_ + r * kMaxRowTile;
      float* sums = sums_ + (r0 + r) * kLanes;
      // Full vectors of maxima are read and written, those after `count` without a meaning.
      float maximum[kLanes];
      std::memcpy(maximum, maximum_ + r0 + r, sizeof(maximum));
      if (plan_.base2) {
        simd::TakeTiles<true>(count, tile, scores, kMaxRowTile, maximum, sums, rescale_ + r);
      } else {
        simd::TakeTiles<false>(count, tile, scores, kMaxRowTile, maximum, sums, rescale_ + r);
      }
      std::memcpy(maximum_ + r0 + r, maximum, static_cast<size_t>(count) * sizeof(float));
    }
    float* sums = accumulator_ + r0 * plan_.width;
    if (problem_.skip > 0.0f) {
      AddKept(r0, rows, tile, sums);
    } else {
      prefetcher_.Spread(AddSteps(rows, tile, vectors_), 0);
      AddWeighted(scores_, kMaxRowTile, rows, rows_.sums(), tile, vectors_, prefetcher_, rescale_,
                  sums, plan_.width);
    }
  }

  // Matmuls of queries with the rows of a tile.
  void Scores(int64_t r0, int64_t rows, int64_t tile) {
    const int64_t first = group_->first_query + row0_ + r0;
    const float* queries = queries_ + first * plan_.query_stride;
    DotRows dot{rows_.keys(), tile, 0, plan_.query_stride / kPanel, kPanel};
    if (problem_.kind == RowKind::kHiddenStates) {
      prefetcher_.Spread(DotSteps(rows, dot), 1);
      Dot(queries, plan_.query_stride, rows, dot, prefetcher_, scores_, kMaxRowTile);
      return;
    }
    // Scores are a small part of the work on rows of keys: what comes next is prefetched later.
    prefetcher_.Spread(0, 0);
    for (int64_t r = 0; r < std::min(rows, problem_.heads); ++r) {
      dot.shift = (first + r) % problem_.heads * plan_.slice;
      Dot(queries + r * plan_.query_stride, problem_.heads * plan_.query_stride,
          DivideUp(rows - r, problem_.heads), dot, prefetcher_, scores_ + r * kMaxRowTile,
          problem_.heads * kMaxRowTile);
    }
  }

  // From q k^T to scores: row r of the task over positions j .. j + count - 1.
  void Adjust(int64_t r, int64_t j, int64_t count, float* scores) const {
    const int64_t row = row0_ + r;
    const int64_t i = row / problem_.heads - row0_ / problem_.heads;
    const float shift = shifts_[group_->first_query + row];
    if (shift != 0.0f) {
      const DF d;
      for (int64_t k = 0; k < count; k += kLanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, scores + k), hn::Set(d, shift)), d, scores + k);
      }
    }
    if (problem_.softcap > 0.0f) simd::ApplySoftcap(problem_.softcap, count, scores);
    if (problem_.bias != nullptr) {
      const float* bias = problem_.bias + row % problem_.heads * problem_.distances;
      const int64_t distance = high_[i] - 1 - j;
      for (int64_t k = 0; k < count; ++k) {
        // A key that a causal token does not see has a negative distance.
        const int64_t at = std::max<int64_t>(0, std::min(distance - k, problem_.distances - 1));
        scores[k] = bias[at] == kNegativeInfinity ? kNegativeInfinity : scores[k] + bias[at];
      }
    }
    simd::ApplyLimits(low_[i] - j, high_[i] - j, count, scores);
  }

  // AddWeighted without the keys whose weight is below problem.skip: a register tile passes over
  // those that weigh nothing in any of its rows.
  void AddKept(int64_t r0, int64_t rows, int64_t count, float* sums) {
    for (int64_t r = 0; r < rows; ++r) {
      float* weights = scores_ + r * kMaxRowTile;
      float left_out = 0.0f;
      for (int64_t k = 0; k < count; ++k) {
        const bool small = weights[k] < problem_.skip;
        left_out += small ? weights[k] : 0.0f;
        weights[k] = small ? 0.0f : weights[k];
      }
      skipped_[r0 + r] = rescale_[r] * skipped_[r0 + r] + left_out;
    }
    prefetcher_.Spread(AddSteps(rows, count, vectors_), 0);
    const float* kept[kMaxRowTile];
    float weights[kTileRows * kMaxRowTile];
    ForTiles(rows, [&](int64_t first, int64_t height) {
      int64_t n = 0;
      for (int64_t k = 0; k < count; ++k) {
        bool any = false;
        for (int64_t r = 0; r < height; ++r) {
          const float weight = scores_[(first + r) * kMaxRowTile + k];
          weights[r * kMaxRowTile + n] = weight;
          any |= !(weight == 0.0f);
        }
        kept[n] = rows_.sums()[k];
        n += any ? 1 : 0;
      }
      AddWeighted(weights, kMaxRowTile, height, kept, n, vectors_, prefetcher_, rescale_ + first,
                  sums + first * plan_.width, plan_.width);
    });
  }

  const Problem& problem_;
  const Plan& plan_;
  char* workspace_;
  const Group* groups_;
  const int32_t* tokens_;
  float* queries_;
  float* shifts_;
  float* partials_;
  float* states_;
  const int64_t vectors_;
  char* scratch_;
  const WorkerLayout layout_;
  TileRows rows_;
  Contraction contraction_;
  Prefetcher prefetcher_;  // for the tile after the current one

  // Of the current task.
  int64_t g_ = 0;
  const Group* group_ = nullptr;
  int64_t row0_ = 0, count_ = 0;      // rows of the group
  int64_t lowest_ = 0, highest_ = 0;  // positions that some row may see
  float* accumulator_ = nullptr;      // [rows][width], among the partial sums

  float* scores_;   // [rows][kMaxRowTile]
  float* maximum_;  // [rows], of the scores seen so far
  float* sums_;     // [rows][kLanes], of the weights relative to it
  float* rescale_;  // [rows]
  float* skipped_;  // [rows], weights that were left out, relative to the maximum
  int64_t* low_;    // [tokens]
  int64_t* high_;   // [tokens]
};

void RunWorker(const Problem& problem, const Plan& plan, char* workspace, int64_t worker) {
  Worker(problem, plan, workspace, worker).Work();
}

void WriteRowOf(Storage storage, const float* from, int64_t width, char* to) {
  WriteRow(storage, from, width, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_WORKER_INL_H_
