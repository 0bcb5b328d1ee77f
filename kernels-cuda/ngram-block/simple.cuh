// Bans by a scan of each row where it lies: any length, any n, any number of rows. The reference,
// and what handles n-grams that do not fit in shared memory.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SIMPLE_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SIMPLE_CUH_

#include "rows.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// Blocks take pairs of row and part, of which there may be more than blocks.
template <typename Token>
__global__ void ScanSimple(Scores scores, Rows rows, int64_t n, int64_t parts) {
  auto* scratch = reinterpret_cast<int32_t*>(SharedMemory());
  for (int64_t task = blockIdx.x; task < rows.rows * parts; task += gridDim.x) {
    const int64_t row = task / parts;
    const Token* tokens = static_cast<const Token*>(rows.tokens) + row * rows.stride;
    int64_t first, last;
    Trim(tokens, LengthOf(rows, row), rows.pad, scratch, &first, &last);
    ForEachRepeat(tokens, first, last, n, task % parts, parts,
                  [&](int64_t token) { BanToken(scores, row, token); });
  }
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SIMPLE_CUH_
