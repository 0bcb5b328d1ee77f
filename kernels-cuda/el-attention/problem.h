// Attention of many rows of queries against one matrix that serves as keys and as values:
//
//   s[j]   = scale * dot(query, X[j]) + shift
//   s[j]   = softcap * tanh(s[j] / softcap)              where softcap > 0
//   s[j]   = s[j] + bias[head, min(d, distances - 1)]    where there is a bias
//   s[j]   = -inf                                        where d < 0, or d >= window > 0
//   output = softmax(s) X
//
// d is the number of positions from j to the row's token.
//
// A row belongs to a token and a head, a token to a group: the tokens of a request (its beams, or
// those of a prompt), which read X together. Everything that says how much there is to do may stand
// in device memory, so launches are planned from upper bounds.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PROBLEM_H_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PROBLEM_H_

#include "../device/cache.h"
#include "../device/launch.h"

namespace graft {
namespace cuda {
namespace el_attention {

// Where X stands: slot s begins at data + s / block_slots * block_bytes + s % block_slots *
// row_bytes. A tensor [requests][keys][width] has a block a request, a pool blocks of 16 slots.
struct Rows {
  const void* data = nullptr;
  Type type = Type::kFloat32;
  int32_t slots = 0;
  int32_t width = 0;
  int32_t block_slots = 1;
  int64_t block_bytes = 0;
  int64_t row_bytes = 0;
};

// Groups, and the slots of their positions; pointers of device memory. An index that lies outside
// of a list, or a slot outside of the rows, is a key that is not there.
struct Lists {
  int32_t groups = 0;
  const int32_t* sequences = nullptr;  // [groups][8]; none: the dense form below
  const int32_t* shared_slots = nullptr;
  const int32_t* private_slots = nullptr;
  int32_t shared_length = 0;
  int32_t private_length = 0;
  // [groups][8] of positions after these, which are attended to elsewhere; or none.
  const int32_t* second = nullptr;

  // Dense: group g has tokens g * group_tokens .. and slots g * group_keys .., of which the first
  // lengths[g] count, or all without lengths.
  int32_t group_tokens = 0;
  int32_t group_keys = 0;
  const int32_t* lengths = nullptr;
  bool causal = false;
};

struct Problem {
  Rows rows;
  Lists lists;
  int32_t tokens = 0;
  int32_t heads = 0;

  const void* query = nullptr;   // [tokens * heads][width] of the rows' type
  int64_t query_stride = 0;      // numbers from row to row
  const float* shift = nullptr;  // [tokens * heads], or none
  const float* bias = nullptr;   // [heads][distances], or none
  int32_t distances = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  int32_t window = 0;    // 0: none

  void* output = nullptr;  // [tokens * heads][width] of output_type; zeros where no key counts
  Type output_type = Type::kFloat32;  // the rows' type or kFloat32
  int64_t output_stride = 0;
  float* lse = nullptr;  // [tokens * heads], log of the sum of exp(s[j]), -inf; or none
};

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PROBLEM_H_
