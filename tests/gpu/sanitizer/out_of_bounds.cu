// Broken on purpose: writes one number after the end of its array. memcheck must say so.
#include <cstdio>

#include "../../../kernels-cuda/device/launch.cuh"

namespace {

__global__ void WriteTooFar(float* to, int32_t count) {
  // The fault: <= for <.
  if (static_cast<int32_t>(threadIdx.x) <= count) to[threadIdx.x] = 1;
}

}  // namespace

int main() {
  constexpr int32_t kCount = 64;  // 256 bytes, the whole of what cudaMalloc gives
  float* memory = nullptr;
  if (cudaMalloc(&memory, kCount * sizeof(float)) != cudaSuccess) return 4;
  graft::cuda::LaunchShape shape;
  shape.threads = 128;
  if (graft::cuda::Launch(WriteTooFar, shape, nullptr, memory, kCount) != graft::cuda::kOk) {
    return 3;
  }
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 3;
}
