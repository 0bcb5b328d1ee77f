// Sequences without padding against the float64 reference of each, over random calls.
#include "sequences.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "poison.h"
#include "random_problem.h"
#include "reference.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

using graft::testing::ProblemCount;
using graft::testing::WithPoisonedWorkspace;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RandomSequences {
  Sequences call;
  Tuning tuning;
  int threads = 1;
  Tensor query, key, value, output, bias;
  std::vector<int32_t> offsets, first;
  std::vector<uint8_t> hidden;
  std::vector<bool> spoiled;  // [count]: the sequence holds nothing but NaN
  std::string description;
};

class Maker {
 public:
  Maker(uint32_t index, RandomSequences& made) : random_(index * 2654435761u + 7), made_(made) {}

  void Make() {
    Problem& p = made_.call.problem;
    p.type = Chance(0.3) ? Type::kFloat16 : Type::kFloat32;
    p.batch = 1;
    p.kv_heads = Pick(1, 4);
    p.heads = p.kv_heads * (Chance(0.6) ? 1 : Pick(2, 4));
    static const int64_t kSizes[] = {1, 8, 16, 20, 32, 32, 64, 64, 80, 96, 128};
    p.head_size = Chance(0.9) ? kSizes[Pick(0, 10)] : Pick(1, 150);
    p.value_size = Chance(0.8) ? p.head_size : kSizes[Pick(0, 10)];
    MakeLengths();
    // Long sequences have few numbers otherwise, so that the reference does not take minutes.
    if (longest_ > 150) p.heads = p.kv_heads = 1;
    if (p.heads * longest_ * longest_ > 10000) p.head_size = p.value_size = 16;
    p.scale = Chance(0.5) ? 0.0f : 0.1f + 0.4f * Uniform();
    p.softcap = Chance(0.1) ? 0.5f + 20.0f * Uniform() : 0.0f;
    p.causal = Chance(0.15);
    p.window = Chance(0.1) ? Pick(1, 40) : 0;
    if (Chance(0.3)) {
      const int64_t kSides[] = {-1, 0, Pick(1, 100), std::numeric_limits<int64_t>::max()};
      p.window_left = kSides[Pick(0, 3)];
      p.window_right = kSides[Pick(0, 3)];
    }
    p.zero_masked_rows = Chance(0.5);
    p.clear_nan = Chance(0.2);
    p.query = Fill(made_.query, p.heads, p.head_size);
    p.key = Fill(made_.key, p.kv_heads, p.head_size);
    p.value = Fill(made_.value, p.kv_heads, p.value_size);
    MakeOutput();
    if (Chance(0.4)) MakeHidden();
    if (Chance(0.3)) MakeBias();
    FillWindows();
    Spoil();
    MakeTuning();
    Describe();
  }

 private:
  float Uniform() { return std::uniform_real_distribution<float>(0.0f, 1.0f)(random_); }
  bool Chance(double probability) { return Uniform() < probability; }
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  int64_t ElementBytes() const { return made_.call.problem.type == Type::kFloat32 ? 4 : 2; }
  int64_t Length(int64_t b) const {
    return made_.offsets[static_cast<size_t>(b) + 1] - made_.offsets[static_cast<size_t>(b)];
  }

  void Set(Tensor& tensor, int64_t index, float value) {
    if (ElementBytes() == 4) {
      std::memcpy(tensor.data() + index * 4, &value, 4);
    } else {
      const uint16_t half = FloatToHalf(value);
      std::memcpy(tensor.data() + index * 2, &half, 2);
    }
  }

