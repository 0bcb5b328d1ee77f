// The candidates of a group in one launch and one read of its scores, for groups that do not draw.
//
// The blocks of a cluster share the rows of a group; each reads its part of a few rows (read.cuh).
// Then the first block gathers what all have kept, works out the log-softmax and the edited tokens,
// and keeps the k best so far; and so on for the next rows of the group. Without clusters (before
// compute capability 9.0) one block reads all.
#ifndef GRAFT_KERNELS_CUDA_STEP_TAIL_CANDIDATES_CUH_
#define GRAFT_KERNELS_CUDA_STEP_TAIL_CANDIDATES_CUH_

#include "read.cuh"

namespace graft {
namespace cuda {
namespace step_tail {

// x - max - log, as both stages of a log-softmax take it off; nothing where all is impossible.
struct Shift {
  float max, log;
  GRAFT_DEVICE float Of(float x) const { return max == Nothing() ? x : x - max - log; }
};
GRAFT_DEVICE Shift ShiftOf(const Sum& sum) {
  return {sum.max, sum.max == Nothing() ? 0.0f : logf(sum.sum)};
}

// A row of which all parts were read.
struct Row {
  int64_t row;
  Sum rest, all;
  Shift shift;  // of the first log-softmax, if the group has one
  float bias;
  int32_t first_edit, last_edit;
  bool only;  // an edit left nothing but its own token
};

// The group's candidates so far: the first `count` of memory.ranked, a number of the block's.
struct Best {
  const Layout& layout;
  const Memory& memory;
  int32_t k;

