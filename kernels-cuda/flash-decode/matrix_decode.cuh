// The fast kernel for 16-bit numbers: tiles of 16 rows on the tensor cores. Even a single row goes
// this way: 15/16 of the matmul are unused, which costs less time than reading memory takes.
//
// Each warp takes every fourth run of 16 keys, copies it to shared memory ahead of time, and holds
// a softmax and sums of its own; the warps meet at the end.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_MATRIX_DECODE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_MATRIX_DECODE_CUH_

#include "../device/matrix.cuh"
#include "walk.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

constexpr int32_t kMatrixRows = 16;

// products[f][i] of this lane: rows lane / 4 + 8 * (i / 2), keys 8 * f + 2 * (lane % 4) + i % 2.
using Products = float[2][4];

template <typename T, int32_t kSize>
GRAFT_DEVICE void MultiplyKeys(const T* queries, const T* keys, int32_t stride, int32_t size,
                               Products& s) {
  const int32_t lane = Lane(), m = lane / 8;
  const T* query_row = queries + (lane % 8 + m % 2 * 8) * stride + m / 2 * 8;
  const T* key_row = keys + (lane % 8 + m / 2 * 8) * stride + m % 2 * 8;
#pragma unroll
  for (int32_t k = 0; k < kSize; k += 16) {
    if (k >= size) break;
    uint32_t a[4], b[4];
    LoadMatrices(a, query_row + k);
    LoadMatrices(b, key_row + k);
    Multiply<T>(s[0], a, {b[0], b[1]});
    Multiply<T>(s[1], a, {b[2], b[3]});
  }
}

// sums[n] of this lane: rows as in Products, columns 8 * n + 2 * (lane % 4) + i % 2.
template <typename T, int32_t kSize>
GRAFT_DEVICE void AddValues(const Products& weights, const T* values, int32_t stride, int32_t size,
                            float (&sums)[kSize / 8][4]) {
  const uint32_t a[4] = {
      Pack<T>(weights[0][0], weights[0][1]), Pack<T>(weights[0][2], weights[0][3]),
      Pack<T>(weights[1][0], weights[1][1]), Pack<T>(weights[1][2], weights[1][3])};
  const int32_t lane = Lane(), m = lane / 8;
  const T* value_row = values + (lane % 8 + m % 2 * 8) * stride + m / 2 * 8;
#pragma unroll
  for (int32_t n = 0; n < kSize; n += 16) {
    if (n >= size) break;
    uint32_t b[4];
    LoadMatrices<true>(b, value_row + n);
    Multiply<T>(sums[n / 8], a, {b[0], b[1]});
    Multiply<T>(sums[n / 8 + 1], a, {b[2], b[3]});
  }
}

// Zeros the values of keys to which no row gives any weight: what a mask hides may be NaN.
template <typename T>
GRAFT_DEVICE void DropUnused(const Products& weights, T* values, int32_t stride) {
  uint32_t used = 0;
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    const int32_t f = i / 4, e = i % 4;
    if (weights[f][e] != 0) used |= 1u << (8 * f + 2 * (Lane() % 4) + e % 2);
  }
#pragma unroll
  for (int32_t step = 1; step < kWarp; step *= 2) used |= __shfl_xor_sync(kAllLanes, used, step);
  for (int32_t k = 0; k < 16; ++k) {
    if ((used >> k & 1) != 0) continue;
    for (int32_t f = Lane(); f < stride; f += kWarp) values[k * stride + f] = T{};
  }
  __syncwarp();
}

