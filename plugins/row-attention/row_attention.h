// Attention over rows that all heads share, on the CPU: hidden states from which keys and values
// were never made (Yan et al.: EL-Attention, 2021, eq. 5), or the keys of all heads side by side,
// from which values follow (Graef: Slim attention, 2025). Raw pointers, no runtime.
//
// A pool holds one row of `width` numbers a slot, in blocks of 16 slots; sequence descriptors and
// lists of slots are those of flash-decode's cached.h. For token i of a group, query head h of KV
// head g and the row x[j] of position j, with W_K, W_V of head g and d = position of i - j:
//
//   s[j]   = scale * (dot(query[i, h] W_K^T, x[j]) + dot(query[i, h], b_K))
//   s[j]   = softcap * tanh(s[j] / softcap)                       where softcap > 0
//   s[j]   = s[j] + bias[h, min(d, distances - 1)]                 where there is a bias
//   s[j]   = -inf                                                  where window > 0 and d >= window
//   output = (softmax(s) x) W_V + b_V
//
// Rows of keys have no W_K: slice h of a row is the key of head h, and scores are taken from it.
//
// After these positions there may be others, whose keys and values stand in a pool of their own:
// the softmax is over both.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_ROW_ATTENTION_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_ROW_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "cached.h"
#include "graft_cache.h"

namespace graft {
namespace row_attention {

using attention::kBlockSlots;
using attention::Runner;
using attention::Storage;

constexpr int64_t kPanel = GRAFT_PANEL_COLUMNS;

// One area of rows of a pool, laid out as graft_cache.h says.
struct RowPool {
  float* data = nullptr;  // [blocks][block_floats]
  int64_t blocks = 0;
  int64_t block_floats = 0;
  int64_t offset = 0;  // floats from the start of a block
  int64_t width = 0;
  Storage storage = Storage::kFloat32;

  Size slots() const { return Size(blocks) * kBlockSlots; }
  int64_t element_bytes() const { return int64_t{1} << attention::ShiftOf(storage); }
  // Bytes of a row, its scales included.
  int64_t row_bytes() const {
    return storage == Storage::kInt8 ? graft_cache_int8_row(width) : width * element_bytes();
  }
  // Floats of a block that the area takes: graft_cache_row_area.
  Size area_floats() const {
    const Size bytes =
        storage == Storage::kInt8
            ? DivideUp(Size(width), GRAFT_CACHE_SCALE_GROUP) * 4 + RoundUp(Size(width), 4)
            : Size(width) * element_bytes();
    return RoundUp(bytes * kBlockSlots / 4, GRAFT_CACHE_LINE_FLOATS);
  }
  // Where a slot's row stands, in bytes from data.
  int64_t RowOffset(int64_t slot) const {
    return graft_cache_row_offset(slot, block_floats, offset, row_bytes(), 1);
  }
};

// What rows are, and so how scores come about.
enum class RowKind {
  kHiddenStates,  // width of the layer's input; queries are expanded with W_K
  kKeys,          // keys of all heads side by side; heads == kv_heads, width == heads * head_size
};

// Rotary angles that turn keys. kHalf turns (x[j], x[j + r/2]), kInterleaved (x[2j], x[2j + 1]).
enum class Rotary { kNone, kHalf, kInterleaved };

// One call. New rows, keys and values are written first, then all tokens attend. Token i of a group
// that is not causal is the last position of all: after the rows and after the keys of the second
// part. Either part of a group may be empty, in which case the other may be causal.
struct Problem {
  RowPool pool;
  RowKind kind = RowKind::kHiddenStates;
  int64_t tokens = 0;  // T, over all groups
  int64_t heads = 0;   // of the query; a multiple of kv_heads
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t value_size = 0;

  const float* query = nullptr;  // [T][heads][head_size]
  int64_t query_stride = 0;      // floats from token to token
  // [kv_heads][width / 16, rounded up][head_size][16]: [g][p][c][i] = W_K[p * 16 + i][g, c]; none
  // of rows that are keys.
  const float* key_weight = nullptr;
  // [kv_heads][value_size / 16, rounded up][width][16]: [g][p][f][i] = W_V[f][g, p * 16 + i].
  const float* value_weight = nullptr;
  const float* key_bias = nullptr;    // [kv_heads][head_size], or none
  const float* value_bias = nullptr;  // [kv_heads][value_size], or none

