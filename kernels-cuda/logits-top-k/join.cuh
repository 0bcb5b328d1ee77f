// What the first block of a cluster makes of the rows that all have read: log-softmax, edited
// tokens, and the best of the group so far.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_JOIN_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_JOIN_CUH_

#include "memory.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// The sum over the block, known to all threads. `scratch` holds two numbers a warp.
GRAFT_DEVICE Sum SumAll(Sum mine, float* scratch) {
#pragma unroll
  for (int32_t step = kWarp / 2; step > 0; step /= 2) Add(&mine, Across(mine, step));
  auto* sums = reinterpret_cast<Sum*>(scratch);
  __syncthreads();
  if (Lane() == 0) sums[WarpIndex()] = mine;
  __syncthreads();
  Sum all = NoSum();
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w) Add(&all, sums[w]);
  return all;
}

// The candidates of a group: those of these rows as they come, `ranked`, and the k best of the rows
// before, `best`.
struct Best {
  const Memory& memory;
  int32_t k;

  GRAFT_DEVICE void Push(float key, int64_t row, int32_t token, float score) const {
    if (!(key > Nothing())) return;
    memory.ranked()[atomicAdd(memory.ranked_count(), 1)] = {key, static_cast<int32_t>(row), token,
                                                            score};
  }
  // Brings the best of before beside these rows'. Others see them after a barrier.
  GRAFT_DEVICE void Bring() const {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < *memory.ranked_count();
         i += static_cast<int32_t>(blockDim.x)) {
      memory.ranked()[i] = memory.best()[i];
    }
  }
  // Retains the k best. All threads of the block.
  GRAFT_DEVICE void Keep() const {
    __syncthreads();
    const int32_t kept = KeepBest(memory.ranked(), *memory.ranked_count(), k, memory.best(),
                                  memory.order(), memory.maxima(), memory.left());
    if (threadIdx.x == 0) *memory.ranked_count() = kept;
    __syncthreads();
  }
  // Room for `more`: all threads of the block.
  GRAFT_DEVICE void Room(int32_t more) const {
    __syncthreads();
    if (*memory.ranked_count() + more > memory.layout.ranked) {
      Keep();
      Bring();
    }
    __syncthreads();
  }
};

