// Rows of x as integers of eight or of sixteen bits, and a panel of integers times them.
//
// For each row, and each group of positions that has a scale in W (symmetric, as in llama.cpp's
// Q8_0 blocks):
//
//   most  = the greatest |x[k]| of the group
//   q[k]  = x[k] (limit / most), rounded to the nearest integer, ties to even
//   scale = most / limit
//
// each in float32. limit is 127, or 32,639 = 127 * 257 for sixteen bits: both bytes of q = 256 high
// + low are then -128 .. 127. Where most is below kLeastNumber, q and scale are 0. Where a number
// of the group is NaN or infinite, scale is NaN and q is 0: the row's y is then NaN.
#if defined(GRAFT_PACKED_LINEAR_INTEGERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_INTEGERS_INL_H_
#undef GRAFT_PACKED_LINEAR_INTEGERS_INL_H_
#else
#define GRAFT_PACKED_LINEAR_INTEGERS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "integer-tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// To the nearest integer, ties to even.
HWY_INLINE VI RoundToInteger(VF v) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  HWY_ALIGN float numbers[kLanes];
  HWY_ALIGN int32_t integers[kLanes];
  hn::Store(v, DF(), numbers);
  for (int64_t i = 0; i < kLanes; ++i) integers[i] = static_cast<int32_t>(std::lrint(numbers[i]));
  return hn::Load(DI(), integers);
#else
  return hn::NearestInt(v);
#endif
}

// Rounds a group of x, of whole chunks, to integers. Returns their sum.
template <class T>
HWY_INLINE int32_t RoundGroup(const float* HWY_RESTRICT x, int64_t count, float limit,
                              T* HWY_RESTRICT q, float* scale) {
  const DF d;
  const hn::Rebind<T, DF> dq;
  VF most = hn::Zero(d), off = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF v = hn::LoadU(d, x + i);
    most = hn::Max(most, hn::Abs(v));
    off = hn::Add(off, hn::Sub(v, v));  // NaN where v is not finite
  }
  const float all = hn::GetLane(hn::MaxOfLanes(d, most));
  const float none = hn::GetLane(hn::SumOfLanes(d, off));
  if (none != 0 || !(all >= kLeastNumber)) {
    *scale = none;  // 0 or NaN
    std::fill(q, q + count, T{0});
    return 0;
  }
  *scale = all / limit;
  const VF by = hn::Set(d, limit / all);
  VI sum = hn::Zero(DI());
  for (int64_t i = 0; i < count; i += kLanes) {
    const VI v = RoundToInteger(hn::Mul(hn::LoadU(d, x + i), by));
    sum = hn::Add(sum, v);
    hn::StoreU(hn::DemoteTo(dq, v), dq, q + i);
  }
  return hn::GetLane(hn::SumOfLanes(DI(), sum));
}

// A block of rows of x as integers, and what is multiplied with them.
class Integers {
 public:
  Integers(const Problem& problem, const Plan& plan, char* memory)
      : problem_(problem),
        plan_(plan),
        padded_(RoundUp(problem.depth, kChunk)),
        groups_of_depth_(DivideUp(problem.depth, problem.group)),
        kernel_(FindIntegerKernel(problem, plan.dots)),
        limit_(problem.row_type == RowType::kInt16 ? 32639.0f : 127.0f),
        q_(memory + plan.integer_offset),
        row_(memory + plan.integer_row_offset),
        scales_(reinterpret_cast<float*>(memory + plan.integer_scale_offset)),
        sums_(reinterpret_cast<int32_t*>(memory + plan.integer_sum_offset)) {}

  // Takes up rows of x.
  void Enter(const float* x, int64_t x_stride, int64_t rows) {
    groups_ = DivideUp(rows, kernel_.rows);
    for (int64_t g = 0; g < groups_; ++g) {
      // Rows in equal shares.
      const int64_t begin = rows * g / groups_, count = rows * (g + 1) / groups_ - begin;
      group_[g] = {count, kernel_.choose(count)};
      for (int64_t r = 0; r < count; ++r) {
        const Row row = {x + (begin + r) * x_stride, begin, count, r};
        if (kernel_.layout == Layout::kBytes) {
          RoundRow<int8_t>(row);
        } else {
          RoundRow<int16_t>(row);
        }
      }
    }
    rows_ = rows;
  }

