// Matmuls for many query rows: a register-tiled kernel over packed tiles of keys and values.
#if defined(GRAFT_FLASH_DECODE_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_PACKED_INL_H_
#undef GRAFT_FLASH_DECODE_PACKED_INL_H_
#else
#define GRAFT_FLASH_DECODE_PACKED_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of one register tile of kBlockRows rows: 24 accumulators of 32 registers, or 12 of 16,
// beside the vectors of b and one broadcast of a.
constexpr int kBlockVectors = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 4 : 2;

// Rows of b that stand far apart share few sets of the nearest cache: more than these are gathered
// first. With wide vectors a row is read once for every block of a, and arithmetic hides that it
// comes from the second-level cache (measured: gathering costs 5 % there, and saves 5 to 30 %
// where a row is read in several parts).
constexpr int64_t kFewApart = HWY_MAX_BYTES == 64 ? kMaxTile : 32;

// c[r][i] = (rescale ? rescale[r] * c[r][i] : 0) + sum_k a[r][k] * b[k][i], for kRows rows and
// kVectors vectors. Strides are in floats; rows of c are aligned to vectors.
template <int kRows, int kVectors>
HWY_INLINE void GemmBlock(const float* HWY_RESTRICT a, int64_t a_stride,
                          const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                          const float* rescale, float* HWY_RESTRICT c, int64_t c_stride) {
  const DF d;
  VF sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    VF v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) v[i] = hn::LoadU(d, b + k * b_stride + i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, a[r * a_stride + k]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(factor, v[i], sum[r][i]);
    }
  }
  // Loops over accumulators are unrolled early: else GCC leaves the array in memory.
  if (rescale != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, rescale[r]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        sum[r][i] = hn::MulAdd(factor, hn::Load(d, c + r * c_stride + i * kLanes), sum[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) hn::Store(sum[r][i], d, c + r * c_stride + i * kLanes);
  }
}

template <int kRows>
HWY_INLINE void GemmRows(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                         int64_t depth, int64_t vectors, const float* rescale, float* c,
                         int64_t c_stride) {
  int64_t i = 0;
  for (; i + kBlockVectors <= vectors; i += kBlockVectors) {
    GemmBlock<kRows, kBlockVectors>(a, a_stride, b + i * kLanes, b_stride, depth, rescale,
                                    c + i * kLanes, c_stride);
  }
  const auto rest = [&](auto block) {
    GemmBlock<kRows, decltype(block)::kBlock>(a, a_stride, b + i * kLanes, b_stride, depth, rescale,
                                              c + i * kLanes, c_stride);
  };
  switch (vectors - i) {
    case 3:
      rest(Block < kRows, kBlockVectors < 3 ? 1 : 3 > ());
      break;
    case 2:
      rest(Block < kRows, kBlockVectors < 2 ? 1 : 2 > ());
      break;
    case 1:
      rest(Block<kRows, 1>());
      break;
    default:
      break;
  }
}

// GemmBlock for up to kBlockRows rows and any number of vectors.
HWY_NOINLINE void Product(const float* a, int64_t a_stride, int64_t rows, const float* b,
                          int64_t b_stride, int64_t depth, int64_t vectors, const float* rescale,
                          float* c, int64_t c_stride) {
  switch (rows) {
    case 1:
      GemmRows<1>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 2:
      GemmRows<2>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 3:
      GemmRows<3>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 4:
      GemmRows<4>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 5:
      GemmRows<5>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    default:
      GemmRows<6>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four floats from each of `from`, from + stride, from + 2 * stride, ..., one a 128-bit block.
HWY_INLINE VF LoadBlocks(const float* from, int64_t stride) {
  const hn::FixedTag<float, 4> d4;
#if HWY_MAX_BYTES == 16
  (void)stride;
  return hn::LoadU(d4, from);
#else
  const hn::FixedTag<float, 8> d8;
  const auto lower = hn::Combine(d8, hn::LoadU(d4, from + stride), hn::LoadU(d4, from));
#if HWY_MAX_BYTES == 32
  return lower;
#else
  const auto upper =
      hn::Combine(d8, hn::LoadU(d4, from + 3 * stride), hn::LoadU(d4, from + 2 * stride));
  return hn::Combine(DF(), upper, lower);
#endif
#endif
}
#endif

// Transposes a kLanes x kLanes block of floats: rows[k] -> to + i * to_stride holds element i of
// all.
HWY_INLINE void TransposeBlock(const float* rows, int64_t row_stride, float scale,
                               float* HWY_RESTRICT to, int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)to_stride;
  (void)row_stride;
  to[0] = scale * rows[0];
#else
  const DF d;
  const hn::RepartitionToWide<DF> dw;
  const VF factor = hn::Set(d, scale);
  // A vector holds four columns of rows r, r + 4, r + 8, ..., one row a 128-bit block: four such
  // vectors are transposed within blocks, and nothing has to cross them.
  for (int64_t i = 0; i < kLanes; i += 4) {
    const VF r0 = LoadBlocks(rows + 0 * row_stride + i, 4 * row_stride);
    const VF r1 = LoadBlocks(rows + 1 * row_stride + i, 4 * row_stride);
    const VF r2 = LoadBlocks(rows + 2 * row_stride + i, 4 * row_stride);
    const VF r3 = LoadBlocks(rows + 3 * row_stride + i, 4 * row_stride);
    const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
    const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
    const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
    const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
    const VF c0 = hn::BitCast(d, hn::InterleaveLower(dw, l01, l23));
    const VF c1 = hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23));
    const VF c2 = hn::BitCast(d, hn::InterleaveLower(dw, u01, u23));
    const VF c3 = hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23));
    hn::StoreU(hn::Mul(factor, c0), d, to + (i + 0) * to_stride);
    hn::StoreU(hn::Mul(factor, c1), d, to + (i + 1) * to_stride);
    hn::StoreU(hn::Mul(factor, c2), d, to + (i + 2) * to_stride);
    hn::StoreU(hn::Mul(factor, c3), d, to + (i + 3) * to_stride);
  }
#endif  // HWY_SCALAR
}

// Packs `count` keys of float with unit feature stride: to[i * kMaxTile + k] = scale * keys[k][i]
// for i < size, and numbers without a meaning for k from count up to the next full vector.
// `scratch` holds kLanes keys, or is keys.first itself, behind which as many may be read.
HWY_INLINE void PackKeys(RowsOfType<float> keys, int64_t count, int64_t size, float scale,
                         float* scratch, float* HWY_RESTRICT to) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t lanes = count - k < kLanes ? count - k : kLanes;
    const float* rows = keys.first + k * keys.stride;
    int64_t stride = keys.stride;
    if (lanes < kLanes && keys.first != scratch) {
      // A block of fewer keys is filled up: lane by lane, it would take as long as all the others.
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        std::memcpy(scratch + lane * size, rows + (lane < lanes ? lane : lanes - 1) * stride,
                    static_cast<size_t>(size) * sizeof(float));
      }
      rows = scratch;
      stride = size;
    }
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      TransposeBlock(rows + i, stride, scale, to + i * kMaxTile + k, kMaxTile);
    }
    for (; i < size; ++i) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        to[i * kMaxTile + k + lane] = scale * rows[lane * stride + i];
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_PACKED_INL_H_
