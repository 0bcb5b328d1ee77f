// Panels of fewer bits as float32: what is multiplied with x in float32.
#if defined(GRAFT_PACKED_LINEAR_EXPAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_EXPAND_INL_H_
#undef GRAFT_PACKED_LINEAR_EXPAND_INL_H_
#else
#define GRAFT_PACKED_LINEAR_EXPAND_INL_H_
#endif

#include "common-inl.h"
#include "quantized.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

// Bytes between what is read and what is prefetched.
constexpr int64_t kQuantizedAhead = 2048;

// Numbers of bfloat16 as float32.
HWY_INLINE VF FromBFloat16(const char* from) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

// The scales of a group of a panel.
HWY_INLINE void LoadScales(const char* from, bool wide, VF (&scale)[kLineVectors]) {
  for (int i = 0; i < kLineVectors; ++i) {
    scale[i] = wide ? hn::LoadU(DF(), reinterpret_cast<const float*>(from) + i * kLanes)
                    : FromBFloat16(from + i * kLanes * 2);
  }
}

// The zero points of a group of a panel; 0 where there are none.
HWY_INLINE void LoadZeros(const int8_t* from, VI (&zero)[kLineVectors]) {
  const hn::Rebind<int8_t, DI> d8;
  for (int i = 0; i < kLineVectors; ++i) {
    zero[i] =
        from == nullptr ? hn::Zero(DI()) : hn::PromoteTo(DI(), hn::LoadU(d8, from + i * kLanes));
  }
}

// The four integers of a column lie in one lane: kBits of them from kFirst on, with their sign
// where they have one, less what stands for zero, times a scale.
template <int kFirst, int kBits, bool kSigned>
HWY_INLINE VF Extract(VI lane, VI zero, VF scale) {
  VI q = hn::ShiftLeft<32 - kBits - kFirst>(lane);
  if (kSigned) {
    q = hn::ShiftRight<32 - kBits>(q);
  } else {
    const hn::RebindToUnsigned<DI> du;
    q = hn::BitCast(DI(), hn::ShiftRight<32 - kBits>(hn::BitCast(du, q)));
  }
  return hn::Mul(hn::ConvertTo(DF(), hn::Sub(q, zero)), scale);
}

HWY_INLINE VI LoadLane(const char* from) {
  return hn::LoadU(DI(), reinterpret_cast<const int32_t*>(from));
}

// to[4][kLine] from 64 bytes of int8.
HWY_INLINE void ExpandInt8(const char* line, const VI (&zero)[kLineVectors],
                           const VF (&scale)[kLineVectors], float* HWY_RESTRICT to) {
  const DF d;
  for (int i = 0; i < kLineVectors; ++i) {
    const VI lane = LoadLane(line + i * kLanes * 4);
    float* at = to + i * kLanes;
    hn::Store(Extract<0, 8, true>(lane, zero[i], scale[i]), d, at);
    hn::Store(Extract<8, 8, true>(lane, zero[i], scale[i]), d, at + kLine);
    hn::Store(Extract<16, 8, true>(lane, zero[i], scale[i]), d, at + 2 * kLine);
    hn::Store(Extract<24, 8, true>(lane, zero[i], scale[i]), d, at + 3 * kLine);
  }
}

// to[8][kLine] from 64 bytes of int4, whose zero points are 8 beside those of the group.
HWY_INLINE void ExpandInt4(const char* line, const VI (&zero)[kLineVectors],
                           const VF (&scale)[kLineVectors], float* HWY_RESTRICT to) {
  const DF d;
  for (int i = 0; i < kLineVectors; ++i) {
    const VI lane = LoadLane(line + i * kLanes * 4);
    float* at = to + i * kLanes;
    hn::Store(Extract<0, 4, false>(lane, zero[i], scale[i]), d, at);
    hn::Store(Extract<8, 4, false>(lane, zero[i], scale[i]), d, at + kLine);
    hn::Store(Extract<16, 4, false>(lane, zero[i], scale[i]), d, at + 2 * kLine);
    hn::Store(Extract<24, 4, false>(lane, zero[i], scale[i]), d, at + 3 * kLine);
    hn::Store(Extract<4, 4, false>(lane, zero[i], scale[i]), d, at + 4 * kLine);
    hn::Store(Extract<12, 4, false>(lane, zero[i], scale[i]), d, at + 5 * kLine);
    hn::Store(Extract<20, 4, false>(lane, zero[i], scale[i]), d, at + 6 * kLine);
    hn::Store(Extract<28, 4, false>(lane, zero[i], scale[i]), d, at + 7 * kLine);
  }
}

// to[depth][kLine]: positions k to k + depth of a panel, of which k is a multiple of kChunk. Of
// integers whole chunks are written.
HWY_NOINLINE void Expand(const Problem& p, int64_t panel, int64_t k, int64_t depth,
                         float* HWY_RESTRICT to) {
  const auto* bytes = static_cast<const char*>(p.quantized);
  const DF d;
  if (p.type == WeightType::kBFloat16) {
    const char* from = bytes + (panel * p.depth + k) * kLine * 2;
    for (int64_t j = 0; j < depth; ++j, from += kLine * 2) {
      Fetch(from + kQuantizedAhead);
      for (int64_t i = 0; i < kLine; i += kLanes) {
        hn::Store(FromBFloat16(from + i * 2), d, to + j * kLine + i);
      }
    }
    return;
  }
  const int64_t padded = RoundUp(p.depth, kChunk), groups = DivideUp(p.depth, p.group);
  const bool eight = p.type == WeightType::kInt8;
  const char* from = bytes + (panel * padded + k) * (eight ? kLine : kLine / 2);
  const char* scales =
      static_cast<const char*>(p.weight_scale) + panel * groups * kLine * ScaleBytes(p);
  const int8_t* zeros = p.weight_zero == nullptr ? nullptr : p.weight_zero + panel * groups * kLine;
  for (int64_t j = 0; j < depth; j += kChunk) {
    const int64_t at = (k + j) / p.group * kLine;
    VF scale[kLineVectors];
    LoadScales(scales + at * ScaleBytes(p), p.wide_scales, scale);
    VI zero[kLineVectors];
    LoadZeros(zeros == nullptr ? nullptr : zeros + at, zero);
    for (int i = 0; i < kLineVectors && !eight; ++i) {
      zero[i] = hn::Add(zero[i], hn::Set(DI(), 8));
    }
    float* line = to + j * kLine;
    if (eight) {
      for (int64_t i = 0; i < kChunk; i += 4, from += 64) {
        Fetch(from + kQuantizedAhead);
        ExpandInt8(from, zero, scale, line + i * kLine);
      }
    } else {
      for (int64_t i = 0; i < kChunk; i += 8, from += 64) {
        Fetch(from + kQuantizedAhead);
        ExpandInt4(from, zero, scale, line + i * kLine);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_EXPAND_INL_H_
