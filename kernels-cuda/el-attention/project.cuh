// Products of a few rows with a head's weight: queries through W_K to the width of X, and what was
// added up through W_V to the size of a value.
//
//   right[r, 16 p + i] = sum over c of left[r, c] * weight[g][p][c][i]
//
// in the panels of 16 columns that the engine folds weights into. Weights are float32 and so is the
// arithmetic, whatever X is: on FMA units, 32 rows by 16 or 64 columns a block.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_

#include "groups.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

constexpr int32_t kPanel = 16;  // columns
constexpr int32_t kProductRows = 32;
constexpr int32_t kProductDepth = 32;
constexpr int32_t kProductThreads = kProductRows / 4 * kPanel;

struct Product {
  const float* left =
      nullptr;  // row (token, head) begins at token * token_stride + head * head_stride
  int64_t token_stride = 0, head_stride = 0;
  const float* weight = nullptr;  // [kv_heads][panels][depth][16]
  int32_t depth = 0;
  int32_t columns = 0;  // of the result; panels: columns / 16, rounded up
  int32_t tokens = 0, heads = 0, kv_heads = 0;

  constexpr int32_t panels() const { return (columns + kPanel - 1) / kPanel; }
  constexpr int32_t rows() const { return tokens * (heads / kv_heads); }  // of a KV head
};

constexpr int64_t ProductBytes(int32_t panels) {
  return int64_t{kProductDepth} * (kProductRows + 4 + panels * kPanel) * 4;
}

