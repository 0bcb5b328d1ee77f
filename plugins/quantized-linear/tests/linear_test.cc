// The kernel against 64-bit sums and floats that are rounded one step after the other: equal bits,
// on random sizes, both codes, all layouts, any number of threads. Outputs and workspace are
// poisoned, and bands around both must come back untouched.
#include "linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "dice.h"
#include "poison.h"
#include "thread_pool.h"

namespace graft {
namespace quantized {
namespace {

using ThreadPool = test::ThreadPool<Runner>;
using testing::Dice;

constexpr size_t kBand = 64;
constexpr unsigned char kMark = 0xA7;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Code kCodes[] = {Code::kPortable, Code::kVnni};

// Bytes with a band of marks on either side, full of NaN, at any alignment of four bytes.
class Guarded {
 public:
  Guarded(size_t bytes, size_t shift) : bytes_(bytes), shift_(shift) {
    memory_.assign(bytes + 2 * kBand + shift, kMark);
    for (size_t i = 0; i + sizeof kNan <= bytes; i += sizeof kNan) {
      std::memcpy(data() + i, &kNan, sizeof kNan);
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

struct Matrix {
  int64_t columns = 1;
  bool is_signed = true, zeros = false, bias = true;
  Layout layout = Layout::kRows;
};

struct Case {
  int64_t rows = 1, depth = 1;
  int64_t heads = 0, positions = 1;
  Layout x_layout = Layout::kRows;
  bool integers = false;  // x is rounded already
  std::vector<Matrix> matrices = {Matrix()};
  int threads = 1;
  uint32_t seed = 0;

  std::string Text() const {
    std::string text = std::to_string(rows) + " x " + std::to_string(depth) + ", x_layout " +
                       std::to_string(static_cast<int>(x_layout)) + ", heads " +
                       std::to_string(heads) + ", positions " + std::to_string(positions) +
                       (integers ? ", integers" : "");
    for (const Matrix& m : matrices) {
      text += "; " + std::to_string(m.columns) + (m.is_signed ? "" : " unsigned") +
              (m.zeros ? " zeros" : "") + (m.bias ? " bias" : "") + " layout " +
              std::to_string(static_cast<int>(m.layout));
    }
    return text + "; threads " + std::to_string(threads) + ", seed " + std::to_string(seed);
  }
};

// DynamicQuantizeLinear of ONNX in plain floats.
struct Rounding {
  float scale = 1;
  int zero = 0;

  explicit Rounding(const std::vector<float>& x) {
    volatile float least = 0, greatest = 0;
    for (const float v : x) {
      if (v < least) least = v;
      if (v > greatest) greatest = v;
    }
    volatile float range = greatest - least;
    if (greatest != least) scale = range / 255.0f;
    const volatile float quotient = least / scale;
    const volatile float at = 0.0f - quotient;
    zero = std::isnan(at) ? 255
                          : static_cast<int>(std::nearbyint(std::clamp(float{at}, 0.0f, 255.0f)));
  }

  uint8_t Of(float x) const {
    const volatile float quotient = x / scale;
    if (std::isnan(quotient)) return 0;
    const double whole = std::nearbyint(double{quotient}) + zero;
    return static_cast<uint8_t>(std::clamp(whole, 0.0, 255.0));
  }
};

// Where element (row, column) of rows of `columns` lies.
size_t At(Layout layout, int64_t heads, int64_t positions, int64_t columns, int64_t row,
          int64_t column) {
  if (layout == Layout::kRows) return static_cast<size_t>(row * columns + column);
  const int64_t size = columns / heads, head = column / size, at = column % size;
  const int64_t first = (row / positions * heads + head) * positions * size,
                position = row % positions;
  return static_cast<size_t>(
      first + (layout == Layout::kHeads ? position * size + at : at * positions + position));
}

// Runs a case on these numbers, of rows in order.
void Check(const Case& c, const std::vector<float>& numbers) {
  SCOPED_TRACE(c.Text());
  Dice dice(c.seed);
  const Rounding rounding(numbers);
  const auto count = static_cast<size_t>(c.rows * c.depth);
  std::vector<float> x(count);
  std::vector<uint8_t> rounded(count), integers(count);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t k = 0; k < c.depth; ++k) {
      const auto i = static_cast<size_t>(r * c.depth + k);
      x[At(c.x_layout, c.heads, c.positions, c.depth, r, k)] = numbers[i];
      rounded[i] = rounding.Of(numbers[i]);
      integers[i] = c.integers ? static_cast<uint8_t>(dice.Between(0, 255)) : rounded[i];
    }
  }
  const uint8_t zero =
      c.integers ? static_cast<uint8_t>(dice.Between(0, 255)) : static_cast<uint8_t>(rounding.zero);
  const float scale = c.integers ? 0.037f : rounding.scale;

  struct Made {
    std::vector<uint8_t> weight;
    std::vector<int8_t> panels;
    std::vector<int32_t> sums, zeros;
    std::vector<float> scales, bias, want;
  };
  std::vector<Made> made(c.matrices.size());
  for (size_t m = 0; m < made.size(); ++m) {
    const Matrix& of = c.matrices[m];
    Made& to = made[m];
    const auto n = static_cast<size_t>(of.columns),
               whole = static_cast<size_t>(PackedColumns(of.columns));
    to.weight.resize(static_cast<size_t>(c.depth) * n);
    for (uint8_t& w : to.weight) w = static_cast<uint8_t>(dice.Between(0, 255));
    to.panels.assign(PackedBytes(c.depth, of.columns), 77);
    to.sums.assign(whole, 77);
    Pack(to.weight.data(), of.is_signed, c.depth, of.columns, to.panels.data(), to.sums.data());
    to.scales.assign(whole, 0.0f);
    to.bias.assign(whole, 0.0f);
    to.zeros.assign(whole, 0);
    for (size_t j = 0; j < n; ++j) {
      to.scales[j] = static_cast<float>(dice.Real(1e-4, 1e-2));
      to.bias[j] = dice.Float(3);
      to.zeros[j] = of.zeros       ? static_cast<int32_t>(dice.Between(-128, 127))
                    : of.is_signed ? 0
                                   : -128;
    }
    to.want.resize(static_cast<size_t>(c.rows) * n);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t j = 0; j < of.columns; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < c.depth; ++k) {
          const uint8_t byte = to.weight[static_cast<size_t>(k * of.columns + j)];
          const int64_t w = of.is_signed ? int64_t{static_cast<int8_t>(byte)} : int64_t{byte} - 128;
          sum += (int64_t{integers[static_cast<size_t>(r * c.depth + k)]} - zero) *
                 (w - to.zeros[static_cast<size_t>(j)]);
        }
        const volatile float factor = scale * to.scales[static_cast<size_t>(j)];
        volatile float y = static_cast<float>(static_cast<int32_t>(sum)) * factor;
        if (of.bias) y = y + to.bias[static_cast<size_t>(j)];
        to.want[At(of.layout, c.heads, c.positions, of.columns, r, j)] = y;
      }
    }
  }

