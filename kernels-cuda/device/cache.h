// The KV cache's constants as kernels use them: those of abi/graft_cache.h, whose functions are for
// host code only.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_CACHE_H_
#define GRAFT_KERNELS_CUDA_DEVICE_CACHE_H_

#include <cstdint>

#include "../../abi/graft_cache.h"

namespace graft {
namespace cuda {

constexpr int32_t kBlockSlots = GRAFT_CACHE_BLOCK_SIZE;
constexpr int32_t kPanel = GRAFT_PANEL_COLUMNS;  // neighbouring columns of a weight

// Columns of a sequence descriptor, int32: n tokens that read S shared slots, and then m private
// slots each.
enum SequenceColumn : int32_t {
  kSequenceFirstToken = GRAFT_SEQUENCE_FIRST_TOKEN,
  kSequenceTokens = GRAFT_SEQUENCE_TOKENS,                 // n
  kSequenceSharedOffset = GRAFT_SEQUENCE_SHARED_OFFSET,    // into shared_slots
  kSequenceShared = GRAFT_SEQUENCE_SHARED,                 // S: slots of positions 0 .. S-1
  kSequencePrivateOffset = GRAFT_SEQUENCE_PRIVATE_OFFSET,  // into private_slots
  kSequencePrivate = GRAFT_SEQUENCE_PRIVATE,  // m: of positions S .. S+m-1, token after token
  kSequenceCausal = GRAFT_SEQUENCE_CAUSAL,    // 1: token i is position S - n + i; m is 0
  kSequenceReserved = GRAFT_SEQUENCE_RESERVED,
  kSequenceColumns = GRAFT_SEQUENCE_COLUMNS,
};

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_CACHE_H_
