// Matmuls of a few query rows with keys and values that stand anywhere: each row of them is named
// by an offset. Making offsets costs more than using them, so all heads use one list.
#if defined(GRAFT_FLASH_DECODE_LISTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_LISTED_INL_H_
#undef GRAFT_FLASH_DECODE_LISTED_INL_H_
#else
#define GRAFT_FLASH_DECODE_LISTED_INL_H_
#endif

#include "hwy/highway.h"
#include "lanes-inl.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of numbers in full vectors. Row k stands at base + offsets[k]. Lists repeat their last
// offset up to a full vector of scores, so that no matmul checks where they end. Numbers become
// floats in registers, as they are read.
template <typename T>
struct ListedRows {
  const T* base;  // null: there are none
  const int64_t* offsets;

  // The same from a number of each row on.
  ListedRows From(int64_t offset) const { return {base + offset, offsets}; }
  // In one register: left to itself a compiler has an index for each vector of a row, more than
  // there are registers, and reloads them for every row.
  HWY_INLINE const T* Row(int64_t k) const {
    const T* row = base + offsets[k];
    asm("" : "+r"(row));
    return row;
  }
};

// Numbers of a line of the caches.
template <typename T>
constexpr int64_t kLineNumbers = 64 / sizeof(T);

// Prefetches `count` numbers of a row that will be read a step later, into the second-level cache:
// requests for the first one hold up the core's own loads (measured: a third slower). Each row of a
// matmul prefetches one row of the next: in a burst, requests would wait for each other and
// arithmetic for them.
template <typename T>
HWY_INLINE void Prefetch(const T* row, int64_t count) {
  for (int64_t i = 0; i < count; i += kLineNumbers<T>) __builtin_prefetch(row + i, 0, 2);
}

// scores[r][k] = dot(query[r], keys[k]) for kRows rows and k < count; lanes up to the next full
// vector hold leftovers that the caller masks. Rows of scores stand kMaxTile apart. kVectors is the
// head size in vectors, and how far query rows stand apart; 0 takes `vectors` and `query_stride`.
// With kPrefetch it prefetches `next`.
template <int kRows, int kVectors, bool kPrefetch, typename T>
HWY_INLINE void DotListedRows(const float* HWY_RESTRICT query, int64_t query_stride,
                              ListedRows<T> keys, int64_t count, int64_t vectors,
                              ListedRows<T> next, float* HWY_RESTRICT scores) {
  const DF d;
  const int64_t size = kVectors != 0 ? kVectors : vectors;
  if (kVectors != 0) query_stride = kVectors * kLanes;  // known when this is compiled
  for (int64_t k = 0; k < count; k += kLanes) {
    VF quads[kRows][kLanes / kQuad];
    for (int64_t quad = 0; quad < kLanes / kQuad; ++quad) {
      // Two keys at a time: their sums then fit in 16 registers beside what they are made of.
      VF four[kRows][kQuad];
      for (int64_t pair = 0; pair < kQuad; pair += 2) {
        const int64_t at = k + quad * kQuad + pair;
        const T* key0 = keys.Row(at);
        const T* key1 = keys.Row(at + 1);
        if (kPrefetch) {
          Prefetch(next.Row(at), size * kLanes);
          Prefetch(next.Row(at + 1), size * kLanes);
        }
        VF part0 = LoadFloats(key0);
        VF part1 = LoadFloats(key1);
        VF sum0[kRows], sum1[kRows];
        for (int r = 0; r < kRows; ++r) {
          const VF q = hn::Load(d, query + r * query_stride);
          sum0[r] = hn::Mul(q, part0);
          sum1[r] = hn::Mul(q, part1);
        }
        for (int64_t f = 1; f < size; ++f) {
          part0 = LoadFloats(key0 + f * kLanes);
          part1 = LoadFloats(key1 + f * kLanes);
          for (int r = 0; r < kRows; ++r) {
            const VF q = hn::Load(d, query + r * query_stride + f * kLanes);
            sum0[r] = hn::MulAdd(q, part0, sum0[r]);
            sum1[r] = hn::MulAdd(q, part1, sum1[r]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          four[r][pair] = sum0[r];
          if (kQuad > 1) four[r][pair + (kQuad > 1 ? 1 : 0)] = sum1[r];
        }
      }
      for (int r = 0; r < kRows; ++r) quads[r][quad] = JoinQuad(four[r], Sum());
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(JoinQuads(quads[r], Sum()), d, scores + r * kMaxTile + k);
    }
  }
}

template <int kRows, bool kPrefetch, typename T>
HWY_INLINE void DotListedBlock(const float* query, int64_t query_stride, ListedRows<T> keys,
                               int64_t count, int64_t vectors, ListedRows<T> next, float* scores) {
  switch (query_stride == vectors * kLanes ? vectors : 0) {
    case 4:
      DotListedRows<kRows, 4, kPrefetch>(query, query_stride, keys, count, vectors, next, scores);
      break;
    case 8:
      DotListedRows<kRows, 8, kPrefetch>(query, query_stride, keys, count, vectors, next, scores);
      break;
    default:
      DotListedRows<kRows, 0, kPrefetch>(query, query_stride, keys, count, vectors, next, scores);
  }
}

// Scores of `rows` query rows against a list of keys, while `next` is prefetched.
template <typename T>
HWY_NOINLINE void DotListed(const float* query, int64_t query_stride, int64_t rows,
                            ListedRows<T> keys, int64_t count, int64_t vectors, ListedRows<T> next,
                            float* scores) {
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* q = query + r * query_stride;
    float* s = scores + r * kMaxTile;
    step = rows - r >= 4 ? 4 : rows - r;
    const bool prefetches = r == 0 && next.base != nullptr;
    const auto dot = [&](auto block) {
      constexpr int kRows = decltype(block)::kRows;
      if (prefetches) {
        DotListedBlock<kRows, true>(q, query_stride, keys, count, vectors, next, s);
      } else {
        DotListedBlock<kRows, false>(q, query_stride, keys, count, vectors, next, s);
      }
    };
    if (step == 4) {
      dot(Block<4, 0>());
    } else if (step == 3) {
      dot(Block<3, 0>());
    } else if (step == 2) {
      dot(Block<2, 0>());
    } else {
      dot(Block<1, 0>());
    }
  }
}

// accumulator[r] = rescale[r] * accumulator[r] + sum_k weights[r][k] * values[k], for kRows rows
// and kVectors vectors of the values.
template <int kRows, int kVectors, bool kPrefetch, typename T>
HWY_INLINE void AddListedBlock(const float* HWY_RESTRICT weights, ListedRows<T> values,
                               int64_t count, ListedRows<T> next, const float* rescale,
                               float* HWY_RESTRICT accumulator, int64_t accumulator_stride) {
  const DF d;
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, rescale[r]);
    for (int i = 0; i < kVectors; ++i) {
      sum[r][i] = hn::Mul(factor, hn::Load(d, accumulator + r * accumulator_stride + i * kLanes));
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const T* value = values.Row(k);
    if (kPrefetch) Prefetch(next.Row(k), kVectors * kLanes);
    VF v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = LoadFloats(value + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * kMaxTile + k]);
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, v[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      hn::Store(sum[r][i], d, accumulator + r * accumulator_stride + i * kLanes);
    }
  }
}

