// Weights times rows of a tile, onto sums in registers: by tensor cores for 16-bit rows, and by
// multiplications that leave sums where those would.
//
// Accumulators of lane 4g + t, for tile m of 16 rows of weights and columns 16 * pair + 8 * half:
// rows 16m + g and 16m + g + 8, columns 2t and 2t + 1. A warp takes every so manieth pair.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_ADD_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_ADD_CUH_

#include "../device/matrix.cuh"
#include "../device/warp.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

// weights [16 * kRowTiles][16], rows [16][16 * pairs], both in shared memory, strides in numbers.
// Where keys are `skipped`, weights may all be 0, and then there is nothing to do.
template <typename R, int32_t kRowTiles, int32_t kPairs>
GRAFT_DEVICE void AddMatrix(const R* weights, int32_t weight_stride, const R* rows, int32_t stride,
                            int32_t pairs, int32_t warps, bool skipped,
                            float (&sums)[kRowTiles][kPairs][2][4]) {
  const int32_t warp = WarpIndex(), row = Lane() % 16, column = Lane() / 16 * 8;
  uint32_t left[kRowTiles][4];
  bool any = !skipped;
#pragma unroll
  for (int32_t m = 0; m < kRowTiles; ++m) {
    LoadMatrices(left[m], weights + (16 * m + row) * weight_stride + column);
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) any |= left[m][i] != 0;
  }
  if (!__any_sync(kAllLanes, any)) return;
  rows += row * stride + column;
#pragma unroll
  for (int32_t n = 0; n < kPairs; ++n) {
    const int32_t pair = warp + n * warps;
    if (pair >= pairs) break;
    uint32_t x[4];
    LoadMatrices<true>(x, rows + 16 * pair);
    const uint32_t halves[2][2] = {{x[0], x[1]}, {x[2], x[3]}};
#pragma unroll
    for (int32_t m = 0; m < kRowTiles; ++m) {
      Multiply<R>(sums[m][n][0], left[m], halves[0]);
      Multiply<R>(sums[m][n][1], left[m], halves[1]);
    }
  }
}

// The same of float32: weights [16 * kRowTiles][keys], rows [keys][16 * pairs].
template <int32_t kRowTiles, int32_t kPairs>
GRAFT_DEVICE void AddFloats(const float* weights, int32_t weight_stride, const float* rows,
                            int32_t stride, int32_t keys, int32_t pairs, int32_t warps,
                            bool skipped, float (&sums)[kRowTiles][kPairs][2][4]) {
  const int32_t warp = WarpIndex(), g = Lane() / 4, t = Lane() % 4;
  for (int32_t k = 0; k < keys; ++k) {
    float left[kRowTiles][2];
    bool any = !skipped;
#pragma unroll
    for (int32_t i = 0; i < 2 * kRowTiles; ++i) {
      const float weight = weights[(8 * i + g) * weight_stride + k];
      left[i / 2][i % 2] = weight;
      any |= weight != 0.0f;
    }
    if (!__any_sync(kAllLanes, any)) continue;
#pragma unroll
    for (int32_t n = 0; n < kPairs; ++n) {
      const int32_t pair = warp + n * warps;
      if (pair >= pairs) break;
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        const float2 x =
            *reinterpret_cast<const float2*>(rows + k * stride + 16 * pair + 8 * half + 2 * t);
#pragma unroll
        for (int32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
          for (int32_t i = 0; i < 4; ++i) {
            sums[m][n][half][i] += left[m][i / 2] * (i % 2 == 0 ? x.x : x.y);
          }
        }
      }
    }
  }
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_ADD_CUH_
