// One team's part of one row: its maximum, its sum of exponentials and its greatest scores, in one
// read of device memory.
//
// Scores come to shared memory by asynchronous copies, a few chunks ahead, across the ends of rows.
// A thread copies what it will look at itself, so that chunks need no barrier to be seen or used
// again.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_READ_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_READ_CUH_

#include "../device/async_copy.cuh"
#include "memory.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// A block's part of a row: whole vectors of 16 bytes, and the scores before the first (in the first
// part) or after the last (in the last part) that fill none.
template <typename T>
struct Part {
  const T* row;
  int32_t vocab;
  int32_t head;     // scores before the row's first vector
  int32_t tail;     // token of the first score after the last vector
  int32_t first;    // token of the part's first vector
  int32_t vectors;  // in the part
  bool begins, ends;

  GRAFT_DEVICE Part(const Problem& p, int64_t at_row, int32_t part, int32_t parts)
      : row(static_cast<const T*>(p.scores) + at_row * p.stride),
        vocab(static_cast<int32_t>(p.vocab)),
        begins(part == 0),
        ends(part == parts - 1) {
    const auto skew = static_cast<int32_t>(reinterpret_cast<uint64_t>(row) % 16 / sizeof(T));
    head = skew == 0 ? 0 : min(kVector<T> - skew, vocab);
    const int32_t whole = (vocab - head) / kVector<T>, step = (whole + parts - 1) / parts;
    const int32_t begin = min(part * step, whole);
    vectors = min(step, whole - begin);
    tail = head + whole * kVector<T>;
    first = head + begin * kVector<T>;
  }
  GRAFT_DEVICE int32_t first_token() const { return begins ? 0 : first; }
  GRAFT_DEVICE int32_t last_token() const { return ends ? vocab : first + vectors * kVector<T>; }
  // The token of the score that fills no vector and falls to a thread; -1 where none does.
  GRAFT_DEVICE int32_t Single(int32_t thread) const {
    if (Seeded(3) && thread >= kVector<T>) return -1;
    if (begins && thread < head) return thread;
    const int32_t after = tail + thread - kVector<T>;
    return ends && thread >= kVector<T> && after < vocab ? after : -1;
  }
};

// A thread's chunks in flight, in the order in which its team's rows and their chunks come.
template <typename T>
struct Ring {
  const Problem& p;
  const Layout& layout;
  Team team;
  int32_t part;
  unsigned char* slots;
  int64_t first;        // of the rows
  int32_t row, rows;    // the one that is copied, and how many there are
  const T* from;        // of that row: the thread's first vector of its next chunk
  int32_t vectors = 0;  // from the next chunk on
  int32_t chunks = 0;   // still to come
  int32_t slot = 0;     // the next to look at

  GRAFT_DEVICE unsigned char* At(int32_t i) const { return slots + i * layout.chunk * 16; }
  GRAFT_DEVICE void Turn() {
    if (row >= rows) return;
    const Part<T> of(p, first + row, part, layout.parts);
    from = of.row + of.first + team.thread * kVector<T>;
    vectors = of.vectors;
    chunks = layout.chunks;
  }
  // Copies the next chunk to slot `to`; after the last there is nothing to copy.
  GRAFT_DEVICE void Fill(int32_t to) {
    if (chunks > 0) {
      const int32_t count = min(layout.chunk, vectors);
      const T* vector = from;
      for (int32_t i = team.thread; i < count; i += team.threads) {
        CopyAsync<16>(At(to) + i * 16, vector);
        vector += team.threads * kVector<T>;
      }
      from += layout.chunk * kVector<T>;
      vectors -= layout.chunk;
      if (--chunks == 0) {
        row += layout.teams;
        Turn();
      }
    }
    CopyCommit();
  }
  GRAFT_DEVICE void Begin() {
    Turn();
#pragma unroll 1
    for (int32_t i = 0; i < kSlots; ++i) Fill(i);
  }
};

// The greatest scores of a part as they are found, in shared memory.
struct Finder {
  Found* list;
  int32_t* added;     // three counters, which chunks take in turns
  int32_t room;       // of the list
  int32_t count = 0;  // in the list, up to the chunk before
  float bar;          // scores up to it are not among the best
  uint64_t last = 0;  // nor are those below it, as OrderOf has them

  // Adds a score to the list, or counts it where there is no room.
  GRAFT_DEVICE void Add(float x, int32_t token, int32_t turn) const {
    if (!(x > bar) || OrderOf(x, token) < last) return;
    const int32_t at = count + atomicAdd(added + turn, 1);
    if (at < room) list[at] = {x, token};
  }
};

// One chunk of a thread's own scores, as they stand in its slot, and its single one.
template <typename T>
struct Chunk {
  T* at;          // of the thread's first vector
  int32_t first;  // its token
  int32_t step;   // numbers from one of its vectors to the next
  int32_t count;  // its vectors
  float single;
  int32_t single_token;

