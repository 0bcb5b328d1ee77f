// What fills the inputs of timings, and the plainest kernels that memory's speed is measured with.
#ifndef GRAFT_TESTS_GPU_INPUTS_CUH_
#define GRAFT_TESTS_GPU_INPUTS_CUH_

#include "../../kernels-cuda/device/launch.cuh"
#include "../../kernels-cuda/device/number.cuh"

namespace graft {
namespace timing {

// splitmix64 of a place in a stream of numbers.
GRAFT_BOTH uint64_t BitsAt(uint64_t seed, int64_t index) {
  uint64_t z = seed + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Sum of four even numbers of 16 bits: close to a normal of deviation 1, within 3.5 of 0.
GRAFT_BOTH float NormalAt(uint64_t seed, int64_t index) {
  const uint64_t z = BitsAt(seed, index);
  const auto sum =
      static_cast<int32_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return static_cast<float>(sum - 2 * 0xffff) * (1.7320508f / 0xffff);
}

template <typename T>
__global__ void RandomNormal(T* to, int64_t count, float deviation, uint64_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    to[i] = cuda::FromFloat<T>(deviation * NormalAt(seed, i));
  }
}

template <typename T>
__global__ void RandomIntegers(T* to, int64_t count, int64_t first, uint64_t many, uint64_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    to[i] = static_cast<T>(first + static_cast<int64_t>(BitsAt(seed, i) % many));
  }
}

// 16-byte pieces, four in flight in a thread.
constexpr int32_t kThreads = 256;
constexpr int32_t kPieces = 4;

// A word a thread, so that nothing is left out by the compiler.
__global__ void ReadOnce(const uint4* from, int64_t count, uint32_t* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t all = 0;
  for (int64_t i = thread; i < count; i += kPieces * step) {
    uint4 v[kPieces];
#pragma unroll
    for (int32_t j = 0; j < kPieces; ++j) {
      v[j] = i + j * step < count ? __ldcs(from + i + j * step) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int32_t j = 0; j < kPieces; ++j) all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  out[thread] = all >> 1;
}

__global__ void CopyOnce(uint4* to, const uint4* from, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += kPieces * step) {
    uint4 v[kPieces];
#pragma unroll
    for (int32_t j = 0; j < kPieces; ++j) {
      if (i + j * step < count) v[j] = __ldcs(from + i + j * step);
    }
#pragma unroll
    for (int32_t j = 0; j < kPieces; ++j) {
      if (i + j * step < count) __stcs(to + i + j * step, v[j]);
    }
  }
}

}  // namespace timing
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_INPUTS_CUH_
