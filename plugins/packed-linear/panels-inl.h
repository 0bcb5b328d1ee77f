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
#include "expand-inl.h"
#include "integers-inl.h"
#include "norm-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of x whose sums fill the registers, and panels that are multiplied at once: with one vector
// a panel, a number of x would be loaded for each multiplication, and a core loads no faster than
// it multiplies.
#undef GRAFT_GROUP_ROWS
constexpr int64_t kPair = HWY_TARGET == HWY_AVX3 ? 2 : 1;
#if HWY_TARGET == HWY_AVX3
#define GRAFT_GROUP_ROWS 14
#elif HWY_TARGET == HWY_AVX2 || HWY_ARCH_ARM_A64
#define GRAFT_GROUP_ROWS 6
#else
#define GRAFT_GROUP_ROWS 3
#endif

// Bytes between what is read and what is prefetched, where one group has the panel to itself.
constexpr int64_t kPanelAhead = 4096;

// A stretch of panels and of a group of rows.
struct PanelBlock {
  const float* x;    // [depth][rows of the group] when packed, else rows as stored
  int64_t x_stride;  // of rows as stored
  const float* w;    // [depth][kLine]
  int64_t w_stride;  // floats from one panel to the next
  int64_t depth;
  const char* ahead;  // what is prefetched with each line, w_stride apart too
  int64_t ahead_step;
  bool first;   // sums start from zero
  float* sums;  // [rows of the group][panels][kLine]
};

// sums[r][p][i] = (first ? 0 : sums[r][p][i]) + sum_k x[r][k] * w[p][k][i]. A stretch is summed up
// by itself first: a long sum of short ones rounds less than one long sum. Two steps at a time have
// sums of their own where few rows leave the multipliers waiting.
template <int kPanels, int kRows, bool kPacked>
HWY_NOINLINE void PanelTile(const PanelBlock& b) {
  constexpr int kVectors = kPanels * kLineVectors;
  constexpr int kChains = kRows * kVectors < 8 ? 2 : 1;
  const DF d;
  const float* HWY_RESTRICT x = b.x;
  const float* HWY_RESTRICT w = b.w;
  const int64_t x_stride = b.x_stride, ahead_step = b.ahead_step;
  const char* ahead = b.ahead;
  VF sum[kChains][kRows][kVectors];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVectors; ++i) sum[c][r][i] = hn::Zero(d);
    }
  }
  const auto step = [&](int64_t k, int c) HWY_ATTR {
    VF v[kVectors];
    for (int p = 0; p < kPanels; ++p) {
      const float* line = w + p * b.w_stride + k * kLine;
      Fetch(ahead + p * b.w_stride * static_cast<int64_t>(sizeof(float)));
      for (int i = 0; i < kLineVectors; ++i) {
        v[p * kLineVectors + i] = hn::LoadU(d, line + i * kLanes);
      }
    }
    ahead += ahead_step;
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, kPacked ? x[k * kRows + r] : x[r * x_stride + k]);
      for (int i = 0; i < kVectors; ++i) sum[c][r][i] = hn::MulAdd(factor, v[i], sum[c][r][i]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= b.depth; k += 2) {
    step(k, 0);
    step(k + 1, kChains - 1);
  }
  if (k < b.depth) step(k, 0);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      float* to = b.sums + r * kPanels * kLine + i * kLanes;
      VF total = sum[0][r][i];
      if (kChains == 2) total = hn::Add(total, sum[1][r][i]);
      if (!b.first) total = hn::Add(total, hn::Load(d, to));
      hn::Store(total, d, to);
    }
  }
}

using PanelTileFunction = void (*)(const PanelBlock&);

