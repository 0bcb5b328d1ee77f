// Attention of float32 as ONNX Runtime computes it in separate nodes, with the bits of those: raw
// pointers, no runtime.
//
// A product of matrices is one chain of fused multiply-adds an element, in the order of the depth;
// chains of a depth beyond what ONNX Runtime takes at a time are added up one after the other. A
// softmax adds up 16 partial sums, which are joined in a fixed order.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_ATTENTION_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace graft {
namespace quantized {

// One call. y must not overlap anything else.
struct Attention {
  int64_t batch = 0, heads = 0;   // B, H
  int64_t queries = 0, keys = 0;  // S, T
  int64_t size = 0, values = 0;   // D, V
  const float* q = nullptr;       // [B, H, S, D]
  const float* k = nullptr;       // [B, H, D, T]
  const float* v = nullptr;       // [B, H, T, V]
  float scale = 1.0f;             // of the products of q and k
  const float* mask = nullptr;    // added to them, or none
  int64_t mask_strides[4] = {};   // over B, H, S, T: 0 where it is the same along an axis
  float* y = nullptr;             // [B, H, S, V]
};

// Bytes of scratch that Attend needs. Both calls must see the same sizes and threads.
size_t AttentionWorkspace(const Attention& problem, int64_t threads);

// Computes the problem. False, and y is of no use, where a row of scores has no softmax. Allocates
// nothing, throws nothing and retains nothing. workspace needs no alignment.
bool Attend(const Attention& problem, void* workspace, const Runner& runner,
            Code code = Code::kBest);

// The depth of one chain in a product with this many columns.
int64_t ChainOf(int64_t columns, int64_t depth);

// Some rows of one head. The rows of scores are `stride` floats apart, whole vectors.
struct AttentionRows {
  int64_t rows, keys, size, values;
  const float* q;
  const float* k;
  const float* v;
  float scale;
  const float* mask;              // of the first row, or none
  int64_t mask_row, mask_column;  // strides
  int64_t size_chain, key_chain;  // of the products with k and v
  float* scores;
  int64_t stride;
  float* y;
};

constexpr int64_t kAttentionRows = 8;  // at most
constexpr int64_t kSoftmaxLanes = 16;  // partial sums

// False where a row has no softmax.
bool AttendRowsPortable(const AttentionRows& rows);
bool AttendRowsVnni(const AttentionRows& rows);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_ATTENTION_H_