// One block's part: rows of KV head `g` from `row0` on, panels from `panel0` on. store(token, head,
// column, x) takes each number.
template <int32_t kPanels, typename Store>
GRAFT_DEVICE void MultiplyPanels(const Product& p, int32_t g, int32_t row0, int32_t panel0,
                                 const Store& store) {
  constexpr int32_t kStride = kProductRows + 4;  // rows of four stay aligned, columns spread
  auto* left = reinterpret_cast<float*>(SharedMemory());  // [depth][rows]
  float* right = left + kProductDepth * kStride;          // [depth][columns]
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t column = thread % kPanel, four = thread / kPanel * 4;
  const int32_t group_heads = p.heads / p.kv_heads;
  float sums[4][kPanels] = {};
  for (int32_t begin = 0; begin < p.depth; begin += kProductDepth) {
    const int32_t count = min(kProductDepth, p.depth - begin);
#if GRAFT_FAULT == 6
    if (begin > 0 && count < kProductDepth) break;
#endif
    for (int32_t i = thread; i < kProductRows * kProductDepth; i += kProductThreads) {
      const int32_t r = i / kProductDepth, c = i % kProductDepth, row = row0 + r;
      float x = 0.0f;
      if (row < p.rows() && c < count) {
        const int32_t token = row / group_heads, head = g * group_heads + row % group_heads;
        x = p.left[token * p.token_stride + head * p.head_stride + begin + c];
      }
      left[c * kStride + r] = x;
    }
    for (int32_t i = thread; i < kPanels * kProductDepth * kPanel; i += kProductThreads) {
      const int32_t panel = i / (kProductDepth * kPanel), at = i % (kProductDepth * kPanel);
      float w = 0.0f;
      if (panel0 + panel < p.panels() && at < count * kPanel) {
        const int64_t which = int64_t{g} * p.panels() + panel0 + panel;
        w = p.weight[(which * p.depth + begin) * kPanel + at];
      }
      right[at / kPanel * (kPanels * kPanel) + panel * kPanel + at % kPanel] = w;
    }
    __syncthreads();
    for (int32_t c = 0; c < count; ++c) {
      float x[4];
      LoadVector(left + c * kStride + four, x);
#pragma unroll
      for (int32_t panel = 0; panel < kPanels; ++panel) {
        const float w = right[c * (kPanels * kPanel) + panel * kPanel + column];
#pragma unroll
        for (int32_t r = 0; r < 4; ++r) sums[r][panel] += x[r] * w;
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int32_t r = 0; r < 4; ++r) {
    const int32_t row = row0 + four + r;
    if (row >= p.rows()) break;
    const int32_t token = row / group_heads, head = g * group_heads + row % group_heads;
#pragma unroll
    for (int32_t panel = 0; panel < kPanels; ++panel) {
      const int32_t at = (panel0 + panel) * kPanel + column;
      if (at < p.columns) store(token, head, at, sums[r][panel]);
    }
  }
}

// Queries, as wide as X, in its type. x: panels; y: KV heads; z: rows, folded.
template <typename T, int32_t kPanels>
__global__ void __launch_bounds__(kProductThreads)
    ExpandKernel(Product p, T* expanded, int64_t stride) {
  const auto step = static_cast<int32_t>(gridDim.z) * kProductRows;
  for (auto row = static_cast<int32_t>(blockIdx.z) * kProductRows; row < p.rows(); row += step) {
    MultiplyPanels<kPanels>(
        p, static_cast<int32_t>(blockIdx.y), row, static_cast<int32_t>(blockIdx.x) * kPanels,
        [&](int32_t token, int32_t head, int32_t column, float x) {
          expanded[(int64_t{token} * p.heads + head) * stride + column] = FromFloat<T>(x);
        });
  }
}

// What the contraction makes of its products: an output joined with that over positions behind.
struct Join {
  Lists lists;
  const float* lse = nullptr;         // [tokens * heads] of what was added up
  const float* value_bias = nullptr;  // [kv_heads][columns], or none
  const float* behind = nullptr;      // [tokens * heads][columns], or none
  const float* behind_lse = nullptr;  // [tokens * heads]
  float* output = nullptr;            // [tokens * heads][columns]
};

// Shares of the two parts in a row, and what stands where neither has any.
struct RowShare {
  float first, second, otherwise;
};

// Bytes behind those of the product.
constexpr int64_t kShareBytes = kProductRows * sizeof(RowShare);

// Warps take a row each.
GRAFT_DEVICE void ShareRows(const Product& p, const Join& join, int32_t g, int32_t row0,
                            RowShare* shares) {
  const int32_t group_heads = p.heads / p.kv_heads;
  for (int32_t r = WarpIndex(); r < kProductRows; r += kProductThreads / kWarp) {
    const int32_t row = row0 + r;
    if (row >= p.rows()) break;
    const int32_t token = row / group_heads;
    const int64_t at = int64_t{token} * p.heads + g * group_heads + row % group_heads;
    const float first = join.lse[at];
    const float second = join.behind == nullptr ? NegativeInfinity() : join.behind_lse[at];
    RowShare share{0.0f, 0.0f, 0.0f};
    const float most = fmaxf(first, second);
    if (most > NegativeInfinity()) {
      share.first = exp2f((first - most) * kLog2E);
      share.second = exp2f((second - most) * kLog2E);
      const float sum = share.first + share.second;
      share.first /= sum, share.second /= sum;
    } else {
      // No key has any weight: a softmax over keys gives NaN, one over none zeros.
      Group group;
      const bool any =
          FindGroup(join.lists, p.tokens, token, &group) && group.keys() + group.behind > 0;
      share.otherwise = any ? __uint_as_float(0x7fc00000u) : 0.0f;
    }
    if (Lane() == 0) shares[r] = share;
  }
}

// x: panels; y: KV heads; z: rows, folded.
template <int32_t kPanels>
__global__ void __launch_bounds__(kProductThreads) ContractKernel(Product p, Join join) {
  auto* shares = reinterpret_cast<RowShare*>(SharedMemory() + ProductBytes(kPanels));
  const auto g = static_cast<int32_t>(blockIdx.y);
  const auto step = static_cast<int32_t>(gridDim.z) * kProductRows;
  for (auto row = static_cast<int32_t>(blockIdx.z) * kProductRows; row < p.rows(); row += step) {
    ShareRows(p, join, g, row, shares);
    __syncthreads();
    const int32_t group_heads = p.heads / p.kv_heads;
    MultiplyPanels<kPanels>(
        p, g, row, static_cast<int32_t>(blockIdx.x) * kPanels,
        [&](int32_t token, int32_t head, int32_t column, float x) {
          const RowShare share = shares[token * group_heads + head % group_heads - row];
          const int64_t at = (int64_t{token} * p.heads + head) * p.columns + column;
          if (join.value_bias != nullptr) x += join.value_bias[g * p.columns + column];
          float y = share.otherwise;
          if (share.first > 0.0f) y += share.first * x;
          if (share.second > 0.0f) y += share.second * join.behind[at];
          join.output[at] = y;
        });
    __syncthreads();
  }
}

// scale * dot(query, b_K) of each row: what a bias of the keys adds to all its scores. A warp a
// row.
template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads)
    ShiftKernel(Product p, const float* key_bias, float scale, float* shift) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + WarpIndex();
  if (row >= int64_t{p.tokens} * p.heads) return;
  const auto token = static_cast<int32_t>(row / p.heads),
             head = static_cast<int32_t>(row % p.heads);
  const float* query = p.left + token * p.token_stride + head * p.head_stride;
  const float* bias = key_bias + head / (p.heads / p.kv_heads) * p.depth;
  float dot = 0.0f;
  for (int32_t c = Lane(); c < p.depth; c += kWarp) dot += query[c] * bias[c];
  dot = WarpSum(dot);
  if (Lane() == 0) shift[row] = scale * dot;
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_
