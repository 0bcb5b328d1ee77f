// Matmuls for a few query rows. Keys are read where they lie, each once from memory, with the
// vector along the head; nothing is packed, so the cost is the bytes.
#if defined(GRAFT_FLASH_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_ROWS_INL_H_
#undef GRAFT_FLASH_DECODE_ROWS_INL_H_
#else
#define GRAFT_FLASH_DECODE_ROWS_INL_H_
#endif

#include "hwy/highway.h"
#include "lanes-inl.h"
#include "memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of T that lie `stride` elements apart. Not a list of pointers: making one costs more
// instructions than a core can look ahead, and the memory bus would idle meanwhile.
template <typename T>
struct RowsOfType {
  const T* first;
  int64_t stride;
};

// Where rows that are read also go, past the caches: aligned to full cache lines, or nowhere
// (null).
template <typename T>
struct CopyOfType {
  T* first;
  int64_t stride;
};

// The same of a type that is known at run time: float, or float16 where the target converts it.
struct Rows {
  const void* first;
  int64_t stride;
  bool half;

  template <typename T>
  RowsOfType<T> Of() const {
    return {static_cast<const T*>(first), stride};
  }
};
struct CopyTarget {
  void* first;
  int64_t stride;

  template <typename T>
  CopyOfType<T> Of() const {
    return {static_cast<T*>(first), stride};
  }
};

// Rows and vectors of a register tile, as a value.
template <int kRowCount, int kVectorCount>
struct Block {
  static constexpr int kRows = kRowCount;
  static constexpr int kBlock = kVectorCount;
};

// A vector of floats from memory, which can also go to `to` as it is.
template <bool kCopy>
HWY_INLINE VF LoadAndCopy(const float* from, float* to) {
  const DF d;
  const VF v = hn::LoadU(d, from);
  if (kCopy) hn::Stream(v, d, to);
  return v;
}
#if GRAFT_HALF_IN_HARDWARE
template <bool kCopy>
HWY_INLINE VF LoadAndCopy(const hwy::float16_t* from, hwy::float16_t* to) {
  const DF d;
  const DH dh;
  const auto v = hn::LoadU(dh, from);
  if (kCopy) {
    const hn::RebindToUnsigned<DH> du;
    hn::Stream(hn::BitCast(du, v), du, reinterpret_cast<uint16_t*>(to));
  }
  return hn::PromoteTo(d, v);
}
#endif

// scores[r][k] = dot(query[r], keys[k]) for kRows rows and k < count; lanes up to the next full
// vector hold leftovers that the caller masks. kVectors is the head size in vectors; 0 takes
// `vectors`.
template <int kRows, int kVectors, bool kCopy, typename T>
HWY_INLINE void DotRows(const float* HWY_RESTRICT query, int64_t query_stride, RowsOfType<T> keys,
                        int64_t count, int64_t vectors, CopyOfType<T> copy,
                        float* HWY_RESTRICT scores, int64_t score_stride) {
  const DF d;
  const int64_t size = kVectors != 0 ? kVectors : vectors;
  for (int64_t k = 0; k < count; k += kLanes) {
    VF quads[kRows][kLanes / kQuad];
    for (int64_t quad = 0; quad < kLanes / kQuad; ++quad) {
      VF sums[kRows][kQuad];
      for (int64_t i = 0; i < kQuad; ++i) {
        const int64_t at = k + quad * kQuad + i;
        // The last key stands in for those beyond the end.
        const T* key = keys.first + (at < count ? at : count - 1) * keys.stride;
        T* to = kCopy ? copy.first + at * copy.stride : nullptr;
        VF part = LoadAndCopy<kCopy>(key, to);
        for (int r = 0; r < kRows; ++r) {
          sums[r][i] = hn::Mul(hn::Load(d, query + r * query_stride), part);
        }
        for (int64_t f = 1; f < size; ++f) {
          part = LoadAndCopy<kCopy>(key + f * kLanes, to + f * kLanes);
          for (int r = 0; r < kRows; ++r) {
            const VF q = hn::Load(d, query + r * query_stride + f * kLanes);
            sums[r][i] = hn::MulAdd(q, part, sums[r][i]);
          }
        }
      }
      for (int r = 0; r < kRows; ++r) quads[r][quad] = JoinQuad(sums[r], Sum());
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(JoinQuads(quads[r], Sum()), d, scores + r * score_stride + k);
    }
  }
}