  void MakeLengths() {
    static const int64_t kLengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 100, 130};
    Sequences& s = made_.call;
    s.count = Chance(0.03) ? 0 : Pick(1, 5);
    made_.offsets.push_back(0);
    int64_t most = 0;
    for (int64_t b = 0; b < s.count; ++b) {
      const int64_t length = Chance(0.01) ? 512 : kLengths[Pick(0, Chance(0.3) ? 9 : 6)];
      most = std::max(most, length);
      made_.offsets.push_back(made_.offsets.back() + static_cast<int32_t>(length));
    }
    s.offsets = made_.offsets.data();
    s.problem.queries = s.problem.fresh = made_.offsets.back();
    longest_ = most;
  }

  // Heads before positions, or after; the feature innermost or not; gaps of NaN.
  Tensor Made(int64_t heads, int64_t features, int64_t order) {
    static const int kOrders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    const int64_t sizes[4] = {1, heads, made_.call.problem.fresh, features};
    return Tensor(ElementBytes(), sizes, kOrders[order], Chance(0.3) ? Pick(1, 9) : 0,
                  Chance(0.5) ? Pick(0, 15) : 0);
  }

  Input Fill(Tensor& tensor, int64_t heads, int64_t features) {
    tensor = Made(heads, features, Chance(0.1) ? 2 : Pick(0, 1));
    std::normal_distribution<float> normal(0.0f, 1.0f);
    tensor.ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
      Set(tensor, index, normal(random_));
    });
    return {tensor.data(), tensor.strides()};
  }

  void MakeOutput() {
    Problem& p = made_.call.problem;
    made_.output = Made(p.heads, p.value_size, Chance(0.1) ? 2 : Pick(0, 1));
    p.output.data = made_.output.data();
    p.output.strides = made_.output.strides();
  }

  void MakeHidden() {
    Problem& p = made_.call.problem;
    static const float kFills[] = {-kInfinity, -kInfinity, -1e4f, -3.0f,
                                   std::numeric_limits<float>::lowest()};
    p.mask_fill = kFills[Pick(0, 4)];
    p.mask_adds = Chance(0.5);
    p.mask_after_bias = Chance(0.5);
    made_.hidden.assign(static_cast<size_t>(p.fresh), 0);
    for (int64_t b = 0; b < made_.call.count; ++b) {
      // Padding at the ends of the sequence, holes, or both.
      const double share = Chance(0.6) ? 0.0 : Chance(0.2) ? 1.0 : 0.5 * Uniform();
      const int64_t length = Length(b);
      const int64_t begin = Chance(0.3) ? Pick(0, length) : 0;
      const int64_t end = Chance(0.5) ? Pick(begin, length) : length;
      for (int64_t i = 0; i < length; ++i) {
        const bool hides = i < begin || i >= end || Chance(share);
        made_.hidden[static_cast<size_t>(made_.offsets[static_cast<size_t>(b)] + i)] = hides;
      }
    }
    made_.call.hidden = made_.hidden.data();
  }

  void MakeBias() {
    Sequences& s = made_.call;
    const int64_t side = longest_ + Pick(0, 5);
    const int64_t sizes[4] = {Chance(0.5) ? s.count : 1, Chance(0.5) ? s.problem.heads : 1,
                              Chance(0.7) ? side : 1, Chance(0.9) ? side : 1};
    static const int kOrder[4] = {0, 1, 2, 3};
    made_.bias = Tensor(ElementBytes(), sizes, kOrder, Pick(0, 3), Pick(0, 3));
    const double share = Chance(0.5) ? 0.0 : 0.3 * Uniform();
    made_.bias.ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
      Set(made_.bias, index, Chance(share) ? -kInfinity : 2.0f * Uniform() - 1.0f);
    });
    Strides strides = made_.bias.strides();
    if (sizes[0] == 1) strides.batch = 0;
    if (sizes[1] == 1) strides.head = 0;
    if (sizes[2] == 1) strides.position = 0;
    if (sizes[3] == 1) strides.feature = 0;
    s.problem.bias = {made_.bias.data(), strides};
    s.bias_rows = sizes[2];
    s.bias_columns = sizes[3];
    if (Chance(0.3)) return;
    for (int64_t b = 0; b < s.count; ++b) {
      made_.first.push_back(static_cast<int32_t>(Pick(0, side - Length(b))));
    }
    s.first = made_.first.data();
  }

  // The number that keys beyond a window score, where the operator takes one.
  void FillWindows() {
    Sequences& s = made_.call;
    static const float kFills[] = {std::numeric_limits<float>::lowest(), -1e31f, -1e30f};
    if (Chance(0.4)) return;
    if (Chance(0.8)) s.problem.mask_fill = kFills[Pick(0, 2)];
    s.window_fill = Chance(0.8) ? s.problem.mask_fill : kFills[Pick(0, 2)];
    if (!ValidateSequences(s).empty()) s.window_fill = -kInfinity;
  }

  // Keys that are hidden for good hold NaN; and so may a whole sequence, which must not reach
  // others.
  void Spoil() {
    Sequences& s = made_.call;
    const bool gone = s.problem.mask_fill == -kInfinity &&
                      (s.problem.mask_after_bias || s.problem.bias.data == nullptr);
    for (int64_t b = 0; b < s.count; ++b) {
      made_.spoiled.push_back(Chance(0.1) && !s.problem.clear_nan);
      for (int64_t i = made_.offsets[static_cast<size_t>(b)];
           i < made_.offsets[static_cast<size_t>(b) + 1]; ++i) {
        const bool hidden = s.hidden != nullptr && gone && s.hidden[i] != 0;
        if (!hidden && !made_.spoiled.back()) continue;
        for (int64_t g = 0; g < s.problem.kv_heads; ++g) {
          for (int64_t f = 0; f < s.problem.head_size; ++f) {
            Set(made_.key, made_.key.Index(0, g, i, f), kNaN);
          }
          for (int64_t f = 0; f < s.problem.value_size; ++f) {
            Set(made_.value, made_.value.Index(0, g, i, f), kNaN);
          }
        }
      }
    }
  }

  void MakeTuning() {
    Tuning& t = made_.tuning;
    t.isa = kIsas[Pick(0, 4)];
    if (!Supports(t.isa)) t.isa = Isa::kBest;
    t.row_chunk = Chance(0.5) ? 0 : Pick(1, 40);
    t.packed_rows = Chance(0.5) ? 0 : (Chance(0.5) ? 1 : 1000);
    t.serial_cost = Chance(0.8) ? 0 : -1;
    static const int kThreads[] = {1, 2, 3, 5};
    made_.threads = kThreads[Pick(0, 3)];
  }

  void Describe() {
    const Problem& p = made_.call.problem;
    std::ostringstream text;
    text << (p.type == Type::kFloat32 ? "fp32" : "fp16") << " H" << p.heads << " G" << p.kv_heads
         << " D" << p.head_size << " E" << p.value_size << " offsets";
    for (const int32_t offset : made_.offsets) text << " " << offset;
    text << " causal " << p.causal << " window " << p.window << " of " << p.window_left << " and "
         << p.window_right << " softcap " << p.softcap << " hidden "
         << (made_.call.hidden != nullptr) << p.mask_adds << p.mask_after_bias << " fill "
         << p.mask_fill << " beyond windows " << made_.call.window_fill << " bias "
         << (p.bias.data != nullptr) << " zeros " << p.zero_masked_rows << p.clear_nan << " | isa "
         << static_cast<int>(made_.tuning.isa) << " chunk " << made_.tuning.row_chunk << " packed "
         << made_.tuning.packed_rows << " threads " << made_.threads;
    made_.description = text.str();
  }

  std::mt19937 random_;
  RandomSequences& made_;
  int64_t longest_ = 0;
};

