// One call of attention: few queries over many keys, wherever those stand.
//
// Queries come in groups. A group's rows see the same keys up to some position (a sequence; a
// request with its beams; the tokens of a prompt) and, after it, keys of their own. For row i of
// group g, query head h and the key at position j, with d = position of row i - j:
//
//   s[j]   = scale * dot(query[g, i, h], key[j, h / (heads / kv_heads)])
//   s[j]   = softcap * tanh(s[j] / softcap)                       where softcap > 0
//   s[j]   = mask ? s[j] : mask_fill, and + bias, in the order that mask_after_bias names
//   s[j]   = s[j] + distance_bias[h, min(d, distances - 1)]       where there is one, or one a row
//   s[j]   = -inf                 where j is beyond the group's length or key_limit, or d < 0 and
//                                 causal, or d >= window > 0, or j's slot is out of bounds
//   output = softmax(s) * values
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_PROBLEM_H_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_PROBLEM_H_

#include <cstdint>
#include <limits>

#include "../device/cache.h"
#include "../device/launch.h"

namespace graft {
namespace cuda {
namespace flash_decode {

// Where an element of a tensor stands: strides in elements. What `batch` and `position` count is
// said where one is used.
struct Strides {
  int64_t batch = 0, head = 0, position = 0, feature = 1;
};
struct Input {
  const void* data = nullptr;  // null: absent
  Strides strides;
};
struct Output {
  void* data = nullptr;
  Strides strides;
};

// How the key at a position is found. A cache is a row of blocks of slots, and a slot's key of head
// g is key[block, g, slot in the block]: strides.batch goes from block to block, strides.position
// from slot to slot.
enum class Places : int32_t {
  kContiguous,  // block = group, slot = position; from position `past` on in fresh_key, fresh_value
  kBlockTable,  // block = table[group, position / block_slots]
  kIndirection,  // a block a row, slot = position. Below `prefix` the group's first row's block;
                 // from there on block = table[row, position]
  kPool,         // slots as `sequences` list them: block = slot / block_slots
};

// The stage of the scores that Problem::scores receives.
enum class ScoresStage : int32_t { kProduct, kSoftcapped, kMasked, kProbabilities };

struct Problem {
  Type type = Type::kFloat32;  // of all tensors but masks, lists, lengths and distance_bias

  int64_t groups = 0;
  int64_t rows = 0;  // of each group; with sequences, of all of them together
  int64_t heads = 0, kv_heads = 0;
  int64_t head_size = 0, value_size = 0;

  // [group, head, row, feature]; with sequences the rows of all groups stand in one batch.
  Input query;
  Output output;
  float* lse = nullptr;  // [row, head]: log of the sum of exp(s), -inf where a row has no weights

  Places places = Places::kContiguous;
  int64_t keys = 0;  // positions of a group, at most; with sequences not used
  int64_t past = std::numeric_limits<int64_t>::max();
  Input key, value, fresh_key, fresh_value;
  int64_t blocks = 0, block_slots = 1;  // kBlockTable, kPool; kIndirection: blocks
  const int32_t* table = nullptr;       // kBlockTable, kIndirection
  int64_t table_stride = 0;             // from group to group, from row to row
  int64_t prefix = 0;                   // kIndirection
  const int32_t* sequences = nullptr;   // kPool, as are the next
  const int32_t *shared_slots = nullptr, *private_slots = nullptr;
  int64_t shared_length = 0, private_length = 0;

  // Positions of each group that count, [groups]; at most one is given.
  const int32_t* lengths32 = nullptr;
  const int64_t* lengths64 = nullptr;
  int64_t key_limit = std::numeric_limits<int64_t>::max();

  float scale = 0;    // 0 stands for 1 / sqrt(head_size)
  float softcap = 0;  // 0: none
  bool causal = false;
  int64_t window = 0;  // 0: none
  // Row i of a contiguous or tabled group is position diagonal + i; where negative, the group's
  // last rows are its last positions.
  int64_t diagonal = -1;
  Input bias;  // [group, head, row, key]; with sequences there is none
  Input mask;  // likewise, bytes
  float mask_fill = -std::numeric_limits<float>::infinity();
  bool mask_after_bias = false;
  const float* distance_bias = nullptr;  // [heads, distances], or [rows, heads, distances]
  int64_t distances = 0;
  int64_t distance_bias_stride = 0;  // floats from row to row; 0: the same for all rows
  // A row whose every score is -inf gives NaN, as a softmax does, or zeros. One that sees no key at
  // all because there is none gives zeros.
  bool zero_masked_rows = false;
  // A row whose softmax gives NaN, be it for NaN or infinity among its scores or for want of any
  // key, gives zeros.
  bool clear_nan = false;

  Output scores;  // [group, head, row, key]; with sequences there are none
  ScoresStage scores_stage = ScoresStage::kProbabilities;
};

constexpr bool IsPool(const Problem& p) { return p.places == Places::kPool; }

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_PROBLEM_H_
