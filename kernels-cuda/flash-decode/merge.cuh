// Joining results over parts of the keys by log-sum-exp: of the warps of a block, and of the splits
// of a tile. Dao et al.: Flash-Decoding for long-context inference, 2023.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_

#include "score.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

// Where splits leave what they found: states [item][row], and sums [item][row][value_size] of
// values times weights relative to the state's maximum.
struct Partials {
  State* states = nullptr;
  float* sums = nullptr;
};

// Writes columns first, first + step, ... of a row's output, `sum_at` giving what is summed.
template <typename T, typename SumAt>
GRAFT_DEVICE void WriteRow(const Problem& p, const Tile& tile, int32_t kv_head, int32_t row,
                           const State& state, float unit, int32_t first, int32_t step,
                           const SumAt& sum_at) {
  const int32_t token = tile.token0 + row / tile.heads;
  const int64_t head = kv_head * (p.heads / p.kv_heads) + tile.head0 + row % tile.heads;
  const bool weightless = state.maximum == NegativeInfinity() && state.sum == 0;
  const float factor = weightless ? Weightless(p, tile) : 1.0f / state.sum;
  const Strides& s = p.output.strides;
  T* output = static_cast<T*>(p.output.data) + RowOffset(p, tile, s, head, token);
  for (int32_t c = first; c < p.value_size; c += step) {
    output[c * s.feature] = FromFloat<T>(weightless ? factor : sum_at(c) * factor);
  }
  if (p.lse != nullptr && first == 0) {
    const int64_t before = IsPool(p) ? tile.first_row : tile.group * p.rows;
    const float maximum = unit == 1.0f ? state.maximum * kLn2 : state.maximum;
    p.lse[(before + token) * p.heads + head] = maximum + logf(state.sum);
  }
}

// Joins the warps of a block. Each has left its state of each row in states[warp][row] and its sums
// in sums + warp * warp_floats, [row][value_size]. Begins with a barrier.
template <typename T, int32_t kRows>
GRAFT_DEVICE void JoinWarps(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head,
                            int64_t item, const State* states, const float* sums,
                            int64_t warp_floats, float unit, const Partials& partials) {
#if GRAFT_FAULT != 2
  __syncthreads();
#endif
  const auto size = static_cast<int32_t>(p.value_size);
  for (int32_t row = WarpIndex(); row < tile.Rows(); row += kWarps) {
    State total{NegativeInfinity(), 0.0f};
    for (int32_t w = 0; w < kWarps; ++w) {
      total.maximum = fmaxf(total.maximum, states[w * kRows + row].maximum);
    }
    float weights[kWarps];
#pragma unroll
    for (int32_t w = 0; w < kWarps; ++w) {
      const State& part = states[w * kRows + row];
      weights[w] = WeightOf(part.maximum, BaseOf(total.maximum), unit);
      total.sum += weights[w] * part.sum;
    }
    const auto sum_at = [&](int32_t c) {
      float sum = 0;
#pragma unroll
      for (int32_t w = 0; w < kWarps; ++w)
        sum += weights[w] * sums[w * warp_floats + row * size + c];
      return sum;
    };
    if (cut.splits == 1) {
      WriteRow<T>(p, tile, kv_head, row, total, unit, Lane(), kWarp, sum_at);
      continue;
    }
    const int64_t at = item * kRows + row;
    if (Lane() == 0) partials.states[at] = total;
    for (int32_t c = Lane(); c < size; c += kWarp) partials.sums[at * size + c] = sum_at(c);
  }
}

// Joins the splits of each tile, a warp a row.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    MergeKernel(Problem p, Cut cut, int32_t tile_rows, Partials partials) {
  const float unit = UnitsOf(p).unit;
  const int64_t tiles = cut.tiles * p.kv_heads;
  const int64_t rows = tiles * tile_rows;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + WarpIndex(); i < rows;
       i += static_cast<int64_t>(gridDim.x) * kWarps) {
    const auto row = static_cast<int32_t>(i % tile_rows);
    const int64_t place = i / tile_rows;  // of the tile and KV head; splits are `tiles` apart
    const Tile tile = FindTile(p, cut, place % cut.tiles);
    if (tile.group < 0 || row >= tile.Rows()) continue;
    State total{NegativeInfinity(), 0.0f};
    for (int32_t s = 0; s < cut.splits; ++s) {
      total.maximum =
          fmaxf(total.maximum, partials.states[(s * tiles + place) * tile_rows + row].maximum);
    }
    const auto weight_of = [&](int32_t s) {
      const State& part = partials.states[(s * tiles + place) * tile_rows + row];
#if GRAFT_FAULT == 3
      return WeightOf(total.maximum, BaseOf(part.maximum), unit);
#else
      return WeightOf(part.maximum, BaseOf(total.maximum), unit);
#endif
    };
    for (int32_t s = 0; s < cut.splits; ++s) {
      total.sum += weight_of(s) * partials.states[(s * tiles + place) * tile_rows + row].sum;
    }
    WriteRow<T>(p, tile, static_cast<int32_t>(place / cut.tiles), row, total, unit, Lane(), kWarp,
                [&](int32_t c) {
                  float sum = 0;
                  for (int32_t s = 0; s < cut.splits; ++s) {
                    sum +=
                        weight_of(s) *
                        partials.sums[((s * tiles + place) * tile_rows + row) * p.value_size + c];
                  }
                  return sum;
                });
  }
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_
