// Copies from global to shared memory that run while the thread goes on (sm_80, cp.async).
//
// A thread sees what it copied after CopyWait, the others after a barrier after that.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_ASYNC_COPY_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_ASYNC_COPY_CUH_

#include "device.cuh"

namespace graft {
namespace cuda {

// Copies Bytes (4, 8 or 16; both addresses are multiples of it), or writes zeros where `valid` is
// false, and then nothing is read. 16 bytes pass by the L1 cache.
template <int32_t Bytes>
GRAFT_DEVICE void CopyAsync(void* shared, const void* global, bool valid = true) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#if defined(__CUDACC__)
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int32_t take = valid ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(take)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(Bytes),
                 "r"(take)
                 : "memory");
  }
#else
  emulator::CopyAsync(shared, global, Bytes, valid);
#endif
}

// Ends a group of this thread's copies.
GRAFT_DEVICE void CopyCommit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator::CopyCommit();
#endif
}

// Waits until at most `Pending` of this thread's groups are in flight.
template <int32_t Pending>
GRAFT_DEVICE void CopyWait() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#else
  emulator::CopyWait(Pending);
#endif
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_ASYNC_COPY_CUH_