  // Calls use(numbers of a vector, the first one's token).
  template <typename Use>
  GRAFT_DEVICE void ForEachVector(const Use& use) const {
    const T* vector = at;
    int32_t token = first;
#pragma unroll 2
    for (int32_t i = 0; i < count; ++i) {
      float x[kVector<T>];
      LoadVector(vector, x);
      use(x, token);
      vector += step, token += step;
    }
  }
  template <typename Use>
  GRAFT_DEVICE void ForEach(const Use& use) const {
    ForEachVector([&](const float(&x)[kVector<T>], int32_t token) {
#pragma unroll
      for (int32_t i = 0; i < kVector<T>; ++i) use(x[i], token + i);
    });
    use(single, single_token);
  }
};

// Retains exactly the k best of the list's first `before` and of the chunk, and raises what comes
// next must exceed. Rare, so it stands apart and leaves its registers to what is not. All threads
// of the team.
template <typename T>
GRAFT_APART void Prune(const Chunk<T>& chunk, const Team& team, int32_t k, int32_t* counter,
                       Finder* finder) {
  Found held[kHeld];
#pragma unroll
  for (int32_t i = 0; i < kHeld; ++i) {
    const int32_t at = i * team.threads + team.thread;
    held[i] = at < finder->count ? finder->list[at] : Found{Nothing(), 0};
  }
  const auto each = [&](const auto& use) {
#pragma unroll
    for (int32_t i = 0; i < kHeld; ++i) {
      if (held[i].value > Nothing()) use(held[i].value, held[i].token);
    }
    chunk.ForEach([&](float x, int32_t token) {
      if (x > finder->bar) use(x, token);
    });
  };
  const uint64_t last = LastThat([&](uint64_t order) {
    int32_t mine = 0;
    each([&](float x, int32_t token) { mine += OrderOf(x, token) >= order; });
    return CountAll(team, mine, counter) >= k;
  });
  if (team.thread == 0) *counter = 0;
  team.Sync();
  each([&](float x, int32_t token) {
    if (OrderOf(x, token) < last) return;
    finder->list[atomicAdd(counter, 1)] = {x, token};
  });
  finder->count = k;
  finder->last = last;
  // Below the last of them, so that equal scores pass and are ordered by their tokens. By two
  // numbers: just below zero stands another zero.
  finder->bar = fmaxf(finder->bar, ScoreOf(last - (uint64_t{2} << 32)));
  team.Sync();
}

// What a part is left with of a row.
struct Read {
  Sum rest, named;
  int32_t bad;
};

// Takes what is named off a thread's scores of a chunk.
template <typename T>
GRAFT_DEVICE void TakeOff(const uint32_t* bitmap, int32_t base, bool sum, Chunk<T>* chunk,
                          Read* read) {
  const auto take = [&](float x, int32_t token) {
    if (IsBad(x)) {
      read->bad = min(read->bad, token);
    } else if (sum) {
      Add(&read->named, x);
    }
    return Nothing();
  };
  T* vector = chunk->at;
  int32_t token = chunk->first;
#pragma unroll 1
  for (int32_t i = 0; i < chunk->count; ++i, vector += chunk->step, token += chunk->step) {
    const uint32_t low = bitmap[token / 32 - base];
    const uint32_t high = bitmap[(token + kVector<T> - 1) / 32 - base];
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    auto bits = static_cast<uint32_t>(both >> token % 32) & ((1u << kVector<T>)-1);
    for (; bits != 0; bits &= bits - 1) {
      const int32_t j = __ffs(static_cast<int32_t>(bits)) - 1;
      vector[j] = FromFloat<T>(take(ToFloat(vector[j]), token + j));
    }
  }
  token = chunk->single_token;
  if (token >= 0 && (bitmap[token / 32 - base] >> token % 32 & 1) != 0) {
    chunk->single = take(chunk->single, token);
  }
}

// Adds a chunk's exponentials, and those of its scores to the list that may be among the best.
template <typename T>
GRAFT_DEVICE void Take(const Chunk<T>& chunk, bool sum, const Finder& finder, int32_t turn,
                       float before, Read* read) {
  const float max = read->rest.max;
  if (sum && max > before) read->rest.sum *= Exp(before - max);
  const bool adds = sum && max > Nothing();
  float total = 0;
  chunk.ForEachVector([&](const float(&x)[kVector<T>], int32_t token) {
    bool any = false;
#pragma unroll
    for (int32_t i = 0; i < kVector<T>; ++i) {
      if (adds) total += Exp(x[i] - max);
      any = any || x[i] > finder.bar;
    }
    if (!any) return;
#pragma unroll
    for (int32_t i = 0; i < kVector<T>; ++i) finder.Add(x[i], token + i, turn);
  });
  if (adds) total += Exp(chunk.single - max);
  finder.Add(chunk.single, chunk.single_token, turn);
  read->rest.sum += total;
  // Of a bad score nothing comes but a sum that is no number.
  if (adds && total < __uint_as_float(0x7f800000u)) return;
  chunk.ForEach([&](float x, int32_t token) {
    if (IsBad(x)) read->bad = min(read->bad, token);
  });
}

// Scores so close below what k scores reach stay with the best: rounding may make them equal.
GRAFT_DEVICE float BarBelow(float reached, float bias) {
  const float bar = reached - 0x1p-21f * (2 * fabsf(reached) + fabsf(bias) + 40);
  return bar > Nothing() ? bar : Nothing();
}

