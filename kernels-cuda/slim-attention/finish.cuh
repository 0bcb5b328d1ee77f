// What the stream kernel's splits have added up, joined by log-sum-exp and multiplied by W_KV: on
// the tensor cores for 16-bit weights in whole panels, by float32 arithmetic for any other.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_

#include <algorithm>

#include "../device/async_copy.cuh"
#include "../device/launch.cuh"
#include "../device/matrix.cuh"
#include "contract.cuh"
#include "join.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

struct FinishArguments {
  Problem problem;
  FinishShape shape;
  const float* sums;    // [tokens][splits][heads][width]
  const float* states;  // [tokens][splits][heads][kStateNumbers]
  int32_t splits;       // whose sums have not been joined yet
};

// Some tokens' rows of one head, over all splits.
class Joined {
 public:
  // Computes the shares of the splits, [row][split], in shared memory; the caller waits for all.
  GRAFT_DEVICE Joined(const FinishArguments& a, int64_t head, int64_t row0, int32_t rows,
                      bool reports, float* shares)
      : a_(a), head_(head), row0_(row0), shares_(shares) {
    const auto row = static_cast<int32_t>(threadIdx.x);
    if (row >= rows) return;
    float highest = NegativeInfinity(), sum = 0.0f, left_out = 0.0f;
    for (int32_t s = 0; s < a.splits; ++s) highest = fmaxf(highest, State(row, s)[0]);
    for (int32_t s = 0; s < a.splits; ++s) {
      const float own = State(row, s)[0];
      if (Seeded(2)) highest = own;
      const float share = own == NegativeInfinity() ? 0.0f : exp2f(own - highest);
      shares[row * a.splits + s] = share;
      sum += share * State(row, s)[1];
      left_out += share * State(row, s)[2];
    }
    // Keys without any weight give NaN, as a softmax does.
    for (int32_t s = 0; s < a.splits; ++s) shares[row * a.splits + s] /= sum;
    if (reports && a.problem.skipped != nullptr) {
      a.problem.skipped[(row0 + row) * a.problem.heads + head] = sum > 0.0f ? left_out / sum : 0.0f;
    }
  }

  GRAFT_DEVICE const float* Sums(int32_t row, int32_t split) const {
    return a_.sums + Place(row, split) * WidthOf(a_.problem);
  }
  // Floats from a row's sums to the next row's.
  GRAFT_DEVICE int64_t RowStride() const {
    return a_.splits * a_.problem.heads * WidthOf(a_.problem);
  }
  GRAFT_DEVICE float Share(int32_t row, int32_t split) const {
    return shares_[row * a_.splits + split];
  }
  // Writes column c of a row.
  GRAFT_DEVICE void Write(int32_t row, int64_t c, float x) const {
    const Problem& p = a_.problem;
    if (p.value_bias != nullptr) x += p.value_bias[head_ * p.value_size + c];
    const bool any = State(row, 0)[3] != 0.0f;  // a key
    WriteAs(p.output, p.type, (row0_ + row) * p.output_stride + head_ * p.value_size + c,
            any ? x : 0.0f);
  }

 private:
  GRAFT_DEVICE int64_t Place(int32_t row, int32_t split) const {
    return ((row0_ + row) * a_.splits + split) * a_.problem.heads + head_;
  }
  GRAFT_DEVICE const float* State(int32_t row, int32_t split) const {
    return a_.states + Place(row, split) * kStateNumbers;
  }

  const FinishArguments& a_;
  int64_t head_, row0_;
  float* shares_;
};

template <typename W>
__global__ void __launch_bounds__(kContractThreads, 2) FinishKernel(FinishArguments a) {
  const Problem& p = a.problem;
  const ContractPlace at(p, blockIdx.x);
  const auto rows = static_cast<int32_t>(min(int64_t{kContractRows}, p.tokens - at.row0));
  WaitForLaunch();
  const Joined joined(a, at.head, at.row0, rows, at.column0 == 0,
                      reinterpret_cast<float*>(SharedMemory()) + kContractFloats);
  __syncthreads();
  const auto fill = [&](int32_t row, int32_t f) {
    float x = 0.0f;
    for (int32_t s = 0; s < a.splits; ++s) x += joined.Share(row, s) * joined.Sums(row, s)[f];
    return x;
  };
  Contract<W>(p, at, rows, fill, [&](int32_t row, int64_t c, float x) { joined.Write(row, c, x); });
}

