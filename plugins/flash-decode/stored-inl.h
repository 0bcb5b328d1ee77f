// Numbers as a pool stores them, to and from floats.
#if defined(GRAFT_FLASH_DECODE_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_STORED_INL_H_
#undef GRAFT_FLASH_DECODE_STORED_INL_H_
#else
#define GRAFT_FLASH_DECODE_STORED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cached.h"
#include "hwy/highway.h"
#include "memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of an IEEE binary16, and of a bfloat16.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

// A vector of numbers as floats. Those of int8 lack their scale.
HWY_INLINE VF LoadFloats(const float* from) { return hn::LoadU(DF(), from); }
HWY_INLINE VF LoadFloats(const Brain* from) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
HWY_INLINE VF LoadFloats(const int8_t* from) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from)));
}
#if GRAFT_HALF_IN_HARDWARE
HWY_INLINE VF LoadFloats(const Half* from) {
  const DH dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}
#endif

HWY_INLINE float LoadFloat(const Brain* from) {
  const uint32_t word = uint32_t{from->bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
HWY_INLINE float LoadFloat(const int8_t* from) { return static_cast<float>(*from); }

// Reads `count` numbers, each times `factor`, and fills up to `padded` with zeros.
template <typename T>
HWY_INLINE void LoadNumbers(const T* from, int64_t count, int64_t padded, float factor,
                            float* HWY_RESTRICT to) {
  const DF d;
  const VF vfactor = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(LoadFloats(from + i), vfactor), d, to + i);
  }
  for (; i < count; ++i) to[i] = LoadFloat(from + i) * factor;
  for (; i < padded; ++i) to[i] = 0.0f;
}
HWY_INLINE void LoadStored(Storage storage, const void* from, int64_t count, int64_t padded,
                           float factor, float* HWY_RESTRICT to) {
  switch (storage) {
    case Storage::kFloat32:
      return LoadRow(Type::kFloat32, from, 1, count, padded, factor, to);
    case Storage::kFloat16:
      return LoadRow(Type::kFloat16, from, 1, count, padded, factor, to);
    case Storage::kBfloat16:
      return LoadNumbers(static_cast<const Brain*>(from), count, padded, factor, to);
    case Storage::kInt8:
      return LoadNumbers(static_cast<const int8_t*>(from), count, padded, factor, to);
  }
}

// The bits of the bfloat16 nearest to value, ties to even.
HWY_INLINE uint16_t ToBrain(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  if ((word & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(word >> 16 | 0x40u);
  return static_cast<uint16_t>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
}

// Numbers all of which are smaller count as zeros in int8: the inverse of their scale is no float.
constexpr float kLeastScaled = 1e-30f;
constexpr float kLargestInt8 = 127.0f;

// Writes floats that stand `stride` apart as int8, nearest, ties to even, and returns their scale,
// which is NaN where one of them is no finite number.
HWY_INLINE float StoreInt8(const float* HWY_RESTRICT from, int64_t stride, int64_t count,
                           int8_t* HWY_RESTRICT to) {
  const DF d;
  const VF zero = hn::Zero(d);
  VF highest = zero, probe = zero;
  const int64_t whole = stride == 1 ? count / kLanes * kLanes : 0;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VF v = hn::LoadU(d, from + i);
    highest = hn::Max(highest, hn::Abs(v));
    probe = hn::MulAdd(v, zero, probe);
  }
  float maximum = hn::GetLane(hn::MaxOfLanes(d, highest));
  float rest = 0.0f;
  for (int64_t i = whole; i < count; ++i) {
    maximum = std::max(maximum, std::fabs(from[i * stride]));
    rest += from[i * stride] * 0.0f;
  }
  const bool finite = AllFinite(hn::Add(probe, hn::Set(d, rest)));
  if (!finite || maximum < kLeastScaled) {
    std::memset(to, 0, static_cast<size_t>(count));
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = kLargestInt8 / maximum;
  const VF vinverse = hn::Set(d, inverse);
  const hn::Rebind<int8_t, DF> d8;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, from + i), vinverse));
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, to + i);
  }
  for (int64_t i = whole; i < count; ++i) {
    to[i] = static_cast<int8_t>(std::nearbyint(from[i * stride] * inverse));
  }
  return maximum / kLargestInt8;
}

// Writes floats that stand `stride` apart as a pool stores them, each rounded once, and returns
// their scale: 1 but for int8.
inline HWY_NOINLINE float StoreStored(Storage storage, const float* from, int64_t stride,
                                      int64_t count, void* to) {
  switch (storage) {
    case Storage::kInt8:
      return StoreInt8(from, stride, count, static_cast<int8_t*>(to));
    case Storage::kBfloat16: {
      Brain* brains = static_cast<Brain*>(to);
      for (int64_t i = 0; i < count; ++i) brains[i].bits = ToBrain(from[i * stride]);
      return 1.0f;
    }
    case Storage::kFloat16:
      if (stride == 1) {
        StoreRow(Type::kFloat16, from, 1.0f, count, to, 1);
        return 1.0f;
      }
      for (int64_t i = 0; i < count; ++i) static_cast<Half*>(to)[i].bits = ToHalf(from[i * stride]);
      return 1.0f;
    case Storage::kFloat32:
      CopyRow(sizeof(float), reinterpret_cast<const char*>(from), stride, count,
              static_cast<char*>(to));
  }
  return 1.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_STORED_INL_H_
