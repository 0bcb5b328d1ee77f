// Attention with AVX-512. Compiled without contraction: what is fused is written so.
#include "attention.h"

#if defined(__x86_64__)

#include <cmath>
#include <limits>

#include "vectors.h"

namespace graft {
namespace quantized {
namespace {

constexpr int kVectors = 3;  // of columns, whose sums fill the registers with those of eight rows

// A product c = scale a b of some rows.
struct Product {
  int64_t columns, depth, chain;
  const float* a;
  int64_t a_stride;
  const float* b;  // [depth, columns]
  float scale;
  float* c;
  int64_t c_stride;
};

template <int kRows, int kWide>
GRAFT_VNNI inline void Columns(const Product& p, int64_t column) {
  const float* b = p.b + column;
  float* c = p.c + column;
  const __mmask16 last = Lanes(p.columns - column - (kWide - 1) * kLanes);
  const __m512 scale = _mm512_set1_ps(p.scale);
  for (int64_t first = 0; first < p.depth; first += p.chain) {
    const int64_t end = first + p.chain < p.depth ? first + p.chain : p.depth;
    __m512 sum[kRows][kWide];
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GRAFT_UNROLL
      for (int i = 0; i < kWide; ++i) sum[r][i] = _mm512_setzero_ps();
    }
    for (int64_t k = first; k < end; ++k) {
      __m512 w[kWide];
      GRAFT_UNROLL
      for (int i = 0; i < kWide; ++i) {
        const float* from = b + k * p.columns + i * kLanes;
        w[i] = i == kWide - 1 ? _mm512_maskz_loadu_ps(last, from) : _mm512_loadu_ps(from);
      }
      GRAFT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_set1_ps(p.a[r * p.a_stride + k]);
        GRAFT_UNROLL
        for (int i = 0; i < kWide; ++i) sum[r][i] = _mm512_fmadd_ps(x, w[i], sum[r][i]);
      }
    }
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GRAFT_UNROLL
      for (int i = 0; i < kWide; ++i) {
        const __mmask16 lanes = i == kWide - 1 ? last : static_cast<__mmask16>(0xffff);
        float* to = c + r * p.c_stride + i * kLanes;
        const __m512 y = first == 0
                             ? _mm512_mul_ps(sum[r][i], scale)
                             : _mm512_fmadd_ps(sum[r][i], scale, _mm512_maskz_loadu_ps(lanes, to));
        _mm512_mask_storeu_ps(to, lanes, y);
      }
    }
  }
}

template <int kRows>
GRAFT_VNNI __attribute__((noinline)) void MultiplyRows(const Product& p) {
  for (int64_t column = 0; column < p.columns;) {
    const int64_t left = (p.columns - column + kLanes - 1) / kLanes;
    // Four vectors are two and two: one alone leaves most of the registers empty.
    if (left >= kVectors && left != kVectors + 1) {
      Columns<kRows, kVectors>(p, column);
      column += kVectors * kLanes;
    } else if (left >= 2) {
      Columns<kRows, 2>(p, column);
      column += 2 * kLanes;
    } else {
      Columns<kRows, 1>(p, column);
      column += kLanes;
    }
  }
}

void Multiply(int64_t rows, const Product& p) {
  static_assert(kAttentionRows == 8, "a case for each");
  switch (rows) {
    case 1:
      return MultiplyRows<1>(p);
    case 2:
      return MultiplyRows<2>(p);
    case 3:
      return MultiplyRows<3>(p);
    case 4:
      return MultiplyRows<4>(p);
    case 5:
      return MultiplyRows<5>(p);
    case 6:
      return MultiplyRows<6>(p);
    case 7:
      return MultiplyRows<7>(p);
    default:
      return MultiplyRows<8>(p);
  }
}

// The greatest of scores to which a mask is added.
GRAFT_VNNI float Masked(float* scores, int64_t count, const float* mask, int64_t column) {
  __m512 greatest = _mm512_set1_ps(std::numeric_limits<float>::lowest());
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = Lanes(count - i);
    __m512 v = _mm512_maskz_loadu_ps(lanes, scores + i);
    if (mask != nullptr) {
      v = _mm512_add_ps(
          v, column == 0 ? _mm512_set1_ps(*mask) : _mm512_maskz_loadu_ps(lanes, mask + i));
      _mm512_mask_storeu_ps(scores + i, lanes, v);
    }
    greatest = _mm512_mask_max_ps(greatest, lanes, greatest, v);
  }
  return _mm512_reduce_max_ps(greatest);
}

GRAFT_VNNI float SumOf(__m512 v) {
  __m256 s = _mm256_add_ps(_mm512_extractf32x8_ps(v, 1), _mm512_castps512_ps256(v));
  s = _mm256_hadd_ps(s, s);
  s = _mm256_hadd_ps(s, s);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

GRAFT_VNNI bool Softmax(float* x, int64_t count, float greatest) {
  const __m512 minus = _mm512_set1_ps(-greatest), least = _mm512_set1_ps(kSoftmaxLeast);
  __m512 sums = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = Lanes(count - i);
    // The second of two is taken where one is NaN.
    const __m512 v =
        _mm512_max_ps(least, _mm512_add_ps(minus, _mm512_maskz_loadu_ps(lanes, x + i)));
    const __m512 e = Exp(v, kSoftmaxExp);
    sums = _mm512_mask_add_ps(sums, lanes, sums, e);
    _mm512_mask_storeu_ps(x + i, lanes, e);
  }
  const float sum = SumOf(sums);
  const __m512 factor = _mm512_set1_ps(1.0f / sum);
  for (int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = Lanes(count - i);
    _mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), factor));
  }
  return !std::isnan(sum);
}

}  // namespace

bool AttendRowsVnni(const AttentionRows& r) {
  Multiply(r.rows, {r.keys, r.size, r.size_chain, r.q, r.size, r.k, r.scale, r.scores, r.stride});
  for (int64_t row = 0; row < r.rows; ++row) {
    float* scores = r.scores + row * r.stride;
    const float* mask = r.mask == nullptr ? nullptr : r.mask + row * r.mask_row;
    if (!Softmax(scores, r.keys, Masked(scores, r.keys, mask, r.mask_column))) return false;
  }
  Multiply(r.rows, {r.values, r.keys, r.key_chain, r.scores, r.stride, r.v, 1.0f, r.y, r.values});
  return true;
}

}  // namespace quantized
}  // namespace graft

#else

namespace graft {
namespace quantized {

bool AttendRowsVnni(const AttentionRows& rows) { return AttendRowsPortable(rows); }

}  // namespace quantized
}  // namespace graft

#endif
