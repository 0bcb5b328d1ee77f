// A step of an index of n-grams: rows continue rows of the step before with new tokens, and what
// would repeat an n-gram of theirs is banned. The cost is that of the new tokens and the matches.
//
// Two launches for a few tokens, three for a prompt: Begin (one block: room, rows), Grow (a thread
// a token), Ban (a warp a row). A step that cannot be taken leaves the rows as they were and says
// why in the header (IndexFault). Its scores become NaN, so no search continues from them unaware.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_CUH_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_CUH_

#include "../device/launch.cuh"
#include "compact.cuh"
#include "forest.cuh"
#include "plan.h"
#include "rows.cuh"

namespace graft {
namespace cuda {
namespace ngram_block {

// A step's tokens, and what they continue.
struct Step {
  Rows rows;                         // new tokens; pads do not matter
  const int32_t* parents = nullptr;  // [rows], -1: begins anew
  int64_t vocab = 0;                 // tokens outside of it stand as -1, which nothing bans
};

GRAFT_DEVICE int32_t TokenAt(const Step& step, int64_t row, int64_t i) {
  const int64_t at = row * step.rows.stride + i;
  const int64_t token = step.rows.wide_tokens ? static_cast<const int64_t*>(step.rows.tokens)[at]
                                              : static_cast<const int32_t*>(step.rows.tokens)[at];
  return token < 0 || token >= step.vocab ? -1 : static_cast<int32_t>(token);
}

// Adds token i of a row, everything about it worked out by itself: the nodes of the row's other new
// tokens may not be there yet, but where they will stand is known.
GRAFT_DEVICE void GrowOne(const IndexView& index, const Step& step, int64_t row, int64_t length,
                          int32_t i) {
  const int32_t before = index.before[row];
  const auto base = static_cast<int32_t>(index.head[row] - (length - 1));
  const int32_t node = base + i, parent = i > 0 ? node - 1 : before;
  const int32_t first_depth = before < 0 ? 0 : index.depth[before] + 1;
  const int32_t depth = first_depth + i;
  const int32_t root = before < 0 ? base : index.root[before];
  index.token[node] = TokenAt(step, row, i);
  index.parent[node] = parent;
  index.depth[node] = depth;
  index.root[node] = root;
  index.run[node] = before >= 0 && before == base - 1 ? index.run[before] : base;
  const int32_t to = JumpDepth(depth);
  index.jump[node] = to >= first_depth ? base + (to - first_depth) : AncestorAt(index, before, to);
  const int64_t context = index.ngram_size - 1;
  if (context == 0 || depth < context) return;
  uint64_t hash = static_cast<uint32_t>(root);
  const int64_t own = context < i ? context : i;
  for (int64_t j = 1; j <= own; ++j) {
    hash = MixToken(hash, TokenAt(step, row, i - j));
  }
  Enter(index, node, MixBack(index, hash, before, context - own));
}

// Adds the tokens of all rows, dealt out among `threads` threads.
GRAFT_DEVICE void GrowAll(const IndexView& index, const Step& step, int64_t thread,
                          int64_t threads) {
  const int64_t columns = step.rows.columns;
  for (int64_t at = thread; at < step.rows.rows * columns; at += threads) {
    const int64_t row = at / columns, i = at - row * columns, length = LengthOf(step.rows, row);
    if (i < length) GrowOne(index, step, row, length, static_cast<int32_t>(i));
  }
}

// Makes an index of memory that is all zeros.
GRAFT_DEVICE void Format(const IndexView& index) {
  for (int32_t i = threadIdx.x; i < index.buckets; i += blockDim.x) index.bucket[i] = -1;
  if (threadIdx.x == 0) {
    IndexHeader* header = index.header;
    header->nodes = header->rows = 0;
    header->bytes = index.bytes;
    header->ngram_size = index.ngram_size;
    header->capacity = index.capacity;
    header->buckets = index.buckets;
    header->max_rows = index.max_rows;
  }
  __syncthreads();
  if (threadIdx.x == 0) index.header->magic = kIndexMagic;
  __syncthreads();
}

// What forbids the step, but for room; all threads get the answer.
GRAFT_DEVICE int32_t FaultOf(const IndexView& index, const Step& step) {
  const IndexHeader* header = index.header;
  if (header->magic != kIndexMagic || header->bytes != index.bytes ||
      header->ngram_size != index.ngram_size || header->nodes < 0 ||
      header->nodes > index.capacity || header->rows < 0 || header->rows > index.max_rows) {
    return kIndexForeign;
  }
  if (step.rows.rows > index.max_rows) return kIndexRows;
  const int32_t rows = header->rows;
  bool stray = false;
  for (int64_t r = threadIdx.x; r < step.rows.rows; r += blockDim.x) {
    stray = stray || step.parents[r] < -1 || step.parents[r] >= rows;
  }
  return __syncthreads_or(stray) ? kIndexParents : kIndexGood;
}

// One block. Afterwards head holds where each row will end, and before what it continues. With
// `grow` the tokens are added as well.
[[maybe_unused]] static __global__ void IndexBegin(IndexView index, Step step, bool grow) {
  auto* counter = reinterpret_cast<unsigned long long*>(SharedMemory());
  auto* scan = reinterpret_cast<int32_t*>(SharedMemory() + 64);
  const int64_t rows = step.rows.rows, thread = threadIdx.x, threads = blockDim.x;
  if (index.header->magic == 0) Format(index);
  int32_t fault = FaultOf(index, step);
  if (thread == 0) *counter = 0;
  __syncthreads();
  if (fault == kIndexGood) {
    unsigned long long more = 0;
    for (int64_t r = thread; r < rows; r += threads) {
      more += static_cast<unsigned long long>(LengthOf(step.rows, r));
    }
    if (more > 0) atomicAdd(counter, more);
    __syncthreads();
    const auto all = static_cast<int64_t>(*counter);
    if (index.header->nodes + all > index.capacity) {
      if (!Compact(index, step.parents, rows, all, scan)) fault = kIndexRoom;
    }
  }
  __syncthreads();
  if (thread == 0) index.header->fault = fault;
  if (fault != kIndexGood) return;  // all threads alike

  for (int64_t r = thread; r < rows; r += threads) {
    index.before[r] =
        step.parents[r] < 0 ? -1 : NodeOf(index.head[step.parents[r]], index.header->nodes);
  }
  if (thread == 0) *counter = static_cast<unsigned long long>(index.header->nodes);
  __syncthreads();
  for (int64_t r = thread; r < rows; r += threads) {
    const auto length = static_cast<unsigned long long>(LengthOf(step.rows, r));
    index.head[r] = length == 0 ? index.before[r]
                                : static_cast<int32_t>(atomicAdd(counter, length) + length - 1);
  }
  __syncthreads();
  if (thread == 0) {
    index.header->nodes = static_cast<int32_t>(*counter);
    index.header->rows = static_cast<int32_t>(rows);
  }
  if (grow) GrowAll(index, step, thread, threads);
}

[[maybe_unused]] static __global__ void IndexGrow(IndexView index, Step step) {
  if (index.header->fault != kIndexGood) return;
  GrowAll(index, step, static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<int64_t>(gridDim.x) * blockDim.x);
}

// NaN for every score of a row.
GRAFT_DEVICE void RefuseRow(const Scores& scores, int64_t row) {
  for (int64_t t = Lane(); t < scores.vocab; t += kWarp) {
    const int64_t at = row * scores.stride + t;
    if (scores.type == Type::kFloat32) {
      static_cast<uint32_t*>(scores.data)[at] = 0x7fc00000u;
    } else {
      static_cast<uint16_t*>(scores.data)[at] = scores.type == Type::kFloat16 ? 0x7e00 : 0x7fc0;
    }
  }
}

[[maybe_unused]] static __global__ void IndexBan(IndexView index, Scores scores, int64_t rows) {
  const int64_t warps = blockDim.x / kWarp;
  const bool good = index.header->fault == kIndexGood;
  for (int64_t row = blockIdx.x * warps + WarpIndex(); row < rows; row += gridDim.x * warps) {
    if (!good) {
      RefuseRow(scores, row);
      continue;
    }
    ForEachBanned(index, index.head[row], [&](int64_t token) { BanToken(scores, row, token); });
  }
}

// Takes a step: the rows of the index are then those of `step`. Steps of one index are enqueued on
// one stream.
inline Status AdvanceIndex(const IndexView& index, const Step& step, const IndexPlan& plan,
                           Stream stream) {
  if (step.rows.rows == 0) return kOk;
  const Status status = Launch(IndexBegin, plan.begin, stream, index, step, plan.grow_at_once);
  if (status != kOk || plan.grow_at_once) return status;
  return Launch(IndexGrow, plan.grow, stream, index, step);
}

// Bans from an index that has taken its step.
inline Status BanFromIndex(const IndexView& index, const Scores& scores, int64_t rows,
                           const IndexPlan& plan, Stream stream) {
  if (rows == 0 || scores.vocab == 0) return kOk;
  return Launch(IndexBan, plan.ban, stream, index, scores, rows);
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_CUH_
