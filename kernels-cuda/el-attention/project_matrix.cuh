// Matmuls on tensor cores, for rows of X in 16 bits: 64 rows by 128 or 32 columns a block, 64
// features at a time.
//
// Weights come by asynchronous copies as they are, float32, and are rounded on their way from
// shared memory to registers. Queries are float32 too: they and the weights they meet are each
// taken as a sum of two bfloat16 numbers, high + low, and the product as
//
//   high high' + high low' + low high'
//
// which is good to 2^-16 whatever the range, so that the only rounding of an expanded query is that
// to its own type. Sums come in the type of X, and meet weights rounded to it: README.md has what
// that costs.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_MATRIX_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_MATRIX_CUH_

#include <type_traits>

#include "../device/async_copy.cuh"
#include "../device/matrix.cuh"
#include "project.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

constexpr int32_t kMatrixThreads = 256;
constexpr int32_t kMatrixRows = 64;
constexpr int32_t kMatrixDepth = 64;  // features of a step
constexpr int32_t kExpandColumns = 128;
constexpr int32_t kContractColumns = 32;

// L: float, or the 16-bit type of X.
template <typename L, int32_t kColumns>
class MatrixGemm {
  static constexpr bool kSplit = sizeof(L) == 4;
  static constexpr int32_t kTerms = kSplit ? 2 : 1;
  using Number = std::conditional_t<kSplit, BFloat16, L>;

  // Copies in flight. Features are many and come from memory, blocks are few: each prefetches much.
  static constexpr int32_t kStages = kSplit ? 2 : 6;
  static constexpr int32_t kRowBytes = kMatrixDepth * 2;
  static constexpr int32_t kTermBytes = kMatrixRows * kRowBytes;
  static constexpr int32_t kRightBytes = kMatrixDepth * kColumns * 4;
  static constexpr int32_t kStageBytes = kTerms * kTermBytes + kRightBytes;

  // Warps: two of 32 rows, some of 32 columns, and groups that share a step's features.
  static constexpr int32_t kAcross = kColumns / 32;
  static constexpr int32_t kGroups = kMatrixThreads / kWarp / 2 / kAcross;
  static constexpr int32_t kSlices = kMatrixDepth / 16 / kGroups;  // of 16 features, a warp's
  static constexpr int32_t kSumStride = kColumns + 8;              // floats; spreads rows
  static constexpr int32_t kSumBytes = kGroups * kMatrixRows * kSumStride * 4;

 public:
  static constexpr int32_t Steps(int32_t depth) {
    return (depth + kMatrixDepth - 1) / kMatrixDepth;
  }
  // Of shared memory.
  static constexpr int64_t Bytes(int32_t depth) {
    const int32_t steps = Steps(depth), stages = (steps < kStages ? steps : kStages) * kStageBytes;
    return stages > kSumBytes ? stages : kSumBytes;
  }

  GRAFT_DEVICE explicit MatrixGemm(const Product& p)
      : p_(p),
        g_(static_cast<int32_t>(blockIdx.y)),
        row0_(static_cast<int32_t>(blockIdx.x) * kMatrixRows),
        column0_(static_cast<int32_t>(blockIdx.z) * kColumns),
        steps_(Steps(p.depth)),
        shared_(SharedMemory()) {
    if (Seeded(6) && steps_ > 1) steps_ = p.depth / kMatrixDepth;
    const int32_t warp = WarpIndex();
    warp_row_ = warp % 2 * 32;
    warp_column_ = warp / 2 % kAcross * 32;
    warp_group_ = warp / (2 * kAcross);
  }

  GRAFT_DEVICE int32_t g() const { return g_; }
  GRAFT_DEVICE int32_t row0() const { return row0_; }

  // Starts the first copies: weights, which no launch before writes, then rows.
  GRAFT_DEVICE void Begin() {
#pragma unroll
    for (int32_t step = 0; step < kStages - 1; ++step) CopyRight(step);
    WaitForLaunch();
#pragma unroll
    for (int32_t step = 0; step < kStages - 1; ++step) {
      CopyLeft(step);
      CopyCommit();
    }
  }

