// What a matmul takes in, and attention: both codes have equal bits, which are near what float64
// gives. Outputs and workspace are poisoned, and bands around both must come back untouched. That
// the bits are ONNX Runtime's is tested where that is loaded (tests/quantized,
// host/session/sessions).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "attention.h"
#include "dice.h"
#include "linear.h"
#include "poison.h"
#include "thread_pool.h"

namespace graft {
namespace quantized {
namespace {

using ThreadPool = test::ThreadPool<Runner>;
using testing::Dice;

constexpr size_t kBand = 16;
constexpr float kMark = 12345.0f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Code kCodes[] = {Code::kPortable, Code::kVnni};

// Floats full of NaN between bands of marks.
class Guarded {
 public:
  explicit Guarded(size_t count) : count_(count), memory_(count + 2 * kBand, kMark) {
    std::fill_n(data(), count, kNan);
  }
  float* data() { return memory_.data() + kBand; }
  bool Untouched() const {
    const auto is_mark = [](float f) { return f == kMark; };
    return std::all_of(memory_.begin(), memory_.begin() + kBand, is_mark) &&
           std::all_of(memory_.end() - kBand, memory_.end(), is_mark);
  }
  std::vector<float> Values() { return {data(), data() + count_}; }

 private:
  size_t count_;
  std::vector<float> memory_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(double{got[i]}, want[i], tolerance * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// A matmul of integers with or without what follows it.
struct Linear {
  int64_t rows, depth, columns;
  bool gelu, norm;
  int threads;
};

void Check(const Linear& c, uint32_t seed) {
  SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.depth) + " x " +
               std::to_string(c.columns) + (c.gelu ? ", gelu" : "") + (c.norm ? ", norm" : "") +
               ", threads " + std::to_string(c.threads));
  Dice dice(seed);
  const auto n = static_cast<size_t>(c.columns),
             whole = static_cast<size_t>(PackedColumns(c.columns)),
             count = static_cast<size_t>(c.rows) * n;
  std::vector<uint8_t> x(static_cast<size_t>(c.rows * c.depth)),
      weight(static_cast<size_t>(c.depth) * n);
  for (uint8_t& v : x) v = static_cast<uint8_t>(dice.Between(0, 255));
  for (uint8_t& v : weight) v = static_cast<uint8_t>(dice.Between(0, 255));
  std::vector<int8_t> panels(PackedBytes(c.depth, c.columns));
  std::vector<int32_t> sums(whole);
  Pack(weight.data(), true, c.depth, c.columns, panels.data(), sums.data());
  std::vector<float> scales(whole), bias(whole), residual, factors, summands;
  for (float& f : scales) f = static_cast<float>(dice.Real(1e-5, 1e-4));
  for (float& f : bias) f = dice.Float(3);
  dice.Fill(residual, c.rows * c.columns, 2.0f);
  dice.Fill(factors, c.columns, 2.0f);
  dice.Fill(summands, c.columns, 2.0f);
  constexpr float kScale = 0.5f, kEpsilon = 1e-5f;
  constexpr uint8_t kZero = 117;

  std::vector<double> want(count);
  for (int64_t r = 0; r < c.rows; ++r) {
    double* row = want.data() + r * c.columns;
    for (int64_t j = 0; j < c.columns; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.depth; ++k) {
        sum += (int64_t{x[static_cast<size_t>(r * c.depth + k)]} - kZero) *
               static_cast<int8_t>(weight[static_cast<size_t>(k * c.columns + j)]);
      }
      const auto at = static_cast<size_t>(j);
      row[j] = static_cast<double>(sum) * kScale * scales[at] + bias[at];
      if (c.gelu) row[j] = Gelu(row[j]);
    }
    if (!c.norm) continue;
    double mean = 0, square = 0;
    for (int64_t j = 0; j < c.columns; ++j) {
      row[j] += residual[static_cast<size_t>(r * c.columns + j)];
      mean += row[j] / static_cast<double>(c.columns);
    }
    for (int64_t j = 0; j < c.columns; ++j) {
      row[j] -= mean;
      square += row[j] * row[j] / static_cast<double>(c.columns);
    }
    for (int64_t j = 0; j < c.columns; ++j) {
      const auto at = static_cast<size_t>(j);
      row[j] = row[j] / std::sqrt(square + double{kEpsilon}) * factors[at] + summands[at];
    }
  }