  ThreadPool pool(c.threads);
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    Problem p;
    p.rows = c.rows;
    p.depth = c.depth;
    p.heads = c.heads;
    p.positions = c.positions;
    p.x_layout = c.x_layout;
    if (c.integers) {
      p.integers = integers.data();
      p.scale = scale;
      p.zero = zero;
    } else {
      p.x = x.data();
    }
    std::vector<Guarded> y;
    y.reserve(made.size());
    for (size_t m = 0; m < made.size(); ++m) {
      const Matrix& of = c.matrices[m];
      Weight& w = p.weights[p.weight_count++];
      y.emplace_back(made[m].want.size() * sizeof(float), 4 * (c.seed % 5));
      w.columns = of.columns;
      w.panels = made[m].panels.data();
      w.sums = made[m].sums.data();
      w.zeros = of.zeros || !of.is_signed ? made[m].zeros.data() : nullptr;
      w.scales = made[m].scales.data();
      w.bias = of.bias ? made[m].bias.data() : nullptr;
      w.layout = of.layout;
      w.y = reinterpret_cast<float*>(y.back().data());
    }
    const Runner runner = pool.runner();
    Guarded workspace(WorkspaceSize(p, runner.threads), c.seed % 64);
    ASSERT_TRUE(Run(p, workspace.data(), runner, code));
    EXPECT_TRUE(workspace.Untouched()) << "a write outside the workspace";
    for (size_t m = 0; m < made.size(); ++m) {
      EXPECT_TRUE(y[m].Untouched()) << "a write outside y";
      const std::vector<float>& want = made[m].want;
      for (size_t i = 0; i < want.size(); ++i) {
        float got;
        std::memcpy(&got, y[m].data() + i * sizeof got, sizeof got);
        const bool same = std::memcmp(&got, &want[i], sizeof got) == 0 ||
                          (std::isnan(got) && std::isnan(want[i]));
        ASSERT_TRUE(same) << "code " << static_cast<int>(code) << ", matrix " << m << ", element "
                          << i << ": " << got << ", want " << want[i];
      }
    }
  }
}

