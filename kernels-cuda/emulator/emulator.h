// CUDA's vocabulary on a CPU: kernels run as they are, so that they can be proved where there is
// no GPU. Threads of a block are fibers that run one at a time, in an order chosen anew from a seed
// each time one waits; whatever depends on an order that no barrier gives comes out wrong for some
// seed.
//
// Faults that stop a launch, with an exception that names the block and the thread: threads that
// end or wait elsewhere while others wait at a barrier, lanes that meet in different warp
// functions, misaligned or stray copies, a write after the end of shared memory, a shape that no
// device takes. Shared memory is full of NaN when a block begins, and so is whatever an
// asynchronous copy has not been waited for.
//
// Launches run one after the other, but for dependent ones (LaunchShape).
//
// Not modelled: time, caches, registers, and memory order beyond what barriers give.
#ifndef GRAFT_KERNELS_CUDA_EMULATOR_EMULATOR_H_
#define GRAFT_KERNELS_CUDA_EMULATOR_EMULATOR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include "../device/launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) int2 {
  int32_t x, y;
};
struct alignas(16) int4 {
  int32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline int2 make_int2(int32_t x, int32_t y) { return {x, y}; }
inline int4 make_int4(int32_t x, int32_t y, int32_t z, int32_t w) { return {x, y, z, w}; }

namespace graft {
namespace cuda {
namespace emulator {

// What a kernel or its launch did wrong.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The thread that runs now.
struct Place {
  dim3 thread, block, threads, blocks;
};
extern thread_local Place place;

// The fault that is seeded into kernels; 0 for none.
extern int32_t seeded_fault;

// The order of threads and blocks of later launches of this thread of the program.
void Seed(uint64_t seed);

// Runs `body` once a thread of the shape and returns when all have ended: kOk. Throws Fault. A
// launch that is followed runs with the next one: some blocks of that one come to WaitForLaunch
// before it begins. `kernel` names what is launched.
Status Launch(const void* kernel, const LaunchShape& shape, const std::function<void()>& body);

// Until the launch before this one has run, where this one is dependent.
void WaitForLaunch();

// What the runtime knows of devices and limits of kernels; the device is a thread's.
Status CurrentDevice(int32_t* device);
void SetDevice(int32_t device);
Status LargestShared(const void* kernel, int32_t device, int64_t* bytes);
Status SetSharedLimit(const void* kernel, int64_t bytes);
// The times a limit was set since the program began.
int64_t SharedLimitsSet();

// Launches since the program began.
uint64_t Launches();

unsigned char* SharedMemory();
int32_t LaneIndex();

// Waits for `threads` threads of the block at barrier `id`; 0 threads: all that have not ended.
void Barrier(int32_t id, int32_t threads);

// What threads say at a barrier of the whole block: how many said true.
int32_t BarrierCount(bool said);

int32_t ClusterRank();
int32_t ClusterSize();
void ClusterSync();  // ClusterArrive, then ClusterWait
void ClusterArrive();
void ClusterWait();
void* ClusterMap(void* shared, int32_t rank);

void CopyAsync(void* shared, const void* global, int32_t bytes, bool valid);
void CopyCommit();
void CopyWait(int32_t pending);

// Stops the launch unless `bytes` from `address` on lie in this block's shared memory (or that of
// its cluster) and the address is a multiple of `alignment`.
void CheckShared(const char* what, const void* address, int64_t bytes, int64_t alignment);

// Waits for the lanes of `mask`, which must all call with the same name and mask; then `use` runs
// on each lane with what every lane gave, and none continues before all have used it.
void Meet(const char* name, uint32_t mask, const void* given,
          const std::function<void(const void* const* lanes)>& use);
template <typename Use>
void Together(const char* name, const void* given, const Use& use) {
  Meet(name, 0xffffffffu, given, use);
}

// The value of the lane that `from` names for this one; its own where that lane is not in its
// group.
template <typename T, typename From>
T Shuffle(const char* name, uint32_t mask, T value, int32_t width, const From& from) {
  T out = value;
  Meet(name, mask, &value, [&](const void* const* lanes) {
    const int32_t lane = LaneIndex(), first = lane / width * width;
    const int32_t source = from(lane - first);
    if (source < 0 || source >= width) return;
    if ((mask >> (first + source) & 1) == 0) {
      throw Fault(std::string(name) + ": lane " + std::to_string(lane) + " reads lane " +
                  std::to_string(first + source) + ", which is not in the mask");
    }
    out = *static_cast<const T*>(lanes[first + source]);
  });
  return out;
}

}  // namespace emulator
}  // namespace cuda
}  // namespace graft

#define threadIdx (::graft::cuda::emulator::place.thread)
#define blockIdx (::graft::cuda::emulator::place.block)
#define blockDim (::graft::cuda::emulator::place.threads)
#define gridDim (::graft::cuda::emulator::place.blocks)

inline void __syncthreads() { graft::cuda::emulator::Barrier(0, 0); }
inline int __syncthreads_count(int said) { return graft::cuda::emulator::BarrierCount(said != 0); }
inline int __syncthreads_or(int said) { return __syncthreads_count(said) != 0; }
inline int __syncthreads_and(int said) { return __syncthreads_count(said == 0) == 0; }
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  graft::cuda::emulator::Meet("__syncwarp", mask, nullptr, [](const void* const*) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __shfl_sync(uint32_t mask, T value, int32_t lane, int32_t width = 32) {
  return graft::cuda::emulator::Shuffle("__shfl_sync", mask, value, width,
                                        [&](int32_t) { return lane & (width - 1); });
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int32_t bits, int32_t width = 32) {
  return graft::cuda::emulator::Shuffle("__shfl_xor_sync", mask, value, width,
                                        [&](int32_t lane) { return lane ^ bits; });
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, uint32_t by, int32_t width = 32) {
  return graft::cuda::emulator::Shuffle("__shfl_up_sync", mask, value, width, [&](int32_t lane) {
    return lane - static_cast<int32_t>(by);
  });
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t by, int32_t width = 32) {
  return graft::cuda::emulator::Shuffle("__shfl_down_sync", mask, value, width, [&](int32_t lane) {
    return lane + static_cast<int32_t>(by);
  });
}
inline uint32_t __ballot_sync(uint32_t mask, int said) {
  uint32_t out = 0;
  const bool mine = said != 0;
  graft::cuda::emulator::Meet("__ballot_sync", mask, &mine, [&](const void* const* lanes) {
    for (int32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) != 0 && *static_cast<const bool*>(lanes[i])) out |= 1u << i;
    }
  });
  return out;
}
inline int __any_sync(uint32_t mask, int said) { return __ballot_sync(mask, said) != 0; }
inline int __all_sync(uint32_t mask, int said) { return __ballot_sync(mask, said) == mask; }
template <typename T>
uint32_t __match_any_sync(uint32_t mask, T value) {
  uint32_t out = 0;
  graft::cuda::emulator::Meet("__match_any_sync", mask, &value, [&](const void* const* lanes) {
    for (int32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) != 0 && *static_cast<const T*>(lanes[i]) == value) out |= 1u << i;
    }
  });
  return out;
}