  ThreadPool pool(c.threads);
  std::vector<float> first;
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    Guarded y(count);
    Problem p;
    p.rows = c.rows;
    p.depth = c.depth;
    p.integers = x.data();
    p.scale = kScale;
    p.zero = kZero;
    p.weight_count = 1;
    Weight& w = p.weights[0];
    w.columns = c.columns;
    w.panels = panels.data();
    w.sums = sums.data();
    w.scales = scales.data();
    w.bias = bias.data();
    w.gelu = c.gelu;
    w.y = y.data();
    if (c.norm) p.norm = {true, residual.data(), factors.data(), summands.data(), kEpsilon};
    Range range{kNan, kNan, kNan};
    p.y_range_wanted = true;
    p.y_range = &range;
    const Runner runner = pool.runner();
    Guarded workspace(WorkspaceSize(p, runner.threads) / sizeof(float) + 1);
    ASSERT_TRUE(Run(p, workspace.data(), runner, code));
    EXPECT_TRUE(y.Untouched() && workspace.Untouched());
    ExpectNear(y.Values(), want, 2e-5);
    const std::vector<float> got = y.Values();
    EXPECT_EQ(range.least, std::min(0.0f, *std::min_element(got.begin(), got.end())));
    EXPECT_EQ(range.greatest, std::max(0.0f, *std::max_element(got.begin(), got.end())));
    EXPECT_EQ(range.numbers, 1.0f);
    if (code == kCodes[0]) first = y.Values();
    EXPECT_TRUE(SameBits(y.Values(), first)) << "code " << static_cast<int>(code);
  }
}

TEST(TakenIn, GeluAndNormalisation) {
  uint32_t seed = 0;
  for (const int64_t rows : {1, 3, 8, 70, 131}) {
    for (const int64_t columns : {16, 48, 64, 384}) {
      for (const int threads : {1, 4}) {
        Check({rows, 37, columns, true, false, threads}, ++seed);
        Check({rows, 64, columns, false, true, threads}, ++seed);
      }
    }
  }
  Check({5, 9, 21, true, false, 1}, ++seed);
}

// Of every sign and size, up to where an error function is 1 and what is infinite.
TEST(TakenIn, GeluOfAllNumbers) {
  std::vector<float> numbers = {
      0.0f,    -0.0f, 1e-40f, -1e-40f, 1e-30f, 0.921875f, 1.3037f,
      1.3038f, 5.55f, -5.55f, 5.551f,  1e30f,  -1e30f,    std::numeric_limits<float>::infinity()};
  for (float x = -9.0f; x < 9.0f; x += 0.01f) numbers.push_back(x);
  const auto columns = static_cast<int64_t>(numbers.size());
  std::vector<int8_t> panels(PackedBytes(1, columns));
  const auto whole = static_cast<size_t>(PackedColumns(columns));
  std::vector<int32_t> sums(whole);
  const std::vector<uint8_t> weight(numbers.size(), 0);
  Pack(weight.data(), true, 1, columns, panels.data(), sums.data());
  const std::vector<float> scales(whole, 1.0f);
  const uint8_t x = 3;
  std::vector<float> first;
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    Problem p;
    p.rows = p.depth = 1;
    p.integers = &x;
    p.scale = 1;
    p.weight_count = 1;
    Guarded y(numbers.size());
    Weight& w = p.weights[0];
    w.columns = columns;
    w.panels = panels.data();
    w.sums = sums.data();
    w.scales = scales.data();
    w.bias = numbers.data();
    w.gelu = true;
    w.y = y.data();
    std::vector<char> workspace(WorkspaceSize(p, 1));
    ASSERT_TRUE(quantized::Run(p, workspace.data(), Runner(), code));
    const std::vector<float> got = y.Values();
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isinf(numbers[i])) {
        EXPECT_EQ(got[i], numbers[i]);
      } else {
        EXPECT_NEAR(double{got[i]}, Gelu(numbers[i]), 1e-6 * (1 + std::fabs(numbers[i])))
            << numbers[i];
      }
    }
    if (code == kCodes[0]) first = got;
    EXPECT_TRUE(SameBits(got, first));
  }
}

