// How sequences of any lengths are cut into items for workers.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_PLAN_H_
#define GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "graft/checked.h"
#include "plan.h"
#include "sequences.h"

namespace graft {
namespace attention {

// A sequence is cut into tasks as a problem is: rows of a KV head against all of its keys. An item
// is some tasks of one sequence, one after the other, so that it lasts some microseconds.
struct SequencesPlan {
  Plan worker;         // what scratch is laid out by: the longest sequence that there can be
  int64_t group_size;  // query heads that share a KV head
  int64_t kv_heads;
  int64_t packed_rows;  // rows from which on keys are packed
  int64_t few_tile;     // keys of a step of fewer rows
  int64_t row_cap;      // rows of a task at most
  // Of the lengths, once they are known:
  double item_cost;  // multiplications of an item, at least, where its sequence has as many
  int64_t items;
  int64_t workers;

  // Byte offsets into the 64-byte aligned workspace.
  size_t order_offset;  // int32 [count]: the sequences, longest first
  size_t items_offset;  // int64 [count + 1]: items of all sequences before this one in that order
  size_t shown_offset;  // Shown [count]
  size_t next_offset;   // int32 [positions], where limits apply: VisibleKeys::next of each sequence
  bool limits;          // rows do not see all keys of their sequence
  bool narrows;         // hidden keys weigh 0 wherever a visible one is seen
  VisibleKeys visible;  // what is the same for all sequences
};

// Where the visible keys of a sequence lie.
struct Shown {
  int32_t begin, end;  // from the first to behind the last
  bool hides;          // there are others in the sequence
  bool masked;         // rows meet hidden keys
};

// How one sequence is cut.
struct SequenceCut {
  int64_t rows;        // H / G * length
  int64_t row_chunk;   // rows of a task
  int64_t row_chunks;  // tasks along the rows
  int64_t tasks;       // G * row_chunks
  int64_t step;        // tasks of an item
  int64_t items;
  bool packed;
};

inline SequenceCut CutSequence(const SequencesPlan& plan, int64_t length) {
  SequenceCut cut{};
  if (length == 0) return cut;
  cut.rows = Size(plan.group_size) * length;
  cut.packed = cut.rows >= plan.packed_rows;
  cut.row_chunks = DivideUp(cut.rows, plan.row_cap);
  cut.row_chunk = DivideUp(cut.rows, cut.row_chunks);
  if (cut.packed && cut.row_chunks > 1) {
    cut.row_chunk = std::min(plan.row_cap, RoundUp(cut.row_chunk, kBatchRows));
  }
  cut.row_chunks = DivideUp(cut.rows, cut.row_chunk);
  cut.tasks = Size(plan.kv_heads) * cut.row_chunks;
  const double cost = static_cast<double>(cut.row_chunk) * static_cast<double>(length) *
                      static_cast<double>(Size(plan.worker.key_stride) + plan.worker.value_stride);
  const double step = std::min(static_cast<double>(cut.tasks), plan.item_cost / cost);
  cut.step = std::max<int64_t>(1, static_cast<int64_t>(step));
  cut.items = DivideUp(cut.tasks, cut.step);
  return cut;
}

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_PLAN_H_