  const int32_t* sequences = nullptr;  // [groups][kStepColumns], see cached.h
  int64_t groups = 0;
  const int32_t* shared_slots = nullptr;
  int64_t shared_length = 0;
  const int32_t* private_slots = nullptr;
  int64_t private_length = 0;

  const float* bias = nullptr;  // [heads][distances]
  int64_t distances = 0;

  const float* input = nullptr;           // [T][width], rows to write, or none
  int64_t input_stride = 0;               // floats from token to token
  const int32_t* slot_mapping = nullptr;  // [T] slot of each, -1: not written. Slots must differ.

  // Keys and values after the rows, where kv_sequences is given: groups of the same tokens in the
  // same order. key and value are written at kv_slot_mapping, and may also be used for a prompt
  // all of whose rows are new, instead of keys and values made from these.
  attention::Pool kv_pool;
  const int32_t* kv_sequences = nullptr;
  const int32_t* kv_shared_slots = nullptr;
  int64_t kv_shared_length = 0;
  const int32_t* kv_private_slots = nullptr;
  int64_t kv_private_length = 0;
  const int32_t* kv_slot_mapping = nullptr;  // [T]
  const float* key = nullptr;                // [T][kv_heads][head_size], or none
  const float* value = nullptr;              // [T][kv_heads][value_size]
  int64_t key_stride = 0;
  int64_t value_stride = 0;

  // Of rows that are keys. Rotated rows are turned back for the weighted sum, others are turned for
  // the scores; queries are turned already.
  Rotary rotary = Rotary::kNone;
  bool rotated = false;
  const float* cosine = nullptr;  // [positions][pairs]
  const float* sine = nullptr;
  int64_t positions = 0;
  int64_t pairs = 0;  // half the rotary size; 2 * pairs <= head_size

  // A key whose weight exp(s - m) is below `skip`, m being the highest score that its token and
  // head have met in this part of the keys so far, adds nothing to the weighted sum; it still
  // counts in the softmax. Its probability is below skip too, because the final m is no lower and
  // the sum of weights at least 1.
  float skip = 0.0f;
  float* skipped = nullptr;  // [T][heads], probability that was left out; or none

  float scale = 0.0f;    // 0 stands for 1 / sqrt(head_size)
  float softcap = 0.0f;  // 0: none
  int64_t window = 0;    // 0: none

  float* output = nullptr;  // [T][heads][value_size], compact
};

// What is otherwise chosen by the shape of the problem; tests force every value in turn.
struct Tuning {
  Isa isa = Isa::kBest;
  int64_t parts = 0;      // parts that a group's rows are cut into; 0: chosen
  int64_t row_chunk = 0;  // rows of (token, head) of one task; 0: chosen
  int64_t prompt = -1;    // 1: keys and values of every group that allows it are made, 0: of none
  int64_t serial_cost = -1;  // work, in nanoseconds, below which one thread does all; -1: chosen
};

// Returns an empty string when the rows have a width and their area lies within a block, or what is
// wrong.
std::string ValidatePool(const RowPool& pool);

// Returns an empty string when the sizes are those of one problem, whatever tensors hold, or what
// is wrong.
std::string ValidateSizes(const Problem& problem);

// Returns an empty string when the problem is well formed and every slot and list lies within
// bounds, or what is wrong. Neither a pool nor a list is touched before it is known to be safe.
std::string Validate(const Problem& problem);

// Bytes of scratch that Run needs, from shapes alone: no list is read. Throws graft::Error for
// sizes that ValidateSizes refuses, or that need more memory than can be counted.
size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning = Tuning());

// Computes the problem, which Validate must have accepted. Allocates nothing and throws nothing.
// Calls at once are safe when none reads what another writes. workspace needs no alignment. Results
// do not depend on the other groups of the call, nor on the number of threads.
void Run(const Problem& problem, void* workspace, const Runner& runner,
         const Tuning& tuning = Tuning());

// Rows on their way into a pool.
struct StoreProblem {
  RowPool pool;
  const float* rows = nullptr;  // [count][width]
  int64_t count = 0;
  const int32_t* slot_mapping = nullptr;  // [count] slot of each, -1: left out
};

std::string Validate(const StoreProblem& problem);

// Stores all rows and returns how many there were.
int64_t Run(const StoreProblem& problem, const Runner& runner);

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_ROW_ATTENTION_H_
