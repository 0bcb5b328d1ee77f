// Matmuls on register tiles. Each sum is taken in one order whatever the tile around it, so that a
// result does not depend on which rows happen to be computed together.
#if defined(GRAFT_ROW_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_TILES_INL_H_
#undef GRAFT_ROW_ATTENTION_TILES_INL_H_
#else
#define GRAFT_ROW_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "lanes-inl.h"
#include "memory-inl.h"
#include "row_attention.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using attention::HWY_NAMESPACE::DF;
using attention::HWY_NAMESPACE::JoinQuad;
using attention::HWY_NAMESPACE::JoinQuads;
using attention::HWY_NAMESPACE::kLanes;
using attention::HWY_NAMESPACE::kQuad;
using attention::HWY_NAMESPACE::Sum;
using attention::HWY_NAMESPACE::VF;

// Rows and columns of a tile: 24 accumulators of 32 registers, or 12 of 16, beside one vector a
// column and one more.
constexpr int kTileRows = 6;
constexpr int kTileVectors = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int64_t kDotColumns = kTileVectors < kQuad ? kTileVectors : kQuad;
// Vectors of 16 floats.
constexpr int kPanelVectors = kLanes >= kPanel ? 1 : static_cast<int>(kPanel / kLanes);

// Calls body(Count<n>()) for a number of rows that is known at run time only.
template <int kCount>
struct Count {
  static constexpr int value = kCount;
};
template <class Body>
HWY_INLINE void WithRows(int64_t rows, const Body& body) {
  switch (rows) {
    case 1:
      return body(Count<1>());
    case 2:
      return body(Count<2>());
    case 3:
      return body(Count<3>());
    case 4:
      return body(Count<4>());
    case 5:
      return body(Count<5>());
    default:
      return body(Count<kTileRows>());
  }
}

// Cuts rows into tiles of equal height: one of a single row would leave the multipliers waiting.
template <class Body>
HWY_INLINE void ForTiles(int64_t rows, const Body& body) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = rows * tile / tiles;
    body(first, rows * (tile + 1) / tiles - first);
  }
}

// Prefetches rows that will be read later, line after line, as arithmetic goes along: in one burst
// requests would wait for each other and arithmetic for them. It goes for the second-level cache.
class Prefetcher {
 public:
  Prefetcher() = default;
  Prefetcher(const float* const* rows, int64_t count, int64_t row_bytes)
      : rows_(rows), left_rows_(count), lines_((row_bytes + 63) / 64) {
    if (count > 0) at_ = reinterpret_cast<const char*>(rows[0]);
    left_lines_ = lines_;
  }

  // Shares what is left out over `steps` calls of Step, all but `later` of it.
  void Spread(int64_t steps, int64_t later) {
    const int64_t lines = left_rows_ * lines_;
    rate_ = steps > 0 ? kUnit * (lines - lines * later / 2) / steps + 1 : 0;
  }
  HWY_INLINE void Step() {
    for (credit_ += rate_; credit_ >= kUnit; credit_ -= kUnit) Next();
  }

 private:
  static constexpr int64_t kUnit = 256;

  HWY_INLINE void Next() {
    if (left_rows_ == 0) return;
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (--left_lines_ == 0) {
      left_lines_ = lines_;
      if (--left_rows_ > 0) at_ = reinterpret_cast<const char*>(*++rows_);
    }
  }

  const float* const* rows_ = nullptr;
  const char* at_ = nullptr;
  int64_t left_rows_ = 0;
  int64_t lines_ = 0;
  int64_t left_lines_ = 0;
  int64_t rate_ = 0;
  int64_t credit_ = 0;
};

// What dot products are taken of: `count` rows of `panels` panels of 16 floats, a panel `step`
// floats after the one before. The list repeats its last row up to a full vector.
struct DotRows {
  const float* const* rows;
  int64_t count;
  int64_t shift;  // floats from a row's address to its first panel
  int64_t panels;
  int64_t step;
};

