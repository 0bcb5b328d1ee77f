// Products for many query rows: a register-tiled kernel over packed tiles of keys and values.
#if defined(GRAFT_FLASH_DECODE_PACKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_PACKED_INL_H_
#undef GRAFT_FLASH_DECODE_PACKED_INL_H_
#else
#define GRAFT_FLASH_DECODE_PACKED_INL_H_
#endif

#include "hwy/highway.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows and vectors of one register tile: 24 accumulators of 32 registers, or 12 of 16, beside the
// vectors of b and one broadcast of a.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 4 : 2;

// c[r][i] = (rescale ? rescale[r] * c[r][i] : 0) + sum_k a[r][k] * b[k][i], for kRows rows and
// kVectors vectors. Strides are in floats; rows of c are aligned to vectors.
template <int kRows, int kVectors>
HWY_INLINE void ProductBlock(const float* HWY_RESTRICT a, int64_t a_stride,
                             const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                             const float* rescale, float* HWY_RESTRICT c, int64_t c_stride) {
  const DF d;
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    VF v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = hn::LoadU(d, b + k * b_stride + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, a[r * a_stride + k]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(factor, v[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      float* to = c + r * c_stride + i * kLanes;
      if (rescale != nullptr) {
        sum[r][i] = hn::MulAdd(hn::Set(d, rescale[r]), hn::Load(d, to), sum[r][i]);
      }
      hn::Store(sum[r][i], d, to);
    }
  }
}

template <int kRows>
HWY_INLINE void ProductRows(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                            int64_t depth, int64_t vectors, const float* rescale, float* c,
                            int64_t c_stride) {
  int64_t i = 0;
  for (; i + kBlockVectors <= vectors; i += kBlockVectors) {
    ProductBlock<kRows, kBlockVectors>(a, a_stride, b + i * kLanes, b_stride, depth, rescale,
                                       c + i * kLanes, c_stride);
  }
  for (; i < vectors; ++i) {
    ProductBlock<kRows, 1>(a, a_stride, b + i * kLanes, b_stride, depth, rescale, c + i * kLanes,
                           c_stride);
  }
}

// ProductBlock for up to kBlockRows rows and any number of vectors.
HWY_NOINLINE void Product(const float* a, int64_t a_stride, int64_t rows, const float* b,
                          int64_t b_stride, int64_t depth, int64_t vectors, const float* rescale,
                          float* c, int64_t c_stride) {
  switch (rows) {
    case 1:
      ProductRows<1>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 2:
      ProductRows<2>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 3:
      ProductRows<3>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 4:
      ProductRows<4>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    case 5:
      ProductRows<5>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
      break;
    default:
      ProductRows<6>(a, a_stride, b, b_stride, depth, vectors, rescale, c, c_stride);
  }
}

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
  // 4x4 within 128-bit blocks. Four rows give, for block b, columns 4b .. 4b+3.
  VF column[kLanes];
  for (int64_t g = 0; g < kLanes / 4; ++g) {
    const VF r0 = hn::Mul(factor, hn::LoadU(d, rows + (4 * g + 0) * row_stride));
    const VF r1 = hn::Mul(factor, hn::LoadU(d, rows + (4 * g + 1) * row_stride));
    const VF r2 = hn::Mul(factor, hn::LoadU(d, rows + (4 * g + 2) * row_stride));
    const VF r3 = hn::Mul(factor, hn::LoadU(d, rows + (4 * g + 3) * row_stride));
    const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
    const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
    const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
    const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
    column[4 * g + 0] = hn::BitCast(d, hn::InterleaveLower(dw, l01, l23));
    column[4 * g + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23));
    column[4 * g + 2] = hn::BitCast(d, hn::InterleaveLower(dw, u01, u23));
    column[4 * g + 3] = hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23));
  }
  // column[4g + i], block b: element 4b + i of rows 4g .. 4g+3. Now transpose the blocks.
  for (int64_t i = 0; i < 4; ++i) {
#if HWY_MAX_BYTES == 16
    hn::StoreU(column[i], d, to + i * to_stride);
#elif HWY_MAX_BYTES == 32
    const VF g0 = column[i];
    const VF g1 = column[4 + i];
    hn::StoreU(hn::ConcatLowerLower(d, g1, g0), d, to + i * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, g1, g0), d, to + (4 + i) * to_stride);
#else
    const VF g0 = column[i];
    const VF g1 = column[4 + i];
    const VF g2 = column[8 + i];
    const VF g3 = column[12 + i];
    const VF low02 = hn::ConcatLowerLower(d, g2, g0);  // g0b0 g0b1 g2b0 g2b1
    const VF low13 = hn::ConcatLowerLower(d, g3, g1);
    const VF high02 = hn::ConcatUpperUpper(d, g2, g0);  // g0b2 g0b3 g2b2 g2b3
    const VF high13 = hn::ConcatUpperUpper(d, g3, g1);
    hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low13), low02), d, to + i * to_stride);
    hn::StoreU(hn::OddEvenBlocks(low13, hn::SwapAdjacentBlocks(low02)), d,
               to + (4 + i) * to_stride);
    hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high13), high02), d,
               to + (8 + i) * to_stride);
    hn::StoreU(hn::OddEvenBlocks(high13, hn::SwapAdjacentBlocks(high02)), d,
               to + (12 + i) * to_stride);
#endif
  }
#endif  // HWY_SCALAR
}

// Packs `count` keys of float with unit feature stride: to[i * kMaxTile + k] = scale * keys[k][i]
// for i < size, and zeros for k from count up to the next full vector.
HWY_INLINE void PackKeys(RowsOfType<float> keys, int64_t count, int64_t size, float scale,
                         float* HWY_RESTRICT to) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t lanes = count - k < kLanes ? count - k : kLanes;
    int64_t i = 0;
    if (lanes == kLanes) {
      for (; i + kLanes <= size; i += kLanes) {
        TransposeBlock(keys.first + k * keys.stride + i, keys.stride, scale, to + i * kMaxTile + k,
                       kMaxTile);
      }
    }
    for (; i < size; ++i) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        to[i * kMaxTile + k + lane] =
            lane < lanes ? scale * keys.first[(k + lane) * keys.stride + i] : 0.0f;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_PACKED_INL_H_