std::vector<float> Random(const Case& c, float most) {
  Dice dice(c.seed + 1000);
  std::vector<float> x;
  dice.Fill(x, c.rows * c.depth, most);
  return x;
}

void Check(const Case& c) { Check(c, Random(c, 3.0f)); }

// Layouts of a matrix whose columns are heads.
Layout AnyLayout(Dice* dice) { return static_cast<Layout>(dice->Between(0, 2)); }

TEST(QuantizedLinear, RandomProblems) {
  constexpr int64_t kDepths[] = {1, 3, 4, 5, 16, 31, 64, 100}, kSizes[] = {1, 5, 8, 16, 24, 32, 48};
  constexpr int64_t kHeads[] = {1, 2, 3, 5}, kPositions[] = {1, 2, 7, 8, 9, 16, 40};
  const int problems = testing::ProblemCount(10000);
  for (int i = 0; i < problems; ++i) {
    Dice dice(static_cast<uint32_t>(i));
    Case c;
    c.seed = static_cast<uint32_t>(i);
    c.threads = static_cast<int>(dice.Between(1, 4));
    c.integers = dice.Chance(25);
    c.depth = dice.Pick(kDepths);
    c.rows = dice.Between(1, 70);
    if (dice.Chance(60)) {
      c.heads = dice.Pick(kHeads);
      c.positions = dice.Pick(kPositions);
      c.rows = c.positions * dice.Between(1, 3);
      if (!c.integers && dice.Chance(40)) {
        c.x_layout = Layout::kHeads;
        c.depth = c.heads * dice.Pick(kSizes);
      }
    }
    c.matrices.resize(static_cast<size_t>(dice.Between(1, kMaxWeights)));
    for (Matrix& m : c.matrices) {
      m.is_signed = dice.Chance(60);
      m.zeros = dice.Chance(30);
      m.bias = dice.Chance(60);
      m.columns = dice.Between(1, 150);
      if (c.heads > 0 && dice.Chance(70)) {
        m.layout = AnyLayout(&dice);
        m.columns = c.heads * dice.Pick(kSizes);
      }
    }
    Check(c);
    if (HasFatalFailure()) return;
  }
}

// Sizes of encoders: tasks, row blocks and shares of panels.
TEST(QuantizedLinear, SizesOfEncoders) {
  struct Size {
    int64_t rows, depth, columns;
  };
  for (const Size& s :
       {Size{130, 384, 384}, Size{64, 384, 1536}, Size{33, 1536, 384}, Size{1, 768, 3072}}) {
    for (const int threads : {1, 3}) {
      Case c;
      c.rows = s.rows;
      c.depth = s.depth;
      c.matrices[0].columns = s.columns;
      c.threads = threads;
      Check(c);
    }
  }
}