// Blocks run one after the other and threads one at a time, so these are whole by themselves.
template <typename T>
T atomicAdd(T* at, T by) {
  const T old = *at;
  *at = static_cast<T>(old + by);
  return old;
}
template <typename T>
T atomicMax(T* at, T with) {
  const T old = *at;
  *at = std::max(old, with);
  return old;
}
template <typename T>
T atomicMin(T* at, T with) {
  const T old = *at;
  *at = std::min(old, with);
  return old;
}
template <typename T>
T atomicOr(T* at, T with) {
  const T old = *at;
  *at = old | with;
  return old;
}
template <typename T>
T atomicExch(T* at, T with) {
  const T old = *at;
  *at = with;
  return old;
}
template <typename T>
T atomicCAS(T* at, T expected, T with) {
  const T old = *at;
  if (old == expected) *at = with;
  return old;
}

template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcs(const T* at) {
  return *at;
}
template <typename T>
void __stcs(T* at, T value) {
  *at = value;
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __clz(int32_t x) { return x == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(x)); }
inline int __ffs(int32_t x) { return __builtin_ffs(x); }
inline uint32_t __brev(uint32_t x) {
  uint32_t out = 0;
  for (int i = 0; i < 32; ++i) out |= (x >> i & 1) << (31 - i);
  return out;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline int32_t __float_as_int(float x) { return static_cast<int32_t>(__float_as_uint(x)); }
inline float __int_as_float(int32_t bits) { return __uint_as_float(static_cast<uint32_t>(bits)); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
using std::max;
using std::min;

#endif  // GRAFT_KERNELS_CUDA_EMULATOR_EMULATOR_H_
