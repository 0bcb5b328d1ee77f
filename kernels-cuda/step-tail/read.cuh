// One block's part of one row: its maximum, its sum of exponentials and its greatest scores, in one
// read.
#ifndef GRAFT_KERNELS_CUDA_STEP_TAIL_READ_CUH_
#define GRAFT_KERNELS_CUDA_STEP_TAIL_READ_CUH_

#include "plan.h"
#include "select.cuh"

namespace graft {
namespace cuda {
namespace step_tail {

struct Found {
  float value;
  int32_t token;
};

// What a part hands on of a row.
struct Record {
  float rest_max, rest_sum;    // of tokens that neither edits nor bans name: sum of exp(x - max)
  float named_max, named_sum;  // of those that they name
  int32_t bad;                 // the first token with a bad score, or INT32_MAX
  int32_t count;
  int32_t unused[2];
  Found found[1];  // `count` of the greatest, best first
};

// Shared memory of a block, by a Layout.
struct Memory {
  float* scratch;    // a number a thread and one more
  int32_t* numbers;  // counters
  uint32_t* bitmap;  // tokens that edits or bans name
  Found* list;
  unsigned char* records;
  unsigned char* gathered;
  Ranked* ranked;
  Ranked* best;
  int32_t* order;
};

GRAFT_DEVICE Memory Divide(const Layout& layout) {
  unsigned char* at = SharedMemory();
  return {reinterpret_cast<float*>(at + 256),
          reinterpret_cast<int32_t*>(at),
          reinterpret_cast<uint32_t*>(at + layout.bitmap),
          reinterpret_cast<Found*>(at + layout.list),
          at + layout.records,
          at + layout.gathered,
          reinterpret_cast<Ranked*>(at + layout.ranks),
          reinterpret_cast<Ranked*>(at + layout.best),
          reinterpret_cast<int32_t*>(at + layout.order)};
}

// Places of counters in Memory::numbers.
enum Counter : int32_t { kFoundCount, kBadToken, kTrim, kRankedCount, kLeft, kPrune };

// A running maximum and the sum of exp(x - maximum).
struct Sum {
  float max, sum;
};
GRAFT_DEVICE Sum NoSum() { return {Nothing(), 0}; }
GRAFT_DEVICE void Raise(Sum* s, float max) {
  if (max <= s->max) return;
  s->sum *= __expf(s->max - max);
  s->max = max;
}
GRAFT_DEVICE void Add(Sum* s, const Sum& other) {
  if (other.max == Nothing()) return;
  Raise(s, other.max);
  s->sum += other.sum * __expf(other.max - s->max);
}
GRAFT_DEVICE void Add(Sum* s, float x) { Add(s, Sum{x, 1}); }

// The sum over the block, known to all threads. `scratch` holds two numbers a warp.
GRAFT_DEVICE Sum SumAll(Sum mine, float* scratch) {
#pragma unroll
  for (int32_t step = kWarp / 2; step > 0; step /= 2) {
    const Sum other{__shfl_xor_sync(kAllLanes, mine.max, step),
                    __shfl_xor_sync(kAllLanes, mine.sum, step)};
    Add(&mine, other);
  }
  __syncthreads();
  if (Lane() == 0) {
    scratch[2 * WarpIndex()] = mine.max;
    scratch[2 * WarpIndex() + 1] = mine.sum;
  }
  __syncthreads();
  Sum all = NoSum();
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w) {
    Add(&all, Sum{scratch[2 * w], scratch[2 * w + 1]});
  }
  __syncthreads();
  return all;
}

// Marks the tokens of [begin, end) that bans and, with `edits`, edits of a row name.
GRAFT_DEVICE void MarkNamed(const Problem& p, int64_t row, int64_t begin, int64_t end, bool edits,
                            const Memory& memory) {
  for (int64_t w = begin / 32 + threadIdx.x; w <= (end - 1) / 32; w += blockDim.x) {
    memory.bitmap[w] = 0;
  }
#if GRAFT_FAULT != 1  // words are cleared while others already mark in them
  __syncthreads();
#endif
  const auto mark = [&](int64_t token) {
    if (token >= begin && token < end) atomicOr(memory.bitmap + token / 32, 1u << token % 32);
  };
  ForEachBan(p, row, memory.numbers + kTrim, mark);
  int32_t first, last;
  if (edits && EditsOf(p, row, &first, &last)) {
    for (int32_t e = first + static_cast<int32_t>(threadIdx.x); e < last;
         e += static_cast<int32_t>(blockDim.x)) {
      mark(p.edit_tokens[e]);
    }
  }
  __syncthreads();
}

constexpr int32_t kItems = 16;  // scores a thread holds at once
constexpr int32_t kHeld = 4;    // Layout::found, in threads

// Scores that a thread holds, and their first token; those of one vector follow each other.
template <typename T>
struct Tile {
  float x[kItems];
  int32_t token[kItems / kVector<T>];
};

// Reads the thread's share of a tile: vectors at `at`, in numbers from the 16-byte boundary before
// the row. Numbers beside the row are -inf.
template <typename T>
GRAFT_DEVICE void ReadTile(const T* row, int32_t skew, int32_t vocab, int32_t at, int32_t end,
                           Tile<T>* tile) {
#pragma unroll
  for (int32_t v = 0; v < kItems / kVector<T>; ++v) {
    const int32_t first =
        at +
        (v * static_cast<int32_t>(blockDim.x) + static_cast<int32_t>(threadIdx.x)) * kVector<T>;
    float part[kVector<T>];
    if (first < end && first >= skew && first + kVector<T> <= skew + vocab) {
      LoadVector(row + (first - skew), part);
    } else {
#pragma unroll
      for (int32_t i = 0; i < kVector<T>; ++i) {
        const int32_t t = first + i - skew;
#if GRAFT_FAULT == 3  // the last scores of a row, which fill no vector, are not read
        if (t >= vocab / kVector<T> * kVector<T>)
          part[i] = Nothing();
        else
#endif
          part[i] = first < end && t >= 0 && t < vocab ? ToFloat(row[t]) : Nothing();
      }
    }
#pragma unroll
    for (int32_t i = 0; i < kVector<T>; ++i) tile->x[v * kVector<T> + i] = part[i];
    tile->token[v] = first - skew;
  }
}

// The greatest scores of a part, in shared memory, as they are found.
struct Finder {
  float least = 0;     // scores below it are not among the best
  bool exact = false;  // scores equal to it are not either: lower tokens have them
  bool begun = false;
};

// Keeps exactly the k best of what the list held before and what the threads hold now.
// Rare, so it stands apart and leaves its registers to what is not.
template <typename T>
GRAFT_APART void Prune(const Tile<T>& tile, int32_t k, int32_t before, Found* list,
                       int32_t* numbers, Finder* finder) {
  const auto threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
  Found held[kHeld];
#pragma unroll
  for (int32_t i = 0; i < kHeld; ++i) {
    const int32_t at = i * threads + thread;
    held[i] = at < before ? list[at] : Found{Nothing(), 0};
  }
  const auto each = [&](const auto& use) {
#pragma unroll
    for (int32_t i = 0; i < kHeld; ++i) {
      if (held[i].value > Nothing()) use(held[i].value, held[i].token);
    }
#pragma unroll
    for (int32_t i = 0; i < kItems; ++i) {
      const auto token = tile.token[i / kVector<T>] + i % kVector<T>;
      if (tile.x[i] > Nothing()) use(tile.x[i], token);
    }
  };
  const uint64_t last = LastThat([&](uint64_t order) {
    int32_t mine = 0;
    each([&](float x, int32_t token) { mine += OrderOf(x, token) >= order; });
    return CountAll(mine, numbers + kPrune) >= k;
  });
  __syncthreads();
  if (thread == 0) numbers[kFoundCount] = 0;
  __syncthreads();
  each([&](float x, int32_t token) {
    if (OrderOf(x, token) < last) return;
    list[atomicAdd(numbers + kFoundCount, 1)] = {x, token};
  });
  finder->least = ScoreOf(last);
  finder->exact = true;
  __syncthreads();
}

// Adds a tile's greatest scores to the list.
template <typename T>
GRAFT_DEVICE void Find(const Tile<T>& tile, float greatest, int32_t k, float bias, int32_t room,
                       const Memory& memory, Finder* finder) {
  if (!finder->begun) {
    finder->begun = true;
    const float reached = Reached(greatest, k, memory.scratch);
    // Rounding may make equal what is not: scores so close below stay with the best.
    finder->least = reached - 0x1p-21f * (2 * fabsf(reached) + fabsf(bias) + 40);
    if (!(finder->least > Nothing())) finder->least = Nothing();
  }
  const int32_t before = memory.numbers[kFoundCount];
  __syncthreads();
#pragma unroll
  for (int32_t i = 0; i < kItems; ++i) {
    const float x = tile.x[i];
    if (!(finder->exact ? x > finder->least : x >= finder->least) || !(x > Nothing())) continue;
    const int32_t at = atomicAdd(memory.numbers + kFoundCount, 1);
    const auto token = tile.token[i / kVector<T>] + i % kVector<T>;
    if (at < room) memory.list[at] = {x, token};
  }
  __syncthreads();
  if (memory.numbers[kFoundCount] > room) {
    const Tile<T> copy = tile;  // whose address is taken, so that the tile stays in registers
    Finder apart = *finder;
    Prune(copy, k, before, memory.list, memory.numbers, &apart);
    *finder = apart;
  }
}

// Puts the `kept` best of the list into the record, in order.
GRAFT_DEVICE void HandOn(const Memory& memory, int32_t kept, Record* record) {
  const int32_t count = memory.numbers[kFoundCount];
  for (auto i = static_cast<int32_t>(threadIdx.x); i < count;
       i += static_cast<int32_t>(blockDim.x)) {
    const Found mine = memory.list[i];
    int32_t rank = 0;
    for (int32_t j = 0; j < count && rank < kept; ++j) {
      const Found other = memory.list[j];
      rank += other.value > mine.value || (other.value == mine.value && other.token < mine.token);
    }
    if (rank < kept) record->found[rank] = mine;
  }
  if (threadIdx.x == 0) record->count = count < kept ? count : kept;
}

// Reads part `part` of a row into `record`. `sum` asks for sums of exponentials.
template <typename T>
GRAFT_DEVICE void ReadPart(const Problem& p, const Layout& layout, int64_t row, int32_t part,
                           int32_t k, bool sum, const Memory& memory, Record* record) {
  const T* scores = static_cast<const T*>(p.scores) + row * p.stride;
  const auto skew = static_cast<int32_t>(reinterpret_cast<uint64_t>(scores) % 16 / sizeof(T));
  const auto vocab = static_cast<int32_t>(p.vocab);
  const int32_t width = (skew + vocab + layout.parts - 1) / layout.parts;
  const int32_t step = (width + kVector<T> - 1) / kVector<T> * kVector<T>;
  const int32_t begin = part * step;
  const int32_t end = begin + step < skew + vocab ? begin + step : skew + vocab;
  const int32_t first_token = begin < skew ? 0 : begin - skew, last_token = end - skew;
  const float bias = p.bias != nullptr ? p.bias[row] : 0;
  const bool named = HasNamed(p) && first_token < last_token;
  if (threadIdx.x == 0) {
    memory.numbers[kFoundCount] = 0;
    memory.numbers[kBadToken] = INT32_MAX;
  }
  if (named) MarkNamed(p, row, first_token, last_token, true, memory);
  __syncthreads();

  Sum rest = NoSum();
  Finder finder;
  for (int32_t at = begin; at < end; at += kItems * static_cast<int32_t>(blockDim.x)) {
    Tile<T> tile;
    ReadTile(scores, skew, vocab, at, end, &tile);
    float greatest = Nothing();
#pragma unroll
    for (int32_t i = 0; i < kItems; ++i) {
      const int32_t token = tile.token[i / kVector<T>] + i % kVector<T>;
      float& x = tile.x[i];
      if (IsBad(x)) atomicMin(memory.numbers + kBadToken, token);
      if (named && token >= first_token && token < last_token &&
          (memory.bitmap[token / 32] >> token % 32 & 1) != 0) {
        x = Nothing();
      }
      greatest = fmaxf(greatest, x);
    }
    if (sum && greatest > Nothing()) {
      Raise(&rest, greatest);
#pragma unroll
      for (int32_t i = 0; i < kItems; ++i) rest.sum += __expf(tile.x[i] - rest.max);
    } else {
      rest.max = fmaxf(rest.max, greatest);
    }
    Find(tile, greatest, k, bias, layout.found, memory, &finder);
  }

  Sum named_sum = NoSum();
  if (named && sum) {
    for (int32_t w = first_token / 32 + static_cast<int32_t>(threadIdx.x);
         w <= (last_token - 1) / 32; w += static_cast<int32_t>(blockDim.x)) {
      for (uint32_t bits = memory.bitmap[w]; bits != 0; bits &= bits - 1) {
        const float x = ToFloat(scores[w * 32 + __ffs(static_cast<int32_t>(bits)) - 1]);
        if (!IsBad(x)) Add(&named_sum, x);
      }
    }
  }
  rest = SumAll(rest, memory.scratch);
  if (named && sum) named_sum = SumAll(named_sum, memory.scratch);
  HandOn(memory, layout.kept, record);
  if (threadIdx.x == 0) {
    record->rest_max = rest.max;
    record->rest_sum = rest.sum;
    record->named_max = named_sum.max;
    record->named_sum = named_sum.sum;
    record->bad = memory.numbers[kBadToken];
  }
  __syncthreads();
}

}  // namespace step_tail
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_STEP_TAIL_READ_CUH_
