// The greatest log-probabilities of each row as ONNX's TopK gives them, from the candidates of
// rows that are groups of their own.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_TOP_K_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_TOP_K_CUH_

#include "launch.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// Fills places without a candidate: a row without probabilities is NaN, as its softmax is, with
// the first indices; where fewer than k tokens are possible, the first impossible ones follow. A
// block a row.
[[maybe_unused]] static __global__ void CompleteTopK(const float* x, int64_t vocab, int64_t rows,
                                                     int64_t k, const int32_t* tokens,
                                                     const int32_t* faults, float* values,
                                                     int64_t* indices) {
  auto* scratch = reinterpret_cast<int32_t*>(SharedMemory());
  const auto thread = static_cast<int64_t>(threadIdx.x), threads = static_cast<int64_t>(blockDim.x);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const bool bad = faults[row * kFaultFields] != kNone;
    int64_t found = 0;
    for (int64_t from = 0; from < k; from += threads) {
      const int64_t i = from + thread;
      const bool is = !bad && i < k && tokens[row * k + i] >= 0;
      if (is) indices[row * k + i] = tokens[row * k + i];
      if (bad && i < k) {
        values[row * k + i] = __uint_as_float(0x7fc00000u);
        indices[row * k + i] = i;
      }
      found += __syncthreads_count(is);
    }
    // Impossible tokens in their order, until all places are taken.
    for (int64_t from = 0; !bad && found < k && from < vocab; from += threads) {
      const int64_t t = from + thread;
      const bool impossible = t < vocab && x[row * vocab + t] == Nothing();
      const uint32_t votes = __ballot_sync(kAllLanes, impossible);
      if (Lane() == 0) scratch[WarpIndex()] = __popc(votes);
      __syncthreads();
      int64_t place = found + __popc(votes & ((1u << Lane()) - 1));
      for (int32_t w = 0; w < static_cast<int32_t>(threads) / kWarp; ++w) {
        if (w < WarpIndex()) place += scratch[w];
        found += scratch[w];
      }
      if (impossible && place < k) {
        values[row * k + place] = Nothing();
        indices[row * k + place] = t;
      }
      __syncthreads();
    }
  }
}

// Bytes of workspace for LogSoftmaxTopK, which begins at a multiple of 16.
inline int64_t TopKWorkspace(const TopKPlan& plan, int64_t rows, int64_t k) {
  return plan.workspace + RoundUp(rows * k * 4, 16) * 2 + rows * kFaultFields * 4;
}

// values and indices [rows, k] of x [rows, vocab]; k is at most vocab. Two launches.
inline Status LogSoftmaxTopK(const float* x, int64_t rows, int64_t vocab, int64_t k, float* values,
                             int64_t* indices, const TopKPlan& plan, void* workspace,
                             Stream stream) {
  if (rows == 0 || k == 0) return kOk;
  auto* at = static_cast<unsigned char*>(workspace) + plan.workspace;
  auto* tokens = reinterpret_cast<int32_t*>(at);
  auto* row_of = reinterpret_cast<int32_t*>(at + RoundUp(rows * k * 4, 16));
  auto* faults = reinterpret_cast<int32_t*>(at + RoundUp(rows * k * 4, 16) * 2);
  Problem problem;
  problem.scores = x;
  problem.rows = problem.count = rows;
  problem.vocab = problem.stride = vocab;
  problem.k = static_cast<int32_t>(k);
  const Status status =
      TakeTopK<float>(problem, {values, row_of, tokens, k, faults}, plan, workspace, stream);
  if (status != kOk) return status;
  LaunchShape shape;
  shape.threads = 128;
  shape.shared_bytes = 128;
  shape.grid_x = rows < kMaxGridYZ ? rows : kMaxGridYZ;
  return Launch(CompleteTopK, shape, stream, x, vocab, rows, k, tokens, faults, values, indices);
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_TOP_K_CUH_
