// What the kernels of this folder are given. Plain C++: plans are made from it without CUDA.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PROBLEM_H_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PROBLEM_H_

#include <cstdint>

#include "../ngram-block/index_layout.h"
#include "../ngram-block/problem.h"

namespace graft {
namespace cuda {
namespace logits_top_k {

enum Mode : int32_t { kLogProbs = 0, kRaw = 1, kSample = 2 };

// What is done to the score of one token, in the order given.
enum Op : int32_t {
  kAdd = 0,       // score += value
  kPenalise = 1,  // score < 0 ? score * value : score / value
  kBan = 2,       // -inf
  kOnly = 3,      // value, and -inf for every other token of the row
};

// What is wrong with a group, as four numbers: kind, row, token, bits of the score.
enum FaultKind : int32_t {
  kNone = 0,
  kBadScore = 1,     // NaN or plus infinity
  kNothingLeft = 2,  // every token is banned; row: the first of the group
  kBadRequest =
      3,  // the group, its edits or its index contradict themselves; token -1 or whose edit
};

constexpr int64_t kGroupFields =
    8;  // first, rows, k, mode, flags, top-k, least retained, first random number
constexpr int64_t kWarperFields = 4;  // temperature, top-p, min-p, typical-p
constexpr int64_t kFaultFields = 4;
constexpr int32_t kFlagLogSoftmax = 1, kFlagNormalize = 2;

// A step. All pointers are device memory; what may be null is absent.
struct Problem {
  const void* scores = nullptr;  // [rows, vocab]
  Type type = Type::kFloat32;
  int64_t rows = 0, vocab = 0;
  int64_t stride = 0;  // numbers from one row to the next

  // Groups as they are listed, or `count` groups of group_rows rows each with the same k and mode.
  int64_t count = 0;
  const int32_t* groups = nullptr;  // [count, kGroupFields]
  int64_t group_rows = 1;
  int32_t k = 1, mode = kLogProbs, flags = 0;
  const float* warpers = nullptr;         // [count, kWarperFields]
  const float* random_numbers = nullptr;  // numbers in [0, 1) for groups that sample
  int64_t num_random_numbers = 0;

  const float* bias = nullptr;            // [rows], added at the end
  const int32_t* edit_offsets = nullptr;  // [rows + 1]; null: no edits
  const int32_t* edit_tokens = nullptr;
  const int32_t* edit_ops = nullptr;
  const float* edit_values = nullptr;
  int64_t num_edits = 0;

  // N-grams that no row may repeat, before the edits: of an index that has taken its step, or of
  // whole rows of tokens where ngram_size is above 0.
  ngram_block::IndexView index;
  ngram_block::Rows history;
  int64_t ngram_size = 0;
};

constexpr bool HasNamed(const Problem& p) {
  return p.edit_offsets != nullptr || p.index.header != nullptr || p.ngram_size > 0;
}

// The candidates of each group, best first: -inf, -1, -1 where fewer are possible; NaN, -1, -1 in
// all places of a group whose scores or request are bad.
struct Outputs {
  float* scores = nullptr;    // [count, width]
  int32_t* rows = nullptr;    // [count, width]
  int32_t* tokens = nullptr;  // [count, width]
  int64_t width = 0;          // maximum of candidates of a group
  int32_t* faults = nullptr;  // [count, kFaultFields]
};

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PROBLEM_H_
