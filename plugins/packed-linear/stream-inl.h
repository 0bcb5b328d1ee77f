// Few rows, W [K, N]: eight rows of W go by at a time, sixteen where x has many rows, while sums
// wait in the nearest cache.
//
// Eight streams are few enough for the CPU's own prefetcher and enough that sums are loaded and
// stored seldom. The order of reading is that of memory, so an odd address of W costs little.
#if defined(GRAFT_PACKED_LINEAR_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_STREAM_INL_H_
#undef GRAFT_PACKED_LINEAR_STREAM_INL_H_
#else
#define GRAFT_PACKED_LINEAR_STREAM_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of columns and rows of x in one register tile.
#undef GRAFT_STREAM_ROWS
#if HWY_TARGET == HWY_AVX3
constexpr int kStreamVectors = 2;
#define GRAFT_STREAM_ROWS 8
#elif HWY_TARGET == HWY_AVX2 || HWY_ARCH_ARM_A64
constexpr int kStreamVectors = kLineVectors;
#define GRAFT_STREAM_ROWS 4
#else
constexpr int kStreamVectors = kLineVectors;
#define GRAFT_STREAM_ROWS 2
#endif
constexpr int64_t kStreamWidth = kStreamVectors * kLanes;
static_assert(kStreamWidth % kLine == 0, "a tile reads whole lines");

// Some rows of W and where their sums go.
struct StreamBlock {
  const float* x;
  int64_t x_stride;
  const float* w;
  int64_t w_stride;
  int64_t depth, columns;
  const float* ahead;  // what is read next, likewise; prefetched meanwhile
  bool first;          // sums start from zero
  float* sums;
  int64_t sums_stride;
};

// sums[r][i] = (first ? 0 : sums[r][i]) + sum_k x[r][k] * w[k][i], for one tile.
//
// A block is summed up by itself first: a long sum of short ones rounds less than one long sum.
// A core has few places for lines on their way into its first cache; what is read next is
// prefetched into the second.
template <int kRows, int kDepth, bool kFetch>
HWY_INLINE void StreamTile(const StreamBlock& b, const float* HWY_RESTRICT w, int64_t w_stride,
                           const float* ahead, float* HWY_RESTRICT sums, int64_t sums_stride) {
  const DF d;
  const float* HWY_RESTRICT x = b.x;
  VF sum[kRows][kStreamVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kStreamVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  const auto step = [&](int64_t k) HWY_ATTR {
    for (int64_t i = 0; kFetch && i < kStreamWidth; i += kLine) {
      Fetch(ahead + k * b.w_stride + i);
    }
    VF v[kStreamVectors];
    for (int i = 0; i < kStreamVectors; ++i) v[i] = hn::LoadU(d, w + k * w_stride + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, x[r * b.x_stride + k]);
      for (int i = 0; i < kStreamVectors; ++i) sum[r][i] = hn::MulAdd(factor, v[i], sum[r][i]);
    }
  };
  if constexpr (kDepth > 0) {
    HWY_UNROLL(8)
    for (int64_t k = 0; k < kDepth; ++k) step(k);
  } else {
    for (int64_t k = 0; k < b.depth; ++k) step(k);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kStreamVectors; ++i) {
      float* to = sums + r * sums_stride + i * kLanes;
      if (!b.first) sum[r][i] = hn::Add(sum[r][i], hn::LoadU(d, to));
      hn::StoreU(sum[r][i], d, to);
    }
  }
}

template <int kRows, bool kFetch>
HWY_NOINLINE void StreamRows(const StreamBlock& b) {
  int64_t j = 0;
  for (; j + kStreamWidth <= b.columns; j += kStreamWidth) {
    const float* w = b.w + j;
    const float* ahead = b.ahead + j;
    float* sums = b.sums + j;
    if (b.depth == kStreamBlock) {
      StreamTile<kRows, kStreamBlock, kFetch>(b, w, b.w_stride, ahead, sums, b.sums_stride);
    } else if (b.depth == kMaxStreamBlock) {
      StreamTile<kRows, kMaxStreamBlock, kFetch>(b, w, b.w_stride, ahead, sums, b.sums_stride);
    } else {
      StreamTile<kRows, 0, kFetch>(b, w, b.w_stride, ahead, sums, b.sums_stride);
    }
  }
  const int64_t rest = b.columns - j;
  if (rest == 0) return;
  // Sums have room for a whole tile; W may end here.
  HWY_ALIGN float w[kMaxStreamBlock * kStreamWidth] = {};
  for (int64_t k = 0; k < b.depth; ++k) {
    std::memcpy(w + k * kStreamWidth, b.w + k * b.w_stride + j,
                static_cast<size_t>(rest) * sizeof(float));
  }
  StreamTile<kRows, 0, kFetch>(b, w, kStreamWidth, b.ahead + j, b.sums + j, b.sums_stride);
}