// Sequence b alone, as a problem with a mask.
Problem Alone(const RandomSequences& made, int64_t b) {
  const Sequences& s = made.call;
  const int64_t element = s.problem.type == Type::kFloat32 ? 4 : 2;
  const int64_t begin = made.offsets[static_cast<size_t>(b)];
  Problem p = s.problem;
  p.queries = p.fresh = made.offsets[static_cast<size_t>(b) + 1] - begin;
  for (Input* input : {&p.query, &p.key, &p.value}) {
    input->data = static_cast<const char*>(input->data) + begin * input->strides.position * element;
  }
  if (s.hidden != nullptr) {
    p.mask_hides = true;
    p.mask.data = s.hidden + begin;
    p.mask.strides = {0, 0, 0, 1};
  }
  if (p.bias.data != nullptr) {
    const int64_t first = s.first != nullptr ? s.first[b] : 0;
    const Strides& t = p.bias.strides;
    p.bias.data = static_cast<const char*>(p.bias.data) +
                  (b * t.batch + first * t.position + first * t.feature) * element;
  }
  return p;
}

void Expect(const RandomSequences& made) {
  const Problem& p = made.call.problem;
  const bool half = p.type == Type::kFloat16;
  for (int64_t b = 0; b < made.call.count; ++b) {
    const int64_t begin = made.offsets[static_cast<size_t>(b)];
    const Problem alone = Alone(made, b);
    const Expected expected = Compute(alone, made.call.window_fill);
    for (int64_t at = 0; at < static_cast<int64_t>(expected.output.size()); ++at) {
      const int64_t f = at % p.value_size, row = at / p.value_size;
      const int64_t i = row % alone.queries, h = row / alone.queries;
      const int64_t index = made.output.Index(0, h, begin + i, f);
      const double got = Element(p.type, p.output.data, index);
      const double want = expected.output[static_cast<size_t>(at)];
      const double slack = expected.slack[static_cast<size_t>(row)];
      const double tolerance =
          (half ? 1e-3 : 1e-5) + 4.0 * slack + (slack + (half ? 1.5e-3 : 1e-4)) * std::fabs(want);
      // A row that sees none of a spoiled sequence's keys has what it has; so has one without keys.
      const bool equal = std::isnan(want) ? std::isnan(got) : std::fabs(got - want) <= tolerance;
      ASSERT_TRUE(equal) << "output[" << b << ", " << h << ", " << i << ", " << f << "] is " << got
                         << ", the reference " << want << "\n"
                         << made.description;
    }
  }
  EXPECT_FALSE(made.output.Damaged()) << "wrote outside the output\n" << made.description;
}

