// Attention over a pool of cached keys and values, on the CPU: every row is one token.
//
// The kernel knows nothing of any runtime. A pool holds keys and values of many sequences in blocks
// of 16 slots, with an area a layer; a slot is one token. Rows that share a past (the beams of a
// request, the tokens of a prompt) form a group: the positions on which all of them agree are
// listed once and read once, the others are listed a row. Reordering beams changes lists and moves
// nothing.
//
// For row i of a group, query head h and the key of position j, with d = position of row i - j:
//
//   s[j]   = scale * dot(query[i, h], key[slot of j, h / (heads / kv_heads)])
//   s[j]   = softcap * tanh(s[j] / softcap)                      where softcap > 0
//   s[j]   = s[j] + bias[h, min(d, distances - 1)]                where there is a bias, maybe
//                                                                 one for each row
//   s[j]   = -inf                                                 where window > 0 and d >= window
//   output = softmax(s) * values
#ifndef GRAFT_PLUGINS_FLASH_DECODE_CACHED_H_
#define GRAFT_PLUGINS_FLASH_DECODE_CACHED_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "attention.h"
#include "graft/checked.h"
#include "graft_cache.h"

namespace graft {
namespace attention {

constexpr int64_t kBlockSlots = GRAFT_CACHE_BLOCK_SIZE;

// What a pool stores numbers as. Those of kInt8 are whole numbers from -127 to 127 times a float32
// scale: max |x| / 127 of the numbers that share it.
enum class Storage { kFloat32, kFloat16, kBfloat16, kInt8 };

// Bytes of a number, as a shift.
constexpr int ShiftOf(Storage storage) {
  return storage == Storage::kFloat32 ? 2 : storage == Storage::kInt8 ? 0 : 1;
}

// The keys and values of one layer in a pool, laid out as graft_cache.h says: a float32 tensor
// [blocks, block_floats], this layer's area at `offset` of every block. A key or value of int8 has
// one scale.
struct Pool {
  float* data = nullptr;
  int64_t blocks = 0;
  int64_t block_floats = 0;
  int64_t offset = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t value_size = 0;
  Storage storage = Storage::kFloat32;

  Size slots() const { return Size(blocks) * kBlockSlots; }
  int shift() const { return ShiftOf(storage); }
  // Floats of the scales before the numbers.
  int64_t scales() const { return storage == Storage::kInt8 ? graft_cache_scales(kv_heads) : 0; }
  // Floats of the area: graft_cache_typed_kv_area.
  Size floats() const {
    const Size numbers = Size(kv_heads) * kBlockSlots * (Size(head_size) + value_size);
    const Size scaled = storage == Storage::kInt8 ? Size(kv_heads) * (2 * kBlockSlots) : Size(0);
    return RoundUp(numbers / (4 >> shift()), GRAFT_CACHE_LINE_FLOATS) + scaled;
  }
  // Where head 0 of a slot's key and value stand, in numbers from data; the next head is
  // kBlockSlots * head_size, or value_size, further.
  int64_t KeyOffset(int64_t slot) const {
    return graft_cache_typed_key_offset(slot, 0, block_floats, offset, head_size, 1 << shift(),
                                        scales()) >>
           shift();
  }
  int64_t ValueOffset(int64_t slot) const {
    return graft_cache_typed_value_offset(slot, 0, block_floats, offset, kv_heads, head_size,
                                          value_size, 1 << shift(), scales()) >>
           shift();
  }
  // Where head 0's scale of a slot's key stands, in floats from data; the next head is kBlockSlots
  // further, and values follow keys.
  int64_t ScaleOffset(int64_t slot) const {
    return graft_cache_scale_offset(slot, 0, block_floats, offset);
  }
  // The number at an offset.
  char* At(int64_t number) const {
    return reinterpret_cast<char*>(data) + number * (int64_t{1} << shift());
  }
  // Where the key and the value of a slot and KV head begin.
  char* Key(int64_t slot, int64_t head) const {
    return At(KeyOffset(slot) + head * kBlockSlots * head_size);
  }
  char* Value(int64_t slot, int64_t head) const {
    return At(ValueOffset(slot) + head * kBlockSlots * value_size);
  }
  // Stores the scales of a key and a value, where there are any.
  void Scale(int64_t slot, int64_t head, float key, float value) const {
    if (storage != Storage::kInt8) return;
    float* scale = data + ScaleOffset(slot) + head * kBlockSlots;
    scale[0] = key;
    scale[kv_heads * kBlockSlots] = value;
  }
};

// Columns of CachedProblem::sequences, the sequence descriptors of graft_cache.h: n tokens of a
// group, S shared and m private positions.
enum SequenceColumn {
  kSequenceFirstToken = GRAFT_SEQUENCE_FIRST_TOKEN,
  kSequenceTokens = GRAFT_SEQUENCE_TOKENS,
  kSequenceSharedOffset = GRAFT_SEQUENCE_SHARED_OFFSET,
  kSequenceShared = GRAFT_SEQUENCE_SHARED,
  kSequencePrivateOffset = GRAFT_SEQUENCE_PRIVATE_OFFSET,
  kSequencePrivate = GRAFT_SEQUENCE_PRIVATE,
  kSequenceCausal = GRAFT_SEQUENCE_CAUSAL,
  kSequenceReserved = GRAFT_SEQUENCE_RESERVED,
  kSequenceColumns = GRAFT_SEQUENCE_COLUMNS,
};

// The sequence descriptor of a group.
inline const int32_t* SequenceOf(const int32_t* sequences, int64_t group) {
  return sequences + Size(group) * kSequenceColumns;
}

// One call: new keys and values are written first, then all rows attend. Row i of a group that is
// not causal is position S + m - 1.
struct CachedProblem {
  Pool pool;
  int64_t rows = 0;   // T, over all groups
  int64_t heads = 0;  // of the query; a multiple of pool.kv_heads