  GRAFT_DEVICE int32_t* count() const { return memory.numbers + kRankedCount; }
  GRAFT_DEVICE void Push(float key, int64_t row, int32_t token, float score) const {
    if (!(key > Nothing())) return;
    memory.ranked[atomicAdd(count(), 1)] = {key, static_cast<int32_t>(row), token, score};
  }
  // Makes room: all threads of the block.
  GRAFT_DEVICE void Keep() const {
    __syncthreads();
    const int32_t kept = KeepBest(memory.ranked, *count(), k, memory.best, memory.order,
                                  memory.scratch, memory.numbers + kLeft);
    if (threadIdx.x == 0) *count() = kept;
    __syncthreads();
  }
};

// What edit `e` leaves of its token's score x, or -inf where a later edit names the token again and
// speaks for it. `banned`: by an n-gram.
GRAFT_DEVICE float EditedScore(const Problem& p, const Row& row, int32_t e, float x, bool banned,
                               bool* speaks) {
  const int32_t token = p.edit_tokens[e];
  float score = banned ? Nothing() : x;
  *speaks = true;
  for (int32_t i = row.first_edit; i < row.last_edit; ++i) {
    const int32_t op = p.edit_ops[i];
    if (p.edit_tokens[i] == token) {
      if (i > e) *speaks = false;
      score = Edit(op, p.edit_values[i], score);
    } else if (op == kOnly) {
      score = Nothing();
    }
  }
  return score;
}

// Edits that name no token or are of no kind; whether one leaves nothing but its token. All threads
// of the block get the answers: the place of the first bad edit, or INT32_MAX.
GRAFT_DEVICE int32_t LookAtEdits(const Problem& p, const Memory& memory, Row* row) {
  if (threadIdx.x == 0) memory.numbers[kBadToken] = INT32_MAX;
  __syncthreads();
  bool only = false;
  for (int32_t e = row->first_edit + static_cast<int32_t>(threadIdx.x); e < row->last_edit;
       e += static_cast<int32_t>(blockDim.x)) {
    const int32_t token = p.edit_tokens[e], op = p.edit_ops[e];
    only = only || op == kOnly;
    if (token < 0 || token >= p.vocab || op < kAdd || op > kOnly) {
      atomicMin(memory.numbers + kBadToken, e);
    }
  }
  row->only = __syncthreads_or(only) != 0;
  return memory.numbers[kBadToken];
}

// Calls use(token, score) for every token that an edit names, with its score after the edits.
template <typename T, typename Use>
GRAFT_DEVICE void ForEachEdited(const Problem& p, const Row& row, bool log_probs,
                                const Memory& memory, int32_t from, const Use& use) {
  const int32_t e = from + static_cast<int32_t>(threadIdx.x);
  if (e >= row.last_edit) return;
  const int32_t token = p.edit_tokens[e];
  const bool bans = p.index.header != nullptr || p.ngram_size > 0;
  const bool banned = bans && (memory.bitmap[token / 32] >> token % 32 & 1) != 0;
  const float x = ToFloat(static_cast<const T*>(p.scores)[row.row * p.stride + token]);
  bool speaks;
  const float score = EditedScore(p, row, e, log_probs ? row.shift.Of(x) : x, banned, &speaks);
  if (speaks) use(token, score);
}

// Takes row `at` of those that were gathered into the group's best.
template <typename T>
GRAFT_DEVICE void TakeRow(const Problem& p, const Layout& layout, const Group& group,
                          int64_t at_row, int32_t slot, const Best& best, Fault* fault) {
  const Memory& memory = best.memory;
  const int64_t bytes = 4 * RecordWords(layout);
  const auto record = [&](int32_t part) {
    return reinterpret_cast<const Record*>(memory.gathered +
                                           (int64_t{part} * layout.at_once + slot) * bytes);
  };
  const bool log_probs = group.mode == kLogProbs;
  Row row = {};
  row.row = at_row;
  row.rest = row.all = NoSum();
  int32_t bad = INT32_MAX;
  for (int32_t part = 0; part < layout.parts; ++part) {
    Add(&row.rest, Sum{record(part)->rest_max, record(part)->rest_sum});
    Add(&row.all, Sum{record(part)->named_max, record(part)->named_sum});
    bad = min(bad, record(part)->bad);
  }
  if (bad != INT32_MAX) {
    const float score = ToFloat(static_cast<const T*>(p.scores)[at_row * p.stride + bad]);
    return Tell(fault, kBadScore, at_row, bad, score);
  }
  Add(&row.all, row.rest);
  row.shift = ShiftOf(row.all);
  row.bias = p.bias != nullptr ? p.bias[at_row] : 0;
  if (!EditsOf(p, at_row, &row.first_edit, &row.last_edit)) {
    return Tell(fault, kBadRequest, at_row, -1, 0);
  }
  if (row.last_edit > row.first_edit) {
    const int32_t first_bad = LookAtEdits(p, memory, &row);
    if (first_bad != INT32_MAX) {
      return Tell(fault, kBadRequest, at_row, p.edit_tokens[first_bad], 0);
    }
    if (p.index.header != nullptr || p.ngram_size > 0) {
      MarkNamed(p, at_row, 0, p.vocab, false, memory);
    }
  }

  // The second log-softmax, of what the edits left.
  Shift again{Nothing(), 0};
  if (group.normalize) {
    Sum left = NoSum();
    const auto threads = static_cast<int32_t>(blockDim.x);
    for (int32_t e = row.first_edit; e < row.last_edit; e += threads) {
      ForEachEdited<T>(p, row, log_probs, memory, e, [&](int32_t, float score) {
        if (score > Nothing()) Add(&left, score);
      });
    }
    left = SumAll(left, memory.scratch);
    if (!row.only && row.rest.max > Nothing()) {
      Add(&left, Sum{log_probs ? row.shift.Of(row.rest.max) : row.rest.max, row.rest.sum});
    }
    again = ShiftOf(left);
  }
  const auto push = [&](int32_t token, float score) {
    if (log_probs) {
      const float key = again.Of(score) + row.bias;
      best.Push(key, at_row, token, key);
    } else {
      const float key = score + row.bias;
      best.Push(key, at_row, token, again.max == Nothing() ? key : key - (again.max + again.log));
    }
  };
  for (int32_t part = 0; part < layout.parts && !row.only; ++part) {
    const Record* from = record(part);
    for (auto i = static_cast<int32_t>(threadIdx.x); i < from->count;
         i += static_cast<int32_t>(blockDim.x)) {
      push(from->found[i].token,
           log_probs ? row.shift.Of(from->found[i].value) : from->found[i].value);
    }
  }
  for (int32_t e = row.first_edit; e < row.last_edit; e += static_cast<int32_t>(blockDim.x)) {
    __syncthreads();
    const int32_t held = *best.count();
    if (held + static_cast<int32_t>(blockDim.x) > layout.ranked) best.Keep();
    __syncthreads();
    ForEachEdited<T>(p, row, log_probs, memory, e, push);
  }
  __syncthreads();
}

// Brings the records of all blocks of the cluster to this one.
GRAFT_DEVICE void Gather(const Layout& layout, const Memory& memory) {
  const auto words = static_cast<int32_t>(layout.at_once * RecordWords(layout));
  for (int32_t part = 0; part < layout.parts; ++part) {
    auto* from = reinterpret_cast<uint32_t*>(memory.records);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (layout.parts > 1) from = ClusterMap(from, part);
#endif
    auto* to = reinterpret_cast<uint32_t*>(memory.gathered) + int64_t{part} * words;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < words;
         i += static_cast<int32_t>(blockDim.x)) {
      to[i] = from[i];
    }
  }
}

// The blocks of a group meet.
GRAFT_DEVICE void Meet(const Layout& layout) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (layout.parts > 1) return ClusterSync();
#endif
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(256, 3) Candidates(Problem p, Outputs out, Layout layout) {
  const Memory memory = Divide(layout);
  const auto part = static_cast<int32_t>(blockIdx.x) % layout.parts;
  const int64_t clusters = gridDim.x / layout.parts;
  for (int64_t g = blockIdx.x / layout.parts; g < p.count; g += clusters) {
    const Group group = ReadGroup(p, g, out.width);
    const Best best{layout, memory, group.k};
    Fault fault = {kNone, -1, -1, 0};
    if (!group.good || group.mode == kSample) {
      Tell(&fault, kBadRequest, group.first, -1, 0);
      if (part == 0) PutGroup(out, g, fault, group.first, memory.ranked, 0);
      continue;  // all blocks of the cluster alike
    }
    __syncthreads();
    if (threadIdx.x == 0) *best.count() = 0;
    const bool sum = group.mode == kLogProbs || group.normalize;
    for (int64_t r = 0; r < group.count; r += layout.at_once) {
      const auto rows = static_cast<int32_t>(min(int64_t{layout.at_once}, group.count - r));
      for (int32_t i = 0; i < rows; ++i) {
        auto* record = reinterpret_cast<Record*>(memory.records + i * 4 * RecordWords(layout));
        ReadPart<T>(p, layout, group.first + r + i, part, group.k, sum, memory, record);
      }
#if GRAFT_FAULT != 2  // the first block reads records before the others have written them
      Meet(layout);
#endif
      if (part == 0) Gather(layout, memory);
      Meet(layout);
      if (part != 0) continue;
      __syncthreads();
      for (int32_t i = 0; i < rows && fault.kind == kNone; ++i) {
        TakeRow<T>(p, layout, group, group.first + r + i, i, best, &fault);
      }
      best.Keep();
    }
    if (part == 0) PutGroup(out, g, fault, group.first, memory.ranked, *best.count());
    __syncthreads();
  }
}

}  // namespace step_tail
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_STEP_TAIL_CANDIDATES_CUH_