template <typename T, int32_t kSize>
__global__ void __launch_bounds__(kWarps* kWarp,
                                  ResidentByRegisters(Type::kFloat16, kMatrixRows, kSize))
    MatrixDecodeKernel(Problem p, Cut cut, Partials partials) {
  constexpr int32_t kKeys = 16;
  LetNextBegin();
  const int32_t lane = Lane();
  const Units units = UnitsOf(p);
  const int32_t ring_size = cut.stages * kKeys * (cut.key_stride + cut.value_stride);
  T* queries = reinterpret_cast<T*>(SharedMemory());
  T* rings = queries + kMatrixRows * cut.key_stride;
  T* ring_memory = rings + WarpIndex() * ring_size;
  auto* states = reinterpret_cast<State*>(rings + kWarps * ring_size);  // [kWarps][kMatrixRows]

  for (int64_t index = blockIdx.x; index < cut.items; index += gridDim.x) {
    const Item item = ItemAt<kKeys>(p, cut, index);
    const Tile& tile = item.tile;
    if (tile.group < 0) continue;
    // Keys are on their way before the queries are.
    Ring<T, kKeys> ring(p, tile, cut, item.kv_head, ring_memory, item.begin, item.end);
    CopyQueries<T, kMatrixRows>(p, tile, cut, item.kv_head, queries);
    __syncthreads();

    const Sight all = SeenByAll(p, tile);
    const RowSight rows[2] = {RowSightOf(p, tile, item.kv_head, lane / 4),
                              RowSightOf(p, tile, item.kv_head, lane / 4 + 8)};
    State state[2] = {{NegativeInfinity(), 0}, {NegativeInfinity(), 0}};
    float sums[kSize / 8][4] = {};

    while (ring.Next()) {
      Products s = {};
      MultiplyKeys<T, kSize>(queries, ring.keys, cut.key_stride, static_cast<int32_t>(p.head_size),
                             s);
      const bool clean = IsClean(tile, all, units, ring.index, kKeys, item.end, ring.there);
      if (clean) {
#pragma unroll
        for (int32_t i = 0; i < 8; ++i) s[i / 4][i % 4] *= units.factor;
      } else {
        const Key mine = KeyAt(tile, min(ring.index + lane % kKeys, tile.stream - 1));
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) {
          const int32_t local = i / 2 * 8 + lane % 4 * 2 + i % 2;
          const Key key = {__shfl_sync(kAllLanes, mine.position, local),
                           __shfl_sync(kAllLanes, mine.owner, local)};
          const bool there = (ring.there >> local & 1) != 0;
#pragma unroll
          for (int32_t h = 0; h < 2; ++h) {
            float& score = s[i / 2][h * 2 + i % 2];
            score = ScoreOf<T>(p, tile, units, rows[h], key, there, score);
          }
        }
      }

      float shrink[2];
#pragma unroll
      for (int32_t h = 0; h < 2; ++h) {
        const float highest =
            fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        shrink[h] = Raise(&state[h], WarpMax<4>(highest), units.unit);
        const float base = BaseOf(state[h].maximum);
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) {
          float& weight = s[i / 2][2 * h + i % 2];
          weight = WeightOf(weight, base, units.unit);
          state[h].sum += weight;  // this lane's keys; lanes are joined at the end
        }
      }
#pragma unroll
      for (int32_t n = 0; n < kSize / 8; ++n) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) sums[n][i] *= shrink[i / 2];
      }
      if (p.mask.data != nullptr || p.bias.data != nullptr || p.distance_bias != nullptr) {
        DropUnused(s, ring.values, cut.value_stride);
      }
      AddValues<T, kSize>(s, ring.values, cut.value_stride, static_cast<int32_t>(p.value_size),
                          sums);
    }

    // The ring is done with: sums go where it was.
    __syncwarp();
    auto* left = reinterpret_cast<float*>(ring_memory);
#pragma unroll
    for (int32_t h = 0; h < 2; ++h) {
      const int32_t row = lane / 4 + 8 * h;
      state[h].sum = WarpSum<4>(state[h].sum);
      if (lane % 4 == 0) states[WarpIndex() * kMatrixRows + row] = state[h];
#pragma unroll
      for (int32_t n = 0; n < kSize / 8; ++n) {
#pragma unroll
        for (int32_t i = 0; i < 2; ++i) {
          const int32_t column = 8 * n + lane % 4 * 2 + i;
          if (column < p.value_size) left[row * p.value_size + column] = sums[n][2 * h + i];
        }
      }
    }
    JoinParts<T, kMatrixRows>(
        p, tile, cut, item.kv_head, index, states, reinterpret_cast<float*>(rings),
        ring_size * static_cast<int64_t>(sizeof(T)) / 4, units.unit, partials);
  }
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_MATRIX_DECODE_CUH_
