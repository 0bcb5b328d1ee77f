// Bans by a scan of whole rows: the launch that a plan chose.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SCAN_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SCAN_CUH_

#include "../device/launch.cuh"
#include "simple.cuh"
#include "staged.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// Sets scores[r, t] to minus infinity where row r, followed by t, would hold an n-gram twice: the
// last n - 1 tokens of the row, then t, stand somewhere in it. With n = 1 every token of the row is
// banned. Tokens outside of the vocabulary are compared and never followed; a length outside of its
// row is brought into it. One launch.
inline Status BanByScan(const Scores& scores, const Rows& rows, int64_t n, const ScanPlan& plan,
                        Stream stream) {
  if (rows.rows == 0 || rows.columns == 0 || scores.vocab == 0) return kOk;
  if (plan.staged) {
    return Launch(rows.wide_tokens ? ScanStaged<int64_t> : ScanStaged<int32_t>, plan.shape, stream,
                  scores, rows, n, plan.chunk, plan.parts);
  }
  return Launch(rows.wide_tokens ? ScanSimple<int64_t> : ScanSimple<int32_t>, plan.shape, stream,
                scores, rows, n, plan.parts);
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_SCAN_CUH_