// sum[r][i] = dot(a[r], rows[k + i]), lanes not yet joined.
template <int kRows, int64_t kColumns>
HWY_INLINE void DotColumns(const float* HWY_RESTRICT a, int64_t a_stride, const DotRows& b,
                           int64_t k, Prefetcher& prefetcher, VF (&sum)[kRows][kColumns]) {
  const DF d;
  const float* row[kColumns];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kColumns; ++i) row[i] = b.rows[k + i] + b.shift;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kColumns; ++i) sum[r][i] = hn::Zero(d);
  }
  int64_t at = 0;
  for (int64_t p = 0; p < b.panels; ++p, at += b.step) {
    prefetcher.Step();
#pragma GCC unroll 16
    for (int64_t v = 0; v < kPanelVectors; ++v) {
      VF x[kColumns];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kColumns; ++i) x[i] = hn::LoadU(d, row[i] + at + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const VF q = hn::LoadU(d, a + r * a_stride + p * kPanel + v * kLanes);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kColumns; ++i) sum[r][i] = hn::MulAdd(q, x[i], sum[r][i]);
      }
    }
  }
}

// scores[r][k] = dot(a[r], rows[k]).
template <int kRows>
HWY_INLINE void DotTile(const float* HWY_RESTRICT a, int64_t a_stride, const DotRows& b,
                        Prefetcher& prefetcher, float* HWY_RESTRICT scores, int64_t score_stride) {
  const DF d;
  Prefetcher local = prefetcher;
  for (int64_t k = 0; k < b.count; k += kLanes) {
    VF quads[kRows][kLanes / kQuad];
    for (int64_t quad = 0; quad < kLanes / kQuad; ++quad) {
      VF four[kRows][kQuad];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kQuad; i += kDotColumns) {
        VF sum[kRows][kDotColumns];
        DotColumns<kRows, kDotColumns>(a, a_stride, b, k + quad * kQuad + i, local, sum);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
          for (int64_t c = 0; c < kDotColumns; ++c) four[r][i + c] = sum[r][c];
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) quads[r][quad] = JoinQuad(four[r], Sum());
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(JoinQuads(quads[r], Sum()), d, scores + r * score_stride + k);
    }
  }
  prefetcher = local;
}

// Calls of Prefetcher::Step that Dot makes.
HWY_INLINE int64_t DotSteps(int64_t rows, const DotRows& b) {
  const int64_t vectors = (b.count + kLanes - 1) / kLanes;
  return (rows + kTileRows - 1) / kTileRows * vectors * (kLanes / kDotColumns) * b.panels;
}

// DotTile for any number of rows.
HWY_NOINLINE void Dot(const float* a, int64_t a_stride, int64_t rows, const DotRows& b,
                      Prefetcher& prefetcher, float* scores, int64_t score_stride) {
  ForTiles(rows, [&](int64_t first, int64_t count) HWY_ATTR {
    WithRows(count, [&](auto tile) HWY_ATTR {
      DotTile<decltype(tile)::value>(a + first * a_stride, a_stride, b, prefetcher,
                                     scores + first * score_stride, score_stride);
    });
  });
}

// sums[r] = rescale[r] * sums[r] + sum_k weights[r][k] * rows[k], for kVectors vectors.
template <int kRows, int kVectors>
HWY_INLINE void AddTile(const float* HWY_RESTRICT weights, int64_t weight_stride,
                        const float* const* rows, int64_t offset, int64_t count,
                        Prefetcher& prefetcher, const float* rescale, float* HWY_RESTRICT sums,
                        int64_t sum_stride) {
  const DF d;
  VF sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
  }
  for (int64_t k = 0; k < count; ++k) {
    prefetcher.Step();
    const float* row = rows[k] + offset;
    VF x[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) x[i] = hn::LoadU(d, row + i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * weight_stride + k]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, x[i], sum[r][i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, rescale[r]);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      float* to = sums + r * sum_stride + i * kLanes;
      hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, to), sum[r][i]), d, to);
    }
  }
}

