// How logits processing and top-k selection are launched. Plain C++.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PLAN_H_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PLAN_H_

#include "problem.h"

namespace graft {
namespace cuda {
namespace logits_top_k {

// The most candidates a group that the fast kernel supports.
constexpr int64_t kMaxCandidates = 64;

// The most tokens it supports: numbers of tokens, and sums of a few of them, are int32.
constexpr int64_t kMaxTokens = int64_t{1} << 30;

constexpr int32_t kMaxParts = 8;      // blocks that share a row
constexpr int32_t kMaxTeams = 4;      // of a block
constexpr int32_t kMaxThreads = 256;  // of a block of the fast kernel
constexpr int32_t kMaxRows = 4;       // of a group between two meetings of its cluster
constexpr int32_t kSlots = 4;         // chunks of a row that are in flight to a team
constexpr int32_t kHeld = 3;          // Layout::found, in threads of a team

// Where things stand in the shared memory of the fast kernel, in bytes. The slots of all teams lie
// from `ring` to the end; what the first block selects in takes their place.
struct Layout {
  int32_t parts = 1;     // blocks that share a group: a cluster
  int32_t at_once = 1;   // rows of a group between two meetings of the cluster
  int32_t teams = 1;     // of a block; each reads a row
  int32_t chunk = 1;     // vectors of 16 bytes of a slot
  int32_t chunks = 1;    // of one part of one row
  int32_t found = 0;     // room for scores of one part of one row
  int32_t kept = 0;      // of these, handed on: at most
  int32_t ranked = 0;    // room for candidates of all parts and rows
  int32_t words = 0;     // of the bitmap of one part of one row; 0: nothing is named
  int32_t ban_rows = 0;  // rows whose bans the first block has room for at once
  int64_t lists = 0, gathered = 0, joined = 0, best = 0, bitmaps = 0, ring = 0;
  int64_t ranks = 0, order = 0, bans = 0;
  int64_t bytes = 0;
};

// Words of what a part hands on of a row.
constexpr int64_t RecordWords(const Layout& layout) { return 8 + 2 * int64_t{layout.kept}; }

struct TopKPlan {
  bool fast = false;
  Layout layout;
  LaunchShape shape;
  int64_t workspace = 0;  // bytes, 16-byte aligned
};

// What a plan depends on, all of it known before the step's data are.
struct Shape {
  int64_t rows = 0, vocab = 0, groups = 0;
  int64_t group_rows = 1;  // or a guess, where groups are listed
  int64_t width = 1;
  bool samples = false;  // some group may sample
  bool named = false;    // edits or bans
  Type type = Type::kFloat32;
};

TopKPlan PlanTopK(const Shape& shape, const DeviceLimits& limits);

// Plans with their choices given: for tests.
TopKPlan PlanSimple(int32_t threads, const Shape& shape);
// `bytes`: of shared memory, at most, where that leaves each slot a vector.
TopKPlan PlanFast(int32_t parts, int32_t at_once, int32_t teams, int32_t team_threads,
                  int64_t bytes, const Shape& shape);

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_PLAN_H_
