// Any number of rows, W packed into panels: a group of rows of x stays in registers while a panel
// of one line of columns goes by, in the order in which it lies in memory.
#if defined(GRAFT_PACKED_LINEAR_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_PANELS_INL_H_
#undef GRAFT_PACKED_LINEAR_PANELS_INL_H_
#else
#define GRAFT_PACKED_LINEAR_PANELS_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "activation-inl.h"
#include "common-inl.h"
#include "norm-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of x whose sums fill the registers.
#undef GRAFT_GROUP_ROWS
#if HWY_TARGET == HWY_AVX3
#define GRAFT_GROUP_ROWS 16
#elif HWY_TARGET == HWY_AVX2 || HWY_ARCH_ARM_A64
#define GRAFT_GROUP_ROWS 6
#else
#define GRAFT_GROUP_ROWS 3
#endif

// Bytes between what is read and what is prefetched.
constexpr int64_t kPanelAhead = 4096;

// A stretch of a panel and of a group of rows.
struct PanelBlock {
  const float* x;    // [depth][rows of the group] when packed, else rows as they lie
  int64_t x_stride;  // of rows as they lie
  const float* w;    // [depth][kLine]
  int64_t depth;
  bool first;   // sums start from zero
  float* sums;  // [rows of the group][kLine]
};

// sums[r][i] = (first ? 0 : sums[r][i]) + sum_k x[r][k] * w[k][i]. A stretch is summed up by itself
// first: a long sum of short ones rounds less than one long sum. Two steps at a time have sums of
// their own where few rows leave the multipliers waiting.
template <int kRows, bool kPacked, bool kFetch>
HWY_NOINLINE void PanelTile(const PanelBlock& b) {
  constexpr int kChains = kRows * kLineVectors < 8 ? 2 : 1;
  const DF d;
  const float* HWY_RESTRICT x = b.x;
  const float* HWY_RESTRICT w = b.w;
  const int64_t x_stride = b.x_stride;
  VF sum[kChains][kRows][kLineVectors];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kLineVectors; ++i) sum[c][r][i] = hn::Zero(d);
    }
  }
  const auto step = [&](int64_t k, int c) HWY_ATTR {
    if (kFetch) Fetch(reinterpret_cast<const char*>(w + k * kLine) + kPanelAhead);
    VF v[kLineVectors];
    for (int i = 0; i < kLineVectors; ++i) v[i] = hn::LoadU(d, w + k * kLine + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, kPacked ? x[k * kRows + r] : x[r * x_stride + k]);
      for (int i = 0; i < kLineVectors; ++i) sum[c][r][i] = hn::MulAdd(factor, v[i], sum[c][r][i]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= b.depth; k += 2) {
    step(k, 0);
    step(k + 1, kChains - 1);
  }
  if (k < b.depth) step(k, 0);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kLineVectors; ++i) {
      float* to = b.sums + r * kLine + i * kLanes;
      VF total = sum[0][r][i];
      if (kChains == 2) total = hn::Add(total, sum[1][r][i]);
      if (!b.first) total = hn::Add(total, hn::Load(d, to));
      hn::Store(total, d, to);
    }
  }
}

using PanelTileFunction = void (*)(const PanelBlock&);

// The tile for some rows, by whether x is packed and whether what follows is prefetched.
template <bool kFetch>
HWY_INLINE PanelTileFunction ChoosePanelTile(int64_t rows, bool packed) {
  switch (rows) {
    case 1:
      return packed ? PanelTile<1, true, kFetch> : PanelTile<1, false, kFetch>;
    case 2:
      return packed ? PanelTile<2, true, kFetch> : PanelTile<2, false, kFetch>;
#if GRAFT_GROUP_ROWS > 3
    case 3:
      return packed ? PanelTile<3, true, kFetch> : PanelTile<3, false, kFetch>;
    case 4:
      return packed ? PanelTile<4, true, kFetch> : PanelTile<4, false, kFetch>;
    case 5:
      return PanelTile<5, true, kFetch>;
#endif
#if GRAFT_GROUP_ROWS > 6
    case 6:
      return PanelTile<6, true, kFetch>;
    case 7:
      return PanelTile<7, true, kFetch>;
    case 8:
      return PanelTile<8, true, kFetch>;
    case 9:
      return PanelTile<9, true, kFetch>;
    case 10:
      return PanelTile<10, true, kFetch>;
    case 11:
      return PanelTile<11, true, kFetch>;
    case 12:
      return PanelTile<12, true, kFetch>;
    case 13:
      return PanelTile<13, true, kFetch>;
    case 14:
      return PanelTile<14, true, kFetch>;
    case 15:
      return PanelTile<15, true, kFetch>;
#endif
    default:
      return packed ? PanelTile<GRAFT_GROUP_ROWS, true, kFetch>
                    : PanelTile<GRAFT_GROUP_ROWS, false, kFetch>;
  }
}