// The tile for some rows, by whether x is packed.
template <int kPanels>
HWY_INLINE PanelTileFunction ChoosePanelTile(int64_t rows, bool packed) {
#define GRAFT_TILE(rows, packed) PanelTile<kPanels, rows, packed>
  switch (rows) {
    case 1:
      return packed ? GRAFT_TILE(1, true) : GRAFT_TILE(1, false);
    case 2:
      return packed ? GRAFT_TILE(2, true) : GRAFT_TILE(2, false);
#if GRAFT_GROUP_ROWS > 3
    case 3:
      return packed ? GRAFT_TILE(3, true) : GRAFT_TILE(3, false);
    case 4:
      return packed ? GRAFT_TILE(4, true) : GRAFT_TILE(4, false);
    case 5:
      return GRAFT_TILE(5, true);
#endif
#if GRAFT_GROUP_ROWS > 6
    case 6:
      return GRAFT_TILE(6, true);
    case 7:
      return GRAFT_TILE(7, true);
    case 8:
      return GRAFT_TILE(8, true);
    case 9:
      return GRAFT_TILE(9, true);
    case 10:
      return GRAFT_TILE(10, true);
    case 11:
      return GRAFT_TILE(11, true);
    case 12:
      return GRAFT_TILE(12, true);
    case 13:
      return GRAFT_TILE(13, true);
#endif
    default:
      return packed ? GRAFT_TILE(GRAFT_GROUP_ROWS, true) : GRAFT_TILE(GRAFT_GROUP_ROWS, false);
  }
#undef GRAFT_TILE
}

// One worker's way through tasks: some rows, and the panels that they are multiplied with.
class Paneller {
 public:
  Paneller(const Problem& problem, const Plan& plan, char* workspace, int64_t worker)
      : problem_(problem),
        plan_(plan),
        next_task_(reinterpret_cast<std::atomic<int64_t>*>(workspace + plan.counter_offset)),
        memory_(workspace + plan.worker_offset + static_cast<size_t>(worker) * plan.worker_bytes),
        sums_(reinterpret_cast<float*>(memory_)),
        packed_(reinterpret_cast<float*>(memory_ + plan.packed_offset)),
        normal_(reinterpret_cast<float*>(memory_ + plan.normal_offset)),
        expanded_(reinterpret_cast<float*>(memory_ + plan.expanded_offset)),
        rounds_(RoundsX(problem)),
        expands_(ExpandsPanels(problem)),
        integers_(problem, plan, memory_) {}