// Calls of Prefetcher::Step that AddWeighted makes.
HWY_INLINE int64_t AddSteps(int64_t rows, int64_t count, int64_t vectors) {
  const int64_t tiles = vectors / kTileVectors + vectors % kTileVectors;
  return (rows + kTileRows - 1) / kTileRows * tiles * count;
}

// AddTile for any number of rows, over `vectors` vectors.
HWY_NOINLINE void AddWeighted(const float* weights, int64_t weight_stride, int64_t rows,
                              const float* const* tile, int64_t count, int64_t vectors,
                              Prefetcher& prefetcher, const float* rescale, float* sums,
                              int64_t sum_stride) {
  ForTiles(rows, [&](int64_t first, int64_t height) HWY_ATTR {
    WithRows(height, [&](auto block) HWY_ATTR {
      constexpr int kRows = decltype(block)::value;
      const float* w = weights + first * weight_stride;
      float* to = sums + first * sum_stride;
      Prefetcher local = prefetcher;
      int64_t i = 0;
      for (; i + kTileVectors <= vectors; i += kTileVectors) {
        AddTile<kRows, kTileVectors>(w, weight_stride, tile, i * kLanes, count, local,
                                     rescale + first, to + i * kLanes, sum_stride);
      }
      for (; i < vectors; ++i) {
        AddTile<kRows, 1>(w, weight_stride, tile, i * kLanes, count, local, rescale + first,
                          to + i * kLanes, sum_stride);
      }
      prefetcher = local;
    });
  });
}

// Weight panels [panels][depth][16].
struct Panels {
  const float* weight;
  int64_t depth;
  int64_t panels;
};

// A long sum is made of short ones, which rounds less.
constexpr int64_t kStretch = 1024;

// to[r][p * 16 + i] = factor * sum_k a[r][k] * weight[p][k][i] for kPanels panels from p on.
template <int kRows, int kPanels>
HWY_INLINE void PanelTile(const float* const* a, const Panels& b, int64_t p, float factor,
                          float* const* to) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const DF d;
  const int64_t panel_floats = b.depth * kPanel;
  for (int64_t begin = 0; begin < b.depth; begin += kStretch) {
    const int64_t end = std::min(b.depth, begin + kStretch);
    VF sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::Zero(d);
    }
    const float* HWY_RESTRICT w = b.weight + p * panel_floats;
    const float* row[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) row[r] = a[r];
    for (int64_t k = begin; k < end; ++k) {
      VF x[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        x[i] = hn::LoadU(
            d, w + i / kPanelVectors * panel_floats + k * kPanel + i % kPanelVectors * kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const VF f = hn::Set(d, row[r][k]);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(f, x[i], sum[r][i]);
      }
    }
    const VF scale = hn::Set(d, factor);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        float* at = to[r] + p * kPanel + i * kLanes;
        const VF total = hn::Mul(scale, sum[r][i]);
        hn::StoreU(begin == 0 ? total : hn::Add(total, hn::LoadU(d, at)), d, at);
      }
    }
  }
}

// PanelTile for up to kTileRows rows and panels begin .. end - 1.
HWY_NOINLINE void MultiplyPanels(const float* const* a, int64_t rows, const Panels& b,
                                 int64_t begin, int64_t end, float factor, float* const* to) {
  constexpr int kWide = kTileVectors >= kPanelVectors ? kTileVectors / kPanelVectors : 1;
  WithRows(rows, [&](auto tile) HWY_ATTR {
    constexpr int kRows = decltype(tile)::value;
    int64_t p = begin;
    for (; p + kWide <= end; p += kWide) PanelTile<kRows, kWide>(a, b, p, factor, to);
    for (; p < end; ++p) PanelTile<kRows, 1>(a, b, p, factor, to);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_TILES_INL_H_
