// The fast kernel for float32: up to kRows rows by multiply-adds.
//
// A warp takes 8 keys at a time. For scores four lanes share a key, each with every fourth run of
// four features; for sums each lane has columns of its own.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_FLOAT_DECODE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_FLOAT_DECODE_CUH_

#include "walk.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

template <int32_t kRows, int32_t kSize>
__global__ void __launch_bounds__(kWarps* kWarp, ResidentByRegisters(Type::kFloat32, kRows, kSize))
    FloatDecodeKernel(Problem p, Cut cut, Partials partials) {
  constexpr int32_t kKeys = 8;
  LetNextBegin();
  const int32_t lane = Lane();
  const Units units = UnitsOf(p);
  const auto size = static_cast<int32_t>(p.head_size);
  const auto columns = static_cast<int32_t>(p.value_size);
  const int32_t ring_size = cut.stages * kKeys * (cut.key_stride + cut.value_stride);
  float* queries = reinterpret_cast<float*>(SharedMemory());
  float* rings = queries + kRows * cut.key_stride;
  float* ring_memory = rings + WarpIndex() * ring_size;
  auto* states = reinterpret_cast<State*>(rings + kWarps * ring_size);  // [kWarps][kRows]

  for (int64_t index = blockIdx.x; index < cut.items; index += gridDim.x) {
    const Item item = ItemAt<kKeys>(p, cut, index);
    const Tile& tile = item.tile;
    if (tile.group < 0) continue;
    // Keys are on their way before the queries are.
    Ring<float, kKeys> ring(p, tile, cut, item.kv_head, ring_memory, item.begin, item.end);
    CopyQueries<float, kRows>(p, tile, cut, item.kv_head, queries);
    __syncthreads();

    const Sight all = SeenByAll(p, tile);
    State state[kRows];
    float sums[kRows][kSize / kWarp] = {};
#pragma unroll
    for (int32_t r = 0; r < kRows; ++r) state[r] = {NegativeInfinity(), 0};

    while (ring.Next()) {
      float s[kRows] = {};
      const float* key = ring.keys + lane / 4 * cut.key_stride;
#pragma unroll 4
      for (int32_t f = lane % 4 * 4; f < size; f += 16) {
        float k[4];
        LoadVector(key + f, k);
#pragma unroll
        for (int32_t r = 0; r < kRows; ++r) {
          float q[4];
          LoadVector(queries + r * cut.key_stride + f, q);
          s[r] += q[0] * k[0] + q[1] * k[1] + q[2] * k[2] + q[3] * k[3];
        }
      }
      const bool clean = IsClean(tile, all, units, ring.index, kKeys, item.end, ring.there);
      const Key mine = KeyAt(tile, min(ring.index + lane / 4, tile.stream - 1));
      const bool there = (ring.there >> (lane / 4) & 1) != 0;
      bool used = false;
      float shrink[kRows];
#pragma unroll
      for (int32_t r = 0; r < kRows; ++r) {
        s[r] = WarpSum<4>(s[r]);
        s[r] = clean ? s[r] * units.factor
                     : ScoreOf<float>(p, tile, units, RowSightOf(p, tile, item.kv_head, r), mine,
                                      there, s[r]);
        shrink[r] = Raise(&state[r], WarpMax(s[r]), units.unit);
        s[r] = WeightOf(s[r], BaseOf(state[r].maximum), units.unit);
        used = used || s[r] != 0;
        if (lane % 4 == 0) state[r].sum += s[r];  // lanes are joined at the end
#pragma unroll
        for (int32_t c = 0; c < kSize / kWarp; ++c) sums[r][c] *= shrink[r];
      }
      const uint32_t uses = clean ? kAllLanes : __ballot_sync(kAllLanes, used);
#pragma unroll
      for (int32_t k = 0; k < kKeys; ++k) {
        float weights[kRows];
#pragma unroll
        for (int32_t r = 0; r < kRows; ++r) weights[r] = __shfl_sync(kAllLanes, s[r], k * 4);
        if ((uses >> (k * 4) & 1) == 0) continue;  // what has no weight may hold anything
#pragma unroll
        for (int32_t c = 0; c < kSize / kWarp; ++c) {
          const int32_t column = c * kWarp + lane;
          const float v = column < columns ? ring.values[k * cut.value_stride + column] : 0.0f;
#pragma unroll
          for (int32_t r = 0; r < kRows; ++r) sums[r][c] += weights[r] * v;
        }
      }
    }

    // The ring is done with: sums go where it was.
    __syncwarp();
#pragma unroll
    for (int32_t r = 0; r < kRows; ++r) {
      state[r].sum = WarpSum(state[r].sum);
      if (lane == 0) states[WarpIndex() * kRows + r] = state[r];
#pragma unroll
      for (int32_t c = 0; c < kSize / kWarp; ++c) {
        const int32_t column = c * kWarp + lane;
        if (column < columns) ring_memory[r * columns + column] = sums[r][c];
      }
    }
    JoinParts<float, kRows>(p, tile, cut, item.kv_head, index, states, rings, ring_size, units.unit,
                            partials);
  }
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_FLOAT_DECODE_CUH_