// On the tensor cores a block takes some tokens, a head, 64 columns and a part of the features.
// Each of its warps takes every so manieth run of 16 features: it joins the splits' sums of them on
// their way into the matrix multiplication, and copies the weight's rows some steps ahead, the
// first of them before the stream kernel has ended. What the warps have is added up last, and so is
// what the blocks of a cluster have, which share the features: each adds up a part of the outputs.
constexpr int32_t kFinishStages = 4;
constexpr int32_t kFinishStride = kContractColumns + 8;  // of rows in shared memory, in numbers
constexpr int32_t kFinishTile = 16 * kFinishStride;

// Shared memory of a block, in floats: of each warp the weight's tiles, or its sums in rows of
// kFinishStride; where blocks share the features, a part of the outputs of each of them; the shares
// of the splits.
constexpr int32_t FinishWarp(int32_t row_tiles) {
  return std::max(kFinishStages * kFinishTile / 2, 16 * row_tiles * kFinishStride);
}
constexpr int32_t FinishPart(int32_t row_tiles, int32_t cuts) {
  return (16 * row_tiles * kContractColumns + cuts - 1) / cuts;
}
constexpr int32_t FinishShares(int32_t row_tiles, int32_t cuts, int32_t warps) {
  return warps * FinishWarp(row_tiles) + (cuts > 1 ? cuts * FinishPart(row_tiles, cuts) : 0);
}

