// Moving rows: conversion between storage and float, padding, and the copy into present.
#if defined(GRAFT_FLASH_DECODE_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_MEMORY_INL_H_
#undef GRAFT_FLASH_DECODE_MEMORY_INL_H_
#else
#define GRAFT_FLASH_DECODE_MEMORY_INL_H_
#endif

#include <cstring>

#include "attention.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DH = hn::Rebind<hwy::float16_t, DF>;
constexpr int64_t kLanes = HWY_LANES(float);

// float from the bits of an IEEE binary16.
HWY_INLINE float FromHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7FFFu;
  uint32_t word;
  float value;
  if (rest >= 0x7C00u) {  // infinity or NaN
    word = sign | 0x7F800000u | (rest & 0x3FFu) << 13;
  } else if (rest >= 0x400u) {
    word = sign | ((rest << 13) + (112u << 23));
  } else {  // subnormal: a multiple of 2^-24, exact in float
    value = static_cast<float>(rest) * 5.9604644775390625e-8f;
    std::memcpy(&word, &value, sizeof(word));
    word |= sign;
  }
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// The bits of the IEEE binary16 nearest to value, ties to even.
HWY_INLINE uint16_t ToHalf(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  const uint32_t sign = word >> 16 & 0x8000u;
  const uint32_t magnitude = word & 0x7FFFFFFFu;
  uint32_t half;
  if (magnitude > 0x7F800000u) {  // NaN
    half = 0x7E00u;
  } else if (magnitude >= 0x477FF000u) {  // 65520 and above round to infinity
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal
    // Adding 0.5 aligns the last bit of the sum with 2^-24, so the addition rounds as needed.
    float shifted;
    std::memcpy(&shifted, &magnitude, sizeof(shifted));
    shifted += 0.5f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    half = bits - 0x3F000000u;
  } else {
    const uint32_t odd = magnitude >> 13 & 1u;
    half = (magnitude - (112u << 23) + 0xFFFu + odd) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

HWY_INLINE float LoadElement(Type type, const void* data, int64_t index) {
  if (type == Type::kFloat32) return static_cast<const float*>(data)[index];
  return FromHalf(static_cast<const uint16_t*>(data)[index]);
}

// Targets whose instruction set converts fp16 and rounds to nearest even.
#undef GRAFT_HALF_IN_HARDWARE
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
#define GRAFT_HALF_IN_HARDWARE 1
#else
#define GRAFT_HALF_IN_HARDWARE 0
#endif

// Reads `count` elements with `stride` between them into floats, multiplies by `factor`, and fills
// up to `padded` with zeros. Reads no element beyond the last.
HWY_INLINE void LoadRow(Type type, const void* data, int64_t stride, int64_t count, int64_t padded,
                        float factor, float* HWY_RESTRICT to) {
  const DF d;
  int64_t i = 0;
  if (stride == 1) {
    const VF vfactor = hn::Set(d, factor);
    if (type == Type::kFloat32) {
      const float* from = static_cast<const float*>(data);
      for (; i + kLanes <= count; i += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, from + i), vfactor), d, to + i);
      }
    } else {
#if GRAFT_HALF_IN_HARDWARE
      const DH dh;
      const hwy::float16_t* from = static_cast<const hwy::float16_t*>(data);
      for (; i + kLanes <= count; i += kLanes) {
        hn::StoreU(hn::Mul(hn::PromoteTo(d, hn::LoadU(dh, from + i)), vfactor), d, to + i);
      }
#endif
    }
  }
  for (; i < count; ++i) to[i] = LoadElement(type, data, i * stride) * factor;
  for (; i < padded; ++i) to[i] = 0.0f;
}

// Writes `count` floats, each times `factor`, as elements of `type` with `stride` between them.
// Returns zeros, and NaN in some lane where a float of `from` is infinite or NaN: what it returns
// of many rows can be added up before any is looked at.
HWY_INLINE VF StoreRow(Type type, const float* HWY_RESTRICT from, float factor, int64_t count,
                       void* data, int64_t stride) {
  const DF d;
  const VF zero = hn::Zero(d);
  VF probe = zero;
  int64_t i = 0;
  if (stride == 1) {
    const VF vfactor = hn::Set(d, factor);
    if (type == Type::kFloat32) {
      float* to = static_cast<float*>(data);
      for (; i + kLanes <= count; i += kLanes) {
        const VF v = hn::LoadU(d, from + i);
        hn::StoreU(hn::Mul(v, vfactor), d, to + i);
        probe = hn::MulAdd(v, zero, probe);
      }
    } else {
#if GRAFT_HALF_IN_HARDWARE
      const DH dh;
      hwy::float16_t* to = static_cast<hwy::float16_t*>(data);
      for (; i + kLanes <= count; i += kLanes) {
        const VF v = hn::LoadU(d, from + i);
        hn::StoreU(hn::DemoteTo(dh, hn::Mul(v, vfactor)), dh, to + i);
        probe = hn::MulAdd(v, zero, probe);
      }
#endif
    }
  }
  float rest = 0.0f;
  for (; i < count; ++i) {
    const float value = from[i] * factor;
    if (type == Type::kFloat32) {
      static_cast<float*>(data)[i * stride] = value;
    } else {
      static_cast<uint16_t*>(data)[i * stride] = ToHalf(value);
    }
    rest += from[i] * 0.0f;
  }
  return hn::Add(probe, hn::Set(d, rest));
}
HWY_INLINE bool AllFinite(VF probe) { return hn::AllFalse(DF(), hn::IsNaN(probe)); }

// Copies bytes with stores that bypass the caches: present is not read again before the caches have
// turned over, and an ordinary store would first read every line that it fills. The caller fences.
HWY_INLINE void StreamBytes(const void* HWY_RESTRICT from, void* HWY_RESTRICT to, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t kVector = HWY_LANES(uint8_t);
  const uint8_t* source = static_cast<const uint8_t*>(from);
  uint8_t* target = static_cast<uint8_t*>(to);
  size_t head = (64 - (reinterpret_cast<uintptr_t>(target) & 63)) & 63;
  if (head > bytes) head = bytes;
  std::memcpy(target, source, head);
  size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    for (size_t part = 0; part < 64; part += kVector) {
      hn::Stream(hn::LoadU(d, source + i + part), d, target + i + part);
    }
  }
  std::memcpy(target + i, source + i, bytes - i);
}

HWY_INLINE void CopyBytes(const void* HWY_RESTRICT from, void* HWY_RESTRICT to, size_t bytes,
                          bool streamed) {
  if (streamed) {
    StreamBytes(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// Copies one row of `count` elements whose source elements stand `stride` apart, bit for bit.
HWY_INLINE void CopyRow(int64_t element, const char* from, int64_t stride, int64_t count,
                        char* to) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * element));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * element, from + i * stride * element, static_cast<size_t>(element));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_MEMORY_INL_H_