// x is rounded by the range that is given, and refused where that says NaN; a y with NaN says so.
TEST(TakenIn, RangesAreHandedOn) {
  constexpr int64_t kColumns = 20;
  const std::vector<uint8_t> weight(kColumns, 1);
  std::vector<int8_t> panels(PackedBytes(1, kColumns));
  const auto whole = static_cast<size_t>(PackedColumns(kColumns));
  std::vector<int32_t> sums(whole);
  Pack(weight.data(), true, 1, kColumns, panels.data(), sums.data());
  const std::vector<float> scales(whole, 1.0f), x = {7.0f};
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    for (const float numbers : {0.0f, 1.0f}) {
      for (const bool nan : {false, true}) {
        std::vector<float> bias(whole, 0.0f);
        if (nan) bias[kColumns - 1] = kNan;
        const Range x_range{0.0f, 510.0f, numbers};  // a scale of 2: 7 is rounded to 4 twos
        Range y_range;
        Guarded y(kColumns);
        Problem p;
        p.rows = p.depth = 1;
        p.x = x.data();
        p.x_range_known = p.y_range_wanted = true;
        p.x_range = &x_range;
        p.y_range = &y_range;
        p.weight_count = 1;
        Weight& w = p.weights[0];
        w.columns = kColumns;
        w.panels = panels.data();
        w.sums = sums.data();
        w.scales = scales.data();
        w.bias = bias.data();
        w.y = y.data();
        std::vector<char> workspace(WorkspaceSize(p, 1));
        EXPECT_EQ(quantized::Run(p, workspace.data(), Runner(), code), numbers != 0);
        if (numbers == 0) continue;
        EXPECT_EQ(y.Values()[0], 8.0f);
        if (!nan) {
          EXPECT_EQ(y_range.greatest, 8.0f);
        }
        EXPECT_EQ(y_range.numbers, nan ? 0.0f : 1.0f);
      }
    }
  }
}

struct AttentionCase {
  int64_t batch, heads, queries, keys, size, values;
  int mask;  // 0: none, 1: of keys, 2: of one head for all, 3: of every score, 4: one number a row
  int threads;
};

void Check(const AttentionCase& c, uint32_t seed) {
  SCOPED_TRACE(std::to_string(c.batch) + " x " + std::to_string(c.heads) + " x " +
               std::to_string(c.queries) + " x " + std::to_string(c.keys) + " of " +
               std::to_string(c.size) + " and " + std::to_string(c.values) + ", mask " +
               std::to_string(c.mask) + ", threads " + std::to_string(c.threads));
  Dice dice(seed);
  Attention p;
  p.batch = c.batch;
  p.heads = c.heads;
  p.queries = c.queries;
  p.keys = c.keys;
  p.size = c.size;
  p.values = c.values;
  p.scale = 0.3f;
  const int64_t all = c.batch * c.heads;
  std::vector<float> q, k, v, mask;
  dice.Fill(q, all * c.queries * c.size, 1.0f);
  dice.Fill(k, all * c.size * c.keys, 1.0f);
  dice.Fill(v, all * c.keys * c.values, 1.0f);
  dice.Fill(mask, all * c.queries * c.keys, 3.0f);
  for (float& f : mask) {
    if (dice.Chance(10)) f = std::numeric_limits<float>::lowest();
  }
  p.q = q.data();
  p.k = k.data();
  p.v = v.data();
  const int64_t strides[][4] = {{},
                                {c.keys, 0, 0, 1},
                                {c.queries * c.keys, 0, c.keys, 1},
                                {c.heads * c.queries * c.keys, c.queries * c.keys, c.keys, 1},
                                {c.heads * c.queries, c.queries, 1, 0}};
  if (c.mask != 0) p.mask = mask.data();
  std::copy_n(strides[c.mask], 4, p.mask_strides);

  std::vector<double> want;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t head = b * c.heads + h;
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> weights;
        for (int64_t j = 0; j < c.keys; ++j) {
          double score = 0;
          for (int64_t d = 0; d < c.size; ++d) {
            score += double{p.q[(head * c.queries + i) * c.size + d]} *
                     p.k[(head * c.size + d) * c.keys + j];
          }
          const int64_t* s = p.mask_strides;
          const double plus =
              p.mask == nullptr ? 0.0 : p.mask[b * s[0] + h * s[1] + i * s[2] + j * s[3]];
          weights.push_back(score * p.scale + plus);
        }
        const double greatest = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& w : weights) sum += w = std::exp(w - greatest);
        for (int64_t d = 0; d < c.values; ++d) {
          double y = 0;
          for (int64_t j = 0; j < c.keys; ++j) {
            y += weights[static_cast<size_t>(j)] / sum * p.v[(head * c.keys + j) * c.values + d];
          }
          want.push_back(y);
        }
      }
    }
  }

  ThreadPool pool(c.threads);
  std::vector<float> first;
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    Guarded y(want.size());
    p.y = y.data();
    const Runner runner = pool.runner();
    Guarded workspace(AttentionWorkspace(p, runner.threads) / sizeof(float) + 1);
    ASSERT_TRUE(Attend(p, workspace.data(), runner, code));
    EXPECT_TRUE(y.Untouched() && workspace.Untouched());
    // A row of masks that are all the lowest number rounds scores away, in float32 alone.
    if (c.mask != 4) ExpectNear(y.Values(), want, 2e-5);
    if (code == kCodes[0]) first = y.Values();
    EXPECT_TRUE(SameBits(y.Values(), first)) << "code " << static_cast<int>(code);
  }
}