  // sums[r][kLine] of a panel, for all rows.
  void Sum(int64_t panel, float* sums) const {
    std::fill(sums, sums + rows_ * kLine, 0.0f);
    const bool eight = problem_.type == WeightType::kInt8;
    const int64_t line_depth = eight ? 4 : 8, step = kernel_.layout == Layout::kBytes ? 4 : 8;
    const char* w =
        static_cast<const char*>(problem_.quantized) + panel * padded_ / line_depth * 64;
    const int64_t first = panel * groups_of_depth_ * kLine, scale_bytes = ScaleBytes(problem_);
    const char* scales = static_cast<const char*>(problem_.weight_scale) + first * scale_bytes;
    const int8_t* zeros = problem_.weight_zero == nullptr ? nullptr : problem_.weight_zero + first;
    IntegerBlock b;
    b.wide_scales = problem_.wide_scales;
    b.group_lines = problem_.group / line_depth;
    for (int64_t k = 0; k < padded_; k += plan_.pack_depth) {
      const int64_t group = k / problem_.group;
      b.lines = std::min(plan_.pack_depth, padded_ - k) / line_depth;
      b.w = w + k / line_depth * 64;
      b.w_scale = scales + group * kLine * scale_bytes;
      b.w_zero = zeros == nullptr ? nullptr : zeros + group * kLine;
      // One group reads ahead of itself; several share out the next stretch.
      const char* next = groups_ == 1 ? b.w + kQuantizedAhead : b.w + b.lines * 64;
      b.ahead_step = DivideUp(64, groups_);
      int64_t begin = 0;
      for (int64_t g = 0; g < groups_; ++g) {
        const int64_t rows = group_[g].rows;
        b.x = q_ + (begin * padded_ + k * rows) / 4 * step;
        b.x_scale = scales_ + begin * groups_of_depth_ + group * rows;
        b.x_sum = sums_ + begin * groups_of_depth_ + group * rows;
        b.sums = sums + begin * kLine;
        b.ahead = next + g * b.lines * b.ahead_step;
        group_[g].tile(b);
        begin += rows;
      }
    }
  }

 private:
  // Rows that go through registers at once.
  struct Group {
    int64_t rows;
    IntegerTileFunction tile;
  };

  struct Row {
    const float* x;
    int64_t begin, count, index;  // first row of its group, rows of it, and which it is
  };

  // Rounds a row and puts its integers among those of its group.
  template <class T>
  void RoundRow(const Row& row) {
    T* q = reinterpret_cast<T*>(row_);
    float* scales = scales_ + row.begin * groups_of_depth_ + row.index;
    int32_t* sums = sums_ + row.begin * groups_of_depth_ + row.index;
    for (int64_t g = 0; g < groups_of_depth_; ++g) {
      const int64_t k = g * problem_.group, depth = std::min(problem_.group, problem_.depth - k);
      const int64_t padded = RoundUp(depth, kChunk);
      const float* from = row.x + k;
      HWY_ALIGN float filled[kMaxGroup];
      if (depth < padded) {
        std::fill(std::copy(from, from + depth, filled), filled + padded, 0.0f);
        from = filled;
      }
      sums[g * row.count] = RoundGroup(from, padded, limit_, q + k, scales + g * row.count);
      if (sizeof(T) == 2 && kernel_.layout == Layout::kSplit) PutSplit(row, k, padded);
    }
    if (kernel_.layout == Layout::kSplit) return;
    constexpr int64_t kStep = 4 * sizeof(T);
    char* to = q_ + (row.begin * padded_ / 4 + row.index) * kStep;
    for (int64_t k = 0; k < padded_; k += 4, to += row.count * kStep) PutFour(q + k, to);
  }

  static HWY_INLINE void PutFour(const int8_t* q, char* to) { std::memcpy(to, q, 4); }

  // In the order 0, 2, 1, 3.
  static HWY_INLINE void PutFour(const int16_t* q, char* to) {
    uint64_t four;
    std::memcpy(&four, q, sizeof four);
    four = (four & 0xffff00000000ffffu) | (four >> 16 & 0xffff0000u) | (four & 0xffff0000u) << 16;
    std::memcpy(to, &four, sizeof four);
  }

  // A group of a row, of which the positions from k on are rounded.
  void PutSplit(const Row& row, int64_t k, int64_t count) {
    const int16_t* q = reinterpret_cast<const int16_t*>(row_) + k;
    char* high = q_ + (row.begin * padded_ + k * row.count) * 2 + row.index * 4;
    char* low = high + count * row.count;
    for (int64_t i = 0; i < count; i += 4, high += row.count * 4, low += row.count * 4) {
      int8_t upper[4], lower[4];
      for (int64_t j = 0; j < 4; ++j) {
        upper[j] = static_cast<int8_t>((q[i + j] + 128) >> 8);
        lower[j] = static_cast<int8_t>(q[i + j] - upper[j] * 256);
      }
      std::memcpy(high, upper, sizeof upper);
      std::memcpy(low, lower, sizeof lower);
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  const int64_t padded_, groups_of_depth_;
  const IntegerKernel& kernel_;
  const float limit_;  // the greatest integer of x
  char* q_;            // groups of rows one after the other
  char* row_;          // a row in the making
  float* scales_;      // of each group of rows [groups of the depth][rows]
  int32_t* sums_;      // likewise
  int64_t groups_ = 0, rows_ = 0;
  Group group_[kMaxRowBlock / 2 + 1];
};

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_INTEGERS_INL_H_
