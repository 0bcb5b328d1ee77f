// Which tokens and keys a block of the stream kernel takes: found on the device, where lists are.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CHUNK_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CHUNK_CUH_

#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

// The tokens of a block.
struct Chunk {
  Group group;
  int64_t first;   // place in the group
  int32_t tokens;  // 0: the launch has more blocks than there are chunks
};

// Chunk number `item` of all groups, each cut into chunks of `size` tokens. Whole warps call.
GRAFT_DEVICE Chunk FindChunk(const Problem& p, int64_t item, int32_t size) {
  Chunk chunk = {};
  int64_t before = 0, group = -1;
  if (p.sequences == nullptr) {
    const int64_t each = (p.tokens / p.groups + size - 1) / size;
    group = item / each;
    before = group * each;
  }
  for (int64_t g0 = 0; g0 < p.groups && group < 0; g0 += kWarp) {
    const int64_t g = g0 + Lane();
    const auto mine = static_cast<int32_t>(g < p.groups ? (TokensOf(p, g) + size - 1) / size : 0);
    int32_t sum = mine;
#pragma unroll
    for (int32_t step = 1; step < kWarp; step *= 2) {
      const int32_t other = __shfl_up_sync(kAllLanes, sum, static_cast<uint32_t>(step));
      if (Lane() >= step) sum += other;
    }
    const uint32_t reached = __ballot_sync(kAllLanes, before + sum > item);
    const int32_t lane = reached != 0 ? __ffs(static_cast<int32_t>(reached)) - 1 : kWarp - 1;
    const int32_t through = __shfl_sync(kAllLanes, sum, lane);
    if (reached != 0) {
      group = g0 + lane;
      before += through - __shfl_sync(kAllLanes, mine, lane);
    } else {
      before += through;
    }
  }
  if (group < 0) return chunk;
  chunk.group = GroupAt(p, group);
  chunk.first = (item - before) * size;
  chunk.tokens = static_cast<int32_t>(min(int64_t{size}, chunk.group.tokens - chunk.first));
  return chunk;
}

// The keys that a chunk looks at, as one row of places: shared positions that some token sees, then
// own ones, a token after the other.
struct KeyRow {
  int64_t low, shared;    // first shared position, and how many
  int64_t private_count;  // of a token
  int64_t count;
};
GRAFT_DEVICE KeyRow KeysFor(const Problem& p, const Chunk& chunk) {
  const Group& g = chunk.group;
  const int64_t first = g.Position(chunk.first);
  const int64_t last = g.Position(chunk.first + chunk.tokens - 1);
  KeyRow keys;
  keys.low = p.window > 0 ? max(int64_t{0}, first - p.window + 1) : 0;
  keys.shared = max(int64_t{0}, min(g.shared, last + 1) - keys.low);
  keys.private_count = g.private_count;
  keys.count = keys.shared + chunk.tokens * g.private_count;
  return keys;
}

// What the threads of a block share of its work, in shared memory: registers are for sums.
struct Work {
  Chunk chunk;
  KeyRow keys;
  int64_t first;        // tile of this block's split
  int32_t tiles;        // of the split; below 0: there is nothing to do
  int32_t steps;        // of the block, at least as many
  int32_t part, join;   // which of the results of the keys' splits, and which split of that
  int32_t head0, mine;  // first head of this block, and heads
  int32_t columns;      // of these heads
};
static_assert(sizeof(Work) <= 256, "as much as plan.cc leaves for it");

// A key: where its row stands (below 0: nowhere), its position, and the only token of the chunk
// that sees it (below 0: all).
struct Note {
  int64_t row;
  int32_t position, token;
};

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CHUNK_CUH_
