// New rows, keys and values on their way into pools. A slot that the pool does not have is left
// out.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_STORE_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_STORE_CUH_

#include <algorithm>

#include "../device/launch.cuh"
#include "groups.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

constexpr int32_t kStoreThreads = 256;

// from [count][rows.width] float32, rounded to the rows' type. A block a row, folded.
template <typename T>
__global__ void __launch_bounds__(kStoreThreads)
    StoreRowsKernel(Rows rows, const float* from, int64_t stride, const int32_t* slot_mapping,
                    int64_t count) {
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int32_t slot = slot_mapping[i];
    if (slot < 0 || slot >= rows.slots) continue;
    T* to =
        reinterpret_cast<T*>(static_cast<char*>(const_cast<void*>(rows.data)) + ByteOf(rows, slot));
    for (auto c = static_cast<int32_t>(threadIdx.x); c < rows.width; c += kStoreThreads) {
      to[c] = FromFloat<T>(from[i * stride + c]);
    }
  }
}

// How many of `count` slots are slots of the rows: one block.
template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads)
    CountKernel(int32_t slots, const int32_t* slot_mapping, int64_t count, int32_t* stored) {
  auto* sums = reinterpret_cast<int32_t*>(SharedMemory());
  int32_t mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    mine += slot_mapping[i] >= 0 && slot_mapping[i] < slots ? 1 : 0;
  }
  sums[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int32_t i = 1; i < kThreads; ++i) mine += sums[i];
  *stored = mine;
}

// A pool of keys and values: blocks of 16 slots, in each an area of keys [kv_heads][16][head_size],
// then of values [kv_heads][16][value_size].
struct KeyPool {
  float* data = nullptr;  // where the area of block 0 begins
  int64_t blocks = 0;
  int64_t block_floats = 0;
  int32_t kv_heads = 0, head_size = 0, value_size = 0;
};

template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads)
    StoreKeysKernel(KeyPool pool, const float* key, int64_t key_stride, const float* value,
                    int64_t value_stride, const int32_t* slot_mapping, int64_t count) {
  const int32_t keys = pool.kv_heads * pool.head_size, values = pool.kv_heads * pool.value_size;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int32_t slot = slot_mapping[i];
    if (slot < 0 || slot >= pool.blocks * kBlockSlots) continue;
    float* block = pool.data + slot / kBlockSlots * pool.block_floats;
    for (auto c = static_cast<int32_t>(threadIdx.x); c < keys + values; c += kThreads) {
      const bool is_key = c < keys;
      const int32_t at = is_key ? c : c - keys, size = is_key ? pool.head_size : pool.value_size;
      float* area = is_key ? block : block + kBlockSlots * keys;
      area[(at / size * kBlockSlots + slot % kBlockSlots) * size + at % size] =
          is_key ? key[i * key_stride + at] : value[i * value_stride + at];
    }
  }
}

inline LaunchShape StoreShape(int64_t count) {
  LaunchShape shape;
  shape.grid_x = std::min(count, int64_t{1} << 20);
  shape.threads = kStoreThreads;
  return shape;
}

inline Status StoreRows(const Rows& rows, const float* from, int64_t stride,
                        const int32_t* slot_mapping, int64_t count, Stream stream) {
  if (count == 0) return kOk;
  const auto launch = [&](auto kernel) {
    return Launch(kernel, StoreShape(count), stream, rows, from, stride, slot_mapping, count);
  };
  switch (rows.type) {
    case Type::kFloat32:
      return launch(&StoreRowsKernel<float>);
    case Type::kFloat16:
      return launch(&StoreRowsKernel<Half>);
    case Type::kBFloat16:
      return launch(&StoreRowsKernel<BFloat16>);
  }
  return kBadLaunch;
}

inline Status CountStored(const Rows& rows, const int32_t* slot_mapping, int64_t count,
                          int32_t* stored, Stream stream) {
  LaunchShape shape;
  shape.threads = kStoreThreads;
  shape.shared_bytes = kStoreThreads * 4;
  return Launch(&CountKernel<kStoreThreads>, shape, stream, rows.slots, slot_mapping, count,
                stored);
}

inline Status StoreKeys(const KeyPool& pool, const float* key, int64_t key_stride,
                        const float* value, int64_t value_stride, const int32_t* slot_mapping,
                        int64_t count, Stream stream) {
  if (count == 0) return kOk;
  return Launch(&StoreKeysKernel<kStoreThreads>, StoreShape(count), stream, pool, key, key_stride,
                value, value_stride, slot_mapping, count);
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_STORE_CUH_
