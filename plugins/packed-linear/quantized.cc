// Compiled without contraction: panels have the same bits on every CPU of an architecture.
#include "quantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graft/checked.h"
#include "plan.h"

namespace graft {
namespace linear {
namespace {

using Lines = float[kMaxGroup][kPanelColumns];

struct QuantizeCall {
  WeightType type;
  const float* weight;
  int64_t depth, columns;
  bool transposed;
  int64_t group;
  char* panels;
  char* scales;
  int8_t* zeros;  // or none: symmetric
};

float FromBFloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To nearest, ties to even. NaN stays NaN.
uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// To the nearest integer, ties to even, where it has less than 22 bits.
float Round(float v) {
  constexpr float kShift = 12582912.0f;
  return (v + kShift) - kShift;
}

// What is tried: a scale and a zero point a column, and the squared error that they leave.
struct Trial {
  float scale[kPanelColumns];
  float zero[kPanelColumns] = {};
  float error[kPanelColumns];
};

// Integers that a type holds.
struct Range {
  float least, most;
};

float Clamp(float v, Range range) { return std::min(std::max(v, range.least), range.most); }

// The range of q less its zero point.
Range Beside(Range range, float zero) { return {range.least - zero, range.most - zero}; }

void Inverse(const float* scale, float* inverse) {
  for (int64_t i = 0; i < kPanelColumns; ++i) inverse[i] = scale[i] == 0 ? 0 : 1 / scale[i];
}

void Measure(const Lines& w, int64_t depth, Range range, Trial* trial) {
  float inverse[kPanelColumns], error[kPanelColumns] = {};
  Inverse(trial->scale, inverse);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const float q = Clamp(Round(w[k][i] * inverse[i]), Beside(range, trial->zero[i]));
      const float off = w[k][i] - q * trial->scale[i];
      error[i] += off * off;
    }
  }
  std::copy(error, error + kPanelColumns, trial->error);
}

// Replaces scales by those that are best for the integers that they lead to (least squares).
void Refine(const Lines& w, int64_t depth, Range range, Trial* trial) {
  float inverse[kPanelColumns], both[kPanelColumns] = {}, square[kPanelColumns] = {};
  Inverse(trial->scale, inverse);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const float q = Clamp(Round(w[k][i] * inverse[i]), Beside(range, trial->zero[i]));
      both[i] += q * w[k][i];
      square[i] += q * q;
    }
  }
  for (int64_t i = 0; i < kPanelColumns; ++i) {
    if (square[i] > 0) trial->scale[i] = both[i] / square[i];
  }
}

// Scales that a trial may have: those of bfloat16.
void RoundScales(float* scale) {
  for (int64_t i = 0; i < kPanelColumns; ++i) scale[i] = FromBFloat16(ToBFloat16(scale[i]));
}

void TakeBetter(const Trial& trial, Trial* best) {
  for (int64_t i = 0; i < kPanelColumns; ++i) {
    const bool none = best->error[i] != best->error[i];
    if (!none && !(trial.error[i] < best->error[i])) continue;
    best->error[i] = trial.error[i];
    best->scale[i] = trial.scale[i];
    best->zero[i] = trial.zero[i];
  }
}

// Puts the two bfloat16 around a trial's scales, which are positive, to the test.
void TakeBetterOfTwo(const Lines& w, int64_t depth, Range range, const Trial& exact, Trial* best) {
  for (const uint32_t up : {0xffffu, 0u}) {
    Trial trial = exact;
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &exact.scale[i], sizeof bits);
      trial.scale[i] = FromBFloat16(static_cast<uint16_t>((bits + up) >> 16));
    }
    Measure(w, depth, range, &trial);
    TakeBetter(trial, best);
  }
}

// No trial yet, which any is better than, whatever its error.
Trial None() {
  Trial none;
  std::fill(none.scale, none.scale + kPanelColumns, 0.0f);
  std::fill(none.error, none.error + kPanelColumns, std::numeric_limits<float>::quiet_NaN());
  return none;
}

