// Attention in plain C++, where there is no AVX-512. Compiled without contraction.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.h"
#include "exponential.h"

namespace graft {
namespace quantized {
namespace {

// c = scale a b, [rows, columns], with a of [rows, depth].
void Multiply(int64_t rows, int64_t columns, int64_t depth, int64_t chain, const float* a,
              int64_t a_stride, const float* b, float scale, float* c, int64_t c_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      float y = 0.0f;
      for (int64_t first = 0; first < depth; first += chain) {
        float sum = 0.0f;
        for (int64_t k = first; k < std::min(depth, first + chain); ++k) {
          sum = std::fma(a[r * a_stride + k], b[k * columns + j], sum);
        }
        y = first == 0 ? sum * scale : std::fma(sum, scale, y);
      }
      c[r * c_stride + j] = y;
    }
  }
}

float Exp(float x) {
  x = x > kSoftmaxLeast || std::isnan(x) ? x : kSoftmaxLeast;
  const float m = std::fma(kLog2E, x, kRound) - kRound;
  x = std::fma(m, kMinusLn2High, x);
  x = std::fma(m, kMinusLn2Low, x);
  float p = kSoftmaxExp[0];
  for (int i = 1; i < kExpTerms; ++i) p = std::fma(p, x, kSoftmaxExp[i]);
  return std::isnan(p) ? p : std::ldexp(p, static_cast<int>(m));
}

bool Softmax(float* x, int64_t count) {
  float greatest = std::numeric_limits<float>::lowest();
  for (int64_t i = 0; i < count; ++i) greatest = std::max(greatest, x[i]);
  float sums[kSoftmaxLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    x[i] = Exp(-greatest + x[i]);
    sums[i % kSoftmaxLanes] += x[i];
  }
  for (int i = 0; i < 8; ++i) sums[i] = sums[8 + i] + sums[i];
  const float sum =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  const float factor = 1.0f / sum;
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
  return !std::isnan(sum);
}

}  // namespace

bool AttendRowsPortable(const AttentionRows& r) {
  Multiply(r.rows, r.keys, r.size, r.size_chain, r.q, r.size, r.k, r.scale, r.scores, r.stride);
  for (int64_t row = 0; row < r.rows; ++row) {
    float* scores = r.scores + row * r.stride;
    for (int64_t j = 0; r.mask != nullptr && j < r.keys; ++j) {
      scores[j] += r.mask[row * r.mask_row + j * r.mask_column];
    }
    if (!Softmax(scores, r.keys)) return false;
  }
  Multiply(r.rows, r.values, r.keys, r.key_chain, r.scores, r.stride, r.v, 1.0f, r.y, r.values);
  return true;
}

}  // namespace quantized
}  // namespace graft
