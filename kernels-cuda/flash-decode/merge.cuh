// Joining results over parts of the keys by log-sum-exp: of the warps of a block, and of the splits
// of a tile. Dao et al.: Flash-Decoding for long-context inference, 2023.
//
// Splits are joined by the blocks of a cluster, which read each other's shared memory, or by a
// launch of its own, which reads what they left in the workspace.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_

#include "score.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

// Where splits leave what they found: states [item][row], and sums [item][row][value_size] of
// values times weights relative to the state's maximum. Rows are those of a full tile.
struct Partials {
  State* states = nullptr;
  float* sums = nullptr;
};

// A row's softmax over all parts of its keys, of which there are at most kParts, a power of two.
// state_at(i) is what part i found. Lanes of a warp share the parts: lane i has parts i, i + 32,
// ...
template <int32_t kParts, typename StateAt>
class Joined {
  static constexpr int32_t kLanes = kParts < kWarp ? kParts : kWarp;
  static constexpr int32_t kAtOnce = kParts < 8 ? kParts : 8;  // loads in flight

 public:
  State state;

  GRAFT_DEVICE Joined(int32_t count, float unit, const StateAt& state_at)
      : count_(count), unit_(unit), state_at_(state_at), first_(At(0)) {
    float maximum = first_.maximum;
    for (int32_t before = kLanes; kParts > kLanes && before < count; before += kLanes) {
      maximum = fmaxf(maximum, At(before).maximum);
    }
    state.maximum = WarpMax<kLanes>(maximum);
    float sum = Weight(first_) * first_.sum;
    for (int32_t before = kLanes; kParts > kLanes && before < count; before += kLanes) {
      const State part = At(before);
      sum += Weight(part) * part.sum;
    }
    state.sum = WarpSum<kLanes>(sum);
  }

  // Gives put(column, sum) the sums of runs of 32 columns from `first` on, `step` apart; sum_at(i,
  // column) is part i's.
  template <typename SumAt, typename Put>
  GRAFT_DEVICE void Sum(int32_t columns, int32_t first, int32_t step, const SumAt& sum_at,
                        const Put& put) const {
    for (int32_t run = first; run < columns; run += step) {
      const int32_t column = run + Lane();
      float sum = 0;
      for (int32_t before = 0; before < (kParts > kLanes ? count_ : 1); before += kLanes) {
        const float weight = Weight(before == 0 ? first_ : At(before));
        const int32_t count = min(count_ - before, kLanes);
#pragma unroll 1
        for (int32_t i = 0; i < count; i += kAtOnce) {
          float x[kAtOnce];
#pragma unroll
          for (int32_t k = 0; k < kAtOnce; ++k) {
            x[k] = i + k < count && column < columns ? sum_at(before + i + k, column) : 0.0f;
          }
#pragma unroll
          for (int32_t k = 0; k < kAtOnce; ++k) {
            sum += __shfl_sync(kAllLanes, weight, i + k, kLanes) * x[k];
          }
        }
      }
      if (column < columns) put(column, sum);
    }
  }

 private:
  // This lane's part of those from `before` on.
  GRAFT_DEVICE State At(int32_t before) const {
    const int32_t part = before + Lane() % kLanes;
    return part < count_ ? state_at_(part) : State{NegativeInfinity(), 0.0f};
  }
  GRAFT_DEVICE float Weight(const State& part) const {
    if (Seeded(3)) return WeightOf(state.maximum, BaseOf(part.maximum), unit_);
    return WeightOf(part.maximum, BaseOf(state.maximum), unit_);
  }

  const int32_t count_;
  const float unit_;
  const StateAt state_at_;
  const State first_;
};
template <int32_t kParts, typename StateAt>
GRAFT_DEVICE Joined<kParts, StateAt> JoinStates(int32_t count, float unit,
                                                const StateAt& state_at) {
  return Joined<kParts, StateAt>(count, unit, state_at);
}

// Writes runs of 32 columns of a row's output, from `first` on and `step` apart, a warp together.
template <typename T, typename Row, typename SumAt>
GRAFT_DEVICE void WriteRow(const Problem& p, const Tile& tile, int32_t kv_head, int32_t row,
                           const Row& joined, float unit, int32_t first, int32_t step,
                           const SumAt& sum_at) {
  const State& state = joined.state;
  const int32_t token = tile.token0 + row / tile.heads;
  const int64_t head = kv_head * (p.heads / p.kv_heads) + tile.head0 + row % tile.heads;
  const bool weightless = Weightless(p, state);
  const float factor = weightless ? Lost(p, tile) : 1.0f / state.sum;
  const Strides& s = p.output.strides;
  T* output = static_cast<T*>(p.output.data) + RowOffset(p, tile, s, head, token);
  joined.Sum(static_cast<int32_t>(p.value_size), first, step, sum_at, [&](int32_t c, float sum) {
    output[c * s.feature] = FromFloat<T>(weightless ? factor : sum * factor);
  });
  if (p.lse != nullptr && first == 0 && Lane() == 0) {
    const int64_t before = IsPool(p) ? tile.first_row : tile.group * p.rows;
    const float maximum = unit == 1.0f ? state.maximum * kLn2 : state.maximum;
    p.lse[(before + token) * p.heads + head] =
        weightless ? NegativeInfinity() : maximum + logf(state.sum);
  }
}