// One worker's way through tasks: some rows, and the panels that they are multiplied with.
class Paneller {
 public:
  Paneller(const Problem& problem, const Plan& plan, char* workspace, int64_t worker)
      : problem_(problem),
        plan_(plan),
        next_task_(reinterpret_cast<std::atomic<int64_t>*>(workspace + plan.counter_offset)),
        sums_(reinterpret_cast<float*>(workspace + plan.worker_offset +
                                       static_cast<size_t>(worker) * plan.worker_bytes)),
        packed_(sums_ + plan.row_block * kLine),
        normal_(packed_ + plan.row_block * problem.depth) {}

  void Run() {
    for (;;) {
      const int64_t task = next_task_->fetch_add(1, std::memory_order_relaxed);
      if (task >= plan_.tasks) return;
      const int64_t all = DivideUp(problem_.columns, kLine);
      if (task < plan_.whole_blocks) {
        Enter(task);
        Panels(0, all);
        After();
        continue;
      }
      const int64_t rest = task - plan_.whole_blocks, share = rest % plan_.panels;
      Enter(plan_.whole_blocks + rest / plan_.panels);
      const int64_t small = plan_.large_shares * plan_.large_panel;
      if (share < plan_.large_shares) {
        Panels(share * plan_.large_panel, (share + 1) * plan_.large_panel);
      } else {
        const int64_t begin = small + (share - plan_.large_shares) * plan_.panel;
        Panels(begin, std::min(all, begin + plan_.panel));
      }
      // Whoever is last has all columns of the rows.
      if (problem_.after.scale != nullptr) {
        std::atomic<int64_t>& shares = next_task_[1 + rest / plan_.panels];
        if (shares.fetch_add(1, std::memory_order_acq_rel) + 1 == plan_.panels) After();
      }
    }
  }

 private:
  void Panels(int64_t begin, int64_t end) const {
    for (int64_t p = begin; p < end; ++p) Panel(p);
  }

  // Rows that go through registers at once.
  struct Group {
    int64_t rows;
    PanelTileFunction fetch, plain;
  };

  // Takes up a block of rows: x is packed so that what is multiplied at once lies side by side, and
  // rows that are a power of two apart do not drive each other out of the cache.
  void Enter(int64_t block) {
    if (block == block_) return;
    block_ = block;
    first_row_ = block * plan_.row_block;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    x_ = problem_.x + first_row_ * problem_.x_stride;
    x_stride_ = problem_.x_stride;
    if (problem_.before.scale != nullptr) {
      for (int64_t r = 0; r < rows; ++r) {
        Normalize(problem_.before, problem_.depth, x_ + r * x_stride_,
                  normal_ + r * problem_.depth);
      }
      x_ = normal_;
      x_stride_ = problem_.depth;
    }
    packed_x_ = rows > kDirectRows || rows > GRAFT_GROUP_ROWS;
    groups_ = DivideUp(rows, GRAFT_GROUP_ROWS);
    for (int64_t g = 0; g < groups_; ++g) {
      // Rows in equal shares: a group of one would read as much as a full one.
      const int64_t begin = rows * g / groups_, end = rows * (g + 1) / groups_;
      group_[g] = {end - begin, ChoosePanelTile<true>(end - begin, packed_x_),
                   ChoosePanelTile<false>(end - begin, packed_x_)};
      if (packed_x_) {
        Pack(x_ + begin * x_stride_, end - begin, packed_ + begin * problem_.depth);
      }
    }
  }

