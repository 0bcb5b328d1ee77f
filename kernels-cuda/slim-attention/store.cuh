// New rows on their way into the cache, whatever type it holds them in.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STORE_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STORE_CUH_

#include <algorithm>

#include "../device/launch.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

struct StoreArguments {
  void* rows;  // of the pool
  Type row_type;
  int64_t row_stride, block_stride, slots, width;
  const void* from;  // [count][width]
  Type type;
  int64_t from_stride;          // elements from row to row
  const int32_t* slot_mapping;  // [count] slot of each; one that the pool does not have: left out
  int64_t count;
};

constexpr int32_t kStoreThreads = 256;

template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads) StoreKernel(StoreArguments a) {
  for (int64_t i = blockIdx.x; i < a.count; i += gridDim.x) {
    const int64_t slot = a.slot_mapping[i];
    if (slot < 0 || slot >= a.slots) continue;
    const int64_t to = slot / kBlockSlots * a.block_stride + slot % kBlockSlots * a.row_stride;
    for (int64_t c = threadIdx.x; c < a.width; c += kThreads) {
      WriteAs(a.rows, a.row_type, to + c, ReadAs(a.from, a.type, i * a.from_stride + c));
    }
  }
}

inline Status Store(const StoreArguments& a, Stream stream) {
  if (a.count == 0) return kOk;
  LaunchShape shape;
  shape.grid_x = std::min(a.count, int64_t{1} << 20);
  shape.threads = kStoreThreads;
  return Launch(&StoreKernel<kStoreThreads>, shape, stream, a);
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STORE_CUH_
