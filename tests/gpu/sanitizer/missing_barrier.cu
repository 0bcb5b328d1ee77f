// Broken on purpose: reads what other warps write to shared memory without a barrier between.
// racecheck must say so.
#include <cstdio>

#include "../../../kernels-cuda/device/launch.cuh"

namespace {

__global__ void Reverse(float* numbers) {
  auto* shared = reinterpret_cast<float*>(graft::cuda::SharedMemory());
  shared[threadIdx.x] = numbers[threadIdx.x];
  // The fault: __syncthreads() belongs here.
  numbers[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

}  // namespace

int main() {
  constexpr int32_t kCount = 256;
  float* memory = nullptr;
  if (cudaMalloc(&memory, kCount * sizeof(float)) != cudaSuccess) return 4;
  if (cudaMemset(memory, 0, kCount * sizeof(float)) != cudaSuccess) return 3;
  graft::cuda::LaunchShape shape;
  shape.threads = kCount;
  shape.shared_bytes = kCount * sizeof(float);
  if (graft::cuda::Launch(Reverse, shape, nullptr, memory) != graft::cuda::kOk) return 3;
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 3;
}
