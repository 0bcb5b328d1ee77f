// How a call is cut into blocks: plain C++, planned from shapes alone.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_PLAN_H_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_PLAN_H_

#include <cstdint>

#include "problem.h"

namespace graft {
namespace cuda {
namespace flash_decode {

// Keys that a warp takes at a time, and warps of a block: matrix multiplications take 16 keys, and
// twice the bytes a number halve that.
constexpr int32_t kWarps = 4;
constexpr int32_t KeysOf(Type type) { return type == Type::kFloat32 ? 8 : 16; }
constexpr int32_t kSimpleThreads = 128;
constexpr int32_t kSimpleColumns = 512;  // of the value that a block of the simple kernel sums
constexpr int32_t kMaxSplits = 128;
constexpr int32_t kMaxCluster = 8;  // splits that a cluster joins: 2, 4 or 8

// Blocks of a fast kernel that the registers of a multiprocessor hold: its launch bounds hold the
// compiler to it. `rows` and `size_class` are the plan's.
constexpr int32_t ResidentByRegisters(Type type, int32_t rows, int32_t size_class) {
  if (type == Type::kFloat32) return rows == 1 ? 4 : 2;
  return size_class <= 128 ? 3 : 2;
}

enum class Path : int32_t { kChosen, kSimple, kFast };

// What joins splits: the blocks of a cluster, or a second launch.
enum class JoinBy : int32_t { kChosen, kCluster, kLaunch };

// What is otherwise chosen by the shapes; tests force every value in turn.
struct Tuning {
  Path path = Path::kChosen;      // kFast falls back where the fast kernel cannot
  JoinBy join = JoinBy::kChosen;  // kCluster falls back where no cluster has as many blocks
  int32_t tile_tokens = 0;        // rows of a group that share a read of keys; 0: chosen
  int32_t splits = 0;             // parts of the keys of a tile; 0: chosen
  int32_t stages = 0;             // 2 to 4; 0: chosen
  int64_t max_blocks = 0;  // of a launch; the rest is looped over. 0: as many as a grid takes
};

// What a kernel must know of the plan. A tile is a number of rows of one group times a number of
// query heads of one KV head; the query heads of a KV head are cut in `head_parts`.
struct Cut {
  int32_t tile_tokens = 1;
  int32_t tile_heads = 1;
  int32_t head_parts = 1;
  int32_t splits = 1;
  bool clustered = false;  // splits of a tile are the blocks of a cluster
  int32_t stages = 3;
  int32_t key_stride = 0, value_stride = 0;  // of rows in shared memory, in numbers
  int32_t columns = 1;                       // parts of the value's columns; the simple kernel's
  int64_t tiles = 0;                         // of all groups, at most
  int64_t items = 0;                         // tiles x KV heads x splits, or x columns
};

struct Plan {
  bool fast = false;
  int32_t tile_rows = 1;   // rows that the kernel has registers for
  int32_t size_class = 0;  // head sizes up to this
  int64_t resident = 1;    // blocks that a multiprocessor holds
  Cut cut;
  LaunchShape attend;
  LaunchShape merge;    // where splits are joined by a launch
  int64_t sums_at = 0;  // bytes into the workspace, after the states
  int64_t workspace_bytes = 0;
};

// Whether the fast kernel can run: sizes of full 16-byte words up to 256, caches whose rows are
// aligned to them, and no scores wanted.
bool IsFast(const Problem& problem);

Plan MakePlan(const Problem& problem, const DeviceLimits& limits, const Tuning& tuning = Tuning());

// What runs at once: blocks, and clusters of 1, 2, 4 and 8 blocks.
struct Slots {
  int64_t multiprocessors = 0, blocks = 0;
  int64_t clusters[kClusterSizes] = {};
};
Slots SlotsOf(const DeviceLimits& limits, int64_t resident);

// Whether the blocks of a tile, one a split, can be a cluster; and whether all such clusters run at
// once, so that none waits for as many places in one group of multiprocessors.
bool IsCluster(int32_t splits, const Slots& slots);
bool FitsAsClusters(int64_t tiles, int32_t splits, const Slots& slots);

// The parts that the keys of each tile are cut into. `blocks` is how many blocks there are without
// splits, `steps` how often each loops over its keys.
int32_t ChooseSplits(int64_t blocks, int64_t steps, const Slots& slots);

// Rows that share a tile: of 1 and `most` the one whose model of time is less. `shared_slots` and
// `private_slots` are keys of a group that all rows share, and keys of each row alone.
int32_t ChooseTileTokens(int64_t groups, int64_t rows, int64_t shared, int64_t private_count,
                         int64_t kv_heads, int32_t maximum, int64_t step_keys, const Slots& slots);

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_PLAN_H_
