// Selection among what the threads of a block hold.
#ifndef GRAFT_KERNELS_CUDA_STEP_TAIL_SELECT_CUH_
#define GRAFT_KERNELS_CUDA_STEP_TAIL_SELECT_CUH_

#include "group.cuh"

namespace graft {
namespace cuda {
namespace step_tail {

// A number at least k of all `mine` reach, cheaply: the k-th greatest of the maxima of groups of
// lanes; -inf where there are fewer groups than k. All threads call it and get it. `scratch` holds
// a number a thread and one more; nobody may touch it before the next barrier.
GRAFT_DEVICE float Reached(float mine, int32_t k, float* scratch) {
  const auto threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
  int32_t lanes = kWarp;
  while (lanes > 1 && threads / lanes < 2 * k) lanes /= 2;
  const int32_t groups = threads / lanes;
  for (int32_t step = lanes / 2; step > 0; step /= 2) {
    mine = fmaxf(mine, __shfl_xor_sync(kAllLanes, mine, step));
  }
  if (thread % lanes == 0) scratch[thread / lanes] = mine;
  if (thread == 0) scratch[groups] = Nothing();
  __syncthreads();
  if (thread < groups) {
    const float value = scratch[thread];
    int32_t rank = 0;
    for (int32_t i = 0; i < groups; ++i) {
      const float other = scratch[i];
      rank += other > value || (other == value && i < thread);
    }
    if (rank == k - 1) scratch[groups] = value;
  }
  __syncthreads();
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
// for all below that one. All threads of the block ask together.
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
GRAFT_DEVICE int32_t CountAll(int32_t mine, int32_t* scratch) {
  if (threadIdx.x == 0) *scratch = 0;
  __syncthreads();
  if (mine != 0) atomicAdd(scratch, mine);
  __syncthreads();
  const int32_t all = *scratch;
  __syncthreads();
  return all;
}

// Brings the k best of ranked[0, count) to its front, in order, and gives their number. `order`
// and `best` have room for as many numbers as ranked and for k candidates.
GRAFT_DEVICE int32_t KeepBest(Ranked* ranked, int32_t count, int32_t k, Ranked* best,
                              int32_t* order, float* scratch, int32_t* counter) {
  const auto threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
  float mine = Nothing();
  for (int32_t i = thread; i < count; i += threads) mine = fmaxf(mine, ranked[i].key);
  if (thread == 0) *counter = 0;
  const float least = Reached(mine, k, scratch);
  for (int32_t i = thread; i < count; i += threads) {
    if (ranked[i].key >= least) order[atomicAdd(counter, 1)] = i;
  }
  __syncthreads();
  const int32_t left = *counter;
  for (int32_t i = thread; i < left; i += threads) {
    const Ranked candidate = ranked[order[i]];
    int32_t rank = 0;
    for (int32_t j = 0; j < left && rank < k; ++j) rank += Before(ranked[order[j]], candidate);
    if (rank < k) best[rank] = candidate;
  }
  __syncthreads();
  const int32_t kept = left < k ? left : k;
  for (int32_t i = thread; i < kept; i += threads) ranked[i] = best[i];
  __syncthreads();
  return kept;
}

}  // namespace step_tail
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_STEP_TAIL_SELECT_CUH_
