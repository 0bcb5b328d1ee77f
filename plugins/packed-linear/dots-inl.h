// Few rows, W [N, K]: each output is a dot product of two rows.
#if defined(GRAFT_PACKED_LINEAR_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_DOTS_INL_H_
#undef GRAFT_PACKED_LINEAR_DOTS_INL_H_
#else
#define GRAFT_PACKED_LINEAR_DOTS_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of x and of W in one register tile.
#undef GRAFT_DOT_ROWS
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
#define GRAFT_DOT_ROWS 4
constexpr int kDotColumns = 4;
#elif HWY_TARGET == HWY_AVX2
#define GRAFT_DOT_ROWS 4
constexpr int kDotColumns = 2;
#else
#define GRAFT_DOT_ROWS 2
constexpr int kDotColumns = 2;
#endif

// Runs are long: rows of W lie one after the other.
constexpr int64_t kDotRun = 16;
using DotAhead = Ahead<kDotRun>;

// Rows of W and what to do with them.
struct DotBlock {
  const float* x;
  int64_t x_stride;
  const float* w;  // kDotColumns rows, `depth` floats apart
  int64_t depth;
  int64_t columns;    // of kDotColumns, that exist
  const float* bias;  // of these columns, or none
  float* y;
  int64_t y_stride;
};

// y[r][c] = sum_k x[r][k] * w[c][k] + bias[c], for one tile. Prefetches as many lines as it reads
// where kFetch is set.
template <int kRows, bool kFetch>
HWY_NOINLINE void DotTile(const DotBlock& b, DotAhead& caller_ahead) {
  DotAhead ahead = caller_ahead;
  const DF d;
  VF sum[kRows][kDotColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kDotColumns; ++c) sum[r][c] = hn::Zero(d);
  }
  const float* w[kDotColumns];
  for (int c = 0; c < kDotColumns; ++c) w[c] = b.w + std::min<int64_t>(c, b.columns - 1) * b.depth;
  int64_t k = 0;
  const auto step = [&]() HWY_ATTR {
    VF v[kDotColumns];
    for (int c = 0; c < kDotColumns; ++c) v[c] = hn::LoadU(d, w[c] + k);
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::LoadU(d, b.x + r * b.x_stride + k);
      for (int c = 0; c < kDotColumns; ++c) sum[r][c] = hn::MulAdd(factor, v[c], sum[r][c]);
    }
    k += kLanes;
  };
  if (kFetch) {
    // A run for as many lines of W as it has.
    constexpr int64_t kLines = kDotRun / kDotColumns;
    while (k + kLines * kLine <= b.depth) {
      const char* run = ahead.Next();
      for (int64_t i = 0; i < kLines; ++i) {
        for (int c = 0; c < kDotColumns; ++c) Fetch(run + (i * kDotColumns + c) * 64);
        for (int v = 0; v < kLineVectors; ++v) step();
      }
    }
  }
  while (k + kLanes <= b.depth) step();
  if (k < b.depth) {
    const size_t bytes = static_cast<size_t>(b.depth - k) * sizeof(float);
    HWY_ALIGN float rest[kLanes] = {};
    VF v[kDotColumns];
    for (int c = 0; c < kDotColumns; ++c) {
      std::memcpy(rest, w[c] + k, bytes);
      v[c] = hn::Load(d, rest);
    }
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(rest, b.x + r * b.x_stride + k, bytes);
      const VF factor = hn::Load(d, rest);
      for (int c = 0; c < kDotColumns; ++c) sum[r][c] = hn::MulAdd(factor, v[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kDotColumns; ++c) {
      if (c >= b.columns) break;
      const float total = hn::GetLane(hn::SumOfLanes(d, sum[r][c]));
      b.y[r * b.y_stride + c] = b.bias != nullptr ? total + b.bias[c] : total;
    }
  }
  caller_ahead = ahead;
}

template <bool kFetch>
HWY_INLINE void DotTileOf(int64_t rows, const DotBlock& b, DotAhead& ahead) {
  switch (rows) {
    case 1:
      return DotTile<1, kFetch>(b, ahead);
#if GRAFT_DOT_ROWS >= 4
    case 2:
      return DotTile<2, kFetch>(b, ahead);
    case 3:
      return DotTile<3, kFetch>(b, ahead);
#endif
    default:
      return DotTile<GRAFT_DOT_ROWS, kFetch>(b, ahead);
  }
}

// One worker's way through ranges of columns.
HWY_INLINE void RunDots(const Problem& problem, const Plan& plan, char* workspace) {
  auto* next_task = reinterpret_cast<std::atomic<int64_t>*>(workspace + plan.counter_offset);
  const auto take = [&] { return next_task->fetch_add(1, std::memory_order_relaxed); };
  const int64_t depth = problem.depth;
  for (int64_t task = take(); task < plan.tasks;) {
    const int64_t end = std::min(problem.columns, (task + 1) * plan.panel);
    int64_t following = plan.tasks;
    for (int64_t n = task * plan.panel; n < end; n += kDotColumns) {
      DotBlock b;
      b.x_stride = problem.x_stride;
      b.w = problem.weight + n * depth;
      b.depth = depth;
      b.columns = std::min<int64_t>(kDotColumns, end - n);
      b.bias = problem.bias != nullptr ? problem.bias + n : nullptr;
      b.y_stride = problem.y_stride;
      // The next task is taken with the last tile of this one, so that what comes next is known.
      int64_t ahead_column = n + kDotColumns;
      if (ahead_column >= end) {
        following = take();
        ahead_column = following * plan.panel;
      }
      const int64_t ahead_columns = std::min<int64_t>(kDotColumns, problem.columns - ahead_column);
      DotAhead ahead = ahead_columns > 0 ? DotAhead(problem.weight + ahead_column * depth,
                                                    ahead_columns, depth, depth)
                                         : DotAhead(problem.x);
      for (int64_t r = 0; r < problem.rows; r += GRAFT_DOT_ROWS) {
        b.x = problem.x + r * problem.x_stride;
        b.y = problem.y + r * problem.y_stride + n;
        const int64_t rows = std::min<int64_t>(GRAFT_DOT_ROWS, problem.rows - r);
        if (r > 0) {
          DotTileOf<false>(rows, b, ahead);
        } else {
          DotTileOf<true>(rows, b, ahead);
        }
      }
    }
    task = following;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_DOTS_INL_H_