// The two bfloat16 around the scale that takes the greatest number to 127.
Trial ChooseInt8(const Lines& w, int64_t depth, const float* most) {
  Trial exact, best = None();
  for (int64_t i = 0; i < kPanelColumns; ++i) exact.scale[i] = std::abs(most[i]) / 127;
  TakeBetterOfTwo(w, depth, {-127, 127}, exact, &best);
  return best;
}

// Scales that take the greatest number to -8, or a little beyond or before it, or to 7, each then
// refined.
Trial ChooseInt4(const Lines& w, int64_t depth, const float* most) {
  constexpr Range kRange = {-8, 7};
  constexpr float kTargets[] = {-8.0f, -7.0f, -7.5f, -8.6f, -9.2f, 6.4f, 7.0f, 7.8f};
  Trial best = None(), trial;
  for (const float target : kTargets) {
    for (int64_t i = 0; i < kPanelColumns; ++i) trial.scale[i] = most[i] / target;
    if (target == kTargets[0]) {
      Trial first = trial;
      RoundScales(first.scale);
      Measure(w, depth, kRange, &first);
      TakeBetter(first, &best);
    }
    Refine(w, depth, kRange, &trial);
    RoundScales(trial.scale);
    Measure(w, depth, kRange, &trial);
    TakeBetter(trial, &best);
  }
  return best;
}

// Zero points that put the least and the greatest number of a group, and 0, within the range, and
// those beside them; for four bits each with scales that clip nothing, or a little. What is
// symmetric stays where it is better.
void ChooseZeros(WeightType type, const Lines& w, int64_t depth, Trial* best) {
  const bool eight = type == WeightType::kInt8;
  const Range range = eight ? Range{-128, 127} : Range{-8, 7};
  const float steps = range.most - range.least;
  float low[kPanelColumns] = {}, high[kPanelColumns] = {}, ideal[kPanelColumns];
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      low[i] = std::min(low[i], w[k][i]);
      high[i] = std::max(high[i], w[k][i]);
    }
  }
  for (int64_t i = 0; i < kPanelColumns; ++i) {
    const float step = high[i] / steps - low[i] / steps;  // high - low may be no number
    ideal[i] = step > 0 ? Round(range.least - low[i] / step) : 0;
  }
  for (const float beside : {0.0f, -1.0f, 1.0f}) {
    Trial exact;
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      exact.zero[i] = Clamp(ideal[i] + beside, range);
      const Range rest = Beside(range, exact.zero[i]);
      const float down = rest.least < 0 ? low[i] / rest.least : 0;
      const float up = rest.most > 0 ? high[i] / rest.most : 0;
      exact.scale[i] = std::max(down, up);
    }
    if (eight) {
      TakeBetterOfTwo(w, depth, range, exact, best);
      continue;
    }
    for (const float share : {1.0f, 0.93f, 0.86f}) {
      Trial trial = exact;
      for (float& scale : trial.scale) scale *= share;
      Refine(w, depth, range, &trial);
      RoundScales(trial.scale);
      Measure(w, depth, range, &trial);
      TakeBetter(trial, best);
    }
  }
}

