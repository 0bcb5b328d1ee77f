// Groups, bans and faults, as all kernels of this folder read and tell them.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_GROUP_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_GROUP_CUH_

#include "../device/number.cuh"
#include "../ngram-block/forest.cuh"
#include "../ngram-block/rows.cuh"
#include "problem.h"

namespace graft {
namespace cuda {
namespace logits_top_k {

// A function that is never inlined.
#if defined(__CUDACC__)
#define GRAFT_APART __device__ __noinline__
#else
#define GRAFT_APART inline
#endif

constexpr uint32_t kNothingBits = 0xff800000u;  // -inf
GRAFT_DEVICE float Nothing() { return __uint_as_float(kNothingBits); }
GRAFT_DEVICE bool IsBad(float x) { return !(x < __uint_as_float(0x7f800000u)); }

// A run of rows that share their candidates.
struct Group {
  int64_t first, count;
  int32_t k, mode;
  bool log_softmax, normalize;
  int64_t top_k, min_keep, first_random_number;
  float temperature, top_p, min_p, typical_p;
  bool good;  // the request can be computed
};

GRAFT_DEVICE Group ReadGroup(const Problem& p, int64_t g, int64_t width) {
  Group group = {};
  int32_t flags = p.flags;
  if (p.groups == nullptr) {
    group.first = g * p.group_rows;
    group.count = p.group_rows;
    group.k = p.k;
    group.mode = p.mode;
  } else {
    const int32_t* field = p.groups + g * kGroupFields;
    group.first = field[0];
    group.count = field[1];
    group.k = field[2];
    group.mode = field[3];
    flags = field[4];
    group.top_k = field[5];
    group.min_keep = field[6];
    group.first_random_number = field[7];
  }
  group.log_softmax = (flags & kFlagLogSoftmax) != 0;
  group.normalize = (flags & kFlagNormalize) != 0;
  if (p.warpers != nullptr) {
    const float* warper = p.warpers + g * kWarperFields;
    group.temperature = warper[0];
    group.top_p = warper[1];
    group.min_p = warper[2];
    group.typical_p = warper[3];
  }
  group.good = group.first >= 0 && group.count >= 1 && group.first + group.count <= p.rows &&
               group.k >= 1 && group.k <= width && group.mode >= kLogProbs && group.mode <= kSample;
  if (group.mode == kSample) {
    group.good = group.good && p.random_numbers != nullptr && group.first_random_number >= 0 &&
                 group.first_random_number + group.k <= p.num_random_numbers &&
                 (group.log_softmax || group.count == 1);
  }
  if (p.index.header != nullptr && p.index.header->fault != ngram_block::kIndexGood) {
    group.good = false;
  }
  return group;
}

// The edits [*first, *last) of a row; false when the offsets contradict themselves.
GRAFT_DEVICE bool EditsOf(const Problem& p, int64_t row, int32_t* first, int32_t* last) {
  *first = *last = 0;
  if (p.edit_offsets == nullptr) return true;
  const int32_t begin = p.edit_offsets[row], end = p.edit_offsets[row + 1];
  if (begin < 0 || end < begin || end > p.num_edits) return false;
  *first = begin;
  *last = end;
  return true;
}

GRAFT_DEVICE float Edit(int32_t op, float value, float score) {
  if (op == kAdd) return score + value;
#if defined(__CUDACC__)  // never one with the sum that follows: rounded as on the CPU
  if (op == kPenalise) return score < 0 ? __fmul_rn(score, value) : score / value;
#else
  if (op == kPenalise) return score < 0 ? score * value : score / value;
#endif
  return op == kBan ? Nothing() : value;
}

// Calls ban(token) on some lane for every token of the vocabulary that would repeat an n-gram of
// the row, as the index has it. All lanes of a warp call it.
template <typename Ban>
GRAFT_DEVICE void ForEachIndexBan(const Problem& p, int64_t row, const Ban& ban) {
  if (p.index.header == nullptr) return;
  ngram_block::ForEachBanned(p.index, p.index.head[row], [&](int64_t token) {
    if (token >= 0 && token < p.vocab) ban(token);
  });
}

// The same on some thread of the block, as the row's tokens have it. All threads of the block call
// it. `scratch` is shared memory of kTrimBytes.
template <typename Ban>
GRAFT_DEVICE void ForEachHistoryBan(const Problem& p, int64_t row, int32_t* scratch,
                                    const Ban& ban) {
  if (p.ngram_size <= 0) return;
  const int64_t length = ngram_block::LengthOf(p.history, row);
  const auto scan = [&](const auto* tokens) {
    int64_t first, last;
    ngram_block::Trim(tokens, length, p.history.pad, scratch, &first, &last);
    ngram_block::ForEachRepeat(tokens, first, last, p.ngram_size, 0, 1, [&](int64_t token) {
      if (token >= 0 && token < p.vocab) ban(token);
    });
  };
  const int64_t at = row * p.history.stride;
  if (p.history.wide_tokens) return scan(static_cast<const int64_t*>(p.history.tokens) + at);
  scan(static_cast<const int32_t*>(p.history.tokens) + at);
}

// The fault of a group, if it has one. Of several the first is reported.
struct Fault {
  int32_t kind, row, token, bits;
};

GRAFT_DEVICE void Tell(Fault* fault, int32_t kind, int64_t row, int64_t token, float score) {
  if (fault->kind != kNone) return;
  *fault = {kind, static_cast<int32_t>(row), static_cast<int32_t>(token), __float_as_int(score)};
}

// One token that may be among the best, and what it is ranked by.
struct alignas(16) Ranked {
  float key;
  int32_t row, token;
  float score;
};

GRAFT_DEVICE bool Before(const Ranked& a, const Ranked& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

// Writes a group's fault, and what stands for no candidate in its places after the first `found`;
// in all of them where the fault forbids candidates. All threads of the block call it.
GRAFT_DEVICE void PutRest(const Outputs& out, int64_t g, Fault fault, int64_t first,
                          int32_t found) {
  if (found == 0) Tell(&fault, kNothingLeft, first, -1, 0);
  const bool told = fault.kind == kBadScore || fault.kind == kBadRequest;
  for (int64_t i = (told ? 0 : found) + threadIdx.x; i < out.width; i += blockDim.x) {
    const int64_t at = g * out.width + i;
    out.scores[at] = __uint_as_float(told ? 0x7fc00000u : kNothingBits);
    out.rows[at] = -1;
    out.tokens[at] = -1;
  }
  if (threadIdx.x == 0) {
    int32_t* to = out.faults + g * kFaultFields;
    to[0] = fault.kind;
    to[1] = fault.row;
    to[2] = fault.token;
    to[3] = fault.bits;
  }
}

// The same, after the candidates, which are in shared memory.
GRAFT_DEVICE void PutGroup(const Outputs& out, int64_t g, const Fault& fault, int64_t first,
                           const Ranked* best, int32_t found) {
  if (fault.kind != kNone) found = 0;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < found;
       i += static_cast<int32_t>(blockDim.x)) {
    const int64_t at = g * out.width + i;
    out.scores[at] = best[i].score;
    out.rows[at] = best[i].row;
    out.tokens[at] = best[i].token;
  }
  PutRest(out, g, fault, first, found);
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_GROUP_CUH_