  // store(row, column, x, y) takes the numbers at a column and the next one, the row's and the
  // first column being there.
  template <typename Store>
  GRAFT_DEVICE void Finish(const Store& store) {
#pragma unroll
    for (int32_t m = 0; m < 2; ++m) {
#pragma unroll
      for (int32_t n = 0; n < 4; ++n) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) sums_[m][n][i] = 0.0f;
      }
    }
    for (int32_t step = 0; step < steps_; ++step) {
      CopyWait<kStages - 2>();
      __syncthreads();
      CopyRight(step + kStages - 1);
      CopyLeft(step + kStages - 1);
      CopyCommit();
      Add(step);
    }
    CopyWait<0>();
    __syncthreads();
    Collect();
    if (!Seeded(8)) __syncthreads();
    constexpr int32_t kPairs = kColumns / 2;
#pragma unroll
    for (int32_t i = 0; i < kMatrixRows * kPairs / kMatrixThreads; ++i) {
      const int32_t at = static_cast<int32_t>(threadIdx.x) + i * kMatrixThreads;
      const int32_t row = at / kPairs, column = at % kPairs * 2;
      if (row0_ + row >= p_.rows() || column0_ + column >= p_.columns) continue;
      float x = 0.0f, y = 0.0f;
#pragma unroll
      for (int32_t group = 0; group < kGroups; ++group) {
        const float2 pair = *SumAt(group, row, column);
        x += pair.x, y += pair.y;
      }
      store(row0_ + row, column0_ + column, x, y);
    }
  }

 private:
  GRAFT_DEVICE unsigned char* Stage(int32_t step) const {
    return shared_ + step % kStages * kStageBytes;
  }
  // 16 bytes of a row of the left stand exclusive or with its last three bits, as in tile.cuh.
  static GRAFT_DEVICE unsigned char* LeftAt(unsigned char* left, int32_t row, int32_t chunk) {
    return left + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }
  // Four columns of a panel: so that those of two neighbours and four features, two apart, lie in
  // different banks.
  static constexpr GRAFT_DEVICE int32_t RightChunk(int32_t feature, int32_t four) {
    return (feature * 4 + four) ^ (feature >> 1 & 3) << 1;
  }

  GRAFT_DEVICE void CopyRight(int32_t step) const {
    if (step >= steps_) return;
    constexpr int32_t kChunks = kMatrixDepth * kColumns / 4;
    constexpr int32_t kOfPanel = kMatrixDepth * kPanel / 4;
    unsigned char* to = Stage(step) + kTerms * kTermBytes;
    const bool aligned = reinterpret_cast<uintptr_t>(p_.weight) % 16 == 0;
    const int32_t panel0 = column0_ / kPanel, begin = step * kMatrixDepth;
#pragma unroll
    for (int32_t i = 0; i < kChunks / kMatrixThreads; ++i) {
      const int32_t chunk = static_cast<int32_t>(threadIdx.x) + i * kMatrixThreads;
      const int32_t panel = chunk / kOfPanel, feature = chunk % kOfPanel / 4, four = chunk % 4;
      const bool valid = panel0 + panel < p_.panels() && begin + feature < p_.depth;
      const int64_t row =
          valid ? (int64_t{g_} * p_.panels() + panel0 + panel) * p_.depth + begin + feature : 0;
      const float* from = p_.weight + row * kPanel + four * 4;
      unsigned char* at = to + (panel * kOfPanel + RightChunk(feature, four)) * 16;
      if (aligned) {
        CopyAsync<16>(at, from, valid);
      } else {
#pragma unroll
        for (int32_t j = 0; j < 4; ++j) CopyAsync<4>(at + 4 * j, from + j, valid);
      }
    }
  }

  GRAFT_DEVICE void CopyLeft(int32_t step) const {
    if (step >= steps_) return;
    if constexpr (kSplit) {
      SplitLeft(step);
    } else {
      // Rows begin at multiples of 16 bytes, and their last 16 are memory of theirs.
      constexpr int32_t kChunks = kMatrixDepth / 8;
#pragma unroll
      for (int32_t i = 0; i < kMatrixRows * kChunks / kMatrixThreads; ++i) {
        const int32_t at = static_cast<int32_t>(threadIdx.x) + i * kMatrixThreads;
        const int32_t row = at / kChunks, chunk = at % kChunks;
        const int32_t feature = step * kMatrixDepth + chunk * 8;
        const bool valid = row0_ + row < p_.rows() && feature < p_.depth;
        const L* from = p_.LeftOf<L>(g_, valid ? row0_ + row : 0) + (valid ? feature : 0);
        CopyAsync<16>(LeftAt(Stage(step), row, chunk), from, valid);
      }
    }
  }

  // Both terms of float32 rows: a row a warp, two features a lane.
  GRAFT_DEVICE void SplitLeft(int32_t step) const {
    const int32_t lane = Lane(), feature = step * kMatrixDepth + 2 * lane;
    float x[kMatrixRows / 8], y[kMatrixRows / 8];
#pragma unroll
    for (int32_t i = 0; i < kMatrixRows / 8; ++i) {
      const int32_t row = row0_ + WarpIndex() + 8 * i;
      const bool there = row < p_.rows();
      const float* from = p_.LeftOf<float>(g_, there ? row : 0);
      x[i] = there && feature < p_.depth ? from[feature] : 0.0f;
      y[i] = there && feature + 1 < p_.depth ? from[feature + 1] : 0.0f;
    }
#pragma unroll
    for (int32_t i = 0; i < kMatrixRows / 8; ++i) {
      uint32_t terms[2];
      Split(x[i], y[i], terms);
#pragma unroll
      for (int32_t term = 0; term < 2; ++term) {
        unsigned char* left = Stage(step) + term * kTermBytes;
        unsigned char* to = LeftAt(left, WarpIndex() + 8 * i, lane / 4) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) = terms[term];
      }
    }
  }

  static GRAFT_DEVICE void Split(float x, float y, uint32_t (&terms)[kTerms]) {
    terms[0] = Pack<Number>(x, y);
    if constexpr (kSplit) {
      float high_x, high_y;
      Unpack<Number>(terms[0], &high_x, &high_y);
      terms[1] = Pack<Number>(x - high_x, y - high_y);
    }
  }

  // Zeros in place of the features from `count` on of a fragment's 16.
  static GRAFT_DEVICE void Mask(int32_t count, uint32_t (&a)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t feature = Lane() % 4 * 2 + i / 2 * 8;
      a[i] &= feature + 1 < count ? 0xffffffffu : feature < count ? 0xffffu : 0u;
    }
  }

  GRAFT_DEVICE void Add(int32_t step) {
    const int32_t lane = Lane(), g = lane / 4, t = lane % 4;
    unsigned char* left = Stage(step);
    const auto* right = reinterpret_cast<const float*>(left + kTerms * kTermBytes) +
                        warp_column_ / kPanel * (kMatrixDepth * kPanel);
#pragma unroll 1
    for (int32_t i = 0; i < kSlices; ++i) {
      const int32_t slice = warp_group_ * kSlices + i;
      uint32_t a[2][kTerms][4];
#pragma unroll
      for (int32_t m = 0; m < 2; ++m) {
#pragma unroll
        for (int32_t term = 0; term < kTerms; ++term) {
          LoadMatrices(a[m][term], LeftAt(left + term * kTermBytes, warp_row_ + m * 16 + lane % 16,
                                          slice * 2 + lane / 16));
          const int32_t count = p_.depth - step * kMatrixDepth - slice * 16;
          if (!kSplit && count < 16) Mask(count, a[m][term]);
        }
      }
#pragma unroll
      for (int32_t n = 0; n < 4; ++n) {
        const int32_t column = n % 2 * 8 + g;  // of its panel
        const float* panel = right + n / 2 * (kMatrixDepth * kPanel) + column % 4;
        const auto at = [&](int32_t feature) {
          return panel[RightChunk(slice * 16 + 2 * t + feature, column / 4) * 4];
        };
        uint32_t low[kTerms], high[kTerms];
        Split(at(0), at(1), low);
        Split(at(8), at(9), high);
#pragma unroll
        for (int32_t term = 0; term < kTerms; ++term) {
          const uint32_t b[2] = {low[term], high[term]};
#pragma unroll
          for (int32_t m = 0; m < 2; ++m) {
            Multiply<Number>(sums_[m][n], a[m][0], b);
            if constexpr (kSplit) {
              if (term == 0) Multiply<Number>(sums_[m][n], a[m][1], b);
            }
          }
        }
      }
    }
  }

  // Sums of a group at a row and two columns, in the memory of the stages.
  GRAFT_DEVICE float2* SumAt(int32_t group, int32_t row, int32_t column) const {
    return reinterpret_cast<float2*>(reinterpret_cast<float*>(shared_) +
                                     (group * kMatrixRows + row) * kSumStride + column);
  }
  GRAFT_DEVICE void Collect() const {
    if (Seeded(8) && warp_group_ > 0) Linger();
#pragma unroll
    for (int32_t m = 0; m < 2; ++m) {
#pragma unroll
      for (int32_t n = 0; n < 4; ++n) {
        const int32_t row = warp_row_ + m * 16 + Lane() / 4;
        const int32_t column = warp_column_ + n * 8 + Lane() % 4 * 2;
        const float(&x)[4] = sums_[m][n];
        *SumAt(warp_group_, row, column) = make_float2(x[0], x[1]);
        *SumAt(warp_group_, row + 8, column) = make_float2(x[2], x[3]);
      }
    }
  }

  const Product& p_;
  const int32_t g_, row0_, column0_;
  int32_t steps_;
  unsigned char* const shared_;
  int32_t warp_row_, warp_column_, warp_group_;
  float sums_[2][4][4];
};

