// Many rows: blocks of W are packed into scratch that stays in the second cache, and a register
// tile goes over them (Goto and van de Geijn 2008, without packing x, whose rows are read in order
// anyway).
#if defined(GRAFT_PACKED_LINEAR_BLOCKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_BLOCKED_INL_H_
#undef GRAFT_PACKED_LINEAR_BLOCKED_INL_H_
#else
#define GRAFT_PACKED_LINEAR_BLOCKED_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "common-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows and vectors of one register tile: 24 accumulators of 32 registers, or 12 of 16, beside the
// vectors of W and one broadcast of x.
constexpr int kTileRows = 6;
constexpr int kTileVectors = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int64_t kTileWidth = kTileVectors * kLanes;
static_assert(kBlockedColumns % kTileWidth == 0, "a packed block holds whole tiles");

// A run is a row of the narrowest block.
constexpr int64_t kBlockedRun = kBlockedColumns / kLine;
using BlockedAhead = Ahead<kBlockedRun>;

// y[r][i] = (first ? 0 : y[r][i]) + sum_k x[r][k] * packed[k][i], for one tile. Prefetches a line
// of memory with every second step where kFetch is set.
template <int kRows, bool kFetch>
HWY_INLINE void BlockedTile(const float* HWY_RESTRICT x, int64_t x_stride,
                            const float* HWY_RESTRICT packed, int64_t depth, bool first,
                            float* HWY_RESTRICT y, int64_t y_stride, BlockedAhead& ahead) {
  const DF d;
  VF sum[kRows][kTileVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kTileVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  const auto step = [&](int64_t k) HWY_ATTR {
    VF v[kTileVectors];
    for (int i = 0; i < kTileVectors; ++i) {
      v[i] = hn::Load(d, packed + k * kTileWidth + i * kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, x[r * x_stride + k]);
      for (int i = 0; i < kTileVectors; ++i) sum[r][i] = hn::MulAdd(factor, v[i], sum[r][i]);
    }
  };
  int64_t k = 0;
  if (kFetch) {
    for (; k + 2 * kBlockedRun <= depth; k += 2 * kBlockedRun) {
      const char* run = ahead.Next();
      for (int64_t i = 0; i < kBlockedRun; ++i) {
        Fetch(run + i * 64);
        step(k + 2 * i);
        step(k + 2 * i + 1);
      }
    }
  }
  for (; k + 2 <= depth; k += 2) {
    step(k);
    step(k + 1);
  }
  if (k < depth) step(k);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kTileVectors; ++i) {
      float* to = y + r * y_stride + i * kLanes;
      hn::StoreU(first ? sum[r][i] : hn::Add(sum[r][i], hn::LoadU(d, to)), d, to);
    }
  }
}

// A packed block and the rows that are multiplied with it.
struct PackedBlock {
  const float* packed;  // tiles one after the other, each [depth][kTileWidth]
  int64_t depth, columns;
  bool first;
};

template <int kRows, bool kFetch>
HWY_NOINLINE void BlockedRows(const PackedBlock& b, const float* x, int64_t x_stride, float* y,
                              int64_t y_stride, BlockedAhead& caller_ahead) {
  BlockedAhead ahead = caller_ahead;
  const float* packed = b.packed;
  int64_t j = 0;
  for (; j + kTileWidth <= b.columns; j += kTileWidth, packed += b.depth * kTileWidth) {
    BlockedTile<kRows, kFetch>(x, x_stride, packed, b.depth, b.first, y + j, y_stride, ahead);
  }
  if (j < b.columns) {
    HWY_ALIGN float edge[kRows * kTileWidth];
    BlockedTile<kRows, kFetch>(x, x_stride, packed, b.depth, true, edge, kTileWidth, ahead);
    for (int r = 0; r < kRows; ++r) {
      float* to = y + r * y_stride + j;
      for (int64_t i = 0; i < b.columns - j; ++i) {
        to[i] = b.first ? edge[r * kTileWidth + i] : to[i] + edge[r * kTileWidth + i];
      }
    }
  }
  caller_ahead = ahead;
}

template <bool kFetch>
HWY_INLINE void BlockedRowsOf(int64_t rows, const PackedBlock& b, const float* x, int64_t x_stride,
                              float* y, int64_t y_stride, BlockedAhead& ahead) {
  switch (rows) {
    case 1:
      return BlockedRows<1, kFetch>(b, x, x_stride, y, y_stride, ahead);
    case 2:
      return BlockedRows<2, kFetch>(b, x, x_stride, y, y_stride, ahead);
    case 3:
      return BlockedRows<3, kFetch>(b, x, x_stride, y, y_stride, ahead);
    case 4:
      return BlockedRows<4, kFetch>(b, x, x_stride, y, y_stride, ahead);
    case 5:
      return BlockedRows<5, kFetch>(b, x, x_stride, y, y_stride, ahead);
    default:
      return BlockedRows<kTileRows, kFetch>(b, x, x_stride, y, y_stride, ahead);
  }
}

