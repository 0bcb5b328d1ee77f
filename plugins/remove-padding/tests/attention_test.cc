// PackedAttention through the C table: layouts, types and inputs of nodes against plain loops in
// float64; hostile offsets. The kernel's own tests are flash-decode's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "host.h"

namespace graft::test {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

double Get(Buffer& buffer, bool half, int64_t i) {
  return half ? buffer.data<Float16>()[i].ToFloat() : buffer.data<float>()[i];
}
void Put(Buffer& buffer, bool half, int64_t i, float value) {
  if (half) {
    buffer.data<Float16>()[i] = Float16::From(value);
  } else {
    buffer.data<float>()[i] = value;
  }
}

// How a query, key, value or output lies in memory.
struct Lie {
  enum Form { kFolded, kBshd, kBhsd, kBhds } form;
  int64_t heads, positions, features;
  int64_t width = 0, start = 0;  // of a folded position that holds more than these heads

  std::vector<int64_t> shape() const {
    switch (form) {
      case kFolded:
        return {1, positions, heads * features};
      case kBshd:
        return {1, positions, heads, features};
      case kBhsd:
        return {1, heads, positions, features};
      case kBhds:
        break;
    }
    return {1, heads, features, positions};
  }
  int64_t At(int64_t h, int64_t i, int64_t f) const {
    switch (form) {
      case kFolded:
      case kBshd:
        return i * (width > 0 ? width : heads * features) + start + h * features + f;
      case kBhsd:
        return (h * positions + i) * features + f;
      case kBhds:
        break;
    }
    return (h * features + f) * positions + i;
  }
  const char* name() const { return form == kBhsd ? "bhsd" : form == kBhds ? "bhds" : "bshd"; }
};

TEST(PackedAttention, AgreesWithPlainLoops) {
  std::mt19937 random(9);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (int round = 0; round < 1500; ++round) {
    const bool half = pick(0, 3) == 0, packed = pick(0, 3) == 0;
    const DataType type = half ? kFloat16 : kFloat32;
    const int64_t kv_heads = pick(1, 3), group = pick(0, 2) == 0 ? pick(1, 3) : 1;
    const int64_t heads = kv_heads * group, size = pick(0, 1) == 0 ? 32 : pick(1, 40);
    const int64_t value_size = packed || pick(0, 2) != 0 ? size : pick(1, 40);
    std::vector<int32_t> offsets = {0};
    for (int64_t b = pick(0, 4); b > 0; --b) {
      offsets.push_back(offsets.back() + static_cast<int32_t>(pick(0, 3) == 0 ? 0 : pick(1, 40)));
    }
    const auto count = static_cast<int64_t>(offsets.size()) - 1;
    const int64_t n = offsets.back();
    const auto form = [&](int64_t last) { return static_cast<Lie::Form>(pick(0, last)); };
    Lie q{packed ? Lie::kFolded : form(2), heads, n, size};
    Lie k{packed ? Lie::kFolded : form(3), kv_heads, n, size};
    Lie v{packed ? Lie::kFolded : form(2), kv_heads, n, value_size},
        o{form(2), heads, n, value_size};
    const int64_t width = (heads + 2 * kv_heads) * size;
    if (packed) {
      q.width = k.width = v.width = width;
      k.start = heads * size;
      v.start = (heads + kv_heads) * size;
    }
    Buffer query(type, packed ? std::vector<int64_t>{1, n, width} : q.shape(), 1);
    Buffer key(type, k.shape()), value(type, v.shape(), 3), output(type, o.shape(), 5);
    const auto fill = [&](Buffer& buffer, int64_t elements) {
      for (int64_t i = 0; i < elements; ++i) Put(buffer, half, i, normal(random));
    };
    fill(query, packed ? n * width : heads * n * size);
    fill(key, kv_heads * n * size);
    fill(value, kv_heads * n * value_size);
    Buffer bounds(kInt32, {count + 1});
    bounds.Set(offsets);

    const bool hides = pick(0, 1) == 0, adds = pick(0, 1) == 0, zeros = pick(0, 1) == 0;
    const bool biased = pick(0, 2) == 0, shifted = pick(0, 1) == 0;
    Buffer hidden(kBool, pick(0, 1) == 0 ? std::vector<int64_t>{n} : std::vector<int64_t>{1, n});
    const bool holes = pick(0, 1) == 0;
    for (int64_t b = 0; b < count; ++b) {  // padding to the right, and holes
      const int64_t begin = offsets[static_cast<size_t>(b)];
      const int64_t end = offsets[static_cast<size_t>(b) + 1], visible = pick(begin, end);
      for (int64_t i = begin; i < end; ++i) {
        hidden.data<uint8_t>()[i] = i >= visible || (holes && pick(0, 3) == 0);
      }
    }
    const int64_t side = 45;
    std::vector<int64_t> bias_shape = {pick(0, 1) == 0 ? count : 1, pick(0, 1) == 0 ? heads : 1,
                                       pick(0, 1) == 0 ? side : 1, side};
    if (pick(0, 2) == 0) bias_shape.erase(bias_shape.begin(), bias_shape.begin() + pick(1, 2));
    Buffer bias(type, bias_shape);
    while (bias_shape.size() < 4) bias_shape.insert(bias_shape.begin(), 1);
    fill(bias, bias_shape[0] * bias_shape[1] * bias_shape[2] * side);
    std::vector<int32_t> firsts(static_cast<size_t>(count), 0);
    for (int32_t& first : firsts) first = shifted ? static_cast<int32_t>(pick(0, 5)) : 0;
    Buffer first(kInt32, {count});
    first.Set(firsts);
    const bool causal = pick(0, 5) == 0, windowed = pick(0, 3) == 0;
    const int64_t left = windowed ? pick(-1, 20) : -1, right = windowed ? pick(-1, 20) : -1;
    const float kFills[] = {-std::numeric_limits<float>::infinity(), -3.0f,
                            std::numeric_limits<float>::lowest()};
    const float hidden_fill = kFills[pick(0, 2)];
    const bool filled = hidden_fill == kFills[2] && !biased && !causal && pick(0, 2) > 0;
    const float window_fill = filled ? hidden_fill : kFills[0];

    Kernel kernel(Load(REMOVE_PADDING_LIBRARY), "PackedAttention");
    ASSERT_EQ(kernel.Create(Attributes()
                                .Int("num_heads", heads)
                                .Int("kv_num_heads", kv_heads)
                                .Int("is_causal", causal)
                                .Int("window_left", left)
                                .Int("window_right", right)
                                .Float("hidden_fill", hidden_fill)
                                .Int("hidden_adds", adds)
                                .Float("window_fill", window_fill)
                                .Int("zero_masked_rows", zeros)
                                .Float("scale", 0.25)
                                .String("query_layout", q.name())
                                .String("key_layout", k.name())
                                .String("value_layout", v.name())
                                .String("output_layout", o.name())
                                .Int("output_rank", o.form == Lie::kFolded ? 3 : 4)
                                .Int("packed_qkv", packed)),
              GRAFT_OK)
        << kernel.message.text;
    ASSERT_EQ(kernel.Run({query.tensor(), packed ? nullptr : key.tensor(),
                          packed ? nullptr : value.tensor(), bounds.tensor(),
                          shifted ? first.tensor() : nullptr, hides ? hidden.tensor() : nullptr,
                          biased ? bias.tensor() : nullptr},
                         {output.tensor()}, pick(0, 9) == 0 ? 3 : 1),
              GRAFT_OK)
        << kernel.message.text;
    Buffer& keys = packed ? query : key;
    Buffer& values = packed ? query : value;
    for (int64_t b = 0; b < count; ++b) {
      const int64_t begin = offsets[static_cast<size_t>(b)];
      const int64_t length = offsets[static_cast<size_t>(b) + 1] - begin;
      const int64_t shift = firsts[static_cast<size_t>(b)];
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < length; ++i) {
          std::vector<double> weights(static_cast<size_t>(length));
          double highest = kLowest, sum = 0;
          for (int64_t j = 0; j < length; ++j) {
            double s = 0;
            for (int64_t f = 0; f < size; ++f) {
              s += Get(query, half, q.At(h, begin + i, f)) *
                   Get(keys, half, k.At(h / group, begin + j, f));
            }
            s *= 0.25;
            if (biased) {
              int64_t at = bias_shape[0] == 1 ? 0 : b;
              at = at * bias_shape[1] + (bias_shape[1] == 1 ? 0 : h);
              at = at * bias_shape[2] + (bias_shape[2] == 1 ? 0 : shift + i);
              s += Get(bias, half, at * side + shift + j);
            }
            if (hides && hidden.data<uint8_t>()[begin + j] != 0) {
              // As float32 rounds it: the largest numbers swallow all others.
              s = adds ? static_cast<float>(s) + hidden_fill : hidden_fill;
            }
            if ((left >= 0 && i - j > left) || (right >= 0 && j - i > right)) s = window_fill;
            if (causal && j > i) s = kLowest;
            weights[static_cast<size_t>(j)] = s;
            highest = std::max(highest, s);
          }
          for (double& weight : weights) sum += weight = std::exp(weight - highest);
          for (int64_t f = 0; f < value_size; ++f) {
            double want = 0;
            for (int64_t j = 0; j < length; ++j) {
              want += weights[static_cast<size_t>(j)] / sum *
                      Get(values, half, v.At(h / group, begin + j, f));
            }
            if (highest == kLowest && zeros) want = 0;
            const double got = Get(output, half, o.At(h, begin + i, f));
            ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                         : std::fabs(got - want) <= (half ? 4e-3 : 2e-5))
                << "round " << round << ", sequence " << b << ", head " << h << ", query " << i
                << ": " << got << ", needed is " << want;
          }
        }
      }
    }
    ASSERT_TRUE(output.intact());
  }
}

