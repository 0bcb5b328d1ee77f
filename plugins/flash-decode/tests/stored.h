// Keys and values as abi/README.md says that a pool holds them, in float64: nothing is shared with
// the kernels.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_TESTS_STORED_H_
#define GRAFT_PLUGINS_FLASH_DECODE_TESTS_STORED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cached.h"

namespace graft {
namespace attention {
namespace testing {

constexpr Storage kStorages[] = {Storage::kFloat32, Storage::kFloat16, Storage::kBfloat16,
                                 Storage::kInt8};

inline int64_t BytesOf(Storage storage) {
  return storage == Storage::kFloat32 ? 4 : storage == Storage::kInt8 ? 1 : 2;
}

// A number of 16 bits: significant bits, and the exponent of the smallest normal number.
struct Sixteen {
  int digits, least;
  explicit Sixteen(Storage storage)
      : digits(storage == Storage::kFloat16 ? 11 : 8),
        least(storage == Storage::kFloat16 ? -14 : -126) {}

  uint16_t Bits(double value) const {
    int exponent = 0;
    std::frexp(value, &exponent);
    const int unit = std::max(exponent - 1, least) - (digits - 1);
    const double magnitude = std::fabs(std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit));
    uint32_t rest = 0;
    if (magnitude < std::ldexp(1.0, least)) {
      rest = static_cast<uint32_t>(std::ldexp(magnitude, digits - 1 - least));
    } else {
      const double fraction = std::frexp(magnitude, &exponent);
      rest = static_cast<uint32_t>(exponent - least) << (digits - 1);
      rest |= static_cast<uint32_t>(std::ldexp(fraction, digits)) - (1u << (digits - 1));
    }
    return static_cast<uint16_t>((std::signbit(value) ? 0x8000u : 0u) | rest);
  }

  double Value(uint16_t bits) const {
    const int field = (bits & 0x7FFF) >> (digits - 1);
    const int fraction = bits & ((1 << (digits - 1)) - 1);
    const int highest = (1 << (16 - digits)) - 1;
    double magnitude = 0.0;
    if (field == highest) {
      magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                                : std::numeric_limits<double>::infinity();
    } else if (field == 0) {
      magnitude = std::ldexp(fraction, least - digits + 1);
    } else {
      magnitude = std::ldexp(fraction + (1 << (digits - 1)), field - 1 + least - digits + 1);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

// Writes a row of floats and returns its scale.
inline float Encode(Storage storage, const float* from, int64_t count, char* to) {
  float maximum = 0.0f;
  for (int64_t f = 0; f < count; ++f) maximum = std::max(maximum, std::fabs(from[f]));
  for (int64_t f = 0; f < count; ++f) {
    if (storage == Storage::kFloat32) {
      std::memcpy(to + 4 * f, from + f, 4);
    } else if (storage == Storage::kInt8) {
      to[f] = maximum == 0.0f ? char{0}
                              : static_cast<char>(static_cast<int8_t>(
                                    std::nearbyint(from[f] * (127.0f / maximum))));
    } else {
      const uint16_t bits = Sixteen(storage).Bits(from[f]);
      std::memcpy(to + 2 * f, &bits, 2);
    }
  }
  return maximum / 127.0f;
}

// Number f of a row, without its scale.
inline double Decode(Storage storage, const char* from, int64_t f) {
  if (storage == Storage::kInt8) return static_cast<int8_t>(from[f]);
  if (storage == Storage::kFloat32) {
    float value;
    std::memcpy(&value, from + 4 * f, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from + 2 * f, 2);
  return Sixteen(storage).Value(bits);
}

// Where the key or value of a slot and KV head stands, and its scale: bytes from the pool's first.
struct Place {
  int64_t numbers, scale, size;

  Place(const Pool& p, int64_t slot, int64_t head, bool value) {
    const int64_t area = (slot / 16 * p.block_floats + p.offset) * 4;
    const int64_t scales = p.storage == Storage::kInt8 ? 2 * p.kv_heads * 16 * 4 : 0;
    const int64_t row = head * 16 + slot % 16;
    size = value ? p.value_size : p.head_size;
    numbers = area + scales +
              ((value ? p.kv_heads * 16 * p.head_size : 0) + row * size) * BytesOf(p.storage);
    scale = area + ((value ? p.kv_heads * 16 : 0) + row) * 4;
  }
};

// Puts a key or a value into the memory of a pool.
inline void Put(const Pool& p, int64_t slot, int64_t head, bool value, const float* from,
                char* memory) {
  const Place at(p, slot, head, value);
  const float scale = Encode(p.storage, from, at.size, memory + at.numbers);
  if (p.storage == Storage::kInt8) std::memcpy(memory + at.scale, &scale, 4);
}

// A key or a value as the memory of a pool holds it.
inline std::vector<double> Get(const Pool& p, int64_t slot, int64_t head, bool value,
                               const char* memory) {
  const Place at(p, slot, head, value);
  float scale = 1.0f;
  if (p.storage == Storage::kInt8) std::memcpy(&scale, memory + at.scale, 4);
  std::vector<double> row;
  for (int64_t f = 0; f < at.size; ++f) {
    row.push_back(scale * Decode(p.storage, memory + at.numbers, f));
  }
  return row;
}

}  // namespace testing
}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_TESTS_STORED_H_