template <typename W, int32_t kTiles>
class FinishBlock {
 public:
  GRAFT_DEVICE explicit FinishBlock(const FinishArguments& a)
      : a_(a), p_(a.problem), s_(a.shape), memory_(reinterpret_cast<float*>(SharedMemory())) {
    const auto columns =
        static_cast<int32_t>((p_.value_size + kContractColumns - 1) / kContractColumns);
    cut_ = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(s_.cuts));
    const int64_t block = blockIdx.x / static_cast<uint32_t>(s_.cuts);
    column0_ = static_cast<int32_t>(block % columns) * kContractColumns;
    head_ = block / columns % p_.heads;
    row0_ = block / columns / p_.heads * kRows;
    rows_ = static_cast<int32_t>(min(int64_t{kRows}, p_.tokens - row0_));
    panels_ =
        static_cast<int32_t>(min(int64_t{kContractPanels}, (p_.value_size - column0_) / kPanel));
    const auto steps = static_cast<int32_t>(WidthOf(p_) / 16);
    first_ = steps * cut_ / s_.cuts;
    end_ = steps * (cut_ + 1) / s_.cuts;
  }

  GRAFT_DEVICE void Run() const {
    const int32_t begin = first_ + WarpIndex();
    if (!Seeded(6)) {
#pragma unroll
      for (int32_t stage = 0; stage < kFinishStages; ++stage) {
        Load(begin + stage * s_.warps, stage);
      }
    }
    Arrive();
    if (!Seeded(10)) WaitForLaunch();
    const Joined joined(a_, head_, row0_, rows_, column0_ == 0 && cut_ == 0,
                        memory_ + FinishShares(kTiles, s_.cuts, s_.warps));
    __syncthreads();
    float d[kTiles][kContractPanels][2][4] = {};
    int32_t stage = 0;
    for (int32_t step = begin; step < end_; step += s_.warps) {
      uint32_t left[kTiles][4];
      Gather(joined, step, left);
      if (Seeded(6)) {
        Load(step, stage);
      } else {
        CopyWait<kFinishStages - 1>();
      }
      __syncwarp();
      const W* tile = Tile(stage) + Lane() % 16 * kFinishStride + Lane() / 16 * 8;
#pragma unroll
      for (int32_t panel = 0; panel < kContractPanels; ++panel) {
        if (panel >= panels_) break;
        uint32_t y[4];
        LoadMatrices<true>(y, tile + panel * kPanel);
        const uint32_t halves[2][2] = {{y[0], y[1]}, {y[2], y[3]}};
#pragma unroll
        for (int32_t m = 0; m < kTiles; ++m) {
          Multiply<W>(d[m][panel][0], left[m], halves[0]);
          Multiply<W>(d[m][panel][1], left[m], halves[1]);
        }
      }
      __syncwarp();
      Load(step + kFinishStages * s_.warps, stage);
      stage = (stage + 1) % kFinishStages;
    }
    CopyWait<0>();
    __syncthreads();
    AddUp(d, joined);
    if (Seeded(10)) WaitForLaunch();
  }

 private:
  static constexpr int32_t kRows = 16 * kTiles;
  static constexpr int32_t kOfWarp = FinishWarp(kTiles);
  static constexpr int32_t kSums = kRows * kFinishStride;  // of a warp

  GRAFT_DEVICE W* Tile(int32_t stage) const {
    return reinterpret_cast<W*>(memory_ + WarpIndex() * kOfWarp) + stage * kFinishTile;
  }

  // Prefetches 16 rows of the weight.
  GRAFT_DEVICE void Load(int32_t step, int32_t stage) const {
    if (step < end_) {
      const int32_t row = Lane() / 2, column = Lane() % 2 * 8;
      const W* from = static_cast<const W*>(p_.value_weight) + head_ * p_.weight_head +
                      column0_ / kPanel * p_.weight_panel +
                      (int64_t{16} * step + row) * p_.weight_row + column;
      W* to = Tile(stage) + row * kFinishStride + column;
      for (int32_t panel = 0; panel < panels_; ++panel) {
        CopyAsync<16>(to + panel * kPanel, from + panel * p_.weight_panel);
      }
    }
    CopyCommit();
  }

  // The left side of a matmul: 16 features of every row, of all splits.
  GRAFT_DEVICE void Gather(const Joined& joined, int32_t step, uint32_t (&left)[kTiles][4]) const {
    const int32_t g = Lane() / 4, t = Lane() % 4;
    float x[2 * kTiles][4] = {};  // of rows g + 8 * i: features 2t, 2t + 1, 2t + 8, 2t + 9
    for (int32_t s = 0; s < a_.splits; ++s) {
      const float* row = joined.Sums(g, s) + 16 * step + 2 * t;
#pragma unroll
      for (int32_t i = 0; i < 2 * kTiles; ++i) {
        if (g + 8 * i >= rows_) break;
        const float share = joined.Share(g + 8 * i, s);
        const auto* from = reinterpret_cast<const float2*>(row);
        const float2 low = from[0], high = from[4];
        x[i][0] += share * low.x;
        x[i][1] += share * low.y;
        x[i][2] += share * high.x;
        x[i][3] += share * high.y;
        row += 8 * joined.RowStride();
      }
    }
#pragma unroll
    for (int32_t i = 0; i < 4 * kTiles; ++i) {
      const float* pair = &x[i / 4 * 2 + i % 2][i % 4 / 2 * 2];
      left[i / 4][i % 4] = Pack<W>(pair[0], pair[1]);
    }
  }

  GRAFT_DEVICE void AddUp(const float (&d)[kTiles][kContractPanels][2][4],
                          const Joined& joined) const {
    const int32_t g = Lane() / 4, t = Lane() % 4;
    float* mine = memory_ + WarpIndex() * kSums;
#pragma unroll
    for (int32_t m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int32_t panel = 0; panel < kContractPanels; ++panel) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) {
          *reinterpret_cast<float2*>(mine + (16 * m + g + i % 2 * 8) * kFinishStride +
                                     panel * kPanel + i / 2 * 8 + 2 * t) =
              make_float2(d[m][panel][i / 2][i % 2 * 2], d[m][panel][i / 2][i % 2 * 2 + 1]);
        }
      }
    }
    __syncthreads();
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const auto threads = static_cast<int32_t>(blockDim.x);
    const int32_t part = FinishPart(kTiles, s_.cuts);
    float* received = memory_ + s_.warps * kOfWarp;
    if (Seeded(11) && cut_ == 1) Linger();
    Wait();
    for (int32_t i = thread; i < rows_ * kContractColumns; i += threads) {
      float x = 0.0f;
      const int32_t at = i / kContractColumns * kFinishStride + i % kContractColumns;
      for (int32_t w = 0; w < s_.warps; ++w) x += memory_[w * kSums + at];
      if (s_.cuts == 1) {
        Write(joined, i, x);
        continue;
      }
      if constexpr (kClusters) {
        const int32_t taker = i / part;
        *ClusterMap(received + cut_ * part + i - taker * part, taker) = x;
      }
    }
    if (s_.cuts == 1) return;
    if (!Seeded(11)) {
      Arrive();
      Wait();
    }
    for (int32_t i = thread; i < part; i += threads) {
      if (cut_ * part + i >= rows_ * kContractColumns) break;
      float x = 0.0f;
      for (int32_t cut = 0; cut < s_.cuts; ++cut) x += received[cut * part + i];
      Write(joined, cut_ * part + i, x);
    }
    if (Seeded(11)) {
      Arrive();
      Wait();
    }
  }

  GRAFT_DEVICE void Write(const Joined& joined, int32_t output, float x) const {
    const int32_t c = output % kContractColumns;
    if (c < panels_ * kPanel) joined.Write(output / kContractColumns, column0_ + c, x);
  }

  // The two halves of a barrier of the blocks that share the features.
  GRAFT_DEVICE void Arrive() const {
    if constexpr (kClusters) {
      __syncwarp();
      if (s_.cuts > 1) ClusterArrive();
    }
  }
  GRAFT_DEVICE void Wait() const {
    if constexpr (kClusters) {
      __syncwarp();
      if (s_.cuts > 1) ClusterWait();
    }
  }

  const FinishArguments& a_;
  const Problem& p_;
  const FinishShape& s_;
  float* memory_;
  int64_t head_, row0_;
  int32_t cut_, column0_, rows_, panels_;
  int32_t first_, end_;  // steps of this block
};

