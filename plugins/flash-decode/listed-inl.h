// Products of a few query rows with keys and values that stand anywhere: each row of them is named
// by an offset. Making offsets costs more than using them, so one list serves all heads.
#if defined(GRAFT_FLASH_DECODE_LISTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_LISTED_INL_H_
#undef GRAFT_FLASH_DECODE_LISTED_INL_H_
#else
#define GRAFT_FLASH_DECODE_LISTED_INL_H_
#endif

#include "hwy/highway.h"
#include "memory-inl.h"
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of floats in full vectors. Row k stands at base + offsets[k].
struct ListedRows {
  const float* base;
  const int64_t* offsets;

  const float* Row(int64_t k) const { return base + offsets[k]; }
};

// Sums of neighbouring lanes: in every 128-bit block, two of a and two of b, interleaved.
HWY_INLINE VF AddPair(VF a, VF b) {
#if HWY_TARGET == HWY_SCALAR
  (void)b;
  return a;
#else
  const DF d;
  return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
#endif
}

// From AddPair of vectors 0 and 1, and of 2 and 3: [sum of lanes 4i..4i+3 of each of the four] in
// every 128-bit block i.
HWY_INLINE VF AddPairs(VF v01, VF v23) {
#if HWY_TARGET == HWY_SCALAR
  (void)v23;
  return v01;
#else
  const DF d;
  const hn::RepartitionToWide<DF> dw;
  const auto w01 = hn::BitCast(dw, v01);
  const auto w23 = hn::BitCast(dw, v23);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, w01, w23)),
                 hn::BitCast(d, hn::InterleaveUpper(dw, w01, w23)));
#endif
}

// From the AddPairs of consecutive fours: lane k is the sum of all lanes of vector k.
HWY_INLINE VF AddFours(const VF (&s)[kLanes / kQuad]) {
#if HWY_MAX_BYTES <= 16
  return s[0];
#elif HWY_MAX_BYTES == 32
  const DF d;
  return hn::Add(hn::ConcatLowerLower(d, s[1], s[0]), hn::ConcatUpperUpper(d, s[1], s[0]));
#else
  const DF d;
  // Blocks [s0, s0, s2, s2] and [s1, s1, s3, s3], then even and odd blocks side by side.
  const VF s02 = hn::Add(hn::ConcatLowerLower(d, s[2], s[0]), hn::ConcatUpperUpper(d, s[2], s[0]));
  const VF s13 = hn::Add(hn::ConcatLowerLower(d, s[3], s[1]), hn::ConcatUpperUpper(d, s[3], s[1]));
  return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(s13), s02),
                 hn::OddEvenBlocks(s13, hn::SwapAdjacentBlocks(s02)));
#endif
}

// scores[r][k] = dot(query[r], keys[k]) for kRows rows and k < count; lanes up to the next full
// vector hold leftovers that the caller masks. kVectors is the head size in vectors; 0 takes
// `vectors`.
template <int kRows, int kVectors>
HWY_INLINE void DotListedRows(const float* HWY_RESTRICT query, int64_t query_stride,
                              ListedRows keys, int64_t count, int64_t vectors,
                              float* HWY_RESTRICT scores, int64_t score_stride) {
  const DF d;
  const int64_t size = kVectors != 0 ? kVectors : vectors;
  for (int64_t k = 0; k < count; k += kLanes) {
    VF quads[kRows][kLanes / kQuad];
    for (int64_t quad = 0; quad < kLanes / kQuad; ++quad) {
      // Two keys at a time: their sums and the rows' queries then fit in 16 registers.
      VF pairs[2][kRows];
      for (int64_t pair = 0; pair < kQuad; pair += 2) {
        // The last key stands in for those beyond the end.
        const int64_t at = k + quad * kQuad + pair;
        const float* key0 = keys.Row(at < count ? at : count - 1);
        const float* key1 = keys.Row(at + 1 < count ? at + 1 : count - 1);
        VF part0 = hn::LoadU(d, key0);
        VF part1 = hn::LoadU(d, key1);
        VF sum0[kRows], sum1[kRows];
        for (int r = 0; r < kRows; ++r) {
          const VF q = hn::Load(d, query + r * query_stride);
          sum0[r] = hn::Mul(q, part0);
          sum1[r] = hn::Mul(q, part1);
        }
        for (int64_t f = 1; f < size; ++f) {
          part0 = hn::LoadU(d, key0 + f * kLanes);
          part1 = hn::LoadU(d, key1 + f * kLanes);
          for (int r = 0; r < kRows; ++r) {
            const VF q = hn::Load(d, query + r * query_stride + f * kLanes);
            sum0[r] = hn::MulAdd(q, part0, sum0[r]);
            sum1[r] = hn::MulAdd(q, part1, sum1[r]);
          }
        }
        for (int r = 0; r < kRows; ++r) pairs[pair / 2][r] = AddPair(sum0[r], sum1[r]);
      }
      for (int r = 0; r < kRows; ++r) quads[r][quad] = AddPairs(pairs[0][r], pairs[1][r]);
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(AddFours(quads[r]), d, scores + r * score_stride + k);
    }
  }
}

