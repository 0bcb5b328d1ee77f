#include "../../kernels-cuda/device/device.cuh"
#include "memory.h"

#if defined(__CUDACC__)

namespace graft {
namespace gpu {

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  DeviceLost(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace

void* Allocate(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  return memory;
}

void Free(void* memory) { Check(cudaFree(memory), "cudaFree"); }

void CopyToDevice(void* to, const void* from, int64_t bytes) {
  Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), "copy to device");
}

void CopyFromDevice(Trial& trial, void* to, const void* from, int64_t bytes) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) trial.Fail(cudaGetErrorString(error));
  Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
        "copy from device");
}

}  // namespace gpu
}  // namespace graft

#else

namespace graft {
namespace gpu {

constexpr std::align_val_t kAlignment{256};

void* Allocate(int64_t bytes) { return ::operator new(static_cast<size_t>(bytes), kAlignment); }
void Free(void* memory) { ::operator delete(memory, kAlignment); }
void CopyToDevice(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void CopyFromDevice(Trial&, void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace gpu
}  // namespace graft

#endif