// What edit `e` leaves of its token's score x, or -inf where a later edit names the token again and
// speaks for it. `banned`: by an n-gram.
GRAFT_DEVICE float EditedScore(const Problem& p, const Joined& row, int32_t e, float x, bool banned,
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
GRAFT_DEVICE int32_t LookAtEdits(const Problem& p, const Joined& row, int32_t* first_bad,
                                 bool* only) {
  __syncthreads();
  if (threadIdx.x == 0) *first_bad = INT32_MAX;
  __syncthreads();
  bool mine = false;
  for (int32_t e = row.first_edit + static_cast<int32_t>(threadIdx.x); e < row.last_edit;
       e += static_cast<int32_t>(blockDim.x)) {
    const int32_t token = p.edit_tokens[e], op = p.edit_ops[e];
    mine = mine || op == kOnly;
    if (token < 0 || token >= p.vocab || op < kAdd || op > kOnly) atomicMin(first_bad, e);
  }
  *only = __syncthreads_or(mine) != 0;
  return *first_bad;
}

// A group whose rows are joined, as its edits see it.
template <typename T>
struct Edited {
  const Problem& p;
  const Group& group;
  const Best& best;
  int64_t first_row;

  // Calls use(token, score) for the token that edit `e` of a row names, with its score after the
  // edits. `bans`: the row's bitmap, or nullptr.
  template <typename Use>
  GRAFT_DEVICE void One(const Joined& row, int32_t slot, int32_t e, const uint32_t* bans,
                        const Use& use) const {
    if (e >= row.last_edit) return;
    const int32_t token = p.edit_tokens[e];
    const bool banned = bans != nullptr && (bans[token / 32] >> token % 32 & 1) != 0;
    const float x = ToFloat(static_cast<const T*>(p.scores)[(first_row + slot) * p.stride + token]);
    bool speaks;
    const float score =
        EditedScore(p, row, e, group.mode == kLogProbs ? row.shift.Of(x) : x, banned, &speaks);
    if (speaks) use(token, score);
  }

  // The second log-softmax of an edited row: of what the edits left. All threads of the block.
  GRAFT_DEVICE Shift Again(const Joined& row, int32_t slot, bool only, const uint32_t* bans) const {
    Sum left = NoSum();
    for (int32_t e = row.first_edit; e < row.last_edit; e += static_cast<int32_t>(blockDim.x)) {
      One(row, slot, e + static_cast<int32_t>(threadIdx.x), bans, [&](int32_t, float score) {
        if (score > Nothing()) Add(&left, score);
      });
    }
    left = SumAll(left, best.memory.sums());
    if (!only) Add(&left, Rest(group, row));
    return ShiftOf(left);
  }

  // What no edit names of a row, before the second log-softmax.
  static GRAFT_DEVICE Sum Rest(const Group& group, const Joined& row) {
    if (!(row.rest.max > Nothing())) return NoSum();
    return {group.mode == kLogProbs ? row.shift.Of(row.rest.max) : row.rest.max, row.rest.sum};
  }

  GRAFT_DEVICE void Push(const Joined& row, int32_t slot, const Shift& again, int32_t token,
                         float score) const {
    if (group.mode == kLogProbs) {
      const float key = again.Of(score) + row.bias;
      best.Push(key, first_row + slot, token, key);
    } else {
      const float key = score + row.bias;
      best.Push(key, first_row + slot, token,
                again.max == Nothing() ? key : key - (again.max + again.log));
    }
  }

  // Takes the edited tokens of a row among the best. False with a fault. All threads of the block.
  GRAFT_DEVICE bool Take(Joined* row, int32_t slot, const uint32_t* bans, Fault* fault) const {
    bool only;
    const int32_t bad = LookAtEdits(p, *row, best.memory.bad_edit(), &only);
    if (bad != INT32_MAX) {
      Tell(fault, kBadRequest, first_row + slot, p.edit_tokens[bad], 0);
      return false;
    }
    const Shift again = group.normalize ? Again(*row, slot, only, bans) : Shift{Nothing(), 0};
    const auto threads = static_cast<int32_t>(blockDim.x);
    for (int32_t e = row->first_edit; e < row->last_edit; e += threads) {
      best.Room(threads);
      One(*row, slot, e + static_cast<int32_t>(threadIdx.x), bans,
          [&](int32_t token, float score) { Push(*row, slot, again, token, score); });
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      row->only = only;
      row->again = again;
    }
    return true;
  }
};

// Brings the parts of each row together, a warp a row. All threads of the block see them.
GRAFT_DEVICE void JoinRows(const Problem& p, const Group& group, const Memory& memory,
                           int64_t first_row, int32_t rows) {
  for (int32_t i = WarpIndex(); i < rows; i += static_cast<int32_t>(blockDim.x) / kWarp) {
    Joined row = {};
    row.rest = NoSum();
    row.bad = INT32_MAX;
    Sum named = NoSum();
    if (Lane() < memory.layout.parts) {
      const Record* record = memory.record(Lane(), i);
      row.rest = record->rest;
      row.bad = record->bad;
      named = record->named;
    }
#pragma unroll
    for (int32_t step = kMaxParts / 2; step > 0; step /= 2) {
      Add(&row.rest, Across(row.rest, step));
      Add(&named, Across(named, step));
      row.bad = min(row.bad, __shfl_xor_sync(kAllLanes, row.bad, step));
    }
    if (Lane() != 0) continue;
    Add(&named, row.rest);
    row.shift = ShiftOf(named);
    row.bias = p.bias != nullptr ? p.bias[first_row + i] : 0;
    row.contradicts = !EditsOf(p, first_row + i, &row.first_edit, &row.last_edit);
    row.again = {Nothing(), 0};
    if (group.normalize) row.again = ShiftOf(Edited<float>::Rest(group, row));
    memory.joined()[i] = row;
  }
  __syncthreads();
}

// Takes `rows` rows, of which all parts were read, into the group's best. All threads of the first
// block. Apart, so that reading has the registers.
template <typename T>
GRAFT_APART void TakeRows(const Problem& p, const Layout& layout, Group group, int64_t first_row,
                          int32_t rows, Fault* fault) {
  const Memory memory{SharedMemory(), layout};
  const Best best{memory, group.k};
  best.Bring();
  JoinRows(p, group, memory, first_row, rows);
  const Edited<T> edited{p, group, best, first_row};
  const bool bans = p.index.header != nullptr || p.ngram_size > 0;
  auto* bitmaps = reinterpret_cast<uint32_t*>(memory.at + layout.bans);
  const auto words = static_cast<int32_t>((p.vocab + 127) / 128 * 4);
  int32_t marked = 0;  // rows whose bans have been marked
  for (int32_t i = 0; i < rows; ++i) {
    Joined* row = memory.joined() + i;
    if (row->bad != INT32_MAX) {
      const int64_t at = (first_row + i) * p.stride + row->bad;
      return Tell(fault, kBadScore, first_row + i, row->bad,
                  ToFloat(static_cast<const T*>(p.scores)[at]));
    }
    if (row->contradicts) return Tell(fault, kBadRequest, first_row + i, -1, 0);
    if (row->last_edit == row->first_edit) continue;
    const uint32_t* row_bans = nullptr;
    if (bans) {
      if (i >= marked) {
        const int32_t begin = i / layout.ban_rows * layout.ban_rows;
        marked = min(begin + layout.ban_rows, rows);
        __syncthreads();
        MarkNamed(p, first_row + begin, marked - begin, false, bitmaps, words, memory.trim(),
                  [&](int64_t, int32_t* first, int32_t* end) {
                    *first = 0;
                    *end = static_cast<int32_t>(p.vocab);
                  });
      }
      row_bans = bitmaps + i % layout.ban_rows * words;
    }
    if (!edited.Take(row, i, row_bans, fault)) return;
  }

  best.Room(layout.parts * rows * layout.kept);
  const int32_t places = rows * layout.kept;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < layout.parts * places;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t part = i / places, slot = i % places / layout.kept, at = i % layout.kept;
    const Record* record = memory.record(part, slot);
    const Joined& row = memory.joined()[slot];
    if (row.only || at >= record->count) continue;
    const float x = record->found[at].value;
    edited.Push(row, slot, row.again, record->found[at].token,
                group.mode == kLogProbs ? row.shift.Of(x) : x);
  }
  best.Keep();
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_JOIN_CUH_