// Puts the `kept` best of the list and the sums of all threads of the team into the record.
GRAFT_DEVICE void HandOn(const Team& team, const Finder& finder, int32_t kept, bool sum, Read read,
                         uint32_t* scratch, Record* record) {
#pragma unroll
  for (int32_t step = kWarp / 2; step > 0; step /= 2) {
    read.bad = min(read.bad, __shfl_xor_sync(kAllLanes, read.bad, step));
    if (sum) {
      Add(&read.rest, Across(read.rest, step));
      Add(&read.named, Across(read.named, step));
    } else {
      read.rest.max = fmaxf(read.rest.max, __shfl_xor_sync(kAllLanes, read.rest.max, step));
    }
  }
  const int32_t warp = team.thread / kWarp;
  auto* reads = reinterpret_cast<Read*>(scratch);
  if (Lane() == 0) reads[warp] = read;
  team.Sync();
  for (int32_t i = team.thread; i < finder.count; i += team.threads) {
    const Found mine = finder.list[i];
    int32_t rank = 0;
    for (int32_t j = 0; j < finder.count && rank < kept; ++j) {
      const Found other = finder.list[j];
      rank += other.value > mine.value || (other.value == mine.value && other.token < mine.token);
    }
    if (rank < kept) record->found[rank] = mine;
  }
  if (team.thread != 0) return;
  for (int32_t w = 1; w < team.threads / kWarp; ++w) {
    read.bad = min(read.bad, reads[w].bad);
    if (sum) {
      Add(&read.rest, reads[w].rest);
      Add(&read.named, reads[w].named);
    } else {
      read.rest.max = fmaxf(read.rest.max, reads[w].rest.max);
    }
  }
  record->rest = read.rest;
  record->named = read.named;
  record->bad = read.bad;
  record->count = finder.count < kept ? finder.count : kept;
}

// Reads the team's part of a row, whose chunks come next in the ring, into `record`, which may be
// another block's. With `sum` it also computes sums of exponentials. *turn cycles through the
// list's counters, of which the next is zero.
template <typename T>
GRAFT_DEVICE void ReadPart(const Problem& p, const Layout& layout, int64_t row, int32_t k, bool sum,
                           const uint32_t* bitmap, const TeamMemory& memory, Ring<T>* ring,
                           int32_t* turn, Record* record) {
  const Team team = ring->team;
  const Part<T> part(p, row, ring->part, layout.parts);
  const float bias = p.bias != nullptr ? p.bias[row] : 0;
  Chunk<T> chunk;
  chunk.single_token = part.Single(team.thread);
  chunk.single = chunk.single_token < 0 ? Nothing() : ToFloat(part.row[chunk.single_token]);
  chunk.step = team.threads * kVector<T>;
  Read read = {NoSum(), NoSum(), INT32_MAX};
  Finder finder;
  finder.list = memory.list;
  finder.added = memory.counters;
  finder.room = layout.found;
  finder.bar = Nothing();
  for (int32_t c = 0; c < layout.chunks; ++c) {
    const int32_t slot = ring->slot;
    ring->slot = (slot + 1) % kSlots;
    const int32_t begin = c * layout.chunk;
    const int32_t left = min(layout.chunk, part.vectors - begin) - team.thread;
    chunk.count = left > 0 ? (left + team.threads - 1) / team.threads : 0;
    chunk.at = reinterpret_cast<T*>(ring->At(slot)) + team.thread * kVector<T>;
    chunk.first = part.first + (begin + team.thread) * kVector<T>;
    const float before = read.rest.max;
    if (Seeded(5)) {
      CopyWait<kSlots>();
    } else {
      CopyWait<kSlots - 1>();
    }
    if (bitmap != nullptr) TakeOff(bitmap, part.first_token() / 32, sum, &chunk, &read);
    chunk.ForEach([&](float x, int32_t) { read.rest.max = fmaxf(read.rest.max, x); });
    if (c == 0 || 2 * finder.count > finder.room) {
      const float reached = Reached(team, read.rest.max, k, memory.maxima);
      finder.bar = fmaxf(finder.bar, BarBelow(reached, bias));
    }
    Take(chunk, sum, finder, *turn, before, &read);
    team.Sync();
    const int32_t held = finder.count + finder.added[*turn];
    // Of the two other counters the one before: all have read it, and it is needed after the next.
    *turn = (*turn + 1) % 3;
    if (!Seeded(6) && team.thread == 0) finder.added[(*turn + 1) % 3] = 0;
    if (held <= finder.room) {
      finder.count = held;
    } else {
      const Chunk<T> copy = chunk;  // whose address is taken, so that the other stays in registers
      Finder apart = finder;
      Prune(copy, team, k, memory.counters + 3, &apart);
      finder.count = apart.count, finder.bar = apart.bar, finder.last = apart.last;
    }
    chunk.single = Nothing();
    ring->Fill(slot);
  }
  HandOn(team, finder, layout.kept, sum, read, memory.sums, record);
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_READ_CUH_
