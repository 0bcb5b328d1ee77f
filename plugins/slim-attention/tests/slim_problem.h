// Random layers of attention that keep keys or inputs, and what multi-head attention makes of them
// in float64.
#ifndef GRAFT_PLUGINS_SLIM_ATTENTION_TESTS_SLIM_PROBLEM_H_
#define GRAFT_PLUGINS_SLIM_ATTENTION_TESTS_SLIM_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "row_attention.h"

namespace graft {
namespace row_attention {
namespace testing {

// What a layer caches of each position.
enum class Kept {
  kKeys,    // its keys
  kInputs,  // its input
  kBase,    // keys of another layer with the same input (section 7's hybrid)
};

constexpr int64_t kOutputBand = 64;  // floats before and after the output

// A layer, K = X W_K + b_K and V = X W_V + b_V, with tokens in groups that attend.
struct Layer {
  Kept kept = Kept::kKeys;
  int64_t width = 0;  // d, of X
  int64_t heads = 0, kv_heads = 0, head_size = 0, value_size = 0;
  std::vector<double> key_weight, value_weight, key_bias, value_bias;  // biases may be empty
  // Rotary angles [positions][pairs]; none where there are no pairs.
  int64_t pairs = 0;
  std::vector<float> cosine, sine;
  std::vector<std::vector<double>> inputs;  // X by slot; empty where a slot holds nothing
  std::vector<int64_t> positions;           // by slot

  // What the kernel is given.
  Problem problem;
  Tuning tuning;
  int threads = 1;
  std::vector<float> pool, key_panels, value_panels, folded_key_bias, folded_value_bias;
  std::vector<float> query, rows, bias, output, skipped;
  std::vector<int32_t> sequences, shared_slots, private_slots, slot_mapping;
  std::string description;
};

// Makes layer number `index` of a fixed sequence, its weights folded. `condition` bounds the
// condition number of what is inverted.
void Make(uint32_t index, double condition, Layer& made);

// Multi-head attention by its definition.
struct Answer {
  std::vector<double> output;  // [tokens][heads][value_size]
  // By token and head: the probability of all keys that have less than problem.skip each, and the
  // largest |value - value_bias of the problem| of any key.
  std::vector<double> below_skip, largest;
};
Answer Compute(const Layer& layer);

}  // namespace testing
}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_SLIM_ATTENTION_TESTS_SLIM_PROBLEM_H_
