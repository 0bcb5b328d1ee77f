// What the kernels of this folder are given. Plain C++: plans are made from it without CUDA.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PROBLEM_H_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PROBLEM_H_

#include <cstdint>

#include "../device/launch.h"

namespace graft {
namespace cuda {
namespace ngram_block {

// Rows of tokens in device memory.
struct Rows {
  const void* tokens = nullptr;  // [rows, columns], int32 or int64
  bool wide_tokens = false;      // int64
  int64_t stride = 0;            // tokens from one row to the next
  int64_t rows = 0, columns = 0;
  const void* lengths = nullptr;  // [rows], how many count, from the left; null: all columns
  bool wide_lengths = false;      // int64
  int64_t pad = -1;               // does not count at either end of a row; below 0: none
};

// Scores in device memory that bans are written to.
struct Scores {
  void* data = nullptr;  // [rows, vocab]
  Type type = Type::kFloat32;
  int64_t stride = 0;  // numbers from one row to the next
  int64_t vocab = 0;
};

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PROBLEM_H_
