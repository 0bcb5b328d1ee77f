// 16-bit floating-point numbers as storage, and their rounding in plain C++: nearest, ties to even.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_NUMBER_H_
#define GRAFT_KERNELS_CUDA_DEVICE_NUMBER_H_

#include <cstdint>
#include <cstring>

namespace graft {
namespace cuda {

struct Half {  // IEEE 754 binary16
  uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  uint16_t bits;
};

inline float FloatOfBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint32_t BitsOfFloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

inline float WidenHalf(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, low = h & 0x7fff;
  if (low >= 0x7c00) return FloatOfBits(sign | 0x7f800000 | (low & 0x3ff) << 13);
  if (low < 0x400) {  // zero and subnormal: low units of 2^-24
    const float f = static_cast<float>(low) * 5.9604644775390625e-8f;
    return sign != 0 ? -f : f;
  }
  return FloatOfBits(sign | ((low << 13) + 0x38000000));
}

inline uint16_t NarrowToHalf(float f) {
  const uint32_t bits = BitsOfFloat(f);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t low = bits & 0x7fffffff;
  if (low > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (low >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65,520 and above
  if (low < 0x38800000) {  // below the smallest normal: add so that the unit becomes 2^-24
    const float shifted = FloatOfBits(low) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOfFloat(shifted) - 0x3f000000));
  }
  const uint32_t rounded = low + 0xfff + (low >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float WidenBFloat16(uint16_t b) { return FloatOfBits(static_cast<uint32_t>(b) << 16); }

inline uint16_t NarrowToBFloat16(float f) {
  const uint32_t bits = BitsOfFloat(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_NUMBER_H_