template <int kRows>
HWY_INLINE void DotListedBlock(const float* query, int64_t query_stride, ListedRows keys,
                               int64_t count, int64_t vectors, float* scores,
                               int64_t score_stride) {
  switch (vectors) {
    case 4:
      DotListedRows<kRows, 4>(query, query_stride, keys, count, vectors, scores, score_stride);
      break;
    case 8:
      DotListedRows<kRows, 8>(query, query_stride, keys, count, vectors, scores, score_stride);
      break;
    default:
      DotListedRows<kRows, 0>(query, query_stride, keys, count, vectors, scores, score_stride);
  }
}

// Scores of `rows` query rows against a list of keys.
HWY_NOINLINE void DotListed(const float* query, int64_t query_stride, int64_t rows, ListedRows keys,
                            int64_t count, int64_t vectors, float* scores, int64_t score_stride) {
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* q = query + r * query_stride;
    float* s = scores + r * score_stride;
    step = rows - r >= 4 ? 4 : rows - r;
    if (step == 4) {
      DotListedBlock<4>(q, query_stride, keys, count, vectors, s, score_stride);
    } else if (step == 3) {
      DotListedBlock<3>(q, query_stride, keys, count, vectors, s, score_stride);
    } else if (step == 2) {
      DotListedBlock<2>(q, query_stride, keys, count, vectors, s, score_stride);
    } else {
      DotListedBlock<1>(q, query_stride, keys, count, vectors, s, score_stride);
    }
  }
}

// accumulator[r] = rescale[r] * accumulator[r] + sum_k weights[r][k] * values[k], for kRows rows
// and kVectors vectors of the value from `offset` on.
template <int kRows, int kVectors>
HWY_INLINE void AddListedBlock(const float* HWY_RESTRICT weights, int64_t weight_stride,
                               ListedRows values, int64_t offset, int64_t count,
                               const float* rescale, float* HWY_RESTRICT accumulator,
                               int64_t accumulator_stride) {
  const DF d;
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, rescale[r]);
    for (int i = 0; i < kVectors; ++i) {
      sum[r][i] = hn::Mul(factor, hn::Load(d, accumulator + r * accumulator_stride + i * kLanes));
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const float* value = values.Row(k) + offset;
    VF v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = hn::LoadU(d, value + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * weight_stride + k]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, v[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      hn::Store(sum[r][i], d, accumulator + r * accumulator_stride + i * kLanes);
    }
  }
}

template <int kRows, int kBlock>
HWY_INLINE void AddListedRows(const float* weights, int64_t weight_stride, ListedRows values,
                              int64_t count, int64_t vectors, const float* rescale,
                              float* accumulator, int64_t accumulator_stride) {
  int64_t i = 0;
  for (; i + kBlock <= vectors; i += kBlock) {
    AddListedBlock<kRows, kBlock>(weights, weight_stride, values, i * kLanes, count, rescale,
                                  accumulator + i * kLanes, accumulator_stride);
  }
  for (; i < vectors; ++i) {
    AddListedBlock<kRows, 1>(weights, weight_stride, values, i * kLanes, count, rescale,
                             accumulator + i * kLanes, accumulator_stride);
  }
}

// Adds a list of values, weighted, to the accumulators of `rows` rows.
HWY_NOINLINE void AddWeightedListed(const float* weights, int64_t weight_stride, int64_t rows,
                                    ListedRows values, int64_t count, int64_t vectors,
                                    const float* rescale, float* accumulator,
                                    int64_t accumulator_stride) {
  // As many accumulators as the registers hold: 16 of 32, or 8 of 16.
  constexpr int kWide = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 2 : 1;
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* w = weights + r * weight_stride;
    float* a = accumulator + r * accumulator_stride;
    step = rows - r >= 4 ? 4 : rows - r;
    const auto add = [&](auto block) {
      AddListedRows<decltype(block)::kRows, decltype(block)::kBlock>(
          w, weight_stride, values, count, vectors, rescale + r, a, accumulator_stride);
    };
    if (step == 4) {
      add(Block<4, 2 * kWide>());
    } else if (step == 3) {
      add(Block<3, 2 * kWide>());
    } else if (step == 2) {
      add(Block<2, 4 * kWide>());
    } else if (vectors % 8 == 0) {
      add(Block<1, 8>());
    } else {
      add(Block<1, 4>());
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_LISTED_INL_H_
