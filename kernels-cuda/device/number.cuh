// Numbers on the device: conversions, pairs in a register, and 16-byte loads as floats.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_NUMBER_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_NUMBER_CUH_

#include "device.cuh"
#include "number.h"

namespace graft {
namespace cuda {

GRAFT_DEVICE float ToFloat(float x) { return x; }
GRAFT_DEVICE float ToFloat(Half x) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(x.bits));
#else
  return WidenHalf(x.bits);
#endif
}
GRAFT_DEVICE float ToFloat(BFloat16 x) {
#if defined(__CUDACC__)
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
#else
  return WidenBFloat16(x.bits);
#endif
}

// Rounds to nearest, ties to even.
template <typename T>
GRAFT_DEVICE T FromFloat(float x);
template <>
GRAFT_DEVICE float FromFloat<float>(float x) {
  return x;
}
template <>
GRAFT_DEVICE Half FromFloat<Half>(float x) {
#if defined(__CUDACC__)
  return {__half_as_ushort(__float2half_rn(x))};
#else
  return {NarrowToHalf(x)};
#endif
}
template <>
GRAFT_DEVICE BFloat16 FromFloat<BFloat16>(float x) {
#if defined(__CUDACC__)
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
  return {NarrowToBFloat16(x)};
#endif
}

// Two 16-bit numbers in a register, the first in the lower half: what matrix multiplications take.
template <typename T>
GRAFT_DEVICE uint32_t Pack(float first, float second) {
  return static_cast<uint32_t>(FromFloat<T>(first).bits) |
         static_cast<uint32_t>(FromFloat<T>(second).bits) << 16;
}
template <typename T>
GRAFT_DEVICE void Unpack(uint32_t pair, float* first, float* second) {
  *first = ToFloat(T{static_cast<uint16_t>(pair & 0xffff)});
  *second = ToFloat(T{static_cast<uint16_t>(pair >> 16)});
}

// Numbers in 16 bytes.
template <typename T>
constexpr int32_t kVector = 16 / static_cast<int32_t>(sizeof(T));

// Reads kVector<T> numbers from a 16-byte aligned address as floats.
GRAFT_DEVICE void LoadVector(const float* from, float (&to)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
template <typename T>
GRAFT_DEVICE void LoadVector(const T* from, float (&to)[8]) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  Unpack<T>(v.x, &to[0], &to[1]);
  Unpack<T>(v.y, &to[2], &to[3]);
  Unpack<T>(v.z, &to[4], &to[5]);
  Unpack<T>(v.w, &to[6], &to[7]);
}

// Writes kVector<T> numbers to a 16-byte aligned address.
GRAFT_DEVICE void StoreVector(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
template <typename T>
GRAFT_DEVICE void StoreVector(T* to, const float (&from)[8]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(Pack<T>(from[0], from[1]), Pack<T>(from[2], from[3]),
                                             Pack<T>(from[4], from[5]), Pack<T>(from[6], from[7]));
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_NUMBER_CUH_
