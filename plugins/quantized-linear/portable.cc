// The same in plain C++, where there is no VNNI. Compiled without contraction.
#include <algorithm>
#include <cmath>

#include "exponential.h"
#include "kernel.h"

namespace graft {
namespace quantized {
namespace {

bool FindRange(const float* x, int64_t count, float* least, float* greatest) {
  float low = 0.0f, high = 0.0f;
  bool numbers = true;
  for (int64_t i = 0; i < count; ++i) {
    numbers &= !std::isnan(x[i]);
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  *least = low;
  *greatest = high;
  return numbers;
}

void Quantize(const float* x, int64_t count, float scale, uint8_t zero, uint8_t* to) {
  const float least = static_cast<float>(0 - zero), greatest = static_cast<float>(255 - zero);
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i] / scale;
    v = v > least ? v : least;  // NaN becomes the least
    v = v < greatest ? v : greatest;
    to[i] = static_cast<uint8_t>(static_cast<int32_t>(std::nearbyint(v)) + zero);
  }
}

int32_t Sum(const uint8_t* bytes, int64_t count) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += bytes[i];
  return static_cast<int32_t>(sum);
}

template <int kTerms>
float Horner(const float (&terms)[kTerms], float x) {
  float p = terms[0];
  for (int i = 1; i < kTerms; ++i) p = std::fma(p, x, terms[i]);
  return p;
}

// 0.5 x (1 + erf(x / sqrt(2))).
float Gelu(float x) {
  const float in = x * kInverseSqrt2;
  const float a = std::min(kErfGreatest, std::fabs(in));
  float erf;
  if (a > kErfSplit) {
    float power = -std::fma(Horner(kErfBig, a), a, a);
    const float m = std::fma(kLog2E, power, kRound) - kRound;
    power = std::fma(m, kMinusLn2High, power);
    power = std::fma(m, kMinusLn2Low, power);
    erf = 1.0f - std::ldexp(Horner(kErfExp, power), static_cast<int>(m));
  } else {
    erf = std::fma(Horner(kErfSmall, a * a), a, a);
  }
  return 0.5f * x * (std::copysign(erf, in) + 1.0f);
}

// Sums wrap as those of vectors do.
void RunTile(const Tile& t) {
  for (int r = 0; r < t.rows; ++r) {
    for (int64_t j = 0; j < t.columns; ++j) {
      const uint8_t* x = t.x + r * t.x_stride;
      const int8_t* w =
          t.weight + j / kPanelColumns * t.panel_bytes + j % kPanelColumns * kDepthStep;
      uint32_t sum = static_cast<uint32_t>(t.start[j]);
      for (int64_t k = 0; k < t.steps; ++k, x += kDepthStep, w += kPanelColumns * kDepthStep) {
        for (int64_t i = 0; i < kDepthStep; ++i) sum += static_cast<uint32_t>(int32_t{x[i]} * w[i]);
      }
      if (t.zeros != nullptr) {
        sum -= static_cast<uint32_t>(t.zeros[j]) * static_cast<uint32_t>(t.row_sums[r]);
      }
      float y = static_cast<float>(static_cast<int32_t>(sum)) * t.scales[j];
      if (t.bias != nullptr) y += t.bias[j];
      if (t.gelu) y = Gelu(y);
      if (t.range != nullptr) {
        t.range->least = std::min(t.range->least, y);
        t.range->greatest = std::max(t.range->greatest, y);
        if (std::isnan(y)) t.range->numbers = 0.0f;
      }
      float* to = t.y[j / kPanelColumns];
      to[r * t.row_stride + j % kPanelColumns * t.column_stride] = y;
    }
  }
}

}  // namespace

const Kernel kPortableKernel = {&FindRange, &Quantize, &Sum, &RunTile, &NormalisePortable};

}  // namespace quantized
}  // namespace graft
