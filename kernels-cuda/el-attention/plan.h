// How attention over shared rows is cut into launches. Plain C++: no CUDA here.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PLAN_H_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PLAN_H_

#include "problem.h"

namespace graft {
namespace cuda {
namespace el_attention {

// The widest rows of any type.
constexpr int32_t kMaxWidth = 16384;

// The simple kernel.
constexpr int32_t kSimpleThreads = 256;
constexpr int32_t kSimpleKeys = 32;  // of a tile: one a lane
constexpr int32_t kSimpleHeads = 8;  // most heads of a block
constexpr int32_t kMaxParts = 16;
struct SimpleCut {
  int32_t heads = 1;  // of a block
  int32_t parts = 1;  // of a token's positions
};

// The cluster kernel: 8 warps, each with 64 rows and warp_columns columns of their sums.
constexpr int32_t kTileRows = 64;
constexpr int32_t kTileKeys = 32;
constexpr int32_t kTileThreads = 256;
struct ClusterCut {
  int32_t warp_columns = 0;  // 16, 48, 64 or 80
  int32_t columns = 1;       // blocks that share the columns of a row
  int32_t splits = 1;        // 1, 2, 4: parts of the keys that a cluster joins by itself
  int32_t parts = 1;         // parts of the keys that are joined by another launch
};
// Copies of tiles in flight, by the size of a tile.
constexpr int32_t StagesOf(int32_t warp_columns) { return warp_columns > 64 ? 3 : 4; }

// Bytes of a cluster block's shared memory: where each thing begins.
struct ClusterLayout {
  int32_t query;     // [64][columns]
  int32_t rows;      // [stages][32][columns]
  int32_t reduce;    // 24 KiB, in the stage that is free where one is as large
  int32_t exchange;  // [2][blocks of columns - 1][64 * 32] float32
  int32_t weights;   // [64][32]
  int32_t factors;   // [64] float32
  int32_t states;    // [4][64] of two float32
  int32_t total;
};
constexpr int32_t kReduceBytes = 24 * 1024;
constexpr ClusterLayout LayOut(int32_t warp_columns, int32_t columns) {
  const int32_t wide = 8 * warp_columns, stage = kTileKeys * wide * 2;
  ClusterLayout at{};
  at.query = 0;
  at.rows = kTileRows * wide * 2;
  at.reduce = at.rows + StagesOf(warp_columns) * stage;
  at.exchange = at.reduce + (stage >= kReduceBytes ? 0 : kReduceBytes);
  at.weights = at.exchange + 2 * (columns - 1) * kTileRows * kTileKeys * 4;
  at.factors = at.weights + kTileRows * kTileKeys * 2;
  at.states = at.factors + kTileRows * 4;
  at.total = at.states + 4 * kTileRows * 8;
  return at;
}

// What is otherwise chosen by shape; tests force every value in turn. 0: chosen.
struct Tuning {
  bool simple = false;  // the simple kernel wherever both can run
  int32_t heads = 0;
  int32_t warp_columns = 0;
  int32_t splits = 0;
  int32_t parts = 0;
};

struct Plan {
  bool cluster = false;  // positions that a group shares go by the cluster kernel
  ClusterCut cluster_cut;
  LaunchShape cluster_shape;
  bool simple = false;  // all positions by the simple kernel, or those that tokens do not share
  SimpleCut simple_cut;
  LaunchShape simple_shape;
  int32_t parts = 1;      // of both together
  int64_t workspace = 0;  // bytes, 16-byte aligned
  bool chained = false;   // launches may begin before the one before has ended (9.0)
  bool legal = true;      // false: rows are too wide, or a size does not fit a launch

  int32_t launches() const { return (cluster ? 1 : 0) + (simple ? 1 : 0) + (parts > 1 ? 1 : 0); }
};

// Whether addresses and strides let the cluster kernel copy 16 bytes at once. Pointers that are
// null, as while a workspace is sized, do not matter.
bool IsAligned(const Problem& problem);

Plan MakePlan(const Problem& problem, const DeviceLimits& limits, const Tuning& tuning = Tuning());

// Bytes of workspace that do for any plan of a problem of these shapes, whatever its addresses.
int64_t WorkspaceBytes(const Problem& problem, const DeviceLimits& limits,
                       const Tuning& tuning = Tuning());

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PLAN_H_
