// Matmuls of a few rows with a head's weight: queries through W_K to the width of X, and what was
// added up through W_V to the size of a value.
//
//   right[r, 16 p + i] = sum over c of left[r, c] * weight[g][p][c][i]
//
// in the panels of 16 columns that the engine folds weights into, always float32. Here is what the
// two ways to compute them share: project_float.cuh for float32 rows, project_matrix.cuh for rows
// of 16 bits.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_

#include "groups.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

struct Product {
  // Row (token, head) begins at token * token_stride + head * head_stride: queries in float32, or
  // sums in the type of X.
  const void* left = nullptr;
  int64_t token_stride = 0, head_stride = 0;
  const float* weight = nullptr;  // [kv_heads][panels][depth][16]
  int32_t depth = 0;
  int32_t columns = 0;  // of the result; panels: columns / 16, rounded up
  int32_t tokens = 0, heads = 0, kv_heads = 0;

  constexpr int32_t panels() const { return (columns + kPanel - 1) / kPanel; }
  constexpr int32_t group_heads() const { return heads / kv_heads; }
  constexpr int32_t rows() const { return tokens * group_heads(); }  // of a KV head

  // Row `row` of KV head `g`: its token and head.
  struct Row {
    int32_t token, head;
  };
  GRAFT_DEVICE Row RowOf(int32_t g, int32_t row) const {
    const int32_t token = row / group_heads();
    return {token, g * group_heads() + row - token * group_heads()};
  }
  // Among all rows, [tokens][heads].
  GRAFT_DEVICE int64_t IndexOf(int32_t g, int32_t row) const {
    const Row at = RowOf(g, row);
    return int64_t{at.token} * heads + at.head;
  }
  template <typename L>
  GRAFT_DEVICE const L* LeftOf(int32_t g, int32_t row) const {
    const Row at = RowOf(g, row);
    return static_cast<const L*>(left) + at.token * token_stride + at.head * head_stride;
  }
};

// What a bias of the keys adds to all scores of a row: scale * dot(query, b_K).
struct Shift {
  const float* key_bias = nullptr;  // [kv_heads][depth], or none
  float scale = 1.0f;
  float* to = nullptr;  // [tokens * heads]
};

// Of rows row0 .. of KV head `g`, a warp a row.
template <int32_t kRows, int32_t kThreads>
GRAFT_DEVICE void ShiftRows(const Product& p, const Shift& shift, int32_t g, int32_t row0) {
  if (shift.key_bias == nullptr) return;
  const float* bias = shift.key_bias + int64_t{g} * p.depth;
  const int32_t end = min(row0 + kRows, p.rows());
  for (int32_t row = row0 + WarpIndex(); row < end; row += kThreads / kWarp) {
    const auto* query = p.LeftOf<float>(g, row);
    float dot = 0.0f;
    for (int32_t c = Lane(); c < p.depth; c += kWarp) dot += query[c] * bias[c];
    dot = WarpSum(dot);
    if (Lane() == 0) shift.to[p.IndexOf(g, row)] = shift.scale * dot;
  }
}

// What the contraction writes: its matmul's output, joined with that over the second part's keys.
struct Join {
  Lists lists;
  const float* lse = nullptr;         // [tokens * heads] of what was added up
  const float* value_bias = nullptr;  // [kv_heads][columns], or none
  const float* second = nullptr;      // [tokens * heads][columns], or none
  const float* second_lse = nullptr;  // [tokens * heads]
  float* output = nullptr;            // [tokens * heads][columns]
};

// Shares of the two parts in a row, and what stands where neither has any.
struct RowShare {
  float first, second, otherwise;
};

// Of rows row0 .. of KV head `g`, a warp a row.
template <int32_t kRows, int32_t kThreads>
GRAFT_DEVICE void ShareRows(const Product& p, const Join& join, int32_t g, int32_t row0,
                            RowShare* shares) {
  for (int32_t r = WarpIndex(); r < kRows && row0 + r < p.rows(); r += kThreads / kWarp) {
    const int64_t at = p.IndexOf(g, row0 + r);
    const float first = join.lse[at];
    const float second = join.second == nullptr ? NegativeInfinity() : join.second_lse[at];
    RowShare share{0.0f, 0.0f, 0.0f};
    const float maximum = fmaxf(first, second);
    if (maximum > NegativeInfinity()) {
      share.first = exp2f((first - maximum) * kLog2E);
      share.second = exp2f((second - maximum) * kLog2E);
      const float sum = share.first + share.second;
      share.first /= sum, share.second /= sum;
    } else {
      // No key has any weight: a softmax over keys gives NaN, one over none zeros.
      Group group;
      const bool any = FindGroup(join.lists, p.tokens, p.RowOf(g, row0 + r).token, &group) &&
                       group.keys() + group.second > 0;
      share.otherwise = any ? __uint_as_float(0x7fc00000u) : 0.0f;
    }
    if (Lane() == 0) shares[r] = share;
  }
}

// Writes one number of the output, of row `at` and column `column`; `x` is the matmul's.
GRAFT_DEVICE void PutJoined(const Product& p, const Join& join, const RowShare& share, int32_t g,
                            int64_t at, int32_t column, float x) {
  if (column >= p.columns) return;
  if (join.value_bias != nullptr) x += join.value_bias[int64_t{g} * p.columns + column];
  float y = share.otherwise;
  if (share.first > 0.0f) y += share.first * x;
  if (share.second > 0.0f) y += share.second * join.second[at * p.columns + column];
  join.output[at * p.columns + column] = y;
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_CUH_