  const float* query = nullptr;  // [T][heads][head_size]
  const float* key = nullptr;    // [T][kv_heads][head_size], or null: nothing is written
  const float* value = nullptr;  // [T][kv_heads][value_size]
  int64_t query_stride = 0;      // floats from row to row
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  const int32_t* slot_mapping =
      nullptr;                // [T] slot of each row, -1: not written. Slots must differ.
  float* output = nullptr;    // [T][heads][value_size]
  int64_t output_stride = 0;  // floats from row to row; 0: compact
  float* lse =
      nullptr;  // [T][heads] log of the sum of exp(s[j]), -inf where no key counts; or none

  const int32_t* sequences = nullptr;  // [groups][kStepColumns]; each row is in exactly one group
  int64_t groups = 0;
  const int32_t* shared_slots = nullptr;
  int64_t shared_length = 0;
  const int32_t* private_slots = nullptr;
  int64_t private_length = 0;

  const float* bias = nullptr;  // [heads][distances], or [T][heads][distances]
  int64_t distances = 0;
  int64_t bias_stride = 0;  // floats from row to row; 0: the same for all rows

  const float* sinks = nullptr;  // [heads]: scores that weigh no value, one a query head

  float scale = 0.0f;    // 0 stands for 1 / sqrt(head_size)
  float softcap = 0.0f;  // 0: none
  int64_t window = 0;    // 0: none
};

// What is otherwise chosen by the shape of the problem; tests force every value in turn.
struct CachedTuning {
  Isa isa = Isa::kBest;
  int64_t parts = 0;         // parts that a group's keys are cut into; 0: chosen
  int64_t head_chunk = 0;    // KV heads of one task; 0: chosen
  int64_t row_chunk = 0;     // rows of one task; 0: chosen
  int64_t serial_cost = -1;  // work, in nanoseconds, below which one thread does all; -1: chosen
};

// Returns an empty string when the pool's sizes are positive, or none, and the layer's area lies
// within a block, or what is wrong.
std::string ValidatePool(const Pool& pool);

// Returns an empty string when the problem is well formed and every slot and list lies within
// bounds, or what is wrong. Neither the pool nor a list is touched before it is known to be safe.
std::string Validate(const CachedProblem& problem);

// Bytes of scratch that Run needs, from shapes alone: no list is read. Throws graft::Error for
// sizes that Validate refuses, or that need more memory than can be counted.
size_t WorkspaceSize(const CachedProblem& problem, int64_t threads,
                     const CachedTuning& tuning = CachedTuning());

// Computes the problem, which Validate must have accepted. Allocates nothing and throws nothing.
// Calls at once are safe when none reads what another writes. workspace needs no alignment. Results
// do not depend on the other groups of the call, nor on the number of threads.
void Run(const CachedProblem& problem, void* workspace, const Runner& runner,
         const CachedTuning& tuning = CachedTuning());

// Keys and values [batch, kv_heads, positions, size] on their way into a pool.
struct StoreProblem {
  Pool pool;
  int64_t batch = 0;
  int64_t positions = 0;
  Input key;
  Input value;
  const int32_t* slot_mapping = nullptr;  // [batch * positions] slot of each, -1: left out
};

std::string Validate(const StoreProblem& problem);

// Stores all positions and returns how many there were.
int64_t Run(const StoreProblem& problem, const Runner& runner);

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_CACHED_H_
