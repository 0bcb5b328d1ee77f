#include "random_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "reference.h"

namespace graft {
namespace attention {
namespace testing {

Tensor::Tensor(int64_t element, const int64_t (&sizes)[4], const int (&order)[4], int64_t gap,
               int64_t misalign)
    : element_(element) {
  int64_t* strides[4] = {&strides_.batch, &strides_.head, &strides_.position, &strides_.feature};
  int64_t step = 1;
  for (int i = 3; i >= 0; --i) {
    *strides[order[i]] = step;
    step *= std::max<int64_t>(1, sizes[order[i]]);
    if (i == 3) step += gap;
  }
  std::copy(sizes, sizes + 4, sizes_);
  // Bands before and after, and a start that is aligned to nothing but an element.
  start_ = 64 + misalign * element;
  bytes_.assign(static_cast<size_t>(start_ + step * element + 128), static_cast<char>(0xFF));
}

bool Tensor::Damaged() const {
  std::vector<char> copy = bytes_;
  ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
    std::memset(copy.data() + start_ + index * element_, 0xFF, static_cast<size_t>(element_));
  });
  return std::any_of(copy.begin(), copy.end(), [](char c) { return c != static_cast<char>(0xFF); });
}

namespace {

class Maker {
 public:
  Maker(uint32_t index, RandomProblem& made)
      : random_(index * 2654435761u + 1), sinks_(index), made_(made) {}

  void Make() {
    Problem& p = made_.problem;
    p.type = Chance(0.3) ? Type::kFloat16 : Type::kFloat32;
    p.batch = Pick(1, 3);
    p.kv_heads = Pick(1, 3);
    p.heads = p.kv_heads * (Chance(0.5) ? 1 : Pick(2, 5));
    p.queries = Chance(0.03) ? 0 : Chance(0.5) ? 1 : (Chance(0.8) ? Pick(2, 9) : Pick(10, 70));
    p.past = Chance(0.3) ? 0 : (Chance(0.7) ? Pick(1, 70) : Pick(70, 300));
    p.fresh = p.past > 0 && Chance(0.2) ? 0 : (Chance(0.8) ? p.queries : Pick(1, 90));
    if (Chance(0.01)) p.past = p.fresh = 0;
    static const int64_t kSizes[] = {1, 3, 8, 16, 20, 32, 64, 64, 64, 80, 128};
    p.head_size = Chance(0.8) ? kSizes[Pick(0, 10)] : Pick(1, 150);
    p.value_size = Chance(0.7) ? p.head_size : (Chance(0.5) ? kSizes[Pick(0, 10)] : Pick(1, 150));
    if (p.batch * p.heads * p.queries * (p.past + p.fresh) > 20000) p.head_size = p.value_size = 16;
    p.scale = Chance(0.5) ? 0.0f : 0.1f + 0.4f * Uniform();
    p.softcap = Chance(0.15) ? 0.5f + 20.0f * Uniform() : 0.0f;
    p.causal = Chance(0.4);
    p.window = Chance(0.15) ? Pick(1, 40) : 0;
    if (Chance(0.15)) {
      const int64_t kSides[] = {-1, 0, 1, Pick(2, 80), std::numeric_limits<int64_t>::max()};
      p.window_left = kSides[Pick(0, 4)];
      p.window_right = kSides[Pick(0, 4)];
    }
    p.diagonal = Chance(0.1) ? DiagonalFrom::kLengths : DiagonalFrom::kPast;
    p.zero_masked_rows = Chance(0.5);
    p.clear_nan = Chance(0.3);
    p.mask_after_bias = Chance(0.5);

    MakeInputs();
    MakeMasks();
    MakeSinks();
    MakeOutputs();
    HideGarbage();
    if (p.clear_nan && p.batch * p.queries > 0 && Chance(0.5)) {
      const int64_t at = made_.query.Index(Pick(0, p.batch - 1), Pick(0, p.heads - 1),
                                           Pick(0, p.queries - 1), Pick(0, p.head_size - 1));
      Set(made_.query, at, std::numeric_limits<float>::quiet_NaN());
    }
    MakeTuning();
    Describe();
  }

