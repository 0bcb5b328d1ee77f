// Selection among what threads hold.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SELECT_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SELECT_CUH_

#include "group.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// Threads of a block that work together: whole warps, with a barrier of their own.
struct Team {
  int32_t barrier, threads, thread;
  // Barriers by their numbers: for one that a register names, a block is given all sixteen.
  GRAFT_DEVICE void Sync() const {
    if (barrier == 0) return BarrierSync(0, threads);
    if (barrier == 1) return BarrierSync(1, threads);
    if (barrier == 2) return BarrierSync(2, threads);
    if (barrier == 3) return BarrierSync(3, threads);
    BarrierSync(4, threads);
  }
};
GRAFT_DEVICE Team WholeBlock() {
  return {0, static_cast<int32_t>(blockDim.x), static_cast<int32_t>(threadIdx.x)};
}

// A number at least k of all `mine` reach, cheaply: the k-th greatest of the maxima of groups of
// lanes; -inf where there are fewer groups than k. All threads of the team call it and get it.
// `scratch` holds a number a thread and one more; nobody may touch it before the next barrier.
GRAFT_DEVICE float Reached(const Team& team, float mine, int32_t k, float* scratch) {
  int32_t lanes = kWarp;
  while (lanes > 1 && team.threads / lanes < 2 * k) lanes /= 2;
  const int32_t groups = team.threads / lanes;
  for (int32_t step = lanes / 2; step > 0; step /= 2) {
    mine = fmaxf(mine, __shfl_xor_sync(kAllLanes, mine, step));
  }
  if (Seeded(4) && team.thread >= kWarp) Linger();
  if (team.thread % lanes == 0) scratch[team.thread / lanes] = mine;
  if (team.thread == 0) scratch[groups] = Nothing();
  if (!Seeded(4)) team.Sync();
  if (team.thread < groups) {
    const float value = scratch[team.thread];
    int32_t rank = 0;
    for (int32_t i = 0; i < groups; ++i) {
      const float other = scratch[i];
      rank += other > value || (other == value && i < team.thread);
    }
    if (rank == k - 1) scratch[groups] = value;
  }
  team.Sync();
  return scratch[groups];
}

// Scores by size and then by token, lower tokens first, as one number that grows with them.
GRAFT_DEVICE uint64_t OrderOf(float x, int32_t token) {
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
GRAFT_DEVICE float ScoreOf(uint64_t order) {
  const auto ordered = static_cast<uint32_t>(order >> 32);
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// The greatest number that `enough` says true for; it must say true for 0 and, up to some number,
// for all below that one. All threads call it together.
template <typename Enough>
GRAFT_DEVICE uint64_t LastThat(const Enough& enough) {
  uint64_t last = 0;
  for (int32_t bit = 63; bit >= 0; --bit) {
    const uint64_t next = last | uint64_t{1} << bit;
    if (enough(next)) last = next;
  }
  return last;
}

// The sum of all threads' numbers, known to all of them. `scratch` holds a number.
GRAFT_DEVICE int32_t CountAll(const Team& team, int32_t mine, int32_t* scratch) {
  if (team.thread == 0) *scratch = 0;
  team.Sync();
  if (mine != 0) atomicAdd(scratch, mine);
  team.Sync();
  const int32_t all = *scratch;
  team.Sync();
  return all;
}

// Brings the k best of ranked[0, count) to `best`, in order, and gives their number. All threads of
// the block. `order` has room for as many numbers as `ranked`.
GRAFT_DEVICE int32_t KeepBest(const Ranked* ranked, int32_t count, int32_t k, Ranked* best,
                              int32_t* order, float* scratch, int32_t* counter) {
  const Team block = WholeBlock();
  float mine = Nothing();
  for (int32_t i = block.thread; i < count; i += block.threads) mine = fmaxf(mine, ranked[i].key);
  if (block.thread == 0) *counter = 0;
  const float least = Reached(block, mine, k, scratch);
  for (int32_t i = block.thread; i < count; i += block.threads) {
    if (ranked[i].key >= least) order[atomicAdd(counter, 1)] = i;
  }
  block.Sync();
  const int32_t left = *counter;
  for (int32_t i = block.thread; i < left; i += block.threads) {
    const Ranked candidate = ranked[order[i]];
    int32_t rank = 0;
    for (int32_t j = 0; j < left && rank < k; ++j) rank += Before(ranked[order[j]], candidate);
    if (rank < k) best[rank] = candidate;
  }
  block.Sync();
  return left < k ? left : k;
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SELECT_CUH_
