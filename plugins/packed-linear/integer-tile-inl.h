// Sums over integers of a panel and a group of rows, in registers while the panel goes by.
#if defined(GRAFT_PACKED_LINEAR_INTEGER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_INTEGER_TILE_INL_H_
#undef GRAFT_PACKED_LINEAR_INTEGER_TILE_INL_H_
#else
#define GRAFT_PACKED_LINEAR_INTEGER_TILE_INL_H_
#endif

#include <algorithm>

#include "dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A stretch of a panel and of a group of rows, from the first position of a group of W on.
struct IntegerBlock {
  const char* x;         // [depth / 4][rows of the group] times four integers, as Layout says
  const float* x_scale;  // [groups][rows of the group]
  const int32_t* x_sum;  // likewise: sums of the integers
  const char* w;
  const char* w_scale;  // [groups][kLine] of bfloat16, or of float32 where wide_scales
  bool wide_scales;
  const int8_t* w_zero;  // [groups][kLine], or none
  int64_t lines;         // of 64 bytes of W
  int64_t group_lines;   // of a group
  const char* ahead;     // what is prefetched with each line, and by how much it moves on
  int64_t ahead_step;
  float* sums;  // [rows of the group][kLine]
};

// What follows a group of the depth.
struct GroupEnd {
  const float* x_scale;
  const int32_t* x_sum;
  const char* w_scale;
  bool wide_scales;
  const int8_t* w_zero;

  explicit GroupEnd(const IntegerBlock& b)
      : x_scale(b.x_scale),
        x_sum(b.x_sum),
        w_scale(b.w_scale),
        wide_scales(b.wide_scales),
        w_zero(b.w_zero) {}

  HWY_INLINE void Next(int64_t rows) {
    x_scale += rows;
    x_sum += rows;
    w_scale += kLine * (wide_scales ? 4 : 2);
    if (w_zero != nullptr) w_zero += kLine;
  }
};

// Adds the sums of a group, of 32 bits, less those of its zero points, times both scales.
template <int kRows, int kChains>
HWY_INLINE void AddGroup(const VI (&sum)[kChains][kRows][kLineVectors], const GroupEnd& end,
                         float* HWY_RESTRICT sums) {
  const DF d;
  VF scale[kLineVectors];
  LoadScales(end.w_scale, end.wide_scales, scale);
  VI zero[kLineVectors];
  LoadZeros(end.w_zero, zero);
  const float* HWY_RESTRICT x_scale = end.x_scale;
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, x_scale[r]);
    for (int i = 0; i < kLineVectors; ++i) {
      VI total = sum[0][r][i];
      if (kChains == 2) total = hn::Add(total, sum[kChains - 1][r][i]);
      if (end.w_zero != nullptr) {
        total = hn::Sub(total, hn::Mul(zero[i], hn::Set(DI(), end.x_sum[r])));
      }
      float* to = sums + r * kLine + i * kLanes;
      const VF both = hn::Mul(scale[i], factor);
      hn::Store(hn::MulAdd(hn::ConvertTo(d, total), both, hn::Load(d, to)), d, to);
    }
  }
}

