// Random calls over pools of rows, and of keys and values after them.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_PROBLEM_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "row_attention.h"

namespace graft {
namespace row_attention {
namespace testing {

constexpr int64_t kBand = 256;       // bytes before and after each pool
constexpr int64_t kOutputBand = 64;  // floats before and after the output

struct RandomProblem {
  Problem problem;
  Tuning tuning;
  int threads = 1;
  // Bytes are 0xFF, NaN in every type, but for the slots that were filled.
  std::vector<char> rows, keys;
  int64_t rows_start = 0, keys_start = 0;
  // As a layer has them: [width][kv_heads * head_size], and of rows of keys the weight from keys to
  // values, [width][kv_heads * value_size].
  std::vector<float> key_matrix, value_matrix;
  std::vector<float> key_panels, value_panels, key_bias, value_bias;
  std::vector<float> query, input, key, value, bias, cosine, sine;
  std::vector<float> output;  // NaN, between two bands
  std::vector<float> skipped;
  std::vector<int32_t> sequences, shared_slots, private_slots, slot_mapping, kv_sequences,
      kv_shared_slots, kv_private_slots, kv_slot_mapping;
  std::string description;
};

// Makes problem number `index` of a fixed sequence; with all_storages also over pools that variants
// for CUDA do not read: rows of int8, and keys and values of what is no float32.
void Make(uint32_t index, RandomProblem& made, bool all_storages = false);

// W [width][heads * size] as [heads][ceil(width / 16)][size][16], and as
// [heads][ceil(size / 16)][width][16].
std::vector<float> RowPanels(const std::vector<float>& w, int64_t width, int64_t heads,
                             int64_t size);
std::vector<float> ColumnPanels(const std::vector<float>& w, int64_t width, int64_t heads,
                                int64_t size);

}  // namespace testing
}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_PROBLEM_H_
