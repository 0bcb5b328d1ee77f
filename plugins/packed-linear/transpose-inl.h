// Rows that become columns.
#if defined(GRAFT_PACKED_LINEAR_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_TRANSPOSE_INL_H_
#undef GRAFT_PACKED_LINEAR_TRANSPOSE_INL_H_
#else
#define GRAFT_PACKED_LINEAR_TRANSPOSE_INL_H_
#endif

#include "common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Transposes four rows of four floats.
HWY_INLINE void TransposeFour(const float* from, int64_t from_stride, float* HWY_RESTRICT to,
                              int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t k = 0; k < 4; ++k) {
      std::memcpy(to + k * to_stride + i, from + i * from_stride + k, sizeof(float));
    }
  }
#else
  const hn::Full128<float> d;
  const hn::RepartitionToWide<hn::Full128<float> > dw;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
  const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
  const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, l01, l23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, u01, u23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23)), d, to + 3 * to_stride);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_TRANSPOSE_INL_H_