// sums[r][i] += sum_g (sum_k q(x[r][k]) q(w[k][i])) scale of w[g][i] scale of x[r][g]: the inner
// sum is exact; the outer one runs in the order of the depth, whatever the rows and stretches are.
template <class Ops, bool kHalves, int kRows>
HWY_NOINLINE void IntegerTile(const IntegerBlock& b) {
  constexpr int kSteps = kHalves ? 2 : 1;  // of four positions, in a line
  constexpr int64_t kStep = StepBytes(Ops::kLayout);
  constexpr int kPasses = Ops::kLayout == Layout::kSplit ? 2 : 1;  // through a group
  constexpr int kOffset = kHalves ? Ops::kOffset4 : Ops::kOffset8;
  // Two steps at a time have sums of their own where few rows leave the multipliers waiting.
  constexpr int kChains = kRows * kLineVectors < 4 ? 2 : 1;
  const DI di;
  const char* HWY_RESTRICT x = b.x;
  const char* HWY_RESTRICT w = b.w;
  GroupEnd end(b);
  const char* ahead = b.ahead;
  const int64_t ahead_step = b.ahead_step;
  for (int64_t done = 0; done < b.lines; done += b.group_lines) {
    VI sum[kChains][kRows][kLineVectors];
    for (int r = 0; r < kRows; ++r) {
      const VI start = kOffset == 0 ? hn::Zero(di) : hn::Set(di, -kOffset * end.x_sum[r]);
      for (int i = 0; i < kLineVectors; ++i) {
        sum[0][r][i] = kPasses == 1 ? start : hn::Zero(di);
        if (kChains == 2) sum[kChains - 1][r][i] = hn::Zero(di);
      }
    }
    const auto multiply = [&](const typename Ops::Line& line, int chain) HWY_ATTR {
      for (int r = 0; r < kRows; ++r) {
        const typename Ops::Four four = Ops::Spread(x + r * kStep);
        for (int i = 0; i < kLineVectors; ++i) {
          sum[chain][r][i] = Ops::Dot(sum[chain][r][i], line, i, four);
        }
      }
      x += kRows * kStep;
    };
    const auto take = [&](int chain, bool first) HWY_ATTR {
      if (first) {
        Fetch(ahead);
        ahead += ahead_step;
      }
      typename Ops::Line line, high;
      for (int i = 0; i < kLineVectors; ++i) {
        const VI v = LoadLane(w + i * kLanes * 4);
        if (kHalves) {
          Ops::Ready4(v, i, &line, &high);
        } else {
          Ops::Ready8(v, i, &line);
        }
      }
      multiply(line, chain);
      if (kSteps == 2) multiply(high, kChains - 1 - chain);
      w += 64;
    };
    // Lines of a group are even in number.
    const int64_t lines = std::min(b.group_lines, b.lines - done);
    for (int64_t i = 0; i < lines; i += 2) {
      take(0, true);
      take(kHalves ? 0 : kChains - 1, true);
    }
    if constexpr (kPasses == 2) {
      for (int r = 0; r < kRows; ++r) {
        const VI start = hn::Set(di, -kOffset * end.x_sum[r]);
        for (int i = 0; i < kLineVectors; ++i) {
          sum[0][r][i] = hn::Add(hn::ShiftLeft<8>(sum[0][r][i]), start);
          if (kChains == 2) sum[kChains - 1][r][i] = hn::ShiftLeft<8>(sum[kChains - 1][r][i]);
        }
      }
      w -= lines * 64;
      for (int64_t i = 0; i < lines; i += 2) {
        take(0, false);
        take(kHalves ? 0 : kChains - 1, false);
      }
    }
    AddGroup<kRows, kChains>(sum, end, b.sums);
    end.Next(kRows);
  }
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

HWY_INLINE hn::Vec<PairOps::DS> AddPairs(hn::Vec<PairOps::DS> sum, VI halves, VI x) {
#if HWY_TARGET == HWY_AVX3
  sum.raw = _mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(halves.raw, x.raw));
#else
  sum.raw = _mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(halves.raw, x.raw));
#endif
  Pin(sum);
  return sum;
}

// The same for int4 without VNNI: the bytes of W are 0 .. 15, so that the sums of a chunk are at
// most 16 * 15 * 127 and fit in 16 bits.
template <int kRows, bool kOneChunk>
HWY_INLINE void AddHalves(const IntegerBlock& b) {
  constexpr int64_t kChunkLines = kChunk / 8;
  const DI di;
  const PairOps::DS ds;
  const auto ones = hn::Set(ds, int16_t{1});
  const char* HWY_RESTRICT x = b.x;
  const char* HWY_RESTRICT w = b.w;
  GroupEnd end(b);
  const char* ahead = b.ahead;
  const int64_t ahead_step = b.ahead_step;
  for (int64_t done = 0; done < b.lines; done += b.group_lines) {
    VI total[1][kRows][kLineVectors];
    const int64_t lines = kOneChunk ? kChunkLines : std::min(b.group_lines, b.lines - done);
    for (int64_t line = 0; line < lines; line += kChunkLines) {
      hn::Vec<PairOps::DS> sum[kRows][kLineVectors];
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kLineVectors; ++i) sum[r][i] = hn::Zero(ds);
      }
      for (int64_t j = 0; j < kChunkLines; ++j) {
        Fetch(ahead);
        ahead += ahead_step;
        VI low[kLineVectors], high[kLineVectors];
        for (int i = 0; i < kLineVectors; ++i) {
          const VI v = LoadLane(w + i * kLanes * 4);
          low[i] = LowHalves(v);
          high[i] = HighHalves(v);
        }
        for (int r = 0; r < kRows; ++r) {
          const VI four = SpreadFour(x + r * 4);
          for (int i = 0; i < kLineVectors; ++i) sum[r][i] = AddPairs(sum[r][i], low[i], four);
        }
        x += kRows * 4;
        for (int r = 0; r < kRows; ++r) {
          const VI four = SpreadFour(x + r * 4);
          for (int i = 0; i < kLineVectors; ++i) sum[r][i] = AddPairs(sum[r][i], high[i], four);
        }
        x += kRows * 4;
        w += 64;
      }
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kLineVectors; ++i) {
          const VI start = line == 0 ? hn::Set(di, -8 * end.x_sum[r]) : total[0][r][i];
          VI none = hn::Zero(di);
          total[0][r][i] = hn::ReorderWidenMulAccumulate(di, sum[r][i], ones, start, none);
        }
      }
    }
    AddGroup<kRows, 1>(total, end, b.sums);
    end.Next(kRows);
  }
}