template <typename W, int32_t kTiles>
__global__ void __launch_bounds__(kFinishWarps* kWarp, 2) FinishMatrixKernel(FinishArguments a) {
  FinishBlock<W, kTiles>(a).Run();
}

template <typename W>
Status RunFinishOf(const FinishArguments& a, bool dependent, Stream stream) {
  if (!a.shape.matrix) {
    return RunContract(&FinishKernel<W>, a, a.problem.tokens, a.splits, dependent, stream);
  }
  if constexpr (sizeof(W) == 2) {
    LaunchShape shape;
    shape.grid_x = a.shape.blocks;
    shape.threads = a.shape.warps * kWarp;
    const FinishShape& s = a.shape;
    shape.shared_bytes =
        4 * (FinishShares(s.row_tiles, s.cuts, s.warps) + 16 * s.row_tiles * a.splits);
    shape.cluster = a.shape.cuts;
    shape.dependent = dependent;
    return Launch(a.shape.row_tiles == 1 ? &FinishMatrixKernel<W, 1> : &FinishMatrixKernel<W, 2>,
                  shape, stream, a);
  }
  return kBadLaunch;
}

inline Status RunFinish(const FinishArguments& a, bool dependent, Stream stream) {
  switch (a.problem.weight_type) {
    case Type::kFloat16:
      return RunFinishOf<Half>(a, dependent, stream);
    case Type::kBFloat16:
      return RunFinishOf<BFloat16>(a, dependent, stream);
    default:
      return RunFinishOf<float>(a, dependent, stream);
  }
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_
