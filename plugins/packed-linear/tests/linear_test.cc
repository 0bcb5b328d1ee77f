// The kernel against a float64 reference, on random sizes: every path, every instruction set of the
// CPU, strides, weights at odd addresses, any number of threads. Outputs and workspace are
// poisoned, and bands around both must come back untouched.
#include "linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "poison.h"
#include "quantized.h"
#include "rounded_row.h"
#include "thread_pool.h"

namespace graft {
namespace linear {
namespace {

using ThreadPool = test::ThreadPool<Runner>;

constexpr size_t kBand = 64;
constexpr unsigned char kMark = 0xA7;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// Bytes with a band of marks on either side, poisoned with NaN, at any alignment.
class Guarded {
 public:
  Guarded(size_t bytes, size_t shift) : bytes_(bytes), shift_(shift) {
    memory_.assign(bytes + 2 * kBand + shift, kMark);
    for (size_t i = 0; i + sizeof kPoison <= bytes; i += sizeof kPoison) {
      std::memcpy(data() + i, &kPoison, sizeof kPoison);
    }
  }
  char* data() { return reinterpret_cast<char*>(memory_.data()) + kBand + shift_; }
  bool Untouched() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= kBand + shift_ && i < kBand + shift_ + bytes_;
      if (!inside && memory_[i] != kMark) return false;
    }
    return true;
  }

 private:
  size_t bytes_, shift_;
  std::vector<unsigned char> memory_;
};

struct Case {
  Problem problem;
  Tuning tuning;
  int threads = 1;
  size_t weight_shift = 0;  // bytes off the alignment of a float
  bool bias = false;
  bool wide_scales = false;                 // of integers that somebody else made
  bool zeros = false, other_zeros = false;  // those of Quantize, or of somebody else
  uint64_t seed = 0;
};

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGeluQuick:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kRelu:
      return std::max(x, 0.0);
  }
  return x;
}

// Normalizes a row, of which each number is within a bound of what it should be.
void NormalizeRow(const Norm& norm, std::vector<double>& row, std::vector<double>& bound) {
  const auto size = static_cast<double>(row.size());
  double mean = 0, variance = 0, off = 0, most = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    mean += row[j] / size;
    off = std::max(off, bound[j]);
  }
  for (const double v : row) {
    variance += (v - mean) * (v - mean) / size;
    most = std::max(most, std::abs(v - mean));
  }
  const double deviation = std::sqrt(variance + double{norm.epsilon});
  for (size_t j = 0; j < row.size(); ++j) {
    const double normal = (row[j] - mean) / deviation;
    const double shift = norm.bias != nullptr ? norm.bias[j] : 0;
    row[j] = normal * norm.scale[j] + shift;
    // A number, the mean and the deviation are off by at most so much.
    bound[j] = std::abs(norm.scale[j]) * (2 + most / deviation) * off / deviation +
               1e-6 * (std::abs(normal * norm.scale[j]) + std::abs(shift)) + 1e-30;
  }
}

