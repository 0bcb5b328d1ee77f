// Attention over shared rows at its plainest, for rows of any type, width, stride and list: the
// reference that the fast kernel is read beside, and what runs wherever that one cannot.
//
// A block takes some heads of one token and a part of its positions. Queries and sums stand in
// shared memory as float32; positions come in tiles, whose rows are read twice: once for the
// scores, a warp a key, and once for the sums, a thread a column.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_SIMPLE_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_SIMPLE_CUH_

#include "parts.cuh"
#include "plan.h"

namespace graft {
namespace cuda {
namespace el_attention {

// kHeads: most heads of a block; cut.heads of them are used. With own_only, positions that tokens
// share are left out.
template <typename T, int32_t kHeads>
__global__ void __launch_bounds__(kSimpleThreads)
    SimpleKernel(Problem p, Parts parts, SimpleCut cut, bool private_only) {
  WaitForLaunch();
  LetNextBegin();
  const int32_t chunks = (p.heads + cut.heads - 1) / cut.heads;
  const int32_t token = static_cast<int32_t>(blockIdx.x) / chunks;
  const int32_t head0 = static_cast<int32_t>(blockIdx.x) % chunks * cut.heads;
  const int32_t heads = min(cut.heads, p.heads - head0);
  const int32_t width = p.rows.width, lane = Lane(), warp = WarpIndex();
  const auto thread = static_cast<int32_t>(threadIdx.x);

  auto* query = reinterpret_cast<float*>(SharedMemory());    // [heads][width]
  float* sums = query + int64_t{cut.heads} * width;          // [heads][width]
  float* scores = sums + int64_t{cut.heads} * width;         // [kHeads][kSimpleKeys]
  float* rescale = scores + kHeads * kSimpleKeys;            // [kHeads]
  float* total = rescale + kHeads;                           // [kHeads]
  auto* slots = reinterpret_cast<int32_t*>(total + kHeads);  // [kSimpleKeys]

  Group group;
  const bool known = FindGroup(p.lists, p.tokens, token, &group);
  const int32_t local = token - group.first, position = known ? group.Position(local) : -1;
  int32_t low = private_only ? group.shared : 0;
  if (p.window > 0) low = max(low, position - p.window + 1);
  const int32_t high = min(group.keys(), position + 1);
  // Parts begin at whole tiles.
  const int32_t tiles = max(0, (high - low + kSimpleKeys - 1) / kSimpleKeys);
  const int32_t share = (tiles + cut.parts - 1) / cut.parts * kSimpleKeys;
  const int32_t begin = low + static_cast<int32_t>(blockIdx.y) * share;
  const int32_t end = min(high, begin + share);

  const int64_t row0 = int64_t{token} * p.heads + head0;
  for (int32_t r = 0; r < heads; ++r) {
    const T* from = static_cast<const T*>(p.query) + (row0 + r) * p.query_stride;
    for (int32_t c = thread; c < width; c += kSimpleThreads) {
      query[r * width + c] = ToFloat(from[c]);
      sums[r * width + c] = 0.0f;
    }
  }
  // Warp r holds the state of rows r, r + warps, ..
  float maximum[kHeads], sum[kHeads];
#pragma unroll
  for (int32_t r = 0; r < kHeads; ++r) maximum[r] = NegativeInfinity(), sum[r] = 0.0f;
  const auto* data = static_cast<const char*>(p.rows.data);

  for (int32_t first = begin; first < end; first += kSimpleKeys) {
    const int32_t count = min(kSimpleKeys, end - first);
    if (thread < count) slots[thread] = SlotOf(p.lists, group, local, first + thread, p.rows.slots);
    __syncthreads();
    for (int32_t k = warp; k < count; k += kSimpleThreads / kWarp) {
      float dot[kHeads] = {};
      const int32_t slot = slots[k];
      if (slot >= 0) {
        const T* x = reinterpret_cast<const T*>(data + ByteOf(p.rows, slot));
        for (int32_t c = lane; c < width; c += kWarp) {
          const float value = ToFloat(x[c]);
#pragma unroll
          for (int32_t r = 0; r < kHeads; ++r) {
            if (r < heads) dot[r] += query[r * width + c] * value;
          }
        }
      }
#pragma unroll
      for (int32_t r = 0; r < kHeads; ++r) {
        const float product = WarpSum(dot[r]);
        if (lane == 0 && r < heads) {
          const float shift = p.shift == nullptr ? 0.0f : p.shift[row0 + r];
          scores[r * kSimpleKeys + k] =
              slot < 0 ? NegativeInfinity()
                       : kLog2E * ScoreOf(p, product, shift, head0 + r, position - first - k);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int32_t r = 0; r < kHeads; ++r) {
      if (r % (kSimpleThreads / kWarp) != warp || r >= heads) continue;
      const float score = lane < count ? scores[r * kSimpleKeys + lane] : NegativeInfinity();
      const float top = fmaxf(maximum[r], WarpMax(score));
      const float weight = score > NegativeInfinity() ? exp2f(score - top) : 0.0f;
      const float factor = maximum[r] > NegativeInfinity() ? exp2f(maximum[r] - top) : 0.0f;
      sum[r] = sum[r] * factor + WarpSum(weight);
      maximum[r] = top;
      if (lane < count) scores[r * kSimpleKeys + lane] = weight;
      if (lane == 0) rescale[r] = factor;
    }
    __syncthreads();
    if (Seeded(1) && warp > 0) Linger();
    for (int32_t c = thread; c < width; c += kSimpleThreads) {
      float add[kHeads] = {};
      for (int32_t k = 0; k < count; ++k) {
        if (slots[k] < 0) continue;
        const float value = ToFloat(reinterpret_cast<const T*>(data + ByteOf(p.rows, slots[k]))[c]);
#pragma unroll
        for (int32_t r = 0; r < kHeads; ++r) {
          if (r < heads) add[r] += scores[r * kSimpleKeys + k] * value;
        }
      }
#pragma unroll
      for (int32_t r = 0; r < kHeads; ++r) {
        if (r < heads) sums[r * width + c] = sums[r * width + c] * rescale[r] + add[r];
      }
    }
    if (!Seeded(1)) __syncthreads();
  }

#pragma unroll
  for (int32_t r = 0; r < kHeads; ++r) {
    if (r % (kSimpleThreads / kWarp) != warp || r >= heads || lane != 0) continue;
    total[r] = sum[r];
    const Place<T> place(p, parts, static_cast<int32_t>(blockIdx.y), row0 + r);
    if (place.lse != nullptr) {
      *place.lse = sum[r] > 0.0f ? (maximum[r] + log2f(sum[r])) * kLn2 : NegativeInfinity();
    }
  }
  __syncthreads();
  for (int32_t r = 0; r < heads; ++r) {
    const Place<T> place(p, parts, static_cast<int32_t>(blockIdx.y), row0 + r);
    const float inverse = total[r] > 0.0f ? 1.0f / total[r] : 0.0f;
    for (int32_t c = thread; c < width; c += kSimpleThreads) {
      Put<T>(place.row, place.type, c, sums[r * width + c] * inverse);
    }
  }
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_SIMPLE_CUH_
