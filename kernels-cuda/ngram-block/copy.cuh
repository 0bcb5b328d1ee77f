// Scores as they are, to where bans will be written.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COPY_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COPY_CUH_

#include "../device/launch.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// Bytes before `vectors` pieces of 16, those pieces, and what is after them.
[[maybe_unused]] static __global__ void CopyBytes(const unsigned char* from, unsigned char* to,
                                                  int64_t bytes, int64_t head) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t vectors = (bytes - head) / 16, tail = head + 16 * vectors;
  for (int64_t i = first; i < vectors; i += step) {
    reinterpret_cast<uint4*>(to + head)[i] = reinterpret_cast<const uint4*>(from + head)[i];
  }
  for (int64_t i = first; i < head; i += step) to[i] = from[i];
  for (int64_t i = tail + first; i < bytes; i += step) to[i] = from[i];
}

// Copies within the device. One launch of `blocks` blocks at most.
inline Status CopyScores(const void* from, void* to, int64_t bytes, int64_t blocks, Stream stream) {
  if (bytes == 0 || from == to) return kOk;
  const auto source = reinterpret_cast<uint64_t>(from), target = reinterpret_cast<uint64_t>(to);
  // Pieces of 16 bytes where both begin alike; else all of it is head.
  int64_t head = bytes;
  if (source % 16 == target % 16) head = static_cast<int64_t>((16 - source % 16) % 16);
  if (head > bytes) head = bytes;
  LaunchShape shape;
  shape.threads = 256;
  const int64_t pieces = CeilDivide(head == bytes ? bytes : bytes / 16 + 16, shape.threads);
  shape.grid_x = pieces < blocks ? pieces : blocks;
  return Launch(CopyBytes, shape, stream, static_cast<const unsigned char*>(from),
                static_cast<unsigned char*>(to), bytes, head);
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COPY_CUH_