TEST(Sequences, AgreeWithTheReferenceOnRandomCalls) {
  for (int index = 0; index < ProblemCount(5000); ++index) {
    RandomSequences made;
    Maker(static_cast<uint32_t>(index), made).Make();
    ASSERT_EQ(ValidateSequences(made.call), "") << made.description;
    WithPoisonedWorkspace(
        SequencesWorkspaceSize(made.call, made.threads, made.tuning), [&](char* workspace) {
          RunSequences(made.call, workspace, test::Threads<Runner>(made.threads), made.tuning);
        });
    Expect(made);
    if (HasFailure()) FAIL() << "call " << index;
  }
}

struct Fault {
  std::vector<int32_t> offsets, first;
  std::string text;
};

TEST(Sequences, FaultsAreNamed) {
  std::vector<float> data(64), bias(16);
  const int32_t kMax = std::numeric_limits<int32_t>::max();
  const Fault kFaults[] = {
      {{0, 2, 4}, {0, 1}, ""},
      {{0, 4}, {0}, ""},
      {{0, 0, 4}, {kMax, 0}, ""},  // an empty sequence stands nowhere
      {{1, 4}, {0}, "offsets[0] is 1, needed is 0"},
      {{0, 3, 2, 4}, {0, 0, 0}, "offsets[2] is 2, needed is at least the one before it, 3"},
      {{0, -1, 4}, {0, 0}, "offsets[1] is -1, needed is at least the one before it, 0"},
      {{0, kMax, 4}, {0, 0}, "offsets[2] is 4, needed is at least the one before it, 2147483647"},
      {{0, 3}, {0}, "the last of offsets is 3, needed is the number of positions, 4"},
      {{0, kMax}, {0}, "the last of offsets is 2147483647, needed is the number of positions, 4"},
      {{0}, {}, "the last of offsets is 0, needed is the number of positions, 4"},
      {{0, 2, 4}, {0, 3}, "sequence 1 is positions 3 to 4 of a bias that has 4"},
      {{0, 2, 4}, {-1, 0}, "sequence 0 is positions -1 to 0 of a bias that has 4"},
      {{0, 2, 4},
       {0, kMax},
       "sequence 1 is positions 2147483647 to 2147483648 of a bias that has 4"},
  };
  for (const Fault& fault : kFaults) {
    Sequences s;
    Problem& p = s.problem;
    p.batch = p.heads = p.kv_heads = 1;
    p.queries = p.fresh = 4;
    p.head_size = p.value_size = 2;
    p.query = p.key = p.value = {data.data(), {8, 8, 2, 1}};
    p.output.data = data.data() + 32;
    p.output.strides = {8, 8, 2, 1};
    p.bias = {bias.data(), {0, 0, 4, 1}};
    s.bias_rows = s.bias_columns = 4;
    s.count = static_cast<int64_t>(fault.offsets.size()) - 1;
    s.offsets = fault.offsets.data();
    s.first = fault.first.data();
    EXPECT_EQ(ValidateSequences(s), fault.text);
  }
}