// Queries, as wide as X, in its type. x: rows; y: KV heads; z: columns.
template <typename T>
__global__ void __launch_bounds__(kMatrixThreads, 2)
    ExpandKernel(Product p, Shift shift, T* expanded, int64_t stride) {
  MatrixGemm<float, kExpandColumns> product(p);
  product.Begin();
  LetNextBegin();
  if (Seeded(7)) Linger();
  if (blockIdx.z == 0) {
    ShiftRows<kMatrixRows, kMatrixThreads>(p, shift, product.g(), product.row0());
  }
  product.Finish([&](int32_t row, int32_t column, float x, float y) {
    // Rows are padded to whole vectors: there is room for the second number in any case.
    T* to = expanded + p.IndexOf(product.g(), row) * stride + column;
    *reinterpret_cast<uint32_t*>(to) = Pack<T>(x, y);
  });
}

template <typename T>
__global__ void __launch_bounds__(kMatrixThreads, 2) ContractKernel(Product p, Join join) {
  using Multiplied = MatrixGemm<T, kContractColumns>;
  auto* shares = reinterpret_cast<RowShare*>(SharedMemory() + Multiplied::Bytes(p.depth));
  Multiplied product(p);
  product.Begin();
  ShareRows<kMatrixRows, kMatrixThreads>(p, join, product.g(), product.row0(), shares);
  product.Finish([&](int32_t row, int32_t column, float x, float y) {
    const RowShare share = shares[row - product.row0()];
    const int64_t at = p.IndexOf(product.g(), row);
    PutJoined(p, join, share, product.g(), at, column, x);
    PutJoined(p, join, share, product.g(), at, column + 1, y);
  });
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PROJECT_MATRIX_CUH_