  void Run() {
    for (;;) {
      const int64_t task = next_task_->fetch_add(1, std::memory_order_relaxed);
      if (task >= plan_.tasks) return;
      const int64_t all = plan_.all_panels;
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
    int64_t p = begin;
    for (; p < end && problem_.gated; ++p) Gate(p);
    for (; p + kPair <= end && !rounds_ && !expands_; p += kPair) Multiply<kPair>(p);
    for (; p < end; ++p) Multiply<1>(p);
  }

  // Rows that go through registers at once.
  struct Group {
    int64_t rows;
    PanelTileFunction tile[kPair];  // by panels less one
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
    if (rounds_) return integers_.Enter(x_, x_stride_, rows);
    packed_x_ = rows > kDirectRows || rows > GRAFT_GROUP_ROWS;
    groups_ = DivideUp(rows, GRAFT_GROUP_ROWS);
    for (int64_t g = 0; g < groups_; ++g) {
      // Rows in equal shares: a group of one would read as much as a full one.
      const int64_t begin = rows * g / groups_, end = rows * (g + 1) / groups_;
      group_[g].rows = end - begin;
      group_[g].tile[0] = ChoosePanelTile<1>(group_[g].rows, packed_x_);
      if (kPair > 1) group_[g].tile[kPair - 1] = ChoosePanelTile<kPair>(group_[g].rows, packed_x_);
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

  // Some panels from this one on, with all rows of the block.
  template <int kPanels>
  void Multiply(int64_t panel) const {
    for (int i = 0; i < kPanels; ++i) Expect(panel + i);
    Sum<kPanels>(panel, 1, panel + kPanels, sums_);
    for (int i = 0; i < kPanels; ++i) Finish(panel + i, sums_ + i * kLine, kPanels * kLine);
  }

  // A panel of the first half and that of the second.
  void Gate(int64_t panel) const {
    Expect(panel);
    if (kPair == 2 && !rounds_ && !expands_) {
      Sum<kPair>(panel, plan_.all_panels, panel + 1, sums_);
      return FinishGated(panel, sums_, sums_ + kLine, 2 * kLine);
    }
    float* second = sums_ + plan_.row_block * kLine;
    Sum<1>(panel, 1, panel + plan_.all_panels, sums_);
    Sum<1>(panel + plan_.all_panels, 1, panel + 1, second);
    FinishGated(panel, sums_, second, kLine);
  }

  // Sums of panels that are so many panels apart, before those of the panel `next`.
  template <int kPanels>
  void Sum(int64_t panel, int64_t apart, int64_t next, float* sums) const {
    if (rounds_) return integers_.Sum(panel, sums);
    const int64_t size = problem_.depth * kLine;
    const float* w = expands_ ? nullptr : problem_.weight + panel * size;
    PanelBlock b;
    b.ahead_step = expands_ ? 0 : DivideUp(64, groups_);
    b.x_stride = x_stride_;
    b.w_stride = apart * size;
    b.first = true;
    for (int64_t k = 0; k < problem_.depth; k += plan_.pack_depth, b.first = false) {
      b.depth = std::min(plan_.pack_depth, problem_.depth - k);
      const float* ahead;
      if (expands_) {
        Expand(problem_, panel, k, b.depth, expanded_);
        b.w = ahead = expanded_;
      } else {
        // One group reads ahead of itself; several share out the next stretch.
        b.w = w + k * kLine;
        ahead =
            k + b.depth < problem_.depth ? b.w + b.depth * kLine : problem_.weight + next * size;
      }
      b.ahead = reinterpret_cast<const char*>(ahead);
      if (groups_ == 1 && !expands_) b.ahead = reinterpret_cast<const char*>(b.w) + kPanelAhead;
      const float* x = packed_x_ ? packed_ : x_;
      b.sums = sums;
      for (int64_t g = 0; g < groups_; ++g) {
        const int64_t rows = group_[g].rows;
        b.x = x + (packed_x_ ? k * rows : k);
        group_[g].tile[kPanels - 1](b);
        b.ahead += b.depth * b.ahead_step;
        x += rows * problem_.depth;
        b.sums += rows * kPanels * kLine;
      }
    }
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

  // The lines that Finish will write and read, on their way while the panels are multiplied.
  void Expect(int64_t panel) const {
    const int64_t column = panel * kLine,
                  rows = std::min(plan_.row_block, problem_.rows - first_row_);
    float* y = Row(first_row_, column);
    for (int64_t r = 0; r < rows; ++r) __builtin_prefetch(y + r * problem_.y_stride, 1);
    if (problem_.residual == nullptr) return;
    const float* residual = problem_.residual + first_row_ * problem_.residual_stride + column;
    for (int64_t r = 0; r < rows; ++r) __builtin_prefetch(residual + r * problem_.residual_stride);
  }

  // y = activation(sums + bias) + residual, of one panel.
  void Finish(int64_t panel, const float* sums, int64_t sums_stride) const {
    if (problem_.columns - panel * kLine < kLine) return FinishPart(panel, sums, sums_stride);
    const bool residual = problem_.residual != nullptr;
    switch (problem_.activation) {
      case Activation::kNone:
        return residual ? FinishWhole<Activation::kNone, true>(panel, sums, sums_stride)
                        : FinishWhole<Activation::kNone, false>(panel, sums, sums_stride);
      case Activation::kGelu:
        return FinishWhole<Activation::kGelu, true>(panel, sums, sums_stride);
      case Activation::kGeluTanh:
        return FinishWhole<Activation::kGeluTanh, true>(panel, sums, sums_stride);
      case Activation::kGeluQuick:
        return FinishWhole<Activation::kGeluQuick, true>(panel, sums, sums_stride);
      case Activation::kRelu:
        return FinishWhole<Activation::kRelu, true>(panel, sums, sums_stride);
      case Activation::kSilu:
        return FinishWhole<Activation::kSilu, true>(panel, sums, sums_stride);
    }
  }

  template <Activation kActivation, bool kMayAdd>
  void FinishWhole(int64_t panel, const float* HWY_RESTRICT sums, int64_t sums_stride) const {
    const DF d;
    const int64_t column = panel * kLine;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    const int64_t y_stride = problem_.y_stride;
    float* HWY_RESTRICT y = Row(first_row_, column);
    const float* residual = nullptr;
    if (kMayAdd && problem_.residual != nullptr) {
      residual = problem_.residual + first_row_ * problem_.residual_stride + column;
    }
    VF bias[kLineVectors];
    for (int i = 0; i < kLineVectors; ++i) {
      bias[i] = problem_.bias == nullptr ? hn::Zero(d)
                                         : hn::LoadU(d, problem_.bias + column + i * kLanes);
    }
    const bool none = problem_.depth == 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int i = 0; i < kLineVectors; ++i) {
        const VF sum = none ? hn::Zero(d) : hn::Load(d, sums + r * sums_stride + i * kLanes);
        VF total = Activate(kActivation, hn::Add(sum, bias[i]));
        if (residual != nullptr) {
          total =
              hn::Add(total, hn::LoadU(d, residual + r * problem_.residual_stride + i * kLanes));
        }
        hn::StoreU(total, d, y + r * y_stride + i * kLanes);
      }
    }
  }

  // y = activation(first sums + bias) (second sums + bias).
  void FinishGated(int64_t panel, const float* HWY_RESTRICT first, const float* HWY_RESTRICT second,
                   int64_t sums_stride) const {
    const DF d;
    const int64_t column = panel * kLine, half = problem_.columns / 2;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    float* HWY_RESTRICT y = problem_.y + first_row_ * problem_.y_stride + column;
    const bool none = problem_.depth == 0, biased = problem_.bias != nullptr;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kLine; i += kLanes) {
        VF a = none ? hn::Zero(d) : hn::Load(d, first + r * sums_stride + i);
        VF b = none ? hn::Zero(d) : hn::Load(d, second + r * sums_stride + i);
        if (biased) {
          a = hn::Add(a, hn::LoadU(d, problem_.bias + column + i));
          b = hn::Add(b, hn::LoadU(d, problem_.bias + half + column + i));
        }
        hn::StoreU(hn::Mul(Activate(problem_.activation, a), b), d, y + r * problem_.y_stride + i);
      }
    }
  }