TEST(PackedAttention, HostileNodesAreNamed) {
  const int32_t kMost = std::numeric_limits<int32_t>::max();
  struct Case {
    std::vector<int32_t> offsets, first;
    int64_t hidden, bias;  // elements; sizes
    std::string text;
  };
  const Case kCases[] = {
      {{0, 4}, {0}, 4, 4, ""},
      {{}, {0}, 4, 4, "offsets is empty, needed is one a sequence, and one more"},
      {{0, 5}, {0}, 4, 4, "the last of offsets is 5, needed is the number of positions, 4"},
      {{0, -4, 4}, {0, 0}, 4, 4, "offsets[1] is -4, needed is at least the one before it, 0"},
      {{-kMost, 4}, {0}, 4, 4, "offsets[0] is -2147483647, needed is 0"},
      {{0, 4}, {1}, 4, 4, "sequence 0 is positions 1 to 4 of a bias that has 4"},
      {{0, 4},
       {-kMost - 1},
       4,
       4,
       "sequence 0 is positions -2147483648 to -2147483645 of a bias that has 4"},
      {{0, 4}, {0}, 4, 3, "sequence 0 is positions 0 to 3 of a bias that has 3"},
      {{0, 4}, {0, 0}, 4, 4, "length of first is 2, needed is 1"},
      {{0, 4}, {0}, 3, 4, "hidden has 3 elements, needed is one a position, 4"},
  };
  for (const Case& c : kCases) {
    Buffer query(kFloat32, {1, 4, 6}), output(kFloat32, {1, 4, 2});
    std::fill(query.data<float>(), query.data<float>() + 24, 1.0f);
    Buffer offsets(kInt32, {static_cast<int64_t>(c.offsets.size())});
    Buffer first(kInt32, {static_cast<int64_t>(c.first.size())});
    Buffer hidden(kBool, {c.hidden}), bias(kFloat32, {c.bias, c.bias});
    offsets.Set(c.offsets);
    first.Set(c.first);
    std::fill(hidden.data<uint8_t>(), hidden.data<uint8_t>() + c.hidden, uint8_t{0});
    std::fill(bias.data<float>(), bias.data<float>() + c.bias * c.bias, 0.0f);
    Kernel kernel(Load(REMOVE_PADDING_LIBRARY), "PackedAttention");
    ASSERT_EQ(
        kernel.Create(Attributes().Int("num_heads", 1).Int("packed_qkv", 1).Int("output_rank", 3)),
        GRAFT_OK);
    const int32_t code = kernel.Run({query.tensor(), nullptr, nullptr, offsets.tensor(),
                                     first.tensor(), hidden.tensor(), bias.tensor()},
                                    {output.tensor()});
    EXPECT_EQ(code, c.text.empty() ? GRAFT_OK : GRAFT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(kernel.message.text), c.text.empty() ? "" : "PackedAttention: " + c.text);
    EXPECT_TRUE(output.intact());
  }
}

}  // namespace
}  // namespace graft::test