// accumulator[r] = rescale[r] * accumulator[r] + sum_k weights[r][k] * values[k], for kRows rows
// and kVectors vectors of the value.
template <int kRows, int kVectors, bool kCopy, typename T>
HWY_INLINE void AddWeightedBlock(const float* HWY_RESTRICT weights, int64_t weight_stride,
                                 RowsOfType<T> values, int64_t offset, int64_t count,
                                 CopyOfType<T> copy, const float* rescale,
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
    const T* value = values.first + k * values.stride + offset;
    T* to = kCopy ? copy.first + k * copy.stride + offset : nullptr;
    VF v[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      v[i] = LoadAndCopy<kCopy>(value + i * kLanes, to + i * kLanes);
    }
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

// The same for `vectors` vectors, kBlock at a time.
template <int kRows, int kBlock, bool kCopy, typename T>
HWY_INLINE void AddWeightedRows(const float* weights, int64_t weight_stride, RowsOfType<T> values,
                                int64_t count, int64_t vectors, CopyOfType<T> copy,
                                const float* rescale, float* accumulator,
                                int64_t accumulator_stride) {
  int64_t i = 0;
  for (; i + kBlock <= vectors; i += kBlock) {
    AddWeightedBlock<kRows, kBlock, kCopy>(weights, weight_stride, values, i * kLanes, count, copy,
                                           rescale, accumulator + i * kLanes, accumulator_stride);
  }
  for (; i < vectors; ++i) {
    AddWeightedBlock<kRows, 1, kCopy>(weights, weight_stride, values, i * kLanes, count, copy,
                                      rescale, accumulator + i * kLanes, accumulator_stride);
  }
}

template <int kRows, bool kCopy, typename T>
HWY_INLINE void DotBlock(const float* query, int64_t query_stride, RowsOfType<T> keys,
                         int64_t count, int64_t vectors, CopyOfType<T> copy, float* scores,
                         int64_t score_stride) {
  switch (vectors) {
    case 4:
      DotRows<kRows, 4, kCopy>(query, query_stride, keys, count, vectors, copy, scores,
                               score_stride);
      break;
    case 8:
      DotRows<kRows, 8, kCopy>(query, query_stride, keys, count, vectors, copy, scores,
                               score_stride);
      break;
    default:
      DotRows<kRows, 0, kCopy>(query, query_stride, keys, count, vectors, copy, scores,
                               score_stride);
  }
}

template <typename T>
HWY_INLINE void DotTileOfType(const float* query, int64_t query_stride, int64_t rows,
                              RowsOfType<T> keys, int64_t count, int64_t vectors,
                              CopyOfType<T> copy, float* scores, int64_t score_stride) {
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* q = query + r * query_stride;
    float* s = scores + r * score_stride;
    step = rows - r >= 4 ? 4 : rows - r;
    // The first rows fetch the keys, so they pass them on.
    const bool copies = r == 0 && copy.first != nullptr;
    const auto dot = [&](auto block) {
      constexpr int kRows = decltype(block)::kRows;
      if (copies) {
        DotBlock<kRows, true>(q, query_stride, keys, count, vectors, copy, s, score_stride);
      } else {
        DotBlock<kRows, false>(q, query_stride, keys, count, vectors, copy, s, score_stride);
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

// Scores of `rows` query rows against a tile of keys.
HWY_INLINE void DotTile(const float* query, int64_t query_stride, int64_t rows, Rows keys,
                        int64_t count, int64_t vectors, CopyTarget copy, float* scores,
                        int64_t score_stride) {
#if GRAFT_HALF_IN_HARDWARE
  if (keys.half) {
    DotTileOfType(query, query_stride, rows, keys.Of<hwy::float16_t>(), count, vectors,
                  copy.Of<hwy::float16_t>(), scores, score_stride);
    return;
  }
#endif
  DotTileOfType(query, query_stride, rows, keys.Of<float>(), count, vectors, copy.Of<float>(),
                scores, score_stride);
}

template <typename T>
HWY_INLINE void AddWeightedTileOfType(const float* weights, int64_t weight_stride, int64_t rows,
                                      RowsOfType<T> values, int64_t count, int64_t vectors,
                                      CopyOfType<T> copy, const float* rescale, float* accumulator,
                                      int64_t accumulator_stride) {
  // As many accumulators as the registers hold: 16 of 32, or 8 of 16.
  constexpr int kWide = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 2 : 1;
  for (int64_t r = 0, step; r < rows; r += step) {
    const float* w = weights + r * weight_stride;
    float* a = accumulator + r * accumulator_stride;
    step = rows - r >= 4 ? 4 : rows - r;
    const bool copies = r == 0 && copy.first != nullptr;
    const auto add = [&](auto block) {
      constexpr int kRows = decltype(block)::kRows;
      constexpr int kBlock = decltype(block)::kBlock;
      if (copies) {
        AddWeightedRows<kRows, kBlock, true>(w, weight_stride, values, count, vectors, copy,
                                             rescale + r, a, accumulator_stride);
      } else {
        AddWeightedRows<kRows, kBlock, false>(w, weight_stride, values, count, vectors, copy,
                                              rescale + r, a, accumulator_stride);
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

// Adds a tile of values, weighted, to the accumulators of `rows` rows.
HWY_INLINE void AddWeightedTile(const float* weights, int64_t weight_stride, int64_t rows,
                                Rows values, int64_t count, int64_t vectors, CopyTarget copy,
                                const float* rescale, float* accumulator,
                                int64_t accumulator_stride) {
#if GRAFT_HALF_IN_HARDWARE
  if (values.half) {
    AddWeightedTileOfType(weights, weight_stride, rows, values.Of<hwy::float16_t>(), count, vectors,
                          copy.Of<hwy::float16_t>(), rescale, accumulator, accumulator_stride);
    return;
  }
#endif
  AddWeightedTileOfType(weights, weight_stride, rows, values.Of<float>(), count, vectors,
                        copy.Of<float>(), rescale, accumulator, accumulator_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_ROWS_INL_H_
