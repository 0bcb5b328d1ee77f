// Slim attention (Graef: Slim attention: K-cache is all you need, 2025): a decode step over cached
// keys alone, from which values follow by W_KV. What a call is, and how it is cut into launches, in
// plain C++.
//
// A row of the cache is the key of one position, all heads side by side: width = heads * head_size.
// For token i, head h and the row x[j] of position j, with d = position of i - j:
//
//   s[j]   = scale * dot(query[i, h], slice h of x[j])
//   s[j]   = softcap * tanh(s[j] / softcap)                        where softcap > 0
//   s[j]   = s[j] + bias[h, min(d, distances - 1)]                 where there is a bias
//   s[j]   = -inf                                                  where window > 0 and d >= window
//   output = (softmax(s) x) W_KV,h + b_h                           (equation 2.1)
//
// Tokens stand in groups that see the same rows, in one of two forms:
//   pool:       rows in blocks of 16 slots; `sequences` lists the groups as in cached.h of
//               flash-decode (first token, tokens, offset into shared_slots, shared positions,
//               offset into private_slots, private ones a token, causal, 0). These lists stay in
//               device memory: no host reads them.
//   contiguous: rows [groups][positions], tokens / groups tokens a group.
// A slot or a list's place that is out of range is a key that is not there, and so is a position
// without rotary angles.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_PLAN_H_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_PLAN_H_

#include <cstdint>

#include "../device/cache.h"
#include "../device/launch.h"

namespace graft {
namespace cuda {
namespace slim_attention {

constexpr int32_t kContractColumns = 64;  // of a head's weight that a block multiplies by

// Rotary angles that turn keys. kHalf turns (x[j], x[j + pairs]), kInterleaved (x[2j], x[2j + 1]).
enum class Rotary : int32_t { kNone, kHalf, kInterleaved };

struct Problem {
  int64_t tokens = 0, groups = 0;
  int64_t heads = 0, head_size = 0, value_size = 0;

  // Rows. Strides in elements; rows of a block follow each other at row_stride.
  const void* rows = nullptr;
  Type row_type = Type::kFloat32;
  int64_t row_stride = 0;
  int64_t block_stride = 0;  // from block to block of 16 slots; from group to group if contiguous
  int64_t slots = 0;         // of the pool

  // Pool form.
  const int32_t* sequences = nullptr;  // [groups][8]; none: contiguous
  const int32_t* shared_slots = nullptr;
  const int32_t* private_slots = nullptr;
  int64_t shared_length = 0, private_length = 0;
  // Contiguous form.
  int64_t positions = 0;
  const int32_t* lengths = nullptr;  // [groups], positions that count; none: all
  bool causal = false;  // token i of n is position length - n + i; else all are the last one

  const void* query = nullptr;  // [tokens][heads][head_size], turned already
  int64_t query_stride = 0;     // elements from token to token
  Type type = Type::kFloat32;   // of query and output: float32, or the rows' type

  // W_KV: column c of head h for feature f stands at
  // h * weight_head + c / 16 * weight_panel + f * weight_row + c % 16.
  const void* value_weight = nullptr;
  Type weight_type = Type::kFloat32;  // float32, or the rows' type
  int64_t weight_head = 0, weight_panel = 0, weight_row = 0;
  const float* value_bias = nullptr;  // [heads][value_size], or none

  const float* bias = nullptr;  // [heads][distances], or none
  int64_t distances = 0;

  // Rows are stored as projected and turned for the scores, or, rotated, stored turned and turned
  // back for the sum (section 4, options 1 and 2).
  Rotary rotary = Rotary::kNone;
  bool rotated = false;
  const float* cosine = nullptr;  // [angles][pairs], by position
  const float* sine = nullptr;
  int64_t angles = 0, pairs = 0;  // 2 * pairs <= head_size

  // A key whose weight exp(s - m) is below `skip`, m being the highest score that its token and
  // head have met so far (in whatever order keys are met, this one included), adds nothing to the
  // sum and stays in the softmax. The final m is no lower and the sum of weights at least 1, so its
  // probability is below `skip` too. Which keys of a probability below `skip` are left out depends
  // on the order; `skipped` is always what was.
  float skip = 0.0f;
  float* skipped = nullptr;  // [tokens][heads], probability that was left out; or none

  float scale = 0.0f;    // 0: 1 / sqrt(head_size)
  float softcap = 0.0f;  // 0: none
  int64_t window = 0;    // 0: none

  void* output = nullptr;     // [tokens][heads][value_size]
  int64_t output_stride = 0;  // elements from token to token