// Joins the warps of a block. Each has left its state of each row in states[warp][row] and its sums
// in sums + warp * warp_floats, [row][value_size]. The result is the answer or, where there are
// splits, goes to the partials or, in a cluster, to where warp 0's states and sums were. Begins
// with a barrier.
template <typename T, int32_t kRows>
GRAFT_DEVICE void JoinWarps(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head,
                            int64_t item, State* states, float* sums, int64_t warp_floats,
                            float unit, const Partials& partials) {
  if ((Seeded(7) || Seeded(8)) && item % cut.splits == 0) Linger();
  if (!Seeded(2)) __syncthreads();
  const auto size = static_cast<int32_t>(p.value_size);
  for (int32_t row = WarpIndex(); row < tile.Rows(); row += kWarps) {
    const auto joined =
        JoinStates<kWarps>(kWarps, unit, [&](int32_t w) { return states[w * kRows + row]; });
    const auto sum_at = [&](int32_t w, int32_t c) {
      return sums[w * warp_floats + row * size + c];
    };
    if (cut.splits == 1) {
      WriteRow<T>(p, tile, kv_head, row, joined, unit, 0, kWarp, sum_at);
      continue;
    }
    const int64_t at = item * cut.tile_tokens * cut.tile_heads + row;
    State* state = cut.clustered ? states + row : partials.states + at;
    float* to = cut.clustered ? sums + row * size : partials.sums + at * size;
    __syncwarp();  // all lanes have read the states
    if (Lane() == 0) *state = joined.state;
    joined.Sum(size, 0, kWarp, sum_at, [&](int32_t c, float sum) { to[c] = sum; });
  }
}

// Joins the splits of a tile that are the blocks of a cluster: each has left its state of each row
// in states[row] and its sums in sums, [row][value_size]. Rows, or runs of their columns where
// there are few, are spread over all warps of the cluster. Begins and ends with barriers of the
// cluster.
template <typename T>
GRAFT_DEVICE void JoinCluster(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head,
                              State* states, float* sums, float unit) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // a plan for less has no clusters
  if (Seeded(8)) {
    __syncthreads();
  } else {
    ClusterSync();
  }
  if (Seeded(9) && ClusterRank() != 0) Linger();
  const auto size = static_cast<int32_t>(p.value_size);
  const int32_t rows = tile.Rows(), warps = cut.splits * kWarps;
  const int32_t parts = max(1, min((size + kWarp - 1) / kWarp, warps / rows));
  for (int32_t i = WarpIndex() * cut.splits + ClusterRank(); i < rows * parts; i += warps) {
    const int32_t row = i / parts, part = i % parts;
    const auto joined = JoinStates<kMaxCluster>(cut.splits, unit, [&](int32_t s) {
      if (Seeded(6)) s = (s + 1) % cut.splits;
      return ClusterMap(states, s)[row];
    });
    WriteRow<T>(p, tile, kv_head, row, joined, unit, part * kWarp, parts * kWarp,
                [&](int32_t s, int32_t c) { return ClusterMap(sums, s)[row * size + c]; });
  }
  if (Seeded(9)) {
    __syncthreads();
  } else {
    ClusterSync();  // no block's memory is used anew, or gone, while another reads it
  }
#endif
}

// The end of a block's item: joins its warps, and the cluster that it may be a part of. Begins and
// ends with a barrier.
template <typename T, int32_t kRows>
GRAFT_DEVICE void JoinParts(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head,
                            int64_t item, State* states, float* sums, int64_t warp_floats,
                            float unit, const Partials& partials) {
  JoinWarps<T, kRows>(p, tile, cut, kv_head, item, states, sums, warp_floats, unit, partials);
  if (cut.clustered) {
    JoinCluster<T>(p, tile, cut, kv_head, states, sums, unit);
  } else {
    __syncthreads();
  }
}

// Joins the splits of each tile from the workspace, a warp a row and run of 32 columns.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp, 9)
    MergeKernel(Problem p, Cut cut, Partials partials) {
  const float unit = UnitsOf(p).unit;
  const auto size = static_cast<int32_t>(p.value_size);
  const int32_t tile_rows = cut.tile_tokens * cut.tile_heads;
  const int32_t runs = (size + kWarp - 1) / kWarp;
  const int64_t count = cut.tiles * p.kv_heads * tile_rows * runs;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + WarpIndex(); i < count;
       i += static_cast<int64_t>(gridDim.x) * kWarps) {
    const auto run = static_cast<int32_t>(i % runs);
    const auto row = static_cast<int32_t>(i / runs % tile_rows);
    const int64_t place = i / runs / tile_rows;             // of the tile and KV head
    const Tile tile = FindTile(p, cut, place % cut.tiles);  // while splits still run
    if (!Seeded(7)) WaitForLaunch();
    if (tile.group < 0 || row >= tile.Rows()) continue;
    const State* states = partials.states + place * cut.splits * tile_rows + row;
    const float* sums = partials.sums + (place * cut.splits * tile_rows + row) * size;
    const auto joined =
        JoinStates<kMaxSplits>(cut.splits, unit, [&](int32_t s) { return states[s * tile_rows]; });
    WriteRow<T>(p, tile, static_cast<int32_t>(place / cut.tiles), row, joined, unit, run * kWarp,
                runs * kWarp, [&](int32_t s, int32_t c) {
                  return sums[static_cast<int64_t>(s) * tile_rows * size + c];
                });
  }
  WaitForLaunch();  // of a warp that had nothing to join
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_MERGE_CUH_
