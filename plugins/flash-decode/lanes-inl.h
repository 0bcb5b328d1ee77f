// Joining the lanes of many vectors at once: cheaper than one vector after the other.
#if defined(GRAFT_FLASH_DECODE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_LANES_INL_H_
#undef GRAFT_FLASH_DECODE_LANES_INL_H_
#else
#define GRAFT_FLASH_DECODE_LANES_INL_H_
#endif

#include "hwy/highway.h"
#include "memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors that are joined first: as many as lanes in a 128-bit block.
constexpr int64_t kQuad = kLanes < 4 ? kLanes : 4;

struct Sum {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Add(a, b); }
};
struct Maximum {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Max(a, b); }
};

// [lanes 4i..4i+3 of v[0] joined, of v[1], of v[2], of v[3]] in every 128-bit block i.
template <class Join>
HWY_INLINE VF JoinQuad(const VF (&v)[kQuad], Join join) {
#if HWY_TARGET == HWY_SCALAR
  (void)join;
  return v[0];
#else
  const DF d;
  const hn::RepartitionToWide<DF> dw;
  const VF v01 = join(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const VF v23 = join(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto w01 = hn::BitCast(dw, v01);
  const auto w23 = hn::BitCast(dw, v23);
  return join(hn::BitCast(d, hn::InterleaveLower(dw, w01, w23)),
              hn::BitCast(d, hn::InterleaveUpper(dw, w01, w23)));
#endif
}

// From the JoinQuads of consecutive quads: lane k is all lanes of vector k, joined.
template <class Join>
HWY_INLINE VF JoinQuads(const VF (&s)[kLanes / kQuad], Join join) {
#if HWY_MAX_BYTES <= 16
  (void)join;
  return s[0];
#elif HWY_MAX_BYTES == 32
  const DF d;
  return join(hn::ConcatLowerLower(d, s[1], s[0]), hn::ConcatUpperUpper(d, s[1], s[0]));
#else
  const DF d;
  // Blocks [s0, s0, s2, s2] and [s1, s1, s3, s3], then even and odd blocks side by side.
  const VF s02 = join(hn::ConcatLowerLower(d, s[2], s[0]), hn::ConcatUpperUpper(d, s[2], s[0]));
  const VF s13 = join(hn::ConcatLowerLower(d, s[3], s[1]), hn::ConcatUpperUpper(d, s[3], s[1]));
  return join(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(s13), s02),
              hn::OddEvenBlocks(s13, hn::SwapAdjacentBlocks(s02)));
#endif
}

// Lane k is all lanes of vector(k), joined.
template <class Vector, class Join>
HWY_INLINE VF JoinLanes(const Vector& vector, Join join) {
  VF quads[kLanes / kQuad];
  for (int64_t quad = 0; quad < kLanes / kQuad; ++quad) {
    VF four[kQuad];
    for (int64_t i = 0; i < kQuad; ++i) four[i] = vector(quad * kQuad + i);
    quads[quad] = JoinQuad(four, join);
  }
  return JoinQuads(quads, join);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_LANES_INL_H_