 private:
  float Uniform() { return std::uniform_real_distribution<float>(0.0f, 1.0f)(random_); }
  bool Chance(double probability) { return Uniform() < probability; }
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  int64_t ElementBytes() const { return made_.problem.type == Type::kFloat32 ? 4 : 2; }

  void Set(Tensor& tensor, int64_t index, float value) {
    if (made_.problem.type == Type::kFloat32) {
      std::memcpy(tensor.data() + index * 4, &value, 4);
    } else {
      const uint16_t half = FloatToHalf(value);
      std::memcpy(tensor.data() + index * 2, &half, 2);
    }
  }

  // A tensor of normal numbers: heads before positions, or after; the feature innermost or not.
  Input Fill(Tensor& tensor, int64_t heads, int64_t positions, int64_t features, bool transposed) {
    static const int kOrders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    const int64_t sizes[4] = {made_.problem.batch, heads, positions, features};
    const int64_t order = transposed && Chance(0.2) ? 2 : Pick(0, 1);
    tensor = Tensor(ElementBytes(), sizes, kOrders[order], Chance(0.3) ? Pick(1, 9) : 0,
                    Chance(0.5) ? Pick(0, 15) : 0);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    tensor.ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
      Set(tensor, index, normal(random_));
    });
    Input input;
    input.data = tensor.data();
    input.strides = tensor.strides();
    return input;
  }

  void MakeInputs() {
    Problem& p = made_.problem;
    p.query = Fill(made_.query, p.heads, p.queries, p.head_size, true);
    if (p.fresh > 0) {
      p.key = Fill(made_.key, p.kv_heads, p.fresh, p.head_size, true);
      p.value = Fill(made_.value, p.kv_heads, p.fresh, p.value_size, true);
    }
    if (p.past > 0) {
      p.past_key = Fill(made_.past_key, p.kv_heads, p.past, p.head_size, false);
      p.past_value = Fill(made_.past_value, p.kv_heads, p.past, p.value_size, false);
    }
  }

