#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace graft {
namespace attention {
namespace testing {

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7C00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // The unit of the last place; nearbyint rounds to nearest even.
  const int unit = std::max(exponent - 11, -24);
  const double steps = std::nearbyint(std::ldexp(magnitude, -unit));
  if (unit == -24) return static_cast<uint16_t>(sign | static_cast<uint16_t>(steps));
  // steps is in [1024, 2048]; 2048 carries into the exponent by itself.
  return static_cast<uint16_t>(sign | ((unit + 24) * 1024 + static_cast<int>(steps)));
}

double Element(Type type, const void* data, int64_t index) {
  if (type == Type::kFloat32) return static_cast<const float*>(data)[index];
  return HalfToFloat(static_cast<const uint16_t*>(data)[index]);
}

namespace {

double At(Type type, const Input& input, int64_t b, int64_t h, int64_t i, int64_t f) {
  const Strides& s = input.strides;
  return Element(type, input.data, b * s.batch + h * s.head + i * s.position + f * s.feature);
}

}  // namespace

Expected Compute(const Problem& p, float window_fill) {
  const int64_t keys = p.past + p.fresh;
  const double lowest = -std::numeric_limits<double>::infinity();
  Expected expected;
  expected.output.resize(static_cast<size_t>(p.batch * p.heads * p.queries * p.value_size));
  expected.scores.resize(static_cast<size_t>(p.batch * p.heads * p.queries * keys));
  expected.slack.resize(static_cast<size_t>(p.batch * p.heads * p.queries));
  const double scale =
      p.scale != 0.0f ? p.scale : 1.0 / std::sqrt(static_cast<double>(p.head_size));
  std::vector<double> score(static_cast<size_t>(keys));
  std::vector<bool> hidden(static_cast<size_t>(keys));
  for (int64_t b = 0; b < p.batch; ++b) {
    int64_t valid = keys;
    if (p.lengths32 != nullptr) valid = p.lengths32[b];
    if (p.lengths64 != nullptr) valid = p.lengths64[b];
    const int64_t offset = p.diagonal == DiagonalFrom::kPast ? p.past : valid - p.queries;
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t g = h / (p.heads / p.kv_heads);
      for (int64_t i = 0; i < p.queries; ++i) {
        const int64_t row = (b * p.heads + h) * p.queries + i;
        double* stage = expected.scores.data() + row * keys;
        for (int64_t j = 0; j < keys; ++j) {
          double s = 0.0;
          for (int64_t f = 0; f < p.head_size; ++f) {
            const double k = j < p.past ? At(p.type, p.past_key, b, g, j, f)
                                        : At(p.type, p.key, b, g, j - p.past, f);
            s += At(p.type, p.query, b, h, i, f) * k;
          }
          s *= scale;
          if (p.scores_stage == ScoresStage::kProduct) stage[j] = s;
          if (p.softcap > 0.0f) s = p.softcap * std::tanh(s / p.softcap);
          if (p.scores_stage == ScoresStage::kSoftcapped) stage[j] = s;
          // Sums with a mask's large numbers are meant to round as float32 does.
          bool gone = false;
          const auto add_bias = [&] {
            if (p.bias.data == nullptr) return;
            const double bias = At(p.type, p.bias, b, h, i, j);
            if (bias == lowest) gone = true;
            s = bias == lowest ? lowest : static_cast<float>(static_cast<float>(s) + bias);
          };
          const auto fill = [&] {
            if (p.mask.data == nullptr) return;
            const Strides& m = p.mask.strides;
            const uint8_t keep = static_cast<const uint8_t*>(
                p.mask.data)[b * m.batch + h * m.head + i * m.position + j * m.feature];
            if ((keep != 0) != p.mask_hides) return;
            if (p.mask_adds && p.mask_fill != lowest) {
              s = static_cast<float>(static_cast<float>(s) + p.mask_fill);
              return;
            }
            s = p.mask_fill;
            gone = p.mask_fill == lowest;
          };
          const bool masked = j < p.key_limit;
          if (masked && p.mask_after_bias) add_bias();
          if (masked) fill();
          if (masked && !p.mask_after_bias) add_bias();
          if ((p.window_left >= 0 && i + offset - j > p.window_left) ||
              (p.window_right >= 0 && j - i - offset > p.window_right)) {
            s = window_fill;
            gone = window_fill == lowest;
          }
          if (j >= valid || j >= p.key_limit || (p.causal && j > i + offset) ||
              (p.window > 0 && i + offset - j >= p.window)) {
            s = lowest;
            gone = true;
          }
          hidden[static_cast<size_t>(j)] = gone;
          score[static_cast<size_t>(j)] = s;
          if (p.scores_stage == ScoresStage::kMasked) stage[j] = s;
        }
        double maximum = lowest;
        double sum = 0.0;
        for (double s : score) maximum = std::max(maximum, s);
        if (p.sinks != nullptr) {
          const double sink = Element(p.type, p.sinks, h);
          maximum = std::max(maximum, sink);
          sum = std::exp(sink - maximum);
        }
        for (double s : score) sum += std::exp(s - maximum);
        const bool zeros = keys == 0 || (p.zero_masked_rows && maximum == lowest) ||
                           (p.clear_nan && std::isnan(sum));
        // A number that all scores of a row are, or that swallows them, is the same for all.
        const double large = std::fabs(maximum);
        expected.slack[static_cast<size_t>(row)] =
            large > 64.0 && large < 1e30 ? large * 2.5e-7 : 0.0;
        for (int64_t j = 0; j < keys; ++j) {
          const double weight =
              zeros ? 0.0 : std::exp(score[static_cast<size_t>(j)] - maximum) / sum;
          if (p.scores_stage == ScoresStage::kProbabilities) stage[j] = weight;
          score[static_cast<size_t>(j)] = weight;
        }
        for (int64_t f = 0; f < p.value_size; ++f) {
          double total = 0.0;
          for (int64_t j = 0; j < keys; ++j) {
            // A hidden key may hold anything; only a row without any weight at all shows it, as
            // NaN.
            const double weight = score[static_cast<size_t>(j)];
            if (hidden[static_cast<size_t>(j)] && !std::isnan(weight)) continue;
            if (hidden[static_cast<size_t>(j)]) {
              total = weight;
              continue;
            }
            const double v = j < p.past ? At(p.type, p.past_value, b, g, j, f)
                                        : At(p.type, p.value, b, g, j - p.past, f);
            total += weight * v;
          }
          expected.output[static_cast<size_t>(row * p.value_size + f)] = total;
        }
      }
    }
  }
  return expected;
}

}  // namespace testing
}  // namespace attention
}  // namespace graft
