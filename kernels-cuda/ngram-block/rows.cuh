// Rows of tokens, and the search for what would repeat an n-gram of a row, by all threads of a
// block.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_ROWS_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_ROWS_CUH_

#include "../device/device.cuh"
#include "problem.h"

namespace graft {
namespace cuda {
namespace ngram_block {

// Shared memory that Trim needs, in bytes.
constexpr int64_t kTrimBytes = 16;

// How many tokens of a row count, from the left. A length outside of the row is brought into it.
GRAFT_DEVICE int64_t LengthOf(const Rows& rows, int64_t row) {
  if (rows.lengths == nullptr) return rows.columns;
  const int64_t length = rows.wide_lengths ? static_cast<const int64_t*>(rows.lengths)[row]
                                           : static_cast<const int32_t*>(rows.lengths)[row];
  return length < 0 ? 0 : length > rows.columns ? rows.columns : length;
}

// How many of `count` tokens, token(0), token(1)..., are pads before the first that is none. All
// threads of the block call it and get the answer.
template <typename TokenAt>
GRAFT_DEVICE int64_t LeadingPads(int64_t count, int64_t pad, int32_t* scratch,
                                 const TokenAt& token) {
  const int64_t thread = threadIdx.x, threads = blockDim.x;
  for (int64_t at = 0; at < count; at += threads) {
    const bool found = at + thread < count && token(at + thread) != pad;
    if (!__syncthreads_or(found)) continue;
    if (thread == 0) *scratch = static_cast<int32_t>(threads);
    __syncthreads();
    if (found) atomicMin(scratch, static_cast<int32_t>(thread));
    __syncthreads();
    const int64_t first = at + *scratch;
    __syncthreads();
    return first;
  }
  return count;
}

// The tokens [*first, *last) of a row that count: without the pads at either end. `scratch` is
// shared memory of kTrimBytes.
template <typename Token>
GRAFT_DEVICE void Trim(const Token* row, int64_t length, int64_t pad, int32_t* scratch,
                       int64_t* first, int64_t* last) {
  *first = 0;
  *last = length;
  if (pad < 0) return;
  *first = LeadingPads(length, pad, scratch, [&](int64_t i) { return row[i]; });
  const int64_t left = length - *first;
  *last -= LeadingPads(left, pad, scratch, [&](int64_t i) { return row[length - 1 - i]; });
}

// Calls ban(token) for every token that follows, somewhere in row[first, last), the same n - 1
// tokens as end there. Places are dealt out to the block's threads and among `parts` blocks; a
// token may come several times.
template <typename Token, typename Ban>
GRAFT_DEVICE void ForEachRepeat(const Token* row, int64_t first, int64_t last, int64_t n,
                                int64_t part, int64_t parts, const Ban& ban) {
  const int64_t threads = blockDim.x;
  for (int64_t i = first + n - 1 + part * threads + threadIdx.x; i < last; i += parts * threads) {
    bool equal = true;
    for (int64_t j = 1; j < n && equal; ++j) equal = row[i - j] == row[last - j];
    if (equal) ban(static_cast<int64_t>(row[i]));
  }
}

// Minus infinity for one token of a row; a token outside of the vocabulary is not followed.
GRAFT_DEVICE void BanToken(const Scores& scores, int64_t row, int64_t token) {
  if (token < 0 || token >= scores.vocab) return;
  const int64_t at = row * scores.stride + token;
  if (scores.type == Type::kFloat32) {
    static_cast<uint32_t*>(scores.data)[at] = 0xff800000u;
  } else {
    static_cast<uint16_t*>(scores.data)[at] = scores.type == Type::kFloat16 ? 0xfc00 : 0xff80;
  }
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_ROWS_CUH_