TEST(NodewiseAttention, RandomProblems) {
  constexpr int64_t kLengths[] = {1, 2, 7, 8, 16, 17, 33, 48, 65, 130, 300},
                    kSizes[] = {1, 8, 16, 20, 32, 64, 80};
  const int problems = testing::ProblemCount(1000);
  for (int i = 0; i < problems; ++i) {
    Dice dice(static_cast<uint32_t>(i));
    AttentionCase c{};
    c.batch = dice.Between(1, 3);
    c.heads = dice.Between(1, 3);
    c.queries = dice.Pick(kLengths);
    c.keys = dice.Pick(kLengths);
    c.size = dice.Pick(kSizes);
    c.values = dice.Pick(kSizes);
    c.mask = static_cast<int>(dice.Between(0, 4));
    c.threads = static_cast<int>(dice.Between(1, 4));
    Check(c, static_cast<uint32_t>(i));
    if (HasFatalFailure()) return;
  }
}

// Scores beyond numbers have no softmax: they are refused, in whatever row they stand.
TEST(NodewiseAttention, RefusesRowsWithoutSoftmax) {
  constexpr int64_t kRows = 11, kSize = 4;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    for (const float wrong : {kNan, kInfinity}) {
      for (size_t row = 0; row < kRows; ++row) {
        std::vector<float> q(kRows * kSize, 1.0f), k(kSize * kRows, 1.0f), v = q, y = q;
        q[row * kSize] = wrong;
        Attention p;
        p.batch = p.heads = 1;
        p.queries = p.keys = kRows;
        p.size = p.values = kSize;
        p.q = q.data();
        p.k = k.data();
        p.v = v.data();
        p.y = y.data();
        std::vector<char> workspace(AttentionWorkspace(p, 1));
        EXPECT_FALSE(Attend(p, workspace.data(), Runner(), code)) << row;
      }
    }
  }
}

// Where ONNX Runtime's products are cut: blocks get deeper where there are few columns.
TEST(NodewiseAttention, Chains) {
  struct Row {
    int64_t columns, depth, want;
  };
  for (const Row& r : {Row{128, 32, 128}, Row{32, 128, 512}, Row{64, 128, 256}, Row{16, 300, 1024},
                       Row{8, 300, 1024}, Row{100, 300, 128}, Row{300, 300, 128}}) {
    EXPECT_EQ(ChainOf(r.columns, r.depth), r.want) << r.columns << " columns, depth " << r.depth;
  }
}

}  // namespace
}  // namespace quantized
}  // namespace graft