template <bool kFetch>
HWY_INLINE void StreamRowsOf(int64_t rows, const StreamBlock& b) {
  switch (rows) {
    case 1:
      return StreamRows<1, kFetch>(b);
#if GRAFT_STREAM_ROWS >= 4
    case 2:
      return StreamRows<2, kFetch>(b);
    case 3:
      return StreamRows<3, kFetch>(b);
#endif
#if GRAFT_STREAM_ROWS >= 8
    case 4:
      return StreamRows<4, kFetch>(b);
    case 5:
      return StreamRows<5, kFetch>(b);
    case 6:
      return StreamRows<6, kFetch>(b);
    case 7:
      return StreamRows<7, kFetch>(b);
#endif
    default:
      return StreamRows<GRAFT_STREAM_ROWS, kFetch>(b);
  }
}

// One worker's way through the tasks, a block at a time. The next task is taken while the last
// block of this one still runs, so that what comes next is always known.
class Streamer {
 public:
  Streamer(const Problem& problem, const Plan& plan, char* workspace, int64_t worker)
      : problem_(problem),
        plan_(plan),
        block_(problem.rows > GRAFT_STREAM_ROWS ? kMaxStreamBlock : kStreamBlock),
        counters_(reinterpret_cast<std::atomic<int64_t>*>(workspace + plan.counter_offset)),
        partials_(reinterpret_cast<float*>(workspace + plan.partial_offset)),
        scratch_(reinterpret_cast<float*>(workspace + plan.worker_offset +
                                          static_cast<size_t>(worker) * plan.worker_bytes)) {}

  void Run() {
    for (Place at = Take(); at.task < plan_.tasks;) {
      Place next = {at.task, at.k + block_};
      if (next.k >= End(at.task)) next = Take();
      Block(at, next);
      if (next.task != at.task) Finish(at.task);
      at = next;
    }
  }

 private:
  struct Place {
    int64_t task, k;
  };

  int64_t Begin(int64_t task) const { return task % plan_.splits * plan_.split_depth; }
  int64_t End(int64_t task) const {
    return std::min(problem_.depth, Begin(task) + plan_.split_depth);
  }
  int64_t FirstColumn(int64_t task) const { return task / plan_.splits * plan_.panel; }
  int64_t Columns(int64_t task) const {
    return std::min(plan_.panel, problem_.columns - FirstColumn(task));
  }
  const float* Weight(const Place& at) const {
    return problem_.weight + at.k * problem_.columns + FirstColumn(at.task);
  }
  float* Sums(int64_t task) const {
    if (plan_.splits == 1) return scratch_;
    return partials_ + static_cast<size_t>(task) * plan_.sums_floats;
  }
  Place Take() const {
    const int64_t task = counters_[0].fetch_add(1, std::memory_order_relaxed);
    return {task, task < plan_.tasks ? Begin(task) : 0};
  }

  void Block(const Place& at, const Place& next) const {
    StreamBlock b;
    b.x_stride = problem_.x_stride;
    b.w = Weight(at);
    b.w_stride = problem_.columns;
    b.depth = std::min(block_, End(at.task) - at.k);
    b.columns = Columns(at.task);
    const bool fetch = next.task < plan_.tasks;
    b.ahead = fetch ? Weight(next) : b.w;
    b.first = at.k == Begin(at.task);
    b.sums_stride = plan_.sums_stride;
    for (int64_t r = 0; r < problem_.rows; r += GRAFT_STREAM_ROWS) {
      b.x = problem_.x + r * problem_.x_stride + at.k;
      b.sums = Sums(at.task) + r * b.sums_stride;
      const int64_t rows = std::min<int64_t>(GRAFT_STREAM_ROWS, problem_.rows - r);
      if (r == 0 && fetch) {
        StreamRowsOf<true>(rows, b);
      } else {
        StreamRowsOf<false>(rows, b);
      }
    }
  }

  // Writes y. Of a panel whose depth was split, the worker that comes last adds up the parts,
  // always in the same order.
  void Finish(int64_t task) const {
    const int64_t panel = task / plan_.splits, column = FirstColumn(task);
    if (plan_.splits > 1 &&
        counters_[1 + panel].fetch_add(1, std::memory_order_acq_rel) != plan_.splits - 1) {
      return;
    }
    const float* sums = Sums(panel * plan_.splits);
    const float* bias = problem_.bias != nullptr ? problem_.bias + column : nullptr;
    for (int64_t r = 0; r < problem_.rows; ++r) {
      AddParts(sums + r * plan_.sums_stride, bias, Columns(task),
               problem_.y + r * problem_.y_stride + column);
    }
  }

  // y = the sum of the parts, and bias.
  HWY_INLINE void AddParts(const float* HWY_RESTRICT part, const float* HWY_RESTRICT bias,
                           int64_t columns, float* HWY_RESTRICT y) const {
    const DF d;
    const auto apart = static_cast<int64_t>(plan_.sums_floats);
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      VF sum = hn::LoadU(d, part + i);
      for (int64_t s = 1; s < plan_.splits; ++s) {
        sum = hn::Add(sum, hn::LoadU(d, part + s * apart + i));
      }
      if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias + i));
      hn::StoreU(sum, d, y + i);
    }
    for (; i < columns; ++i) {
      float sum = part[i];
      for (int64_t s = 1; s < plan_.splits; ++s) sum += part[s * apart + i];
      y[i] = bias != nullptr ? sum + bias[i] : sum;
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  const int64_t block_;  // rows of W at a time: more where sums are many
  std::atomic<int64_t>* counters_;
  float* partials_;
  float* scratch_;
};

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_STREAM_INL_H_