// Reads a group of a panel; what is beyond W becomes zeros.
void Gather(const QuantizeCall& call, int64_t first, int64_t k, int64_t depth, Lines* to) {
  const int64_t width = std::min(kPanelColumns, call.columns - first);
  std::memset(to, 0, sizeof *to);
  for (int64_t j = 0; j < depth; ++j) {
    if (!call.transposed) {
      std::memcpy((*to)[j], call.weight + (k + j) * call.columns + first,
                  static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      std::memcpy(&(*to)[j][i], call.weight + (first + i) * call.depth + k + j, sizeof(float));
    }
  }
}

// The number of the greatest magnitude in each column; NaN where one is not finite, and 0 where all
// are tiny.
void FindMost(const Lines& w, int64_t depth, float* most) {
  constexpr float kMost = std::numeric_limits<float>::max();
  bool finite[kPanelColumns];
  std::fill(finite, finite + kPanelColumns, true);
  std::fill(most, most + kPanelColumns, 0.0f);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      finite[i] = finite[i] && std::abs(w[k][i]) <= kMost;
      most[i] = std::abs(w[k][i]) > std::abs(most[i]) ? w[k][i] : most[i];  // never -0
    }
  }
  for (int64_t i = 0; i < kPanelColumns; ++i) {
    if (std::abs(most[i]) < kLeastNumber) most[i] = 0;
    if (!finite[i]) most[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

// Writes the integers of one group, from position `begin` of a panel on, of `count` positions.
void Write(WeightType type, const Lines& w, const Trial& chosen, bool zeros, int64_t begin,
           int64_t count, char* panel) {
  float inverse[kPanelColumns];
  Inverse(chosen.scale, inverse);
  const Range range = type == WeightType::kInt4 ? Range{-8, 7}
                      : zeros                   ? Range{-128, 127}
                                                : Range{-127, 127};
  for (int64_t i = 0; i < kPanelColumns; ++i) {
    if (!(std::abs(inverse[i]) <= std::numeric_limits<float>::max())) inverse[i] = 0;
  }
  for (int64_t j = 0; j < count; ++j) {
    const int64_t k = begin + j;
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const float number = inverse[i] == 0 ? 0 : w[j][i];  // not 0 times infinity
      const float zero = chosen.zero[i];
      const auto q =
          static_cast<int>(Clamp(Round(number * inverse[i]), Beside(range, zero)) + zero);
      if (type == WeightType::kInt8) {
        panel[k / 4 * 64 + i * 4 + k % 4] = static_cast<char>(q);
        continue;
      }
      char& byte = panel[k / 8 * 64 + i * 4 + k % 4];
      const int half = q + 8;
      byte = static_cast<char>(k % 8 < 4 ? half : (byte & 15) | half << 4);
    }
  }
}

void QuantizePanel(const QuantizeCall& call, int64_t panel) {
  const PackedShape shape = ShapeOf(call.type, call.depth, call.columns, call.group);
  const int64_t first = panel * kPanelColumns;
  char* to = call.panels + panel * shape.rows * kPanelColumns;
  alignas(64) Lines w;
  for (int64_t g = 0; g < shape.groups; ++g) {
    const int64_t k = g * call.group, depth = std::min(call.group, call.depth - k);
    Gather(call, first, k, depth, &w);
    float most[kPanelColumns];
    FindMost(w, depth, most);
    Trial chosen =
        call.type == WeightType::kInt8 ? ChooseInt8(w, depth, most) : ChooseInt4(w, depth, most);
    if (call.zeros != nullptr) ChooseZeros(call.type, w, depth, &chosen);
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      if (most[i] == most[i] && most[i] != 0) continue;
      chosen.scale[i] = most[i];
      chosen.zero[i] = 0;
    }
    Write(call.type, w, chosen, call.zeros != nullptr, k, RoundUp(depth, kChunk), to);
    const int64_t at = (panel * shape.groups + g) * kPanelColumns;
    for (int64_t i = 0; i < kPanelColumns; ++i) {
      const uint16_t bits = ToBFloat16(chosen.scale[i]);
      std::memcpy(call.scales + (at + i) * 2, &bits, 2);
      if (call.zeros != nullptr) call.zeros[at + i] = static_cast<int8_t>(chosen.zero[i]);
    }
  }
}

void RoundPanel(const QuantizeCall& call, int64_t panel) {
  alignas(64) Lines w;
  char* to = call.panels + panel * call.depth * kPanelColumns * 2;
  for (int64_t k = 0; k < call.depth; k += kMaxGroup) {
    const int64_t depth = std::min(kMaxGroup, call.depth - k);
    Gather(call, panel * kPanelColumns, k, depth, &w);
    for (int64_t j = 0; j < depth; ++j) {
      uint16_t line[kPanelColumns];
      for (int64_t i = 0; i < kPanelColumns; ++i) line[i] = ToBFloat16(w[j][i]);
      std::memcpy(to + (k + j) * static_cast<int64_t>(sizeof line), line, sizeof line);
    }
  }
}

