// How scans and the index are launched. Plain C++.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PLAN_H_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PLAN_H_

#include "problem.h"

namespace graft {
namespace cuda {
namespace ngram_block {

// Shared memory of ScanStaged before its tokens, in bytes.
constexpr int64_t kStagedHead = 128;

// Tokens that ScanStaged has room for: a chunk, what stands before it, and the skew of addresses.
constexpr int64_t StagedTokens(int64_t chunk, int64_t n) { return (chunk + n - 1 + 3 + 3) / 4 * 4; }

constexpr int64_t StagedBytes(int64_t chunk, int64_t n, bool wide) {
  return kStagedHead + (StagedTokens(chunk, n) + n - 1) * (wide ? 8 : 4);
}

struct ScanPlan {
  bool staged = false;
  int64_t chunk = 0;  // places of a row that a block takes; staged only
  int64_t parts = 1;  // blocks a row
  LaunchShape shape;
};

// For rows by columns tokens, of 8 bytes when `wide`. rows and columns are at least 1.
ScanPlan PlanScan(int64_t rows, int64_t columns, int64_t n, bool wide, const DeviceLimits& limits);

// A plan with its choices given: for tests.
ScanPlan PlanScanAs(bool staged, int64_t chunk, int64_t parts, int32_t threads, int64_t blocks,
                    int64_t rows, int64_t columns, int64_t n, bool wide);

struct IndexPlan {
  bool grow_at_once = false;  // the block that begins the step also adds its tokens
  LaunchShape begin, grow, ban;
};

IndexPlan PlanIndex(int64_t rows, int64_t columns);

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_PLAN_H_
