// What the stream kernel's splits have added up, joined by log-sum-exp and multiplied by W_KV: the
// plain way for any weight, and on the tensor cores for 16-bit ones in whole panels.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_

#include <algorithm>

#include "../device/async_copy.cuh"
#include "../device/launch.cuh"
#include "../device/matrix.cuh"
#include "contract.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

// A row's softmax in one split: highest score (of base 2), sum, skipped, and 1 where the row's
// group has keys at all.
constexpr int32_t kStateNumbers = 4;

struct FinishArguments {
  Problem problem;
  const float* sums;    // [tokens][splits][heads][width]
  const float* states;  // [tokens][splits][heads][kStateNumbers]
  int32_t splits;
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
#if GRAFT_FAULT == 2
      highest = own;
#endif
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

// On the tensor cores a block takes 16 tokens, a head and 64 columns. Each of its warps takes every
// so manieth run of 16 features: it joins the splits' sums of them on their way into the matrix
// product, and copies the weight's rows two steps ahead. What the warps have is added up last.
constexpr int32_t kFinishRows = 16;
constexpr int32_t kFinishStages = 2;
constexpr int32_t kFinishStride = kContractColumns + 8;  // of a weight's row, in numbers
constexpr int32_t kFinishTile = 16 * kFinishStride;
// Floats of shared memory of a warp: the weight's tiles, or its sums.
constexpr int32_t kFinishFloats =
    std::max(kFinishStages * kFinishTile / 2, kFinishRows* kContractColumns);

template <typename W>
__global__ void __launch_bounds__(kFinishWarps* kWarp, 1) FinishMatrixKernel(FinishArguments a) {
  const Problem& p = a.problem;
  const auto blocks =
      static_cast<int32_t>((p.value_size + kContractColumns - 1) / kContractColumns);
  const int64_t column0 = blockIdx.x % blocks * kContractColumns;
  const int64_t head = blockIdx.x / blocks % p.heads;
  const int64_t row0 = blockIdx.x / blocks / p.heads * kFinishRows;
  const auto rows = static_cast<int32_t>(min(int64_t{kFinishRows}, p.tokens - row0));
  const auto panels =
      static_cast<int32_t>(min(int64_t{kContractPanels}, (p.value_size - column0) / kPanel));
  const int32_t warp = WarpIndex(), lane = Lane(), g = lane / 4, t = lane % 4;
  const auto warps = static_cast<int32_t>(blockDim.x) / kWarp;
  auto* memory = reinterpret_cast<float*>(SharedMemory());
  const Joined joined(a, head, row0, rows, column0 == 0, memory + warps * kFinishFloats);
  __syncthreads();

  const auto steps = static_cast<int32_t>(WidthOf(p) / 16);
  auto* tiles = reinterpret_cast<W*>(memory + warp * kFinishFloats);
  const W* weight = static_cast<const W*>(p.value_weight) + head * p.weight_head +
                    column0 / kPanel * p.weight_panel + lane % 2 * 8;
  const auto load = [&](int32_t step, int32_t stage) {
    if (step < steps) {
      const int32_t row = lane / 2;
      const W* from = weight + (int64_t{16} * step + row) * p.weight_row;
      W* to = tiles + stage * kFinishTile + row * kFinishStride + lane % 2 * 8;
      for (int32_t panel = 0; panel < panels; ++panel) {
        CopyAsync<16>(to + panel * kPanel, from + panel * p.weight_panel);
      }
    }
    CopyCommit();
  };
  load(warp, 0);
  load(warp + warps, 1);
  float d[kContractPanels][2][4] = {};
  int32_t stage = 0;
  for (int32_t step = warp; step < steps; step += warps) {
    float x[2][4] = {};  // of rows g and g + 8: features 2t, 2t + 1, 2t + 8, 2t + 9
    for (int32_t s = 0; s < a.splits; ++s) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const int32_t row = g + 8 * i;
        if (row >= rows) continue;
        const float share = joined.Share(row, s);
        const auto* from = reinterpret_cast<const float2*>(joined.Sums(row, s) + 16 * step + 2 * t);
        const float2 low = from[0], high = from[4];
        x[i][0] += share * low.x;
        x[i][1] += share * low.y;
        x[i][2] += share * high.x;
        x[i][3] += share * high.y;
      }
    }
    const uint32_t left[4] = {Pack<W>(x[0][0], x[0][1]), Pack<W>(x[1][0], x[1][1]),
                              Pack<W>(x[0][2], x[0][3]), Pack<W>(x[1][2], x[1][3])};
#if GRAFT_FAULT == 6
    CopyWait<2>();
#else
    CopyWait<1>();
#endif
    __syncwarp();
    const W* tile = tiles + stage * kFinishTile + lane % 16 * kFinishStride + lane / 16 * 8;
#pragma unroll
    for (int32_t panel = 0; panel < kContractPanels; ++panel) {
      if (panel >= panels) break;
      uint32_t y[4];
      LoadMatrices<true>(y, tile + panel * kPanel);
      const uint32_t halves[2][2] = {{y[0], y[1]}, {y[2], y[3]}};
      Multiply<W>(d[panel][0], left, halves[0]);
      Multiply<W>(d[panel][1], left, halves[1]);
    }
    __syncwarp();
    load(step + 2 * warps, stage);
    stage = 1 - stage;
  }
  CopyWait<0>();
  __syncthreads();

  float* mine = memory + warp * kFinishRows * kContractColumns;
#pragma unroll
  for (int32_t panel = 0; panel < kContractPanels; ++panel) {
#pragma unroll
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t row = g + i % 4 / 2 * 8, c = panel * kPanel + i / 4 * 8 + 2 * t + i % 2;
      mine[row * kContractColumns + c] = d[panel][i / 4][i % 4];
    }
  }
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < rows * kContractColumns;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t row = i / kContractColumns, c = i % kContractColumns;
    if (c >= panels * kPanel) continue;
    float x = 0.0f;
    for (int32_t w = 0; w < warps; ++w) x += memory[w * kFinishRows * kContractColumns + i];
    joined.Write(row, column0 + c, x);
  }
}

template <typename W>
Status RunFinishOf(const FinishArguments& a, bool matrix, Stream stream) {
  const Problem& p = a.problem;
  if (!matrix) return RunContract(&FinishKernel<W>, a, p.tokens, a.splits, stream);
  if constexpr (sizeof(W) == 2) {
    LaunchShape shape;
    shape.grid_x =
        CeilDivide(p.value_size, kContractColumns) * p.heads * CeilDivide(p.tokens, kFinishRows);
    const int64_t warps = std::min<int64_t>(kFinishWarps, p.width() / 16);
    shape.threads = static_cast<int32_t>(warps) * kWarp;
    shape.shared_bytes = 4 * (warps * kFinishFloats + kFinishRows * a.splits);
    return Launch(&FinishMatrixKernel<W>, shape, stream, a);
  }
  return kBadLaunch;
}

inline Status RunFinish(const FinishArguments& a, bool matrix, Stream stream) {
  switch (a.problem.weight_type) {
    case Type::kFloat16:
      return RunFinishOf<Half>(a, matrix, stream);
    case Type::kBFloat16:
      return RunFinishOf<BFloat16>(a, matrix, stream);
    default:
      return RunFinishOf<float>(a, matrix, stream);
  }
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_FINISH_CUH_