// Runs a case; returns y.
std::vector<float> Compute(const Case& c, ThreadPool& pool, bool check) {
  Problem p = c.problem;
  std::mt19937_64 random(c.seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const auto m = static_cast<size_t>(p.rows), k = static_cast<size_t>(p.depth);
  const auto n = static_cast<size_t>(p.columns);
  const auto xs = static_cast<size_t>(p.x_stride), ys = static_cast<size_t>(p.y_stride);

  // What lies between rows of x, and beyond weight, is NaN: it must not be looked at.
  std::vector<float> x(m * xs, kPoison), w(k * n), bias(n);
  for (size_t r = 0; r < m; ++r) {
    for (size_t i = 0; i < k; ++i) x[r * xs + i] = uniform(random);
  }
  for (float& v : w) v = uniform(random);
  for (float& v : bias) v = uniform(random);
  x.resize(m == 0 ? 0 : (m - 1) * xs + k);  // sanitizers see a read past the last row
  x.shrink_to_fit();

  std::vector<char> weight(w.size() * sizeof(float) + c.weight_shift);
  if (!w.empty()) std::memcpy(weight.data() + c.weight_shift, w.data(), w.size() * sizeof(float));
  const Runner runner = pool.runner();
  const bool quantized = p.type != WeightType::kFloat32;
  const PackedShape shape = ShapeOf(p.type, p.depth, p.columns, p.group);
  Guarded panels(quantized ? PackedBytes(p.type, p.depth, p.columns) : 0, c.weight_shift);
  const auto scale_count = static_cast<size_t>(shape.panels * shape.groups * kPanelColumns);
  Guarded scales(scale_count * 2, c.weight_shift);
  Guarded wide_scales(c.wide_scales ? scale_count * sizeof(float) : 0, c.weight_shift);
  Guarded zeros(c.zeros ? scale_count : 0, c.weight_shift);
  if (quantized) {
    p.quantized = panels.data();
    p.weight_scale = reinterpret_cast<const uint16_t*>(scales.data());
    Quantize(p.type, reinterpret_cast<const float*>(weight.data() + c.weight_shift), p.depth,
             p.columns, p.transposed, p.group, panels.data(),
             reinterpret_cast<uint16_t*>(scales.data()),
             c.zeros ? reinterpret_cast<int8_t*>(zeros.data()) : nullptr, runner);
    EXPECT_TRUE(panels.Untouched() && scales.Untouched() && zeros.Untouched())
        << "a write outside panels, scales or zero points";
    if (c.wide_scales) {
      for (size_t i = 0; i < scale_count; ++i) {
        const float scale = uniform(random) / 16;
        std::memcpy(wide_scales.data() + i * sizeof scale, &scale, sizeof scale);
      }
      p.weight_scale = wide_scales.data();
      p.wide_scales = true;
    }
    if (c.zeros && c.other_zeros) {
      const int most = p.type == WeightType::kInt8 ? 128 : 8;
      for (size_t i = 0; i < scale_count; ++i) {
        zeros.data()[i] =
            static_cast<char>(std::uniform_int_distribution<int>(-most, most - 1)(random));
      }
    }
    if (c.zeros) p.weight_zero = reinterpret_cast<const int8_t*>(zeros.data());
    for (size_t i = 0; i < k && check; ++i) {
      for (size_t j = 0; j < n; ++j) {
        w[p.transposed ? j * k + i : i * n + j] =
            ValueOf(p, static_cast<int64_t>(i), static_cast<int64_t>(j));
      }
    }
  } else if (p.panels) {
    std::vector<float> panels(PackedFloats(p.depth, p.columns), kPoison);
    Pack(reinterpret_cast<const float*>(weight.data() + c.weight_shift), p.depth, p.columns,
         p.transposed, panels.data(), runner);
    weight.resize(panels.size() * sizeof(float) + c.weight_shift);
    weight.shrink_to_fit();
    if (!panels.empty()) {
      std::memcpy(weight.data() + c.weight_shift, panels.data(), panels.size() * sizeof(float));
    }
  }

  Guarded y(m * ys * static_cast<size_t>(p.parts) * sizeof(float), 0);
  p.x = x.data();
  p.weight = reinterpret_cast<const float*>(weight.data() + c.weight_shift);
  p.bias = c.bias ? bias.data() : nullptr;
  std::vector<float> residual(p.panels && p.parts == 1 && !p.gated && c.seed % 3 == 0 ? m * (n + 3)
                                                                                      : 0);
  for (float& v : residual) v = uniform(random);
  p.residual = residual.empty() ? nullptr : residual.data();
  p.residual_stride = static_cast<int64_t>(n) + 3;
  std::vector<float> scale(k), offset(k);
  for (float& v : scale) v = uniform(random);
  for (float& v : offset) v = uniform(random);
  const bool norm = p.panels && c.seed % 4 == 1 && k > 0;
  p.before = {norm ? scale.data() : nullptr, c.seed % 8 == 1 ? offset.data() : nullptr, 1e-3f,
              c.seed % 3 != 0};
  const bool after = p.panels && p.parts == 1 && !p.gated && c.seed % 5 == 2;
  std::vector<float> after_scale(n), after_offset(n);
  for (float& v : after_scale) v = uniform(random);
  for (float& v : after_offset) v = uniform(random);
  p.after = {after ? after_scale.data() : nullptr, c.seed % 10 == 2 ? after_offset.data() : nullptr,
             1e-2f};
  Guarded workspace(WorkspaceSize(p, runner.threads, c.tuning), c.seed % 64);
  p.y = reinterpret_cast<float*>(y.data());
  const size_t parts = static_cast<size_t>(p.parts), width = n / (p.gated ? 2 : parts);
  for (size_t i = 1; i < parts; ++i) p.more[i - 1] = p.y + i * m * ys;
  std::vector<double> rows(m * k);
  std::vector<double> steepness(m, 0.0);  // how much a row's normalization magnifies roundings of x
  for (size_t r = 0; r < m; ++r) {
    const float* row = x.data() + r * xs;
    double mean = 0, variance = 0;
    for (size_t i = 0; i < k && p.before.centred; ++i) {
      mean += double{row[i]} / static_cast<double>(k);
    }
    for (size_t i = 0; i < k; ++i) {
      variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(k);
    }
    for (size_t i = 0; i < k && norm; ++i) {
      const double steep = std::abs(row[i]) / std::sqrt(variance + double{p.before.epsilon});
      steepness[r] = std::max(steepness[r], steep);
    }
    for (size_t i = 0; i < k; ++i) {
      rows[r * k + i] = row[i];
      if (!norm) continue;
      rows[r * k + i] = (row[i] - mean) / std::sqrt(variance + double{p.before.epsilon}) * scale[i];
      if (p.before.bias != nullptr) rows[r * k + i] += offset[i];
    }
  }
  // What rounding x may come to on the other side of a tie, where it was normalized before.
  std::vector<double> slack(m * k, 0.0);
  if (IsInteger(p.type) && p.row_type != RowType::kFloat32) {
    for (size_t r = 0; r < m; ++r) {
      test::RoundRow(rows.data() + r * k, k, static_cast<size_t>(p.group),
                     p.row_type == RowType::kInt8 ? 127.0f : 32639.0f,
                     norm ? 1e-6 * (1 + steepness[r]) : 0, slack.data() + r * k);
    }
  }

  linear::Run(p, workspace.data(), runner, c.tuning);
  EXPECT_TRUE(y.Untouched()) << "a write outside y";
  EXPECT_TRUE(workspace.Untouched()) << "a write outside the workspace";

  for (size_t r = 0; r < m * parts; ++r) {
    for (size_t j = width; j < ys; ++j) {
      EXPECT_TRUE(std::isnan(p.y[r * ys + j])) << "a write between rows of y";
    }
  }
  const size_t made = width * parts;  // numbers of a row
  std::vector<float> out(m * made);
  std::vector<double> needed(n), bound(n);
  for (size_t r = 0; r < m; ++r) {
    for (size_t j = 0; j < made; ++j) {
      out[r * made + j] = p.y[(j / width * m + r) * ys + j % width];
    }
    for (size_t j = 0; j < n; ++j) {
      double sum = c.bias ? bias[j] : 0, size = std::abs(sum), ties = 0;
      for (size_t i = 0; i < k && check; ++i) {
        const double term = rows[r * k + i] * w[p.transposed ? j * k + i : i * n + j];
        sum += term;
        size += std::abs(term);
        ties += slack[r * k + i] * std::abs(w[p.transposed ? j * k + i : i * n + j]);
        if (norm) {
          size += steepness[r] * std::abs(scale[i] * w[p.transposed ? j * k + i : i * n + j]);
        }
      }
      size += std::abs(sum) * 1e-1;  // the activation's own rounding
      if (!p.gated || j < width) sum = Activate(p.activation, sum);
      if (p.residual != nullptr) {
        sum += residual[r * (n + 3) + j];
        size += std::abs(residual[r * (n + 3) + j]);
      }
      // Sums run over short stretches and their sums: far below the worst case of K roundings.
      needed[j] = sum;
      bound[j] = 1e-6 * size + 1.2 * ties + 1e-30;
    }
    if (!check) continue;
    if (after) NormalizeRow(p.after, needed, bound);
    for (size_t j = 0; j < width && p.gated; ++j) {
      bound[j] = bound[j] * (std::abs(needed[j + width]) + bound[j + width]) +
                 bound[j + width] * std::abs(needed[j]);
      needed[j] *= needed[j + width];
    }
    for (size_t j = 0; j < made; ++j) {
      const float got = out[r * made + j];
      if (!(std::abs(got - needed[j]) <= bound[j])) {
        ADD_FAILURE() << "y[" << r << "][" << j << "] is " << got << ", needed is " << needed[j];
        return out;
      }
    }
  }
  return out;
}

std::string Describe(const Case& c) {
  const Problem& p = c.problem;
  return ::testing::PrintToString(std::vector<int64_t>{p.rows,
                                                       p.depth,
                                                       p.columns,
                                                       p.x_stride,
                                                       p.y_stride,
                                                       p.transposed,
                                                       p.panels,
                                                       static_cast<int64_t>(p.activation),
                                                       static_cast<int64_t>(c.tuning.isa),
                                                       c.tuning.blocked_rows,
                                                       c.tuning.panel,
                                                       c.tuning.splits,
                                                       static_cast<int64_t>(p.type),
                                                       p.group,
                                                       static_cast<int64_t>(p.row_type),
                                                       c.tuning.no_dots,
                                                       c.wide_scales,
                                                       c.zeros,
                                                       p.gated,
                                                       p.parts,
                                                       static_cast<int64_t>(c.weight_shift),
                                                       c.bias,
                                                       c.threads}) +
         " of rows, depth, columns, strides, transposed, panels, activation, isa, tuning, type, "
         "group, type of rows, no dots, wide scales, zeros, gated, parts, shift, bias, "
         "threads; seed " +
         std::to_string(c.seed);
}

Case Random(uint64_t seed, const std::vector<Isa>& isas) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Case c;
  c.seed = seed;
  Problem& p = c.problem;
  p.rows = pick(1, 60);
  p.depth = pick(0, 3) == 0 ? pick(0, 900) : pick(1, 150);
  p.columns = pick(0, 3) == 0 ? pick(1, 700) : pick(1, 150);
  if (pick(0, 19) == 0) p.rows = pick(41, 300);
  p.x_stride = p.depth + (pick(0, 1) == 0 ? 0 : pick(0, 40));
  p.y_stride = p.columns + (pick(0, 1) == 0 ? 0 : pick(0, 40));
  p.transposed = pick(0, 1) == 1;
  p.panels = pick(0, 1) == 0;
  if (p.panels) p.activation = static_cast<Activation>(pick(0, 5));
  if (p.panels && pick(0, 4) == 0) {
    p.parts = pick(2, kMaxParts);
    p.columns = pick(1, 8) * p.parts * kPanelColumns;
    p.y_stride = p.columns / p.parts + pick(0, 3);
  } else if (p.panels && pick(0, 4) == 0) {
    p.gated = true;
    p.columns = pick(1, 8) * 2 * kPanelColumns;
    p.y_stride = p.columns / 2 + pick(0, 3);
  }
  if (p.panels && pick(0, 2) != 0) {
    p.type = static_cast<WeightType>(pick(1, 3));
    p.group = int64_t{32} << pick(0, 2);
    p.row_type = static_cast<RowType>(pick(0, 2));
    c.tuning.no_dots = pick(0, 1) == 0;
    c.wide_scales = IsInteger(p.type) && seed % 3 == 0;
    c.zeros = IsInteger(p.type) && seed % 7 < 4;
    c.other_zeros = seed % 7 < 2;
  }
  c.bias = pick(0, 1) == 1;
  c.weight_shift = pick(0, 2) == 0 ? static_cast<size_t>(pick(1, 3)) : 0;
  c.threads = static_cast<int>(pick(1, 4));
  c.tuning.isa = isas[static_cast<size_t>(pick(0, static_cast<int64_t>(isas.size()) - 1))];
  if (pick(0, 1) == 0) c.tuning.blocked_rows = pick(1, 41);
  if (pick(0, 1) == 0) c.tuning.panel = pick(1, 300);
  if (pick(0, 1) == 0) c.tuning.splits = pick(1, 9);
  return c;
}

