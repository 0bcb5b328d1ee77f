// Matmuls in float32 on FMA units: 32 rows by 32 columns a block, 32 features at a time.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_FLOAT_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_FLOAT_CUH_

#include "project.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

constexpr int32_t kFloatRows = 32;
constexpr int32_t kFloatColumns = 2 * kPanel;
constexpr int32_t kFloatDepth = 32;
constexpr int32_t kFloatThreads = kFloatRows / 4 * kPanel;  // each 4 rows by 2 columns
constexpr int32_t kFloatStride = kFloatRows + 4;  // rows of four stay aligned, columns spread

constexpr int64_t kFloatBytes = kFloatDepth * (kFloatStride + kFloatColumns) * 4;

// Rows of KV head `g` from `row0` on, columns from `column0` on. store(row, column, x) takes each
// number.
template <typename Store>
GRAFT_DEVICE void MultiplyFloats(const Product& p, int32_t g, int32_t row0, int32_t column0,
                                 const Store& store) {
  auto* left = reinterpret_cast<float*>(SharedMemory());  // [depth][rows]
  float* right = left + kFloatDepth * kFloatStride;       // [depth][columns]
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t column = thread % kPanel, four = thread / kPanel * 4;
  float sums[4][2] = {};
  for (int32_t begin = 0; begin < p.depth; begin += kFloatDepth) {
    const int32_t count = min(kFloatDepth, p.depth - begin);
    if (Seeded(6) && begin > 0 && count < kFloatDepth) break;
    for (int32_t i = thread; i < kFloatRows * kFloatDepth; i += kFloatThreads) {
      const int32_t r = i / kFloatDepth, c = i % kFloatDepth;
      const bool there = row0 + r < p.rows() && c < count;
      left[c * kFloatStride + r] = there ? p.LeftOf<float>(g, row0 + r)[begin + c] : 0.0f;
    }
    for (int32_t i = thread; i < kFloatDepth * kFloatColumns; i += kFloatThreads) {
      const int32_t c = i / kFloatColumns, at = column0 + i % kFloatColumns;
      const int64_t panel = int64_t{g} * p.panels() + at / kPanel;
      const bool there = c < count && at < p.columns;
      right[i] = there ? p.weight[(panel * p.depth + begin + c) * kPanel + at % kPanel] : 0.0f;
    }
    __syncthreads();
    for (int32_t c = 0; c < count; ++c) {
      float x[4];
      LoadVector(left + c * kFloatStride + four, x);
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const float w = right[c * kFloatColumns + i * kPanel + column];
#pragma unroll
        for (int32_t r = 0; r < 4; ++r) sums[r][i] += x[r] * w;
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int32_t r = 0; r < 4; ++r) {
    if (row0 + four + r >= p.rows()) break;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t at = column0 + i * kPanel + column;
      if (at < p.columns) store(row0 + four + r, at, sums[r][i]);
    }
  }
}

// x: rows; y: KV heads; z: columns.
template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads)
    ExpandFloatKernel(Product p, Shift shift, float* expanded, int64_t stride) {
  WaitForLaunch();
  LetNextBegin();
  const auto g = static_cast<int32_t>(blockIdx.y);
  const int32_t row0 = static_cast<int32_t>(blockIdx.x) * kFloatRows;
  if (blockIdx.z == 0) ShiftRows<kFloatRows, kThreads>(p, shift, g, row0);
  MultiplyFloats(p, g, row0, static_cast<int32_t>(blockIdx.z) * kFloatColumns,
                 [&](int32_t row, int32_t column, float x) {
                   expanded[p.IndexOf(g, row) * stride + column] = x;
                 });
}

template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads) ContractFloatKernel(Product p, Join join) {
  WaitForLaunch();
  auto* shares = reinterpret_cast<RowShare*>(SharedMemory() + kFloatBytes);
  const auto g = static_cast<int32_t>(blockIdx.y);
  const int32_t row0 = static_cast<int32_t>(blockIdx.x) * kFloatRows;
  ShareRows<kFloatRows, kThreads>(p, join, g, row0, shares);
  __syncthreads();
  MultiplyFloats(p, g, row0, static_cast<int32_t>(blockIdx.z) * kFloatColumns,
                 [&](int32_t row, int32_t column, float x) {
                   PutJoined(p, join, shares[row - row0], g, p.IndexOf(g, row), column, x);
                 });
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_FLOAT_CUH_
