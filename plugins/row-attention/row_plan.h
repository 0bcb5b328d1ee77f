// How one call is cut into tasks, and how its workspace is laid out.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_ROW_PLAN_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_ROW_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "row_attention.h"

namespace graft {
namespace row_attention {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Positions of a step at most, over shared positions and over private ones; whole vectors of
// scores.
constexpr int64_t kMaxRowTile = 64;
constexpr int64_t kPrivateTile = 16;
// Positions of which keys and values are made at once.
constexpr int64_t kPromptTile = 48;

// How a group is computed: from its rows; from keys and values made of them; or, where it has no
// rows, by the second part alone.
enum class Way { kRows, kMadeKeys, kSecondPart };

// One group of tokens. Its rows are [token][head]; its tasks are (some rows, part of the keys).
struct Group {
  int64_t first, tokens;
  const int32_t* shared_slots;
  int64_t shared_count;  // S
  const int32_t* private_slots;
  int64_t private_count;  // m
  bool causal;
  int64_t second;  // positions of the second part
  Way way;

  int64_t rows;  // tokens * heads
  int64_t row_chunk, row_chunks;
  int64_t parts;
  int64_t first_item;
  int64_t first_query;  // row of expanded queries
  int64_t
      first_partial;  // row of partial sums; part p of row r stands at first_partial + p * rows + r

  int64_t items() const { return way == Way::kRows ? row_chunks * parts : 0; }
  int64_t keys() const { return shared_count + private_count; }
  int64_t position(int64_t token) const {
    return causal ? shared_count - tokens + token : keys() + second - 1;
  }
  // The first position of a part. A private position is read once a token.
  int64_t PartBegin(int64_t part) const {
    if (part >= parts) return keys();
    const int64_t cost = (shared_count + tokens * private_count) * part / parts;
    if (cost < shared_count) return cost / kBlockSlots * kBlockSlots;
    return shared_count + (cost - shared_count) / tokens / kPrivateTile * kPrivateTile;
  }
};

// Columns of a row's state in a part.
enum State { kMaximum, kSum, kSkipped, kStates };

// Rows that scores are taken from: those that are added up, the pool's where they lie, or rows made
// for the purpose.
enum class KeyRows { kSums, kPool, kMade };

struct Plan {
  int64_t group_heads;   // query heads of a KV head
  int64_t width;         // floats of a row of partial sums: the pool's width in full panels
  int64_t query_stride;  // floats of a row of expanded queries
  int64_t slice;         // floats of a head within a row that scores are taken from; of keys only
  int64_t key_width;     // floats of such a row where it is made from the pool's
  int64_t value_stride;  // floats of an output row in scratch
  float scale;
  bool base2;         // weights are powers of 2: nothing is done to scores but a softmax
  bool direct_sums;   // rows are added up where they lie in the pool
  KeyRows keys;       // what scores are taken from
  int64_t tile;       // positions of a step over shared ones
  int64_t row_chunk;  // most rows of a task

  int64_t writes;  // tasks of each phase
  int64_t write_rows;
  int64_t expands;
  int64_t expand_tokens;
  int64_t expand_panels;
  int64_t items;
  int64_t contracts;
  int64_t contract_tokens;
  int64_t few_tokens;  // tokens of groups that are computed from their rows
  int64_t workers;

  // Byte offsets into the 64-byte aligned workspace.
  size_t counter_offset;  // int64 [kCounters]
  size_t group_offset;    // Group[groups]
  size_t token_offset;    // int32: the tokens that are computed from rows
  size_t owner_offset;    // int32: the group of each
  size_t query_offset;    // float [tokens * heads][query_stride], scaled
  size_t shift_offset;    // float [tokens * heads], added to every score
  size_t partial_offset;  // float [partial rows][width]
  size_t state_offset;    // float [partial rows][kStates]
  size_t second_offset;   // float [T][heads][value_size], output of the second part
  size_t second_lse;      // float [T][heads], its log-sum-exp
  size_t worker_offset;
  size_t worker_bytes;
  // Of prompts, one group after the other, some KV heads at a time.
  int64_t prompt_heads;  // 0: no group can be one
  size_t prompt_pool;    // keys and values, blocks of [prompt_heads][16][head_size], then values
  size_t prompt_list;    // int32: slots 0, 1, ...
  size_t inner_offset;   // workspace of attention over keys and values: the second part, prompts
  size_t total_bytes;
};

enum Counter {
  kNextWrite,
  kDoneWrites,
  kNextExpand,
  kDoneExpands,
  kNextItem,
  kDoneItems,
  kNextContract,
  kCounters
};

// Offsets, in bytes, of the parts of one worker's scratch.
struct WorkerLayout {
  size_t scores, maximum, sums, rescale, skipped, low, high;
  size_t sum_rows, key_rows, outputs, merged, total;
};
WorkerLayout LayOutWorker(const Plan& plan);

// Whether a group's keys and values are those of the call.
inline bool UsesNewKeys(const Problem& p, const Group& group) {
  return p.key != nullptr && p.kind == RowKind::kHiddenStates && group.causal &&
         group.shared_count == group.tokens;
}

// Keys and values of one prompt, on their way into scratch.
struct Prompt {
  const Group* group;
  int64_t head0, heads;  // KV heads
  attention::Pool pool;  // of as many heads; slot j is position j
};

// Sizes that do not depend on what the lists hold.
Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning);

// Cuts the groups into tasks, and fills the workspace with what the workers start from.
void FillPlan(const Problem& problem, const Tuning& tuning, char* workspace, Plan& plan);

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_ROW_PLAN_H_