  // to[k][r] = x[r][k].
  void Pack(const float* x, int64_t rows, float* HWY_RESTRICT to) const {
    const int64_t fours = rows / 4 * 4, depth = problem_.depth, whole = depth / 4 * 4;
    for (int64_t k = 0; k < whole; k += 4) {
      for (int64_t r = 0; r < fours; r += 4) {
        TransposeFour(x + r * x_stride_ + k, x_stride_, to + k * rows + r, rows);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = r < fours ? whole : 0; k < depth; ++k) {
        to[k * rows + r] = x[r * x_stride_ + k];
      }
    }
  }

  void Panel(int64_t panel) const {
    const float* w = problem_.weight + panel * problem_.depth * kLine;
    PanelBlock b;
    b.x_stride = x_stride_;
    b.first = true;
    for (int64_t k = 0; k < problem_.depth; k += plan_.pack_depth, b.first = false) {
      b.depth = std::min(plan_.pack_depth, problem_.depth - k);
      b.w = w + k * kLine;
      const float* x = packed_x_ ? packed_ : x_;
      b.sums = sums_;
      for (int64_t g = 0; g < groups_; ++g) {
        const int64_t rows = group_[g].rows;
        b.x = x + (packed_x_ ? k * rows : k);
        (g == 0 ? group_[g].fetch : group_[g].plain)(b);
        x += rows * problem_.depth;
        b.sums += rows * kLine;
      }
    }
    Finish(panel);
  }

  // Normalizes the rows of the block.
  void After() const {
    if (problem_.after.scale == nullptr) return;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    for (int64_t r = 0; r < rows; ++r) {
      float* y = problem_.y + (first_row_ + r) * problem_.y_stride;
      Normalize(problem_.after, problem_.columns, y, y);
    }
  }

  // Where a column of a row of y lies, and what stands before it in its part.
  float* Row(int64_t row, int64_t column) const {
    if (problem_.parts == 1) return problem_.y + row * problem_.y_stride + column;
    const int64_t width = problem_.columns / problem_.parts, part = column / width;
    return (part == 0 ? problem_.y : problem_.more[part - 1]) + row * problem_.y_stride +
           column % width;
  }

  // y = activation(sums + bias) + residual.
  void Finish(int64_t panel) const {
    const DF d;
    const int64_t column = panel * kLine, columns = std::min(kLine, problem_.columns - column);
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    const auto bytes = static_cast<size_t>(columns) * sizeof(float);
    HWY_ALIGN float bias[kLine] = {};
    HWY_ALIGN float last[kLine] = {};
    if (problem_.bias != nullptr) std::memcpy(bias, problem_.bias + column, bytes);
    float* first = Row(first_row_, column);
    for (int64_t r = 0; r < rows; ++r) {
      float* sums = sums_ + r * kLine;
      float* y = first + r * problem_.y_stride;
      const float* residual = nullptr;
      if (problem_.residual != nullptr) {
        residual = problem_.residual + (first_row_ + r) * problem_.residual_stride + column;
        if (columns < kLine) {
          std::memcpy(last, residual, bytes);
          residual = last;
        }
      }
      for (int64_t i = 0; i < kLine; i += kLanes) {
        VF total = problem_.depth == 0 ? hn::Zero(d) : hn::Load(d, sums + i);
        total = Activate(problem_.activation, hn::Add(total, hn::Load(d, bias + i)));
        if (residual != nullptr) total = hn::Add(total, hn::LoadU(d, residual + i));
        if (columns == kLine) {
          hn::StoreU(total, d, y + i);
        } else {
          hn::Store(total, d, sums + i);
        }
      }
      if (columns < kLine) std::memcpy(y, sums, bytes);
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  std::atomic<int64_t>* next_task_;
  float* sums_;
  float* packed_;
  float* normal_;
  const float* x_ = nullptr;  // rows of the block, normalized where the problem says so
  int64_t x_stride_ = 0;
  int64_t block_ = -1, first_row_ = 0, groups_ = 0;
  bool packed_x_ = false;
  Group group_[kMaxRowBlock / GRAFT_GROUP_ROWS + 1];
};

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_PANELS_INL_H_