void QuantizeOne(void* argument, int64_t panel) {
  const QuantizeCall& call = *static_cast<const QuantizeCall*>(argument);
  if (call.type == WeightType::kBFloat16) {
    RoundPanel(call, panel);
  } else {
    QuantizePanel(call, panel);
  }
}

}  // namespace

PackedShape ShapeOf(WeightType type, int64_t depth, int64_t columns, int64_t group) {
  PackedShape shape{DivideUp(Size(columns), kPanelColumns), depth, 0};
  if (!IsInteger(type)) return shape;
  const Size padded = RoundUp(Size(depth), kChunk);
  shape.rows = type == WeightType::kInt8 ? padded : padded / 2;
  shape.groups = DivideUp(Size(depth), group);
  return shape;
}

size_t PackedBytes(WeightType type, int64_t depth, int64_t columns) {
  const PackedShape shape = ShapeOf(type, depth, columns, kChunk);
  const size_t element = type == WeightType::kFloat32    ? sizeof(float)
                         : type == WeightType::kBFloat16 ? sizeof(uint16_t)
                                                         : 1;
  return (Size(shape.panels) * shape.rows * kPanelColumns * element).To<size_t>();
}

void Quantize(WeightType type, const float* weight, int64_t depth, int64_t columns, bool transposed,
              int64_t group, void* panels, uint16_t* scales, int8_t* zeros, const Runner& runner) {
  if (depth == 0 || columns == 0) return;
  QuantizeCall call{type,
                    weight,
                    depth,
                    columns,
                    transposed,
                    group,
                    static_cast<char*>(panels),
                    reinterpret_cast<char*>(scales),
                    zeros};
  const int64_t tasks = DivideUp(columns, kPanelColumns);
  if (runner.parallel_for == nullptr) {
    for (int64_t task = 0; task < tasks; ++task) QuantizeOne(&call, task);
    return;
  }
  runner.parallel_for(runner.context, tasks, &QuantizeOne, &call);
}

float ValueOf(WeightType type, const void* panels, const uint16_t* scales, int64_t depth,
              int64_t group, int64_t k, int64_t column) {
  Problem problem;
  problem.type = type;
  problem.depth = depth;
  problem.quantized = panels;
  problem.weight_scale = scales;
  problem.group = group;
  return ValueOf(problem, k, column);
}

float ValueOf(const Problem& problem, int64_t k, int64_t column) {
  const auto* bytes = static_cast<const char*>(problem.quantized);
  const int64_t panel = column / kPanelColumns, i = column % kPanelColumns;
  const PackedShape shape = ShapeOf(problem.type, problem.depth, column + 1, problem.group);
  const int64_t from = panel * shape.rows * kPanelColumns;
  uint16_t bits;
  if (!IsInteger(problem.type)) {
    std::memcpy(&bits, bytes + (from + k * kPanelColumns + i) * 2, sizeof bits);
    return FromBFloat16(bits);
  }
  const int64_t at = (panel * shape.groups + k / problem.group) * kPanelColumns + i;
  const char* scales = static_cast<const char*>(problem.weight_scale) + at * ScaleBytes(problem);
  float scale;
  if (problem.wide_scales) {
    std::memcpy(&scale, scales, sizeof scale);
  } else {
    std::memcpy(&bits, scales, sizeof bits);
    scale = FromBFloat16(bits);
  }
  int q;
  if (problem.type == WeightType::kInt8) {
    q = static_cast<signed char>(bytes[from + k / 4 * 64 + i * 4 + k % 4]);
  } else {
    const auto byte = static_cast<unsigned char>(bytes[from + k / 8 * 64 + i * 4 + k % 4]);
    q = (k % 8 < 4 ? byte & 15 : byte >> 4) - 8;
  }
  if (problem.weight_zero != nullptr) q -= problem.weight_zero[at];
  return static_cast<float>(q) * scale;
}

}  // namespace linear
}  // namespace graft