  // The last panel, where it is not whole.
  void FinishPart(int64_t panel, const float* panel_sums, int64_t sums_stride) const {
    const DF d;
    const int64_t column = panel * kLine, columns = problem_.columns - column;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - first_row_);
    const auto bytes = static_cast<size_t>(columns) * sizeof(float);
    HWY_ALIGN float bias[kLine] = {};
    HWY_ALIGN float line[kLine] = {};
    HWY_ALIGN float residual[kLine] = {};
    if (problem_.bias != nullptr) std::memcpy(bias, problem_.bias + column, bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const float* sums = panel_sums + r * sums_stride;
      if (problem_.residual != nullptr) {
        std::memcpy(residual,
                    problem_.residual + (first_row_ + r) * problem_.residual_stride + column,
                    bytes);
      }
      for (int64_t i = 0; i < kLine; i += kLanes) {
        const VF sum = problem_.depth == 0 ? hn::Zero(d) : hn::Load(d, sums + i);
        VF total = Activate(problem_.activation, hn::Add(sum, hn::Load(d, bias + i)));
        if (problem_.residual != nullptr) total = hn::Add(total, hn::Load(d, residual + i));
        hn::Store(total, d, line + i);
      }
      std::memcpy(Row(first_row_ + r, column), line, bytes);
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  std::atomic<int64_t>* next_task_;
  char* memory_;
  float* sums_;
  float* packed_;
  float* normal_;
  float* expanded_;
  const bool rounds_, expands_;
  Integers integers_;
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