template <int kRows>
HWY_NOINLINE void HalvesTile(const IntegerBlock& b) {
  if (b.group_lines == kChunk / 8) return AddHalves<kRows, true>(b);
  AddHalves<kRows, false>(b);
}

#endif

using IntegerTileFunction = void (*)(const IntegerBlock&);

// Whether int4 and x of eight bits are multiplied by HalvesTile.
template <class Ops, bool kHalves, bool kWide>
constexpr bool kAddsHalves = (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && kHalves && !kWide
                             && Ops::kLayout == Layout::kPairs;

template <class Ops, bool kHalves, bool kWide, int kRows>
constexpr IntegerTileFunction TileOf() {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (kAddsHalves<Ops, kHalves, kWide>) {
    return &HalvesTile<kRows>;
  } else {
    return &IntegerTile<Ops, kHalves, kRows>;
  }
#else
  return &IntegerTile<Ops, kHalves, kRows>;
#endif
}

// The tile for some rows.
template <class Ops, bool kHalves, bool kWide>
IntegerTileFunction ChooseIntegerTile(int64_t rows) {
  static_assert(Ops::kRows == 2 || Ops::kRows == 4 || Ops::kRows == 5 || Ops::kRows == 8, "");
  if (rows == 1) return TileOf<Ops, kHalves, kWide, 1>();
  if constexpr (Ops::kRows >= 4) {
    if (rows == 2) return TileOf<Ops, kHalves, kWide, 2>();
    if (rows == 3) return TileOf<Ops, kHalves, kWide, 3>();
  }
  if constexpr (Ops::kRows >= 5) {
    if (rows == 4) return TileOf<Ops, kHalves, kWide, 4>();
  }
  if constexpr (Ops::kRows >= 8) {
    if (rows == 5) return TileOf<Ops, kHalves, kWide, 5>();
    if (rows == 6) return TileOf<Ops, kHalves, kWide, 6>();
    if (rows == 7) return TileOf<Ops, kHalves, kWide, 7>();
  }
  return TileOf<Ops, kHalves, kWide, Ops::kRows>();
}

// How rows of x are multiplied with weights of a type.
struct IntegerKernel {
  int64_t rows;  // of a group at most
  Layout layout;
  IntegerTileFunction (*choose)(int64_t rows);
};

template <class Ops, bool kHalves>
constexpr IntegerKernel kNarrowKernel = {
    Ops::kRows, kAddsHalves<Ops, kHalves, false> ? Layout::kBytes : Ops::kLayout,
    &ChooseIntegerTile<Ops, kHalves, false>};
template <class Ops, bool kHalves>
constexpr IntegerKernel kWideKernel = {Ops::kRows, WideOps<Ops>::kLayout,
                                       &ChooseIntegerTile<WideOps<Ops>, kHalves, true>};

template <class Ops>
HWY_INLINE const IntegerKernel& FindIntegerKernelOf(WeightType type, RowType rows) {
  if (type == WeightType::kInt8) {
    return rows == RowType::kInt16 ? kWideKernel<Ops, false> : kNarrowKernel<Ops, false>;
  }
  return rows == RowType::kInt16 ? kWideKernel<Ops, true> : kNarrowKernel<Ops, true>;
}

HWY_INLINE const IntegerKernel& FindIntegerKernel(const Problem& problem, bool dots) {
#if GRAFT_HAVE_DOTS
  if (dots) return FindIntegerKernelOf<DotOps>(problem.type, problem.row_type);
#else
  (void)dots;
#endif
  return FindIntegerKernelOf<PlainOps>(problem.type, problem.row_type);
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_INTEGER_TILE_INL_H_
