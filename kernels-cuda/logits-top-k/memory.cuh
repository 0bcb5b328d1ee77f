// What the fast kernel has in shared memory: what parts hand on of rows, sums of exponentials, and
// the tokens that bans and edits name.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_MEMORY_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_MEMORY_CUH_

#include "plan.h"
#include "select.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// exp(x) to about float32's precision; below 2^-126 nothing.
GRAFT_DEVICE float Exp(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
#else
  return std::exp(x);
#endif
}

// A running maximum and the sum of exp(x - maximum).
struct Sum {
  float max, sum;
};
GRAFT_DEVICE Sum NoSum() { return {Nothing(), 0}; }
GRAFT_DEVICE void Add(Sum* s, const Sum& other) {
  if (other.max == Nothing()) return;
  const float max = fmaxf(s->max, other.max);
  s->sum = s->sum * Exp(s->max - max) + other.sum * Exp(other.max - max);
  s->max = max;
}
GRAFT_DEVICE void Add(Sum* s, float x) { Add(s, Sum{x, 1}); }
// That of the lane `step` across.
GRAFT_DEVICE Sum Across(const Sum& s, int32_t step) {
  return {__shfl_xor_sync(kAllLanes, s.max, step), __shfl_xor_sync(kAllLanes, s.sum, step)};
}

// x - max - log, as both stages of a log-softmax take it off; nothing where all is impossible.
struct Shift {
  float max, log;
  GRAFT_DEVICE float Of(float x) const { return max == Nothing() ? x : x - max - log; }
};
GRAFT_DEVICE Shift ShiftOf(const Sum& sum) {
  return {sum.max, sum.max == Nothing() ? 0.0f : logf(sum.sum)};
}

struct Found {
  float value;
  int32_t token;
};

// What a part hands on of a row.
struct Record {
  Sum rest;     // of tokens that neither edits nor bans name
  Sum named;    // of those that they name
  int32_t bad;  // the first token with a bad score, or INT32_MAX
  int32_t count;
  int32_t unused[2];
  Found found[1];  // `count` of the greatest, best first
};

// A row whose parts were brought together.
struct Joined {
  Sum rest;
  Shift shift;  // of the first log-softmax, if the group has one
  Shift again;  // of the second
  float bias;
  int32_t bad;
  int32_t first_edit, last_edit;
  int32_t contradicts;  // its edits do
  int32_t only;         // an edit left nothing but its own token
  int32_t unused[4];
};
static_assert(sizeof(Joined) == 64, "as plans have it");

// Of one team.
struct TeamMemory {
  int32_t* counters;  // three of the list, which chunks take in turns, and one for Prune
  uint32_t* sums;     // what each warp hands on: 8 words
  float* maxima;      // a number a thread and one more
  Found* list;
};

// Of the block, by a Layout.
struct Memory {
  unsigned char* at;
  const Layout& layout;

  GRAFT_DEVICE int32_t* counters() const { return reinterpret_cast<int32_t*>(at); }
  GRAFT_DEVICE int32_t* bad_edit() const { return counters() + 16; }
  GRAFT_DEVICE int32_t* ranked_count() const { return counters() + 17; }
  GRAFT_DEVICE int32_t* left() const { return counters() + 18; }
  GRAFT_DEVICE int32_t* trim() const { return counters() + 20; }
  GRAFT_DEVICE float* sums() const { return reinterpret_cast<float*>(at + 128); }
  GRAFT_DEVICE float* maxima() const { return reinterpret_cast<float*>(at + 384); }
  GRAFT_DEVICE Joined* joined() const { return reinterpret_cast<Joined*>(at + layout.joined); }
  GRAFT_DEVICE Ranked* best() const { return reinterpret_cast<Ranked*>(at + layout.best); }
  GRAFT_DEVICE Ranked* ranked() const { return reinterpret_cast<Ranked*>(at + layout.ranks); }
  GRAFT_DEVICE int32_t* order() const { return reinterpret_cast<int32_t*>(at + layout.order); }
  GRAFT_DEVICE uint32_t* bitmap(int32_t row) const {
    return reinterpret_cast<uint32_t*>(at + layout.bitmaps) + row * layout.words;
  }
  GRAFT_DEVICE Record* record(int32_t part, int32_t row) const {
    const int64_t bytes = 4 * RecordWords(layout);
    return reinterpret_cast<Record*>(at + layout.gathered +
                                     (int64_t{part} * layout.at_once + row) * bytes);
  }
  GRAFT_DEVICE TeamMemory Of(const Team& team, int32_t index) const {
    return {counters() + 4 * index,
            reinterpret_cast<uint32_t*>(sums()) + 8 * index * (team.threads / kWarp),
            maxima() + index * (team.threads + 1),
            reinterpret_cast<Found*>(at + layout.lists) + index * layout.found};
  }
};

// Marks what bans and, with `edits`, edits of `rows` rows name, a bitmap of `words` words a row,
// from the word of the first token of range(row, &begin, &end) on. All threads of the block.
template <typename Range>
GRAFT_DEVICE void MarkNamed(const Problem& p, int64_t first, int32_t rows, bool edits,
                            uint32_t* bitmaps, int32_t words, int32_t* scratch,
                            const Range& range) {
  const auto threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
  if (Seeded(1) && WarpIndex() % 2 == 0) Linger();
  for (int32_t w = thread; w < rows * words; w += threads) bitmaps[w] = 0;
  if (!Seeded(1)) __syncthreads();
  const auto marking = [&](int32_t i) {
    int32_t begin, end;
    range(first + i, &begin, &end);
    uint32_t* bitmap = bitmaps + i * words - begin / 32;
    return [=](int64_t token) {
      if (token >= begin && token < end) atomicOr(bitmap + token / 32, 1u << token % 32);
    };
  };
  for (int32_t i = WarpIndex(); i < rows; i += threads / kWarp) {
    ForEachIndexBan(p, first + i, marking(i));
  }
  for (int32_t i = 0; i < rows; ++i) {
    ForEachHistoryBan(p, first + i, scratch, marking(i));
    int32_t at, last;
    if (!edits || !EditsOf(p, first + i, &at, &last)) continue;
    const auto mark = marking(i);
    for (at += thread; at < last; at += threads) mark(p.edit_tokens[at]);
  }
  __syncthreads();
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_MEMORY_CUH_
