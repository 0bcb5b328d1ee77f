// The candidates of a group in one launch and one read of its scores, for groups that do not
// sample.
//
// The blocks of a cluster share the rows of a group: each reads its part of a few rows, a team of
// its threads a row (read.cuh), and puts the scores it selected into the shared memory of the first
// block, which then takes these rows (join.cuh); and so on for the next rows of the group. Without
// clusters (before compute capability 9.0) one block reads all.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_CANDIDATES_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_CANDIDATES_CUH_

#include "join.cuh"
#include "read.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// The cluster's barrier in its halves: the block's own where a group has one block.
GRAFT_DEVICE void Arrive(const Layout& layout) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (layout.parts > 1) ClusterArrive();
#endif
}
GRAFT_DEVICE void Await(const Layout& layout) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (layout.parts > 1) return ClusterWait();
#endif
  __syncthreads();
}

// The record of a part of a row, in the shared memory of the cluster's first block.
GRAFT_DEVICE Record* RecordOf(const Memory& memory, int32_t part, int32_t row) {
  Record* record = memory.record(part, row);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (memory.layout.parts > 1) return ClusterMap(record, 0);
#endif
  return record;
}

// Reads this block's part of `rows` rows from `first` on; *turn continues from earlier rows. A
// function by itself, so that it has all registers.
template <typename T>
GRAFT_APART void ReadRows(const Problem& p, const Layout& layout, int64_t first, int32_t rows,
                          int32_t k, bool sum, int32_t* turn) {
  const Memory memory{SharedMemory(), layout};
  const auto part = static_cast<int32_t>(blockIdx.x) % layout.parts;
  const int32_t threads = static_cast<int32_t>(blockDim.x) / layout.teams;
  const int32_t mine = static_cast<int32_t>(threadIdx.x) / threads;
  const Team team{1 + mine, threads, static_cast<int32_t>(threadIdx.x) % threads};
  Ring<T> ring{
      p,     layout, team, part,   memory.at + layout.ring + mine * kSlots * layout.chunk * 16,
      first, mine,   rows, nullptr};
  ring.Begin();
  if (HasNamed(p)) {
    MarkNamed(p, first, rows, true, memory.bitmap(0), layout.words, memory.trim(),
              [&](int64_t row, int32_t* begin, int32_t* end) {
                const Part<T> of(p, row, part, layout.parts);
                *begin = of.first_token();
                *end = of.last_token();
              });
  }
  if (!Seeded(7)) Await(layout);
  if (Seeded(2)) {
    Arrive(layout);
    Await(layout);
    if (part != 0) Linger();
  }
  int32_t next = *turn;
  for (int32_t i = mine; i < rows; i += layout.teams) {
    ReadPart<T>(p, layout, first + i, k, sum, HasNamed(p) ? memory.bitmap(i) : nullptr,
                memory.Of(team, mine), &ring, &next, RecordOf(memory, part, i));
  }
  *turn = next;
  if (Seeded(7)) Await(layout);
  if (!Seeded(2)) {
    Arrive(layout);
    Await(layout);
  }
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads, 3)
    Candidates(const __grid_constant__ Problem p, const __grid_constant__ Outputs out,
               const __grid_constant__ Layout layout) {
  const Memory memory{SharedMemory(), layout};
  const auto part = static_cast<int32_t>(blockIdx.x) % layout.parts;
  const int64_t clusters = gridDim.x / layout.parts;
  if (threadIdx.x < 4 * kMaxTeams) memory.counters()[threadIdx.x] = 0;
  int32_t turn = 0;
  // Every arrival but those after records says: the first block's records may be written.
  Arrive(layout);
  for (int64_t g = blockIdx.x / layout.parts; g < p.count; g += clusters) {
    const Group group = ReadGroup(p, g, out.width);
    Fault fault = {kNone, -1, -1, 0};
    if (!group.good || group.mode == kSample) {
      Tell(&fault, kBadRequest, group.first, -1, 0);
      if (part == 0) PutGroup(out, g, fault, group.first, memory.best(), 0);
      continue;  // all blocks of the cluster alike
    }
    if (threadIdx.x == 0) *memory.ranked_count() = 0;
    const bool sum = group.mode == kLogProbs || group.normalize;
    for (int64_t r = 0; r < group.count; r += layout.at_once) {
      const auto rows = static_cast<int32_t>(min(int64_t{layout.at_once}, group.count - r));
      ReadRows<T>(p, layout, group.first + r, rows, group.k, sum, &turn);
      if (Seeded(7) && part == 0) Linger();
      if (part == 0 && fault.kind == kNone) {
        TakeRows<T>(p, layout, group, group.first + r, rows, &fault);
      }
      __syncthreads();
      Arrive(layout);
    }
    if (part == 0) PutGroup(out, g, fault, group.first, memory.best(), *memory.ranked_count());
    __syncthreads();
  }
  Await(layout);
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_CANDIDATES_CUH_