  int64_t width() const { return heads * head_size; }
};

// The order of the matmuls, and what computes them.
enum class Way : int32_t {
  kSimple,  // (P K) W_KV, one block a token and head
  kValues,  // V = K W_KV first, then P V: option 1 of section 2
  kStream,  // (P K) W_KV, rows read once for all heads and some tokens: option 2 of section 2
};

// What is otherwise chosen by shape; tests force every value in turn.
struct Tuning {
  int32_t way = -1;          // a Way; kStream is taken only where it can run
  int32_t splits = 0;        // up to 64
  int32_t row_tiles = 0;     // 1, 2 or 4
  int32_t warps = 0;         // 1 to 16: fewer warps hold fewer columns, so clusters grow
  int32_t joined = 0;        // 1, 2 or 4: no more than fit
  int32_t finish_tiles = 0;  // 1 or 2
  int32_t finish_cuts = 0;   // 1 to 8: no more than features allow
};

// Arithmetic and traffic of one order of the matmuls.
struct Cost {
  double flops = 0, bytes = 0;
  double seconds = 0;  // by the device's rates, for comparison only
};

// What the two orders cost, with `keys` positions a group.
Cost CostOfSums(const Problem& problem, double keys, const DeviceLimits& limits);
Cost CostOfValues(const Problem& problem, double keys, const DeviceLimits& limits);

// Rows of a tile of the stream kernel, tiles in flight or in use, tokens of a block at most.
constexpr int32_t kStages = 4;
constexpr int32_t kStreamTokens = 8;
constexpr int32_t kStreamWarps = 16;
constexpr int32_t kJoined = 2;  // splits that a plan joins in a cluster, at most
constexpr int32_t kFinishWarps = 8;
constexpr int32_t TileKeys(Type type) { return type == Type::kFloat32 ? 8 : 16; }
// Pairs of 8-column tiles that a warp accumulates, by its tiles of 16 rows.
constexpr int32_t PairsOf(int32_t row_tiles) { return row_tiles == 4 ? 2 : 5; }

// What one block of joined splits sends another, in runs of 8 columns of its `pairs` of them.
constexpr int32_t SentSlots(int32_t pairs, int32_t joined) {
  return (2 * pairs + joined - 1) / joined;
}

// How the stream kernel cuts a call.
struct StreamShape {
  int32_t row_tiles = 0;  // of 16 rows (token, head)
  int32_t warps = 0;
  int32_t cluster = 1;  // blocks that share a row's columns
  int32_t heads = 0;    // of a block
  int32_t tokens = 0;   // of a block
  int32_t splits = 1;   // of the keys
  int32_t joined = 1;   // splits whose blocks stand in one cluster, and leave one set of sums
  int64_t items = 0;    // blocks' worth of tokens, over all groups: an upper bound

  constexpr int32_t parts() const { return splits / joined; }  // sets of sums that leave
  constexpr int64_t blocks() const { return items * splits * cluster; }

  // Shared memory, in bytes from its start.
  int32_t tile_stride = 0;   // from row to row of a tile
  int32_t query_stride = 0;  // from token to token
  int32_t weight_stride = 0;
  int32_t turned_stride = 0;  // from row to row of a head's turned slice
  int32_t query = 0, weights = 0, rescale = 0, state = 0, scores = 0, turned = 0, keys = 0;
  int32_t work = 0;
  int32_t bytes = 0;
};

// How the matmul of sums and W_KV is cut on the tensor cores.
struct FinishShape {
  bool matrix = false;    // or it is made of multiplications of float32
  int32_t row_tiles = 1;  // of 16 tokens
  int32_t cuts = 1;       // of the features, by blocks of a cluster
  int32_t warps = 0;      // of a block
  int64_t blocks = 0;     // of all
};

struct Plan {
  Way way = Way::kSimple;
  StreamShape stream;
  FinishShape finish;
  bool dependent = false;  // the last matmul's launch begins while the stream kernel ends
  // Workspace, in bytes from a 64-byte aligned start: sums [tokens][parts][heads][width] and their
  // states [tokens][parts][heads][4]; or values [keys][heads][value_size].
  int64_t states = 0;
  int64_t value_rows = 0;
  int64_t workspace = 0;
};

// The launches of a call. Reads shapes and the alignment of addresses, nothing that a pointer
// points to.
Plan MakePlan(const Problem& problem, const DeviceLimits& limits, const Tuning& tuning = Tuning());

// Positions of all lists together, from shapes: the rows of `values`.
int64_t KeysOf(const Problem& problem);

// The workspace of a call whose addresses are not known yet: enough for any alignment of them.
int64_t WorkspaceOf(const Problem& problem, const DeviceLimits& limits,
                    const Tuning& tuning = Tuning());

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_PLAN_H_
