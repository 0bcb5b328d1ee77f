// Attention of many or few queries over a cache of keys and values, on the CPU.
//
// The kernel knows nothing of any runtime: it sees raw pointers, element strides and a function
// that runs tasks in parallel. What it computes, for batch row b, query head h and query i:
//
//   s[j]   = scale * dot(query[b, h, i], key[b, h / (heads / kv_heads), j])
//   s[j]   = softcap * tanh(s[j] / softcap)                      where softcap > 0
//   s[j]   = mask ? s[j] : mask_fill, and + bias, in the order that mask_after_bias names
//   s[j]   = -inf                   where lengths, key_limit, causal or a window exclude key j
//   p      = softmax(s), of whose sum exp(sinks[h]) is a part, where there are sinks
//   output = sum_j p[j] * value[b, h / (heads / kv_heads), j]
//
// Keys 0 .. past-1 come from past_key, the rest from key. While they are read they are also written
// to present_key (and values to present_value), so that the cache crosses the memory bus once.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_ATTENTION_H_
#define GRAFT_PLUGINS_FLASH_DECODE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "graft/isa.h"

namespace graft {
namespace attention {

enum class Type { kFloat32, kFloat16 };

// Strides of a rank-4 tensor in elements, addressed as [batch, head, position, feature].
struct Strides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t position = 0;
  int64_t feature = 1;
};

// A tensor that is read. data == nullptr means "absent".
struct Input {
  const void* data = nullptr;
  Strides strides;
};

// A tensor that is written. data == nullptr means "not wanted".
struct Output {
  void* data = nullptr;
  Strides strides;
};

// The stage of the scores that Problem::scores receives.
enum class ScoresStage {
  kProduct,        // scale * dot(query, key)
  kSoftcapped,     // after the softcap
  kMasked,         // after mask, bias and index limits
  kProbabilities,  // after the softmax
};

// Where the diagonal of a causal mask or a window lies: query i stands at position i + offset.
enum class DiagonalFrom {
  kPast,     // offset = past: the queries are the newest positions of a cache
  kLengths,  // offset = lengths[b] - queries: the cache is a fixed buffer with `lengths` valid keys
};

// One call of the operator. Everything the kernel reads is const; outputs must not overlap inputs,
// except that a present tensor may be the past tensor itself (same pointer and strides), which then
// receives only the new positions.
struct Problem {
  Type type = Type::kFloat32;  // of query, key, value, past, present, output, bias and scores

  int64_t batch = 0;
  int64_t heads = 0;       // H, query heads
  int64_t kv_heads = 0;    // G, H % G == 0
  int64_t queries = 0;     // S, query positions
  int64_t past = 0;        // P, positions in past_key and past_value
  int64_t fresh = 0;       // N, positions in key and value
  int64_t head_size = 0;   // D, of query and key
  int64_t value_size = 0;  // E, of value and output

  Input query;                         // [B, H, S, D]
  Input key;                           // [B, G, N, D]
  Input value;                         // [B, G, N, E]
  Input past_key;                      // [B, G, P, D]
  Input past_value;                    // [B, G, P, E]
  Output present_key;                  // [B, G, P+N, D], rows contiguous (feature stride 1)
  Output present_value;                // [B, G, P+N, E], rows contiguous
  Output output;                       // [B, H, S, E]
  Output scores;                       // [B, H, S, P+N]
  Input bias;                          // [B, H, S, P+N]; a stride of 0 broadcasts
  Input mask;                          // [B, H, S, P+N], one byte each, 0 = replaced by mask_fill
  bool mask_hides = false;             // what is not 0 is replaced, in place of what is
  bool mask_adds = false;              // mask_fill is added to the score, which it replaces else
  const void* sinks = nullptr;         // [H], of `type`: scores that weigh no value
  const int32_t* lengths32 = nullptr;  // [B]; at most one of the two is set
  const int64_t* lengths64 = nullptr;  // [B]
  // Keys from here on are hidden from every row; bias and mask have no columns for them.
  int64_t key_limit = std::numeric_limits<int64_t>::max();

  float scale = 0.0f;    // 0 stands for 1 / sqrt(D)
  float softcap = 0.0f;  // 0: none
  bool causal = false;   // key j is visible to query i iff j <= i + offset
  int64_t window = 0;    // 0: none; else key j is visible to query i iff i + offset - j < window
  // Key j is visible to query i iff i + offset - j <= window_left, and j - i - offset <=
  // window_right. -1: any distance to that side.
  int64_t window_left = -1;
  int64_t window_right = -1;
  DiagonalFrom diagonal = DiagonalFrom::kPast;
  float mask_fill = -std::numeric_limits<float>::infinity();
  bool mask_after_bias = false;
  // false: a row whose scores are all -inf gives NaN, as a softmax does. true: it gives zeros.
  bool zero_masked_rows = false;
  // A row whose softmax gives NaN, be it for NaN or infinity among its scores or for want of any
  // key, gives zeros.
  bool clear_nan = false;
  ScoresStage scores_stage = ScoresStage::kProbabilities;
};

// Runs task(argument, i) for every i in [0, count), in any order and on any threads, and returns
// when all are done. `threads` is how many run at once at most; it sizes the work, and a wrong
// value costs speed only. With parallel_for == nullptr the caller's thread does everything.
struct Runner {
  void (*parallel_for)(void* context, int64_t count, void (*task)(void* argument, int64_t index),
                       void* argument) = nullptr;
  void* context = nullptr;
  int64_t threads = 1;
};

// What is otherwise chosen by the shape of the problem; tests force every value in turn.
struct Tuning {
  Isa isa = Isa::kBest;
  int64_t splits = 0;           // parts that the keys of one head are split into; 0: chosen
  int64_t row_chunk = 0;        // query rows of one task; 0: chosen
  int64_t packed_rows = 0;      // rows from which on keys are packed for a matmul; 0: chosen
  int64_t serial_cost = -1;     // work, in nanoseconds, below which one thread does all; -1: chosen
  int64_t streamed_bytes = -1;  // size of present from which on it bypasses the caches; -1: chosen
};

// True when this CPU, and this build, can run `isa`.
bool Supports(Isa isa);

// Returns nullptr when the problem is well formed, or a static message that says what is wrong.
const char* Validate(const Problem& problem);

// The same of its sizes alone, which is what a plan needs.
const char* ValidateSizes(const Problem& problem);

// Bytes of scratch that Run needs. Both calls must see the same shapes, threads and tuning. Throws
// graft::Error for sizes that ValidateSizes refuses, or that need more memory than can be counted.
size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning = Tuning());

// Computes the problem, which Validate must have accepted. Allocates nothing, throws nothing and
// retains nothing: concurrent calls with different workspaces are safe. workspace needs no
// alignment.
void Run(const Problem& problem, void* workspace, const Runner& runner,
         const Tuning& tuning = Tuning());

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_ATTENTION_H_
