#include "norm.h"

#include <algorithm>
#include <cmath>

#if defined(__x86_64__)
#include "vectors.h"
#endif

namespace graft {
namespace quantized {

namespace {

void Include(float v, Range* range) {
  range->least = std::min(range->least, v);
  range->greatest = std::max(range->greatest, v);
  if (std::isnan(v)) range->numbers = 0.0f;
}

}  // namespace

void NormalisePortable(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y,
                       Range* range) {
  for (int64_t r = row; r < row + rows; ++r) {
    float* to = y + r * columns;
    double sums[4] = {};
    for (int64_t j = 0; j < columns; ++j) {
      to[j] += norm.residual[r * columns + j];
      sums[j % 4] += to[j];
    }
    const auto count = static_cast<double>(columns);
    const auto mean = static_cast<float>(((sums[0] + sums[2]) + (sums[1] + sums[3])) / count);
    float squares[8] = {};
    for (int64_t j = 0; j < columns; ++j) {
      to[j] -= mean;
      squares[j % 8] = std::fma(to[j], to[j], squares[j % 8]);
    }
    for (int width = 4; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) squares[i] += squares[i + width];
    }
    const float factor = 1.0f / std::sqrt(squares[0] / static_cast<float>(columns) + norm.epsilon);
    for (int64_t j = 0; j < columns; ++j) {
      to[j] = std::fma(to[j] * factor, norm.scale[j], norm.bias[j]);
      if (range != nullptr) Include(to[j], range);
    }
  }
}

#if defined(__x86_64__)

namespace {

GRAFT_VNNI inline double Joined(__m256d v) {
  const __m128d halves = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(halves, _mm_unpackhi_pd(halves, halves)));
}

GRAFT_VNNI inline float Joined(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// Rows at once, since the sums of one wait for each other.
template <int kRows>
GRAFT_VNNI void NormaliseRows(const Norm& norm, const float* residual, int64_t columns, float* y,
                              RangeOf* range) {
  __m256d sums[kRows];
  GRAFT_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_pd();
  for (int64_t j = 0; j < columns; j += kLanes) {
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 v = _mm512_add_ps(_mm512_loadu_ps(y + r * columns + j),
                                     _mm512_loadu_ps(residual + r * columns + j));
      _mm512_storeu_ps(y + r * columns + j, v);
      const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                    high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
      sums[r] = _mm256_add_pd(sums[r], _mm512_castpd512_pd256(low));
      sums[r] = _mm256_add_pd(sums[r], _mm512_extractf64x4_pd(low, 1));
      sums[r] = _mm256_add_pd(sums[r], _mm512_castpd512_pd256(high));
      sums[r] = _mm256_add_pd(sums[r], _mm512_extractf64x4_pd(high, 1));
    }
  }
  __m512 mean[kRows], factor[kRows];
  __m256 squares[kRows];
  GRAFT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    mean[r] = _mm512_set1_ps(static_cast<float>(Joined(sums[r]) / static_cast<double>(columns)));
    squares[r] = _mm256_setzero_ps();
  }
  for (int64_t j = 0; j < columns; j += kLanes) {
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 v = _mm512_sub_ps(_mm512_loadu_ps(y + r * columns + j), mean[r]);
      _mm512_storeu_ps(y + r * columns + j, v);
      const __m256 low = _mm512_castps512_ps256(v), high = _mm512_extractf32x8_ps(v, 1);
      squares[r] = _mm256_fmadd_ps(low, low, squares[r]);
      squares[r] = _mm256_fmadd_ps(high, high, squares[r]);
    }
  }
  GRAFT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    factor[r] = _mm512_set1_ps(
        1.0f / std::sqrt(Joined(squares[r]) / static_cast<float>(columns) + norm.epsilon));
  }
  for (int64_t j = 0; j < columns; j += kLanes) {
    const __m512 scale = _mm512_loadu_ps(norm.scale + j), bias = _mm512_loadu_ps(norm.bias + j);
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 v = _mm512_mul_ps(_mm512_loadu_ps(y + r * columns + j), factor[r]);
      const __m512 n = _mm512_fmadd_ps(v, scale, bias);
      range->Include(n, static_cast<__mmask16>(0xffff));
      _mm512_storeu_ps(y + r * columns + j, n);
    }
  }
}

}  // namespace

GRAFT_VNNI void NormaliseVnni(const Norm& norm, int64_t row, int64_t rows, int64_t columns,
                              float* y, Range* range) {
  constexpr int kAtOnce = 4;
  RangeOf found;
  for (const int64_t end = row + rows; row < end;) {
    const float* residual = norm.residual + row * columns;
    if (row + kAtOnce <= end) {
      NormaliseRows<kAtOnce>(norm, residual, columns, y + row * columns, &found);
      row += kAtOnce;
    } else {
      NormaliseRows<1>(norm, residual, columns, y + row * columns, &found);
      ++row;
    }
  }
  if (range != nullptr) found.Join(range);
}

#else

void NormaliseVnni(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y,
                   Range* range) {
  NormalisePortable(norm, row, rows, columns, y, range);
}

#endif

}  // namespace quantized
}  // namespace graft
