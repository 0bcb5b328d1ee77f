// Attention of sequences of any lengths that stand one after the other, without padding between
// them, on the CPU.
//
// Sequence b is positions offsets[b] .. offsets[b + 1] - 1 of query, key, value and output. Each
// attends to its own positions only, as the problem of attention.h does that has these positions as
// queries and as keys: i and j count from the sequence's beginning. A sequence in which no key is
// hidden has no mask.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_H_
#define GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "attention.h"

namespace graft {
namespace attention {

// One call. Everything the kernel reads is const; the output must not overlap inputs.
struct Sequences {
  // What all have in common. batch is 1, queries and fresh are the positions of all sequences
  // together, and there is no past, present, scores, lengths, mask or key_limit. The bias is
  // [count, H, *, *]: query i and key j of sequence b take element [b, h, first[b] + i, first[b] +
  // j]; a stride of 0 broadcasts. mask_fill, mask_adds and mask_after_bias are those of `hidden`.
  Problem problem;

  int64_t count = 0;
  const int32_t* offsets = nullptr;  // [count + 1], ascending from 0 to the number of positions
  const int32_t* first = nullptr;    // [count]; null: zeros
  // [positions], one byte each: what is not 0 hides the key there. null: no key is hidden. Keys
  // that get no weight for it are not read.
  const uint8_t* hidden = nullptr;
  int64_t hidden_stride = 1;
  // What scores beyond window_left and window_right are: -inf, or a number that is at most -1e30
  // and at most mask_fill. Of a number only rows tell that see no visible key within their window:
  // where it is mask_fill, all keys of their sequence weigh alike.
  float window_fill = -std::numeric_limits<float>::infinity();

  int64_t bias_rows = 0;  // sizes of the bias along i and j, where it does not broadcast
  int64_t bias_columns = 0;
};

// Empty when the call is well formed, or what is wrong with it. Reads offsets and first.
std::string ValidateSequences(const Sequences& sequences);

// Bytes of scratch that RunSequences needs, whatever the sequences' lengths are: neither offsets
// nor data are read. Throws graft::Error for sizes that need more memory than can be counted.
size_t SequencesWorkspaceSize(const Sequences& sequences, int64_t threads,
                              const Tuning& tuning = Tuning());

// Computes the call, which ValidateSequences must have accepted. Allocates nothing, throws nothing
// and retains nothing: concurrent calls with different workspaces are safe. workspace needs no
// alignment.
void RunSequences(const Sequences& sequences, void* workspace, const Runner& runner,
                  const Tuning& tuning = Tuning());

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_SEQUENCES_H_