// Packs w [depth, columns] into tiles, the last filled up with zeros.
HWY_INLINE void PackRows(const float* HWY_RESTRICT w, int64_t w_stride, int64_t depth,
                         int64_t columns, float* HWY_RESTRICT to) {
  const DF d;
  const int64_t whole = columns / kTileWidth * kTileWidth;
  const size_t rest = static_cast<size_t>(columns - whole) * sizeof(float);
  for (int64_t k = 0; k < depth; ++k) {
    const float* from = w + k * w_stride;
    float* tile = to + k * kTileWidth;
    for (int64_t j = 0; j < whole; j += kTileWidth, tile += depth * kTileWidth) {
      for (int i = 0; i < kTileVectors; ++i) {
        hn::Store(hn::LoadU(d, from + j + i * kLanes), d, tile + i * kLanes);
      }
    }
    if (rest == 0) continue;
    std::memset(tile, 0, static_cast<size_t>(kTileWidth) * sizeof(float));
    std::memcpy(tile, from + whole, rest);
  }
}

// Packs w [columns, depth] into the same tiles.
HWY_INLINE void PackColumns(const float* HWY_RESTRICT w, int64_t w_stride, int64_t depth,
                            int64_t columns, float* HWY_RESTRICT to) {
  for (int64_t j = 0; j < columns; j += kTileWidth, to += depth * kTileWidth) {
    const int64_t width = std::min(kTileWidth, columns - j);
    const int64_t fours = width / 4 * 4, whole = depth / 4 * 4;
    if (width < kTileWidth) {
      std::memset(to, 0, static_cast<size_t>(depth * kTileWidth) * sizeof(float));
    }
    for (int64_t i = 0; i < width; ++i) {
      const float* from = w + (j + i) * w_stride;
      int64_t k = 0;
      if (i < fours) {
        for (; i % 4 == 0 && k < whole; k += 4) {
          TransposeFour(from + k, w_stride, to + k * kTileWidth + i, kTileWidth);
        }
        k = whole;
      }
      for (; k < depth; ++k) std::memcpy(to + k * kTileWidth + i, from + k, sizeof(float));
    }
  }
}

// One worker's way through blocks of rows and columns.
class Blocker {
 public:
  Blocker(const Problem& problem, const Plan& plan, char* workspace, int64_t worker)
      : problem_(problem),
        plan_(plan),
        next_task_(reinterpret_cast<std::atomic<int64_t>*>(workspace + plan.counter_offset)),
        packed_(reinterpret_cast<float*>(workspace + plan.worker_offset +
                                         static_cast<size_t>(worker) * plan.worker_bytes)) {}

  void Run() {
    Place at = {Take(), 0};
    while (at.task < plan_.tasks) {
      Place next = {at.task, at.k + plan_.pack_depth};
      if (next.k >= problem_.depth) next = {Take(), 0};
      Block(at, next);
      if (next.task != at.task && problem_.bias != nullptr) {
        AddBias(problem_.bias + FirstColumn(at.task), Rows(at.task), Columns(at.task),
                problem_.y + FirstRow(at.task) * problem_.y_stride + FirstColumn(at.task),
                problem_.y_stride);
      }
      at = next;
    }
  }

 private:
  struct Place {
    int64_t task, k;
  };

  int64_t Take() const { return next_task_->fetch_add(1, std::memory_order_relaxed); }
  int64_t FirstColumn(int64_t task) const { return task / plan_.row_blocks * plan_.panel; }
  int64_t Columns(int64_t task) const {
    return std::min(plan_.panel, problem_.columns - FirstColumn(task));
  }
  int64_t FirstRow(int64_t task) const { return task % plan_.row_blocks * plan_.row_block; }
  int64_t Rows(int64_t task) const {
    return std::min(plan_.row_block, problem_.rows - FirstRow(task));
  }
  int64_t Depth(const Place& at) const { return std::min(plan_.pack_depth, problem_.depth - at.k); }

  const float* Weight(const Place& at) const {
    const int64_t column = FirstColumn(at.task);
    return problem_.transposed ? problem_.weight + column * problem_.depth + at.k
                               : problem_.weight + at.k * problem_.columns + column;
  }
  BlockedAhead Walk(const Place& at) const {
    if (at.task >= plan_.tasks) return BlockedAhead(problem_.x);
    return problem_.transposed
               ? BlockedAhead(Weight(at), Columns(at.task), Depth(at), problem_.depth)
               : BlockedAhead(Weight(at), Depth(at), Columns(at.task), problem_.columns);
  }

  void Block(const Place& at, const Place& next) const {
    const int64_t depth = Depth(at), columns = Columns(at.task);
    if (problem_.transposed) {
      PackColumns(Weight(at), problem_.depth, depth, columns, packed_);
    } else {
      PackRows(Weight(at), problem_.columns, depth, columns, packed_);
    }
    const PackedBlock b = {packed_, depth, columns, at.k == 0};
    BlockedAhead ahead = Walk(next);
    const float* x = problem_.x + FirstRow(at.task) * problem_.x_stride + at.k;
    float* y = problem_.y + FirstRow(at.task) * problem_.y_stride + FirstColumn(at.task);
    const int64_t rows = Rows(at.task);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const int64_t count = std::min<int64_t>(kTileRows, rows - r);
      if (ahead.done()) {
        BlockedRowsOf<false>(count, b, x + r * problem_.x_stride, problem_.x_stride,
                             y + r * problem_.y_stride, problem_.y_stride, ahead);
      } else {
        BlockedRowsOf<true>(count, b, x + r * problem_.x_stride, problem_.x_stride,
                            y + r * problem_.y_stride, problem_.y_stride, ahead);
      }
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  std::atomic<int64_t>* next_task_;
  float* packed_;
};

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_BLOCKED_INL_H_
