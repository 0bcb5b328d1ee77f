// Walks in the forest of an index: ancestors, contexts, and the tokens that are banned after a row.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_FOREST_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_FOREST_CUH_

#include "../device/warp.cuh"
#include "index_layout.h"

namespace graft {
namespace cuda {
namespace ngram_block {

// What a list holds for a node that is there: an earlier node, or -1. The memory may be a
// stranger's, so any other number is not followed: walks stay among the nodes, and end.
GRAFT_DEVICE int32_t Before(const int32_t* list, int32_t node) {
  const int32_t before = list[node];
  return before < node && before >= 0 ? before : -1;
}
// As Before, of a list that may hold the node itself, which it is where the number is none.
GRAFT_DEVICE int32_t UpTo(const int32_t* list, int32_t node) {
  const int32_t before = list[node];
  return before < node && before >= 0 ? before : node;
}
// A number that stands for one of `nodes` nodes, or -1.
GRAFT_DEVICE int32_t NodeOf(int32_t node, int32_t nodes) {
  return node < nodes && node >= 0 ? node : -1;
}

// The depth that a node of depth `depth` jumps to. Jumps have skew-binary lengths (Myers 1983), so
// that any ancestor is logarithmically many away: depth is a sum of numbers 2^k - 1, largest first,
// and the jump takes the last one off.
GRAFT_DEVICE int32_t JumpDepth(int32_t depth) {
  int32_t rest = depth, last = 0;
  for (int32_t bits = 31; bits > 0; --bits) {
    const auto size = static_cast<int32_t>((uint32_t{1} << bits) - 1);
    while (rest >= size) rest -= size, last = size;
  }
  return depth - last;
}

// The ancestor of `node` at `depth`, which is not below 0 nor above the node's own. Some number of
// an index that holds what none does.
GRAFT_DEVICE int32_t AncestorAt(const IndexView& index, int32_t node, int32_t depth) {
  while (true) {
    const int32_t above = index.depth[node];
    if (index.depth[UpTo(index.run, node)] <= depth) return node - (above - depth);
    const int32_t jump = UpTo(index.jump, node);
    node = jump < node && index.depth[jump] >= depth ? jump : Before(index.parent, node);
    if (node < 0) return -1;
  }
}

GRAFT_DEVICE bool IsAncestor(const IndexView& index, int32_t node, int32_t below) {
  const int32_t depth = index.depth[node];
  return depth <= index.depth[below] && AncestorAt(index, below, depth) == node;
}

// A context's hash is taken from its root, then from its tokens, the last one first.
GRAFT_DEVICE uint64_t MixToken(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

// Continues a hash over `count` tokens that end at `node`.
GRAFT_DEVICE uint64_t MixBack(const IndexView& index, uint64_t hash, int32_t node, int64_t count) {
  for (int64_t i = 0; i < count && node >= 0; ++i, node = Before(index.parent, node)) {
    hash = MixToken(hash, index.token[node]);
  }
  return hash;
}

GRAFT_DEVICE int32_t BucketOf(const IndexView& index, uint64_t hash) {
  return static_cast<int32_t>(hash & static_cast<uint64_t>(index.buckets - 1));
}

// Puts a node into the bucket of the n - 1 tokens before it.
GRAFT_DEVICE void Enter(const IndexView& index, int32_t node, uint64_t hash) {
  index.next[node] = atomicExch(index.bucket + BucketOf(index, hash), node);
}

// Whether the n - 1 tokens that end at `a` and at `b` are the same.
GRAFT_DEVICE bool SameContext(const IndexView& index, int32_t a, int32_t b) {
  for (int64_t i = 1; i < index.ngram_size; ++i) {
    if (a < 0 || b < 0 || index.token[a] != index.token[b]) return false;
    if (a == b) return true;
    a = Before(index.parent, a), b = Before(index.parent, b);
  }
  return true;
}

// Calls ban(token) on some lane for every token that would repeat an n-gram of the row which ends
// at `head`; a token may come several times. All lanes of a warp call it.
template <typename Ban>
GRAFT_DEVICE void ForEachBanned(const IndexView& index, int32_t head, const Ban& ban) {
  const int64_t n = index.ngram_size;
  const int32_t nodes = index.header->nodes;
  head = NodeOf(head, nodes);
  if (head < 0 || int64_t{index.depth[head]} + 1 < n) return;
  const int32_t lane = Lane();
  if (n == 1) {
    for (int32_t node = head; node >= 0;) {
      const int32_t first = UpTo(index.run, node);
      for (int32_t i = first + lane; i <= node; i += kWarp) {
        ban(static_cast<int64_t>(index.token[i]));
      }
      node = Before(index.parent, first);
    }
    return;
  }
  const auto root = static_cast<uint32_t>(index.root[head]);
  int32_t node = NodeOf(index.bucket[BucketOf(index, MixBack(index, root, head, n - 1))], nodes);
  for (int32_t left = nodes; node >= 0 && left > 0; left -= kWarp) {  // each node at most once
    // The chain is walked by all lanes together; each then looks into one of its nodes.
    int32_t mine = -1;
    for (int32_t i = 0; i < kWarp && node >= 0; ++i) {
      if (i == lane) mine = node;
      node = NodeOf(index.next[node], nodes);
    }
    if (mine >= 0 && index.root[mine] == static_cast<int32_t>(root) &&
        SameContext(index, Before(index.parent, mine), head) &&
        (IsAncestor(index, mine, head) || Seeded(3))) {
      ban(static_cast<int64_t>(index.token[mine]));
    }
  }
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_FOREST_CUH_
