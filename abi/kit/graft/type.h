// Element types: the DLPack triples under short names, their C++ types, and float16 storage.
#ifndef GRAFT_KIT_TYPE_H_
#define GRAFT_KIT_TYPE_H_

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>

#include "graft_plugin.h"

// In the global namespace, where the C struct lives.
inline constexpr bool operator==(graft_data_type a, graft_data_type b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline constexpr bool operator!=(graft_data_type a, graft_data_type b) { return !(a == b); }

namespace graft {

using DataType = graft_data_type;

inline constexpr DataType kFloat16{GRAFT_TYPE_FLOAT, 16, 1};
inline constexpr DataType kFloat32{GRAFT_TYPE_FLOAT, 32, 1};
inline constexpr DataType kFloat64{GRAFT_TYPE_FLOAT, 64, 1};
inline constexpr DataType kBFloat16{GRAFT_TYPE_BFLOAT, 16, 1};
inline constexpr DataType kInt8{GRAFT_TYPE_INT, 8, 1};
inline constexpr DataType kInt16{GRAFT_TYPE_INT, 16, 1};
inline constexpr DataType kInt32{GRAFT_TYPE_INT, 32, 1};
inline constexpr DataType kInt64{GRAFT_TYPE_INT, 64, 1};
inline constexpr DataType kUInt8{GRAFT_TYPE_UINT, 8, 1};
inline constexpr DataType kUInt16{GRAFT_TYPE_UINT, 16, 1};
inline constexpr DataType kUInt32{GRAFT_TYPE_UINT, 32, 1};
inline constexpr DataType kUInt64{GRAFT_TYPE_UINT, 64, 1};
inline constexpr DataType kBool{GRAFT_TYPE_BOOL, 8, 1};

inline constexpr uint64_t BytesOf(DataType type) { return (uint64_t{type.bits} + 7) / 8; }

// The name that ONNX uses, for messages.
inline std::string NameOf(DataType type) {
  if (type.code == GRAFT_TYPE_BOOL) return "bool";
  if (type.code == GRAFT_TYPE_FLOAT && type.bits == 32) return "float";
  if (type.code == GRAFT_TYPE_FLOAT && type.bits == 64) return "double";
  const char* family = type.code == GRAFT_TYPE_INT      ? "int"
                       : type.code == GRAFT_TYPE_UINT   ? "uint"
                       : type.code == GRAFT_TYPE_FLOAT  ? "float"
                       : type.code == GRAFT_TYPE_BFLOAT ? "bfloat"
                                                        : "unknown";
  return family + std::to_string(type.bits);
}

}  // namespace graft

// A part of a message is the type, not its name: parts of messages that nobody reads cost nothing.
inline std::ostream& operator<<(std::ostream& out, graft_data_type type) {
  return out << graft::NameOf(type);
}

namespace graft {

// IEEE binary16 as stored in tensors. Scalar conversions, exact and rounding to nearest even; a
// kernel that converts many values brings its own SIMD.
struct Float16 {
  uint16_t bits;

  static Float16 From(float value) {
    uint32_t x;
    std::memcpy(&x, &value, sizeof x);
    const uint32_t sign = (x >> 16) & 0x8000u;
    x &= 0x7fffffffu;
    if (x > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};   // NaN
    if (x >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
    if (x < 0x38800000u) {                                                 // subnormal or zero
      // Adding 0.5 puts the wanted bits at the end of the significand, rounded by the FPU.
      float magnitude;
      std::memcpy(&magnitude, &x, sizeof x);
      magnitude += 0.5f;
      std::memcpy(&x, &magnitude, sizeof x);
      return {static_cast<uint16_t>(sign | (x - 0x3f000000u))};
    }
    x += 0xfffu + ((x >> 13) & 1u) - (112u << 23);
    return {static_cast<uint16_t>(sign | (x >> 13))};
  }

  float ToFloat() const {
    const uint32_t sign = (uint32_t{bits} & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    uint32_t x;
    if (magnitude >= 0x7c00u) {  // infinity or NaN
      x = sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13);
    } else if (magnitude >= 0x400u) {
      x = sign | ((magnitude << 13) + (112u << 23));
    } else {  // subnormal: an exact product
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      std::memcpy(&x, &value, sizeof x);
      x |= sign;
    }
    float result;
    std::memcpy(&result, &x, sizeof x);
    return result;
  }
};

template <typename T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DataType value = kFloat32;
};
template <>
struct TypeOf<double> {
  static constexpr DataType value = kFloat64;
};
template <>
struct TypeOf<Float16> {
  static constexpr DataType value = kFloat16;
};
template <>
struct TypeOf<bool> {
  static constexpr DataType value = kBool;
};
template <>
struct TypeOf<int8_t> {
  static constexpr DataType value = kInt8;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr DataType value = kUInt8;
};
template <>
struct TypeOf<int16_t> {
  static constexpr DataType value = kInt16;
};
template <>
struct TypeOf<uint16_t> {
  static constexpr DataType value = kUInt16;
};
template <>
struct TypeOf<int32_t> {
  static constexpr DataType value = kInt32;
};
template <>
struct TypeOf<uint32_t> {
  static constexpr DataType value = kUInt32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr DataType value = kInt64;
};
template <>
struct TypeOf<uint64_t> {
  static constexpr DataType value = kUInt64;
};

}  // namespace graft

#endif  // GRAFT_KIT_TYPE_H_