  void MakeMasks() {
    Problem& p = made_.problem;
    const int64_t keys = p.past + p.fresh;
    if (Chance(0.25)) {
      made_.lengths32.resize(static_cast<size_t>(p.batch));
      made_.lengths64.resize(static_cast<size_t>(p.batch));
      for (int64_t b = 0; b < p.batch; ++b) {
        const int64_t length = Chance(0.1) ? 0 : Pick(0, keys);
        made_.lengths32[static_cast<size_t>(b)] = static_cast<int32_t>(length);
        made_.lengths64[static_cast<size_t>(b)] = length;
      }
      if (Chance(0.5)) {
        p.lengths32 = made_.lengths32.data();
      } else {
        p.lengths64 = made_.lengths64.data();
      }
    }
    if (keys > 0 && Chance(0.1)) p.key_limit = Pick(1, keys);
    const int64_t columns = std::min(keys, p.key_limit);
    const int64_t sizes[4] = {Chance(0.5) ? p.batch : 1, Chance(0.5) ? p.heads : 1,
                              Chance(0.7) ? p.queries : 1, Chance(0.95) ? columns : 1};
    const int order[4] = {0, 1, 2, 3};
    const auto broadcast = [&](const Tensor& tensor) {
      Strides s = tensor.strides();
      if (sizes[0] == 1) s.batch = 0;
      if (sizes[1] == 1) s.head = 0;
      if (sizes[2] == 1) s.position = 0;
      if (sizes[3] == 1) s.feature = 0;
      return s;
    };
    if (keys > 0 && Chance(0.35)) {
      made_.bias = Tensor(ElementBytes(), sizes, order, Pick(0, 3), Pick(0, 3));
      const bool half = p.type == Type::kFloat16;
      const float lowest = -std::numeric_limits<float>::infinity();
      const float kHidden[] = {lowest, -1e4f, half ? -65504.0f : -1e30f,
                               half ? -65504.0f : std::numeric_limits<float>::lowest()};
      const float hidden = kHidden[Pick(0, 3)];
      const double share = Chance(0.5) ? 0.0 : (Chance(0.1) ? 1.0 : 0.6 * Uniform());
      made_.bias.ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
        Set(made_.bias, index, Chance(share) ? hidden : 2.0f * Uniform() - 1.0f);
      });
      p.bias.data = made_.bias.data();
      p.bias.strides = broadcast(made_.bias);
    }
    if (keys > 0 && Chance(0.3)) {
      made_.mask = Tensor(1, sizes, order, Pick(0, 3), Pick(0, 3));
      const double share = Chance(0.1) ? 1.0 : 0.6 * Uniform();
      made_.mask.ForEach([&](int64_t index, int64_t, int64_t, int64_t, int64_t) {
        made_.mask.data()[index] = Chance(share) ? 0 : 1;
      });
      p.mask.data = made_.mask.data();
      p.mask.strides = broadcast(made_.mask);
      p.mask_hides = Chance(0.2);
      p.mask_adds = Chance(0.2);
      const float kFills[] = {-std::numeric_limits<float>::infinity(), -1e4f, 0.5f,
                              std::numeric_limits<float>::lowest()};
      p.mask_fill = kFills[Chance(0.4) ? 0 : Pick(0, 3)];
    }
  }

  // A sink a head: like scores, far above or below them, or none.
  void MakeSinks() {
    const auto pick = [&](int64_t count) {
      return static_cast<size_t>(std::uniform_int_distribution<int64_t>(0, count - 1)(sinks_));
    };
    if (pick(10) >= 3) return;
    Problem& p = made_.problem;
    made_.sinks.resize(static_cast<size_t>(p.heads * ElementBytes()));
    const float kSinks[] = {std::normal_distribution<float>(0.0f, 2.0f)(sinks_),
                            0.0f,
                            30.0f,
                            -40.0f,
                            6e4f,
                            -std::numeric_limits<float>::infinity()};
    for (int64_t h = 0; h < p.heads; ++h) {
      const float value =
          pick(2) == 0 ? std::normal_distribution<float>(0.0f, 2.0f)(sinks_) : kSinks[pick(6)];
      const uint16_t half = FloatToHalf(value);
      const void* from = &value;
      if (p.type == Type::kFloat16) from = &half;
      std::memcpy(made_.sinks.data() + h * ElementBytes(), from,
                  static_cast<size_t>(ElementBytes()));
    }
    p.sinks = made_.sinks.data();
  }

  Output Poison(Tensor& tensor, int64_t heads, int64_t positions, int64_t features, int order) {
    static const int kOrders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    const int64_t sizes[4] = {made_.problem.batch, heads, positions, features};
    tensor = Tensor(ElementBytes(), sizes, kOrders[order], Chance(0.3) ? Pick(1, 9) : 0,
                    Chance(0.5) ? Pick(0, 15) : 0);
    Output output;
    output.data = tensor.data();
    output.strides = tensor.strides();
    return output;
  }

  void MakeOutputs() {
    Problem& p = made_.problem;
    const int64_t keys = p.past + p.fresh;
    p.output = Poison(made_.output, p.heads, p.queries, p.value_size,
                      static_cast<int>(Chance(0.1) ? 2 : Pick(0, 1)));
    if (Chance(0.6)) {
      p.present_key = Poison(made_.present_key, p.kv_heads, keys, p.head_size, 0);
    }
    if (Chance(0.6)) {
      p.present_value = Poison(made_.present_value, p.kv_heads, keys, p.value_size, 0);
    }
    if (keys > 0 && Chance(0.15)) {
      p.scores = Poison(made_.scores, p.heads, p.queries, keys, 0);
      p.scores_stage = static_cast<ScoresStage>(Pick(0, 3));
    }
  }

  // What no row may see holds NaN: it must not reach any output but present.
  void HideGarbage() {
    Problem& p = made_.problem;
    const int64_t keys = p.past + p.fresh;
    // The early stages of the scores show q k^T of hidden keys too.
    if (p.scores.data != nullptr) return;
    for (int64_t b = 0; b < p.batch; ++b) {
      int64_t valid = keys;
      if (p.lengths32 != nullptr) valid = p.lengths32[b];
      if (p.lengths64 != nullptr) valid = p.lengths64[b];
      for (int64_t g = 0; g < p.kv_heads; ++g) {
        for (int64_t j = 0; j < keys; ++j) {
          bool hidden = true;
          const int64_t group = p.heads / p.kv_heads;
          for (int64_t h = g * group; h < (g + 1) * group && hidden; ++h) {
            for (int64_t i = 0; i < p.queries && hidden; ++i) {
              hidden = j >= valid || j >= p.key_limit || Hidden(b, h, i, j);
            }
          }
          if (hidden) Spoil(b, g, j);
        }
      }
    }
  }

  // Whether mask and bias take key j from the row for good.
  bool Hidden(int64_t b, int64_t h, int64_t i, int64_t j) {
    const Problem& p = made_.problem;
    const double lowest = -std::numeric_limits<double>::infinity();
    const auto index = [&](const Strides& s) {
      return b * s.batch + h * s.head + i * s.position + j * s.feature;
    };
    const bool biased =
        p.bias.data != nullptr && Element(p.type, p.bias.data, index(p.bias.strides)) == lowest;
    const bool masked =
        p.mask.data != nullptr && (made_.mask.data()[index(p.mask.strides)] == 0) != p.mask_hides;
    if (masked && p.mask_after_bias && !p.mask_adds) return p.mask_fill == lowest;
    return biased || (masked && p.mask_fill == lowest);
  }

  void Spoil(int64_t b, int64_t g, int64_t j) {
    const Problem& p = made_.problem;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const bool old = j < p.past;
    Tensor& key = old ? made_.past_key : made_.key;
    Tensor& value = old ? made_.past_value : made_.value;
    const int64_t position = old ? j : j - p.past;
    for (int64_t f = 0; f < p.head_size; ++f) Set(key, key.Index(b, g, position, f), nan);
    for (int64_t f = 0; f < p.value_size; ++f) Set(value, value.Index(b, g, position, f), nan);
  }

  void MakeTuning() {
    Tuning& t = made_.tuning;
    // One draw, whatever the CPU: problems have the same numbers on all.
    t.isa = kIsas[Pick(0, 4)];
    if (!Supports(t.isa)) t.isa = Isa::kBest;
    t.splits = Chance(0.5) ? 0 : Pick(1, 9);
    t.row_chunk = Chance(0.5) ? 0 : Pick(1, 40);
    t.packed_rows = Chance(0.3) ? 0 : (Chance(0.5) ? 1 : 1000);
    t.serial_cost = Chance(0.8) ? 0 : -1;
    t.streamed_bytes = Chance(0.5) ? 0 : -1;
    static const int kThreads[] = {1, 2, 3, 5};
    made_.threads = kThreads[Pick(0, 3)];
  }

  void Describe() {
    const Problem& p = made_.problem;
    const Tuning& t = made_.tuning;
    std::ostringstream text;
    text << (p.type == Type::kFloat32 ? "fp32" : "fp16") << " B" << p.batch << " H" << p.heads
         << " G" << p.kv_heads << " S" << p.queries << " P" << p.past << " N" << p.fresh << " D"
         << p.head_size << " E" << p.value_size << " causal " << p.causal << " window " << p.window
         << " of " << p.window_left << " and " << p.window_right << " diagonal "
         << static_cast<int>(p.diagonal) << " softcap " << p.softcap << " bias "
         << (p.bias.data != nullptr) << " mask " << (p.mask.data != nullptr) << " fill "
         << p.mask_fill << " after " << p.mask_after_bias << " hides " << p.mask_hides << " adds "
         << p.mask_adds << " sinks " << (p.sinks != nullptr) << " lengths "
         << (p.lengths32 != nullptr || p.lengths64 != nullptr) << " limit " << p.key_limit
         << " scores " << (p.scores.data != nullptr) << " stage "
         << static_cast<int>(p.scores_stage) << " zeros " << p.zero_masked_rows << p.clear_nan
         << " | isa " << static_cast<int>(t.isa) << " splits " << t.splits << " chunk "
         << t.row_chunk << " packed " << t.packed_rows << " streamed " << t.streamed_bytes
         << " threads " << made_.threads;
    made_.description = text.str();
  }

  std::mt19937 random_, sinks_;
  RandomProblem& made_;
};

}  // namespace

void Make(uint32_t index, RandomProblem& made) { Maker(index, made).Make(); }

}  // namespace testing
}  // namespace attention
}  // namespace graft
