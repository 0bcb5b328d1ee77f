// The vocabulary of kernels: CUDA's own under nvcc, the emulator's under any other compiler.
//
// A kernel uses threadIdx.x and the like, __syncthreads, the _sync warp functions, atomics on
// global and shared memory, and from here shared memory, asynchronous copies, matrix
// multiplications and clusters. Shared memory is dynamic only: the emulator poisons and guards it.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_DEVICE_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_DEVICE_CUH_

#include <cstdint>

#include "launch.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "../emulator/emulator.h"
#endif

// A function that runs on the device, and on the host where nothing in it is the device's alone.
#define GRAFT_DEVICE __device__ __forceinline__
#define GRAFT_BOTH __host__ __device__ __forceinline__

namespace graft {
namespace cuda {

// Whether the seeded fault `n` is on: conformance must fail for each number that a kernel's
// faults.txt lists. Tests turn one on by SeedFault; with nvcc they are compiled with
// GRAFT_SEEDED_FAULTS, without which no fault can be on.
#if !defined(__CUDACC__)
GRAFT_DEVICE bool Seeded(int32_t n) { return emulator::seeded_fault == n; }
inline Status SeedFault(int32_t n) {
  emulator::seeded_fault = n;
  return kOk;
}
#elif defined(GRAFT_SEEDED_FAULTS)
static __constant__ int32_t seeded_fault;
GRAFT_DEVICE bool Seeded(int32_t n) { return seeded_fault == n; }
inline Status SeedFault(int32_t n) { return cudaMemcpyToSymbol(seeded_fault, &n, sizeof n); }
#else
constexpr GRAFT_BOTH bool Seeded(int32_t) { return false; }
inline Status SeedFault(int32_t n) { return n == 0 ? kOk : kBadLaunch; }
#endif

// The block's dynamic shared memory, 128-byte aligned.
GRAFT_DEVICE unsigned char* SharedMemory() {
#if defined(__CUDACC__)
  extern __shared__ __align__(128) unsigned char graft_shared_memory[];
  return graft_shared_memory;
#else
  return emulator::SharedMemory();
#endif
}

#if defined(__CUDACC__)

// Waits for `threads` threads of the block at barrier `id`, 1 to 15: a part of the block only.
GRAFT_DEVICE void BarrierSync(int32_t id, int32_t threads) {
  __syncwarp();  // the instruction is for whole warps
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Waits until the launch before this one has ended and what it wrote can be seen, where this one is
// dependent (LaunchShape): every thread of its kernel calls it, before it touches what that launch
// reads or writes. In another launch it does nothing.
GRAFT_DEVICE void WaitForLaunch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next launch begin, where that is dependent: once all blocks have called it or ended.
// Says nothing about what this one has written: the other still waits for its end.
GRAFT_DEVICE void LetNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Delays the calling thread by some 20 us, for seeded faults: an order that merely always happens
// to come out right on a GPU then comes out wrong.
GRAFT_DEVICE void Linger() { __nanosleep(20000); }

// Place of this block in its cluster, and how many there are; sm_90 and later.
GRAFT_DEVICE int32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int32_t>(rank);
}
GRAFT_DEVICE int32_t ClusterSize() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int32_t>(size);
}

// All threads of all blocks of the cluster; orders their shared memory. No block may end while
// another may still touch its memory: end with one of these. In two halves, other work may stand
// between arriving and waiting for the others; every arrival is waited for before the next.
GRAFT_DEVICE void ClusterArrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
GRAFT_DEVICE void ClusterWait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
GRAFT_DEVICE void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

// Where `shared`, an address of this block's shared memory, stands in that of block `rank`.
template <typename T>
GRAFT_DEVICE T* ClusterMap(T* shared, int32_t rank) {
  void* mapped;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(shared), "r"(rank));
  return static_cast<T*>(mapped);
}

#else

GRAFT_DEVICE void BarrierSync(int32_t id, int32_t threads) { emulator::Barrier(id, threads); }
GRAFT_DEVICE void WaitForLaunch() { emulator::WaitForLaunch(); }
GRAFT_DEVICE void LetNextBegin() {}
GRAFT_DEVICE void Linger() {}
GRAFT_DEVICE int32_t ClusterRank() { return emulator::ClusterRank(); }
GRAFT_DEVICE int32_t ClusterSize() { return emulator::ClusterSize(); }
GRAFT_DEVICE void ClusterArrive() { emulator::ClusterArrive(); }
GRAFT_DEVICE void ClusterWait() { emulator::ClusterWait(); }
GRAFT_DEVICE void ClusterSync() { emulator::ClusterSync(); }
template <typename T>
GRAFT_DEVICE T* ClusterMap(T* shared, int32_t rank) {
  return reinterpret_cast<T*>(emulator::ClusterMap(shared, rank));
}

#endif

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_DEVICE_CUH_