TEST(QuantizedLinear, NumbersThatAreRoundedInSpecialWays) {
  struct Row {
    const char* name;
    std::vector<float> x;
  };
  const float tiny = std::numeric_limits<float>::denorm_min(),
              big = std::numeric_limits<float>::max();
  for (const Row& row : std::vector<Row>{
           {"zeros", {0, 0, 0, 0, 0, 0}},
           {"negative zeros", {-0.0f, 0, -0.0f, 0, -0.0f, 0}},
           {"all equal, above 0", {3, 3, 3, 3, 3, 3}},
           {"all equal, below 0", {-3, -3, -3, -3, -3, -3}},
           {"halves", {-127.5f, 127.5f, 0.5f, 1.5f, -0.5f, -1.5f}},
           {"the smallest", {tiny, -tiny, 2 * tiny, 0, 3 * tiny, -5 * tiny}},
           {"below the smallest normal", {1e-40f, -1e-39f, 3e-40f, 0, 1e-41f, 5e-40f}},
           {"the largest", {big, 0, big / 2, 1, big / 3, 2}},
           {"a range that overflows", {big, -big, 1, 0, 2, 3}},
           {"infinity", {kInfinity, 1, 2, 3, -1, 0}},
           {"minus infinity", {-kInfinity, 1, 2, 3, -1, 0}},
           {"both", {kInfinity, -kInfinity, 2, 3, -1, 0}},
       }) {
    SCOPED_TRACE(row.name);
    for (const int64_t repeat : {1, 17}) {  // alone, and in full vectors with a rest
      Case c;
      c.rows = 2;
      c.depth = 3 * repeat;
      c.matrices[0].columns = 20;
      std::vector<float> x;
      for (int64_t i = 0; i < repeat; ++i) x.insert(x.end(), row.x.begin(), row.x.end());
      Check(c, x);
    }
  }
}

// What becomes of NaN depends on where it stands: it is refused, wherever that is.
TEST(QuantizedLinear, RefusesNan) {
  constexpr int64_t kRows = 3, kDepth = 41;
  const std::vector<uint8_t> weight(kDepth, 1);
  std::vector<int8_t> panels(PackedBytes(kDepth, 1));
  std::vector<int32_t> sums(static_cast<size_t>(PackedColumns(1)));
  Pack(weight.data(), true, kDepth, 1, panels.data(), sums.data());
  const std::vector<float> scales(sums.size(), 1.0f);
  for (const Code code : kCodes) {
    if (!Supports(code)) continue;
    for (size_t at = 0; at < kRows * kDepth; ++at) {
      std::vector<float> x(kRows * kDepth, 1.0f), y(kRows);
      x[at] = kNan;
      Problem p;
      p.rows = kRows;
      p.depth = kDepth;
      p.x = x.data();
      p.weight_count = 1;
      p.weights[0].columns = 1;
      p.weights[0].panels = panels.data();
      p.weights[0].sums = sums.data();
      p.weights[0].scales = scales.data();
      p.weights[0].y = y.data();
      std::vector<char> workspace(WorkspaceSize(p, 1));
      EXPECT_FALSE(quantized::Run(p, workspace.data(), Runner(), code)) << at;
    }
  }
}

TEST(QuantizedLinear, NothingToDo) {
  for (const int64_t rows : {0, 2}) {
    for (const int64_t depth : {0, 3}) {
      for (const int64_t columns : {0, 3}) {
        Case c;
        c.rows = rows;
        c.depth = depth;
        c.matrices[0].columns = columns;
        Check(c);
      }
    }
  }
}

}  // namespace
}  // namespace quantized
}  // namespace graft
