// A block's tile in shared memory: 64 rows of queries and 32 rows of X, some columns of each, and
// the two matmuls of a step on the tensor cores.
//
// 16 bytes of a row stand at their place's exclusive or with the row's last three bits, so that
// eight rows read by ldmatrix lie in different banks.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_TILE_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_TILE_CUH_

#include "../device/async_copy.cuh"
#include "../device/matrix.cuh"
#include "groups.cuh"
#include "plan.h"

namespace graft {
namespace cuda {
namespace el_attention {

template <typename T, int32_t kWarpColumns>
struct Tile {
  static constexpr int32_t kWarps = kTileThreads / kWarp;
  static constexpr int32_t kColumns = kWarps * kWarpColumns;
  static constexpr int32_t kStages = StagesOf(kWarpColumns);
  static constexpr int32_t kRowBytes = kColumns * 2;
  static constexpr int32_t kStageBytes = kTileKeys * kRowBytes;
  static constexpr int32_t kChunks = kColumns / 8;  // of 16 bytes

  // Scores: a warp has 32 of the rows, all 32 keys, and a quarter of the columns.
  static constexpr int32_t kQuarters = 4;
  static constexpr int32_t kScoreSteps = kColumns / kQuarters / 16;
  static_assert(kColumns % (kQuarters * 16) == 0 && kChunks % 8 == 0, "whole fragments");
  using Scores = float[2][4][4];  // [16 rows][8 keys][fragment]

  // Sums: a warp has all rows and its own columns.
  static constexpr int32_t kSumPairs = kWarpColumns / 16;
  using Sums = float[4][2 * kSumPairs][4];

  static GRAFT_DEVICE unsigned char* At(unsigned char* rows, int32_t row, int32_t chunk) {
    return rows + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }

  // Copies the columns from `column0` on of a row at `from`, a warp together; zeros beyond `width`
  // and where there is no row.
  static GRAFT_DEVICE void CopyRow(unsigned char* rows, int32_t row, const void* from,
                                   int32_t column0, int32_t width, bool valid) {
    for (int32_t chunk = Lane(); chunk < kChunks; chunk += kWarp) {
      const int32_t column = column0 + 8 * chunk;
      const bool there = valid && column < width;
      const T* address = static_cast<const T*>(from) + (there ? column : 0);
      CopyAsync<16>(At(rows, row, chunk), address, there);
    }
  }

  // Scores of this warp's rows over its quarter of the columns: query X^T.
  static GRAFT_DEVICE void Score(unsigned char* query, unsigned char* rows, Scores& scores) {
    const int32_t lane = Lane(), half = WarpIndex() / kQuarters, quarter = WarpIndex() % kQuarters;
#pragma unroll
    for (int32_t m = 0; m < 2; ++m) {
#pragma unroll
      for (int32_t n = 0; n < 4; ++n) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
    const int32_t query_row = half * 32 + (lane & 15), query_chunk = lane >> 4;
    const int32_t key = (lane & 7) + (lane >> 4) * 8, key_chunk = lane >> 3 & 1;
#pragma unroll
    for (int32_t step = 0; step < kScoreSteps; ++step) {
      const int32_t chunk = (quarter * kScoreSteps + step) * 2;
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int32_t m = 0; m < 2; ++m) {
        LoadMatrices(a[m], At(query, query_row + m * 16, chunk + query_chunk));
      }
#pragma unroll
      for (int32_t n = 0; n < 2; ++n) {
        LoadMatrices(b[n], At(rows, key + n * 16, chunk + key_chunk));
      }
#pragma unroll
      for (int32_t m = 0; m < 2; ++m) {
#pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
          const uint32_t right[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
          Multiply<T>(scores[m][n], a[m], right);
        }
      }
    }
  }

  // Where the eight weights of keys 8 * chunk .. of a row stand.
  static GRAFT_DEVICE unsigned char* WeightAt(unsigned char* weights, int32_t row, int32_t chunk) {
    return weights + row * (kTileKeys * 2) + ((chunk ^ (row >> 1 & 3)) << 4);
  }

  // Adds weights times X to this warp's columns of the sums.
  static GRAFT_DEVICE void Add(unsigned char* weights, unsigned char* rows, Sums& sums) {
    const int32_t lane = Lane(), row = lane & 15, chunk0 = WarpIndex() * (kWarpColumns / 8);
#pragma unroll
    for (int32_t step = 0; step < kTileKeys / 16; ++step) {
      uint32_t a[4][4];
#pragma unroll
      for (int32_t m = 0; m < 4; ++m) {
        LoadMatrices(a[m], WeightAt(weights, m * 16 + row, step * 2 + (lane >> 4)));
      }
#pragma unroll
      for (int32_t n = 0; n < kSumPairs; ++n) {
        uint32_t b[4];
        LoadMatrices<true>(b, At(rows, step * 16 + row, chunk0 + n * 2 + (lane >> 4)));
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int32_t m = 0; m < 4; ++m) {
          Multiply<T>(sums[m][2 * n], a[m], left);
          Multiply<T>(sums[m][2 * n + 1], a[m], right);
        }
      }
    }
  }
};

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_TILE_CUH_