template <int kRows, int kBlock, bool kPrefetch, typename T>
HWY_INLINE void AddListedRows(const float* weights, ListedRows<T> values, int64_t count,
                              int64_t vectors, ListedRows<T> next, const float* rescale,
                              float* accumulator, int64_t accumulator_stride) {
  int64_t i = 0;
  for (; i + kBlock <= vectors; i += kBlock) {
    // Blocks that share a line prefetch it once.
    if (kPrefetch && i * kLanes % kLineNumbers<T> == 0) {
      AddListedBlock<kRows, kBlock, true>(weights, values.From(i * kLanes), count,
                                          next.From(i * kLanes), rescale, accumulator + i * kLanes,
                                          accumulator_stride);
    } else {
      AddListedBlock<kRows, kBlock, false>(weights, values.From(i * kLanes), count, next, rescale,
                                           accumulator + i * kLanes, accumulator_stride);
    }
  }
  for (; i < vectors; ++i) {
    AddListedBlock<kRows, 1, false>(weights, values.From(i * kLanes), count, next, rescale,
                                    accumulator + i * kLanes, accumulator_stride);
  }
}

// Adds a list of values, weighted, to the accumulators of `rows` rows, while `next` is prefetched.
template <typename T>
HWY_NOINLINE void AddWeightedListed(const float* weights, int64_t rows, ListedRows<T> values,
                                    int64_t count, int64_t vectors, ListedRows<T> next,
                                    const float* rescale, float* accumulator,
                                    int64_t accumulator_stride) {
  // As many accumulators as the registers hold: 16 of 32, or 8 of 16.
  constexpr int kWide = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 2 : 1;
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* w = weights + r * kMaxTile;
    float* a = accumulator + r * accumulator_stride;
    const bool prefetches = r == 0 && next.base != nullptr;
    // What comes from memory comes in whole rows, for the first query row alone: a CPU drops
    // requests beyond those that it can keep open, and then waits for parts of rows one after the
    // other (1.2 to 1.4 times the time with four rows). Of one byte a number, arithmetic takes
    // longer.
    step = sizeof(T) > 1 && prefetches ? 1 : rows - r >= 4 ? 4 : rows - r;
    const auto add = [&](auto block) {
      constexpr int kRows = decltype(block)::kRows;
      constexpr int kBlock = decltype(block)::kBlock;
      if (prefetches) {
        AddListedRows<kRows, kBlock, true>(w, values, count, vectors, next, rescale + r, a,
                                           accumulator_stride);
      } else {
        AddListedRows<kRows, kBlock, false>(w, values, count, vectors, next, rescale + r, a,
                                            accumulator_stride);
      }
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
