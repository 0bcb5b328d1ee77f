// Bans by a scan of each row in shared memory: every token is read once, 16 bytes at a time, while
// the row's length and its last n - 1 tokens are on their way.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_STAGED_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_STAGED_CUH_

#include "../device/async_copy.cuh"
#include "../device/warp.cuh"
#include "plan.h"
#include "rows.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// Copies row[begin, end) to shared memory, so that row[i] stands at staged[i - begin + skew], and
// gives the skew: what puts 16-byte pieces of the row on 16-byte pieces of shared memory.
template <typename Token>
GRAFT_DEVICE int64_t Stage(const Token* row, int64_t begin, int64_t end, Token* staged) {
  constexpr int64_t kTake = 16 / static_cast<int64_t>(sizeof(Token));
  const auto address = reinterpret_cast<uint64_t>(row + begin);
  const int64_t skew = static_cast<int64_t>(address % 16 / sizeof(Token));
  const int64_t pieces = (skew + end - begin + kTake - 1) / kTake;
  for (int64_t piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
    const int64_t first = piece * kTake - skew + begin;  // of the row's tokens
    if (first >= begin && first + kTake <= end) {
      CopyAsync<16>(staged + piece * kTake, row + first);
      continue;
    }
    for (int64_t i = first < begin ? begin : first; i < first + kTake && i < end; ++i) {
      staged[i - begin + skew] = row[i];
    }
  }
  CopyCommit();
  return skew;
}

// A block takes `chunk` places of a row at once and what stands before them. Shared memory:
// scratch, the row's last n - 1 tokens (the last one first), the staged tokens; see StagedBytes.
template <typename Token>
__global__ void ScanStaged(Scores scores, Rows rows, int64_t n, int64_t chunk, int64_t parts) {
  auto* scratch = reinterpret_cast<int32_t*>(SharedMemory());
  auto* staged = reinterpret_cast<Token*>(SharedMemory() + kStagedHead);
  Token* tail = staged + StagedTokens(chunk, n);
  for (int64_t task = blockIdx.x; task < rows.rows * parts; task += gridDim.x) {
    const int64_t row = task / parts;
    const Token* tokens = static_cast<const Token*>(rows.tokens) + row * rows.stride;
    // Staged by the row's width, which is known before its length is.
    const int64_t from = task % parts * chunk;
    const int64_t begin = from < n - 1 ? 0 : from - (n - 1);
    int64_t to = from + chunk < rows.columns ? from + chunk : rows.columns;
    // The length is loaded first: what follows waits for tokens that fill no 16 bytes.
    const int64_t length = LengthOf(rows, row);
    const Token* at = staged + Stage(tokens, begin, to, staged) - begin;  // at[i] is token i

    int64_t first, last;
    Trim(tokens, length, rows.pad, scratch, &first, &last);
    if (Seeded(1) && WarpIndex() == 0) Linger();
    for (int64_t j = threadIdx.x; j < n - 1 && j < last; j += blockDim.x) {
      tail[j] = tokens[last - 1 - j];
    }
    CopyWait<0>();
    if (!Seeded(1)) __syncthreads();
    const int64_t lowest = first + n - 1;
    if (to > last) to = last;
    if (Seeded(2)) to = from + (to - from) / blockDim.x * blockDim.x;
    for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) {
      bool equal = i >= lowest;
      for (int64_t j = 1; j < n && equal; ++j) equal = at[i - j] == tail[j - 1];
      if (equal) BanToken(scores, row, static_cast<int64_t>(at[i]));
    }
    __syncthreads();
  }
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_STAGED_CUH_