std::vector<Isa> Supported() {
  std::vector<Isa> list;
  for (const Isa isa : kIsas) {
    if (Supports(isa)) list.push_back(isa);
  }
  return list;
}

TEST(Linear, RandomProblems) {
  const int count = graft::testing::ProblemCount(12000);
  const std::vector<Isa> isas = Supported();
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3), ThreadPool(4)};
  for (int i = 0; i < count; ++i) {
    const Case c = Random(static_cast<uint64_t>(i) + 1, isas);
    Compute(c, pools[c.threads - 1], true);
    if (HasFailure()) FAIL() << Describe(c);
  }
}

TEST(Linear, EveryPathOfEveryInstructionSet) {
  ThreadPool pool(2);
  for (const Isa isa : Supported()) {
    for (int64_t rows = 1; rows <= 34; ++rows) {
      for (const int layout : {0, 1, 2}) {
        const bool transposed = layout == 1;
        Case c;
        c.tuning.isa = isa;
        c.threads = 2;
        c.problem = {rows,       531,         413,     nullptr, 531, nullptr,
                     transposed, layout == 2, nullptr, nullptr, 413};
        c.bias = rows % 2 == 0;
        c.seed = static_cast<uint64_t>(rows);
        Compute(c, pool, true);
        if (HasFailure()) FAIL() << Describe(c);
      }
    }
  }
}