TEST(Sequences, FillsBeyondWindowsAreNumbersThatHide) {
  struct Case {
    float beyond, hidden;
    bool causal, adds, bias;
    std::string text;
  };
  const float kLowest = std::numeric_limits<float>::lowest();
  const char* kAlone = "a fill beyond windows leaves no place for is_causal, window or attn_bias";
  const Case kCases[] = {
      {-kInfinity, -3.0f, true, true, true, ""},
      {-1e30f, -1e30f, false, true, false, ""},
      {kLowest, kLowest, false, false, false, ""},
      {kLowest, -1e4f, false, true, false, ""},
      {-1e30f, -1e30f, true, true, false, kAlone},
      {-1e30f, -1e30f, false, true, true, kAlone},
      {-1e30f, -1e30f, false, false, true, kAlone},
      {-1e29f, -1e29f, false, true, false,
       "the fill beyond windows is -1e+29, needed is -inf or at most -1e+30"},
      {kNaN, -1e30f, false, true, false,
       "the fill beyond windows is nan, needed is -inf or at most -1e+30"},
      {-1e30f, -1e31f, false, true, false,
       "the fill beyond windows is -1e+30, needed is at most that of hidden keys, -1e+31"},
      {-1e30f, -kInfinity, false, true, false,
       "the fill beyond windows is -1e+30, needed is at most that of hidden keys, -inf"},
  };
  for (const Case& c : kCases) {
    std::vector<float> data(64), bias(16);
    const std::vector<int32_t> offsets = {0, 4};
    Sequences s;
    Problem& p = s.problem;
    p.batch = p.heads = p.kv_heads = 1;
    p.queries = p.fresh = 4;
    p.head_size = p.value_size = 2;
    p.query = p.key = p.value = {data.data(), {8, 8, 2, 1}};
    p.output.data = data.data() + 32;
    p.output.strides = {8, 8, 2, 1};
    if (c.bias) p.bias = {bias.data(), {0, 0, 4, 1}};
    s.bias_rows = s.bias_columns = 4;
    s.count = 1;
    s.offsets = offsets.data();
    p.causal = c.causal;
    p.mask_fill = c.hidden;
    p.mask_adds = c.adds;
    p.mask_after_bias = true;
    s.window_fill = c.beyond;
    EXPECT_EQ(ValidateSequences(s), c.text);
  }
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
