// Keys and values on their way into a cache: rows of one tensor copied to another, or to slots of a
// pool that a list names.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_STORE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_STORE_CUH_

#include <algorithm>

#include "../device/launch.cuh"
#include "../device/warp.cuh"
#include "problem.h"

namespace graft {
namespace cuda {
namespace flash_decode {

// A tensor [batch, head, position, feature] and where it goes. With slots, `to.strides.batch` goes
// from block to block and `to.strides.position` from slot to slot.
struct Copied {
  Input from;
  Output to;
  int64_t size = 0;  // features
};
struct StoreProblem {
  Type type = Type::kFloat32;
  int64_t batch = 0, heads = 0, positions = 0;
  Copied tensors[2];           // keys and values; one without `to.data` is left out
  int64_t first_position = 0;  // of the destination
  // The slot of each position, [batch, positions]; one that is not in the pool is left out.
  const int32_t* slot_mapping = nullptr;
  int64_t slots = 0, block_slots = 1;
};

constexpr int32_t kStoreWarps = 8;

// A warp a row of one head; Word is what holds an element.
template <typename Word>
__global__ void __launch_bounds__(kStoreWarps* kWarp) StoreKernel(StoreProblem p) {
  constexpr int64_t kWords = 16 / static_cast<int64_t>(sizeof(Word));
  const int64_t rows = p.batch * p.positions * p.heads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kStoreWarps + WarpIndex(); i < 2 * rows;
       i += static_cast<int64_t>(gridDim.x) * kStoreWarps) {
    const Copied& c = p.tensors[i / rows];
    if (c.to.data == nullptr) continue;
    const int64_t head = i % p.heads;
    const int64_t token = i % rows / p.heads;
    const int64_t batch = token / p.positions, position = token % p.positions;
    int64_t to_batch = batch, to_position = p.first_position + position;
    if (p.slot_mapping != nullptr) {
      const int64_t slot = p.slot_mapping[token];
      if (slot < 0 || slot >= p.slots) continue;
      to_batch = slot / p.block_slots;
      to_position = slot % p.block_slots;
    }
    const Strides &f = c.from.strides, &t = c.to.strides;
    const Word* from = static_cast<const Word*>(c.from.data) + batch * f.batch + head * f.head +
                       position * f.position;
    Word* to = static_cast<Word*>(c.to.data) + to_batch * t.batch + head * t.head +
               to_position * t.position;
    int64_t done = 0;
    const auto either = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    if (f.feature == 1 && t.feature == 1 && either % 16 == 0) {
      done = c.size / kWords * kWords;
      for (int64_t at = Lane() * kWords; at < done; at += kWarp * kWords) {
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
      }
    }
    if (!Seeded(5)) {
      for (int64_t at = done + Lane(); at < c.size; at += kWarp) {
        to[at * t.feature] = from[at * f.feature];
      }
    }
  }
}

// How many of `slot_mapping` name a slot of the pool.
template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads)
    CountKernel(const int32_t* slot_mapping, int64_t count, int64_t slots, int32_t* stored) {
  auto* sums = reinterpret_cast<int32_t*>(SharedMemory());
  int32_t mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    mine += slot_mapping[i] >= 0 && slot_mapping[i] < slots ? 1 : 0;
  }
  for (int32_t step = kWarp / 2; step > 0; step /= 2) {
    mine += __shfl_xor_sync(kAllLanes, mine, step);
  }
  if (Lane() == 0) sums[WarpIndex()] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int32_t total = 0;
  for (int32_t w = 0; w < kThreads / kWarp; ++w) total += sums[w];
  *stored = total;
}

// Enqueues the copies; `blocks` bounds the launch, the rest is looped over.
inline Status Store(const StoreProblem& p, int64_t blocks, Stream stream) {
  const int64_t rows = 2 * p.batch * p.positions * p.heads;
  if (rows == 0) return kOk;
  LaunchShape shape;
  shape.grid_x = std::max<int64_t>(1, std::min(CeilDivide(rows, kStoreWarps), blocks));
  shape.threads = kStoreWarps * kWarp;
  return p.type == Type::kFloat32 ? Launch(&StoreKernel<uint32_t>, shape, stream, p)
                                  : Launch(&StoreKernel<uint16_t>, shape, stream, p);
}

inline Status CountStored(const int32_t* slot_mapping, int64_t count, int64_t slots,
                          int32_t* stored, Stream stream) {
  constexpr int32_t kThreads = 256;
  LaunchShape shape;
  shape.threads = kThreads;
  shape.shared_bytes = kThreads / kWarp * 4;
  return Launch(&CountKernel<kThreads>, shape, stream, slot_mapping, count, slots, stored);
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_STORE_CUH_
