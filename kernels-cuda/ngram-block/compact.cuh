// Makes room in an index: what no continued row needs goes, the rest moves together.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COMPACT_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COMPACT_CUH_

#include "forest.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// How many of the block's threads before this one said true, and in *all how many of them all did.
// `scratch` holds a number a warp.
GRAFT_DEVICE int32_t CountBefore(bool said, int32_t* scratch, int32_t* all) {
  const uint32_t votes = __ballot_sync(kAllLanes, said);
  if (Lane() == 0) scratch[WarpIndex()] = __popc(votes);
  __syncthreads();
  int32_t before = __popc(votes & ((1u << Lane()) - 1));
  int32_t total = 0;
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w) {
    if (w < WarpIndex()) before += scratch[w];
    total += scratch[w];
  }
  __syncthreads();
  *all = total;
  return before;
}

// All threads of the only block. Retains the nodes that the rows `parents` of the step before need,
// in their order, so parents stay before children. Gives false, and leaves all as it was but for
// the chains of buckets, which are made anew, when there is no room for `more` even then. `scratch`
// holds a number a warp.
GRAFT_DEVICE bool Compact(const IndexView& index, const int32_t* parents, int64_t rows,
                          int64_t more, int32_t* scratch) {
  const int32_t nodes = index.header->nodes;
  const auto thread = static_cast<int32_t>(threadIdx.x), threads = static_cast<int32_t>(blockDim.x);
  int32_t* place = index.next;  // chains are made anew below
  for (int32_t i = thread; i < nodes; i += threads) place[i] = -1;
  __syncthreads();
  for (int64_t r = thread; r < rows; r += threads) {
    int32_t node = parents[r] < 0 ? -1 : NodeOf(index.head[parents[r]], nodes);
    // A thread that reaches a marked node ends: the thread that marked it walks the rest.
    while (node >= 0 && atomicExch(place + node, 0) < 0) node = Before(index.parent, node);
  }
  __syncthreads();

  int32_t kept = 0;
  for (int32_t from = 0; from < nodes; from += threads) {
    const int32_t node = from + thread;
    const bool stays = node < nodes && place[node] >= 0;
    int32_t all;
    const int32_t before = CountBefore(stays, scratch, &all);
    if (stays) place[node] = kept + before;
    kept += all;
  }
  __syncthreads();
  const bool fits = kept + more <= index.capacity;

  // Nodes only move down, so what a round writes no later round reads.
  for (int32_t from = 0; fits && from < nodes; from += threads) {
    const int32_t node = from + thread;
    const bool stays = node < nodes && place[node] >= 0;
    int32_t token = 0, parent = -1, jump = 0, depth = 0, run = 0, root = 0, to = 0;
    if (stays) {
      to = place[node];
      token = index.token[node];
      depth = index.depth[node];
      parent = Before(index.parent, node);
      // Ancestors of what stays stay.
      if (parent >= 0) parent = place[parent];
      jump = place[UpTo(index.jump, node)];
      run = place[UpTo(index.run, node)];
      root = place[UpTo(index.root, node)];
    }
    __syncthreads();
    if (stays) {
      index.token[to] = token;
      index.parent[to] = parent;
      index.jump[to] = jump;
      index.depth[to] = depth;
      index.run[to] = run;
      index.root[to] = root;
    }
    __syncthreads();
  }
  for (int32_t r = thread; fits && r < index.header->rows; r += threads) {
    // Rows that nothing continues end with this step.
    const int32_t head = NodeOf(index.head[r], nodes);
    index.head[r] = head < 0 ? -1 : place[head];
  }
  for (int32_t i = thread; i < index.buckets; i += threads) index.bucket[i] = -1;
  __syncthreads();
  if (fits && thread == 0) index.header->nodes = kept;
  const int64_t context = index.ngram_size - 1;
  for (int32_t i = thread; context > 0 && i < (fits ? kept : nodes); i += threads) {
    if (index.depth[i] < context) continue;
    Enter(index, i,
          MixBack(index, static_cast<uint32_t>(index.root[i]), Before(index.parent, i), context));
  }
  __syncthreads();
  return fits;
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_COMPACT_CUH_