TEST(Linear, SumsDoNotDependOnWhichThreadDidWhat) {
  ThreadPool pool(4);
  for (const int layout : {0, 1, 2}) {
    const bool transposed = layout == 1;
    for (const int64_t rows : {1, 4, 16, 40}) {
      Case c;
      c.threads = 4;
      c.problem = {rows,       700,         500,     nullptr, 700, nullptr,
                   transposed, layout == 2, nullptr, nullptr, 500};
      c.bias = true;
      c.seed = 7;
      c.tuning.splits = 5;
      const std::vector<float> first = Compute(c, pool, true);
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(first, Compute(c, pool, false)) << Describe(c);
      }
    }
  }
}

TEST(Linear, NothingIsComputedWhereThereIsNothing) {
  ThreadPool pool(2);
  for (const int64_t rows : {0, 3, 40}) {
    for (const int64_t depth : {0, 5}) {
      for (const int64_t columns : {0, 7}) {
        Case c;
        c.problem = {rows,  depth, columns, nullptr, depth,  nullptr,
                     false, false, nullptr, nullptr, columns};
        c.bias = true;
        Compute(c, pool, true);
      }
    }
  }
}

TEST(Linear, InfinitiesAndNaNsArePassedOn) {
  ThreadPool pool(1);
  constexpr int64_t kDepth = 40, kColumns = 50;
  for (const int64_t rows : {int64_t{2}, int64_t{40}}) {
    std::vector<float> x(static_cast<size_t>(rows * kDepth), 1.0f), w(kDepth * kColumns, 1.0f);
    std::vector<float> y(static_cast<size_t>(rows * kColumns));
    x[3] = std::numeric_limits<float>::infinity();
    w[5 * kColumns + 11] = kPoison;
    Problem p = {rows,  kDepth, kColumns, x.data(), kDepth,  w.data(),
                 false, false,  nullptr,  y.data(), kColumns};
    std::vector<char> workspace(WorkspaceSize(p, 1));
    linear::Run(p, workspace.data(), Runner());
    EXPECT_TRUE(std::isinf(y[0]));
    EXPECT_TRUE(std::isnan(y[11]));
    EXPECT_EQ(y[static_cast<size_t>(kColumns)], static_cast<float>(kDepth));
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(kColumns) + 11]));
  }
}

}  // namespace
}  // namespace linear
}  // namespace graft
