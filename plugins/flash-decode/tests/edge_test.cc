// Single properties of the kernel that a random problem would rarely show.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "attention.h"
#include "reference.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// A compact problem in float32 with tensors that can be changed before it runs.
struct Small {
  Problem p;
  std::vector<float> query, key, value, past_key, past_value, output, present_key, present_value;

  Small(int64_t heads, int64_t queries, int64_t past, int64_t fresh, int64_t size) {
    p.batch = 1;
    p.heads = p.kv_heads = heads;
    p.queries = queries;
    p.past = past;
    p.fresh = fresh;
    p.head_size = p.value_size = size;
    Fill(query, heads * queries * size, 1);
    Fill(key, heads * fresh * size, 2);
    Fill(value, heads * fresh * size, 3);
    Fill(past_key, heads * past * size, 4);
    Fill(past_value, heads * past * size, 5);
    output.assign(query.size(), kNan);
    const auto strides = [&](int64_t positions) {
      return Strides{heads * positions * size, positions * size, size, 1};
    };
    p.query = {query.data(), strides(queries)};
    p.key = {key.data(), strides(fresh)};
    p.value = {value.data(), strides(fresh)};
    p.past_key = {past_key.data(), strides(past)};
    p.past_value = {past_value.data(), strides(past)};
    p.output = {output.data(), strides(queries)};
  }

  static void Fill(std::vector<float>& to, int64_t count, uint32_t seed) {
    uint32_t state = seed * 2654435761u;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      to.push_back(static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
    }
  }

  void Run(const Tuning& tuning = Tuning(), const Runner& runner = Runner()) {
    ASSERT_EQ(Validate(p), nullptr);
    std::vector<char> workspace(WorkspaceSize(p, runner.threads, tuning), static_cast<char>(0xFF));
    attention::Run(p, workspace.data(), runner, tuning);
  }

  void ExpectReference() const {
    const Expected expected = Compute(p);
    for (size_t i = 0; i < output.size(); ++i) {
      if (std::isnan(expected.output[i])) {
        EXPECT_TRUE(std::isnan(output[i])) << i;
      } else {
        EXPECT_NEAR(output[i], expected.output[i], 1e-5) << i;
      }
    }
  }
};

// Every way through the kernel: few rows or many, with and without a split.
std::vector<Tuning> Ways() {
  std::vector<Tuning> ways;
  for (Isa isa : kIsas) {
    if (!Supports(isa)) continue;
    for (int64_t packed : {1, 1000}) {
      for (int64_t splits : {1, 3}) {
        Tuning tuning;
        tuning.isa = isa;
        tuning.packed_rows = packed;
        tuning.splits = splits;
        tuning.serial_cost = 0;
        ways.push_back(tuning);
      }
    }
  }
  return ways;
}

TEST(Edge, ARowWithoutVisibleKeysIsNanLikeASoftmaxOrZeroWhenAsked) {
  for (const Tuning& way : Ways()) {
    for (bool zeros : {false, true}) {
      Small small(2, 3, 40, 3, 8);
      const int64_t length = 0;
      small.p.lengths64 = &length;
      small.p.zero_masked_rows = zeros;
      small.Run(way);
      for (float y : small.output) {
        if (zeros) {
          EXPECT_EQ(y, 0.0f);
        } else {
          EXPECT_TRUE(std::isnan(y));
        }
      }
    }
  }
}

TEST(Edge, RowsWhoseSoftmaxIsNanAreClearedWhenAsked) {
  for (const Tuning& way : Ways()) {
    for (int64_t queries : {4, 24}) {
      for (float bad : {kNan, kInfinity}) {
        Small small(1, queries, 100, queries, 8);
        small.p.causal = true;
        small.p.clear_nan = true;
        for (float& q : small.query) q = std::fabs(q) + 0.1f;
        small.key[2 * 8 + 3] = bad;  // position 102: visible to all queries but 0 and 1
        std::vector<float> scores(static_cast<size_t>(queries * (100 + queries)), kNan);
        small.p.scores.data = scores.data();
        small.p.scores.strides = {0, 0, 100 + queries, 1};
        small.Run(way);
        small.ExpectReference();
        for (size_t i = 0; i < small.output.size(); ++i) {
          EXPECT_EQ(small.output[i] == 0.0f, i >= 2 * 8) << i;
        }
        for (size_t i = 0; i < scores.size(); ++i) {
          ASSERT_FALSE(std::isnan(scores[i])) << i;
          if (i >= 2 * static_cast<size_t>(100 + queries)) ASSERT_EQ(scores[i], 0.0f) << i;
        }
      }
    }
  }
}

// The row that is NaN must not give a weight to keys that are hidden from all.
TEST(Edge, WhatIsHiddenFromEveryRowMayBeNanBesideARowThatIs) {
  for (const Tuning& way : Ways()) {
    for (int64_t queries : {4, 24}) {
      for (int64_t hidden = 0; hidden < 100 + queries; ++hidden) {
        Small small(1, queries, 100, queries, 8);
        std::vector<uint8_t> mask(static_cast<size_t>(100 + queries), 1);
        mask[static_cast<size_t>(hidden)] = 0;
        small.p.mask.data = mask.data();
        small.p.mask.strides = {0, 0, 0, 1};
        std::vector<float>& values = hidden < 100 ? small.past_value : small.value;
        const int64_t position = hidden < 100 ? hidden : hidden - 100;
        std::fill_n(values.begin() + position * 8, 8, kNan);
        small.query[2 * 8] = kNan;
        small.Run(way);
        for (size_t i = 0; i < small.output.size(); ++i) {
          ASSERT_EQ(std::isnan(small.output[i]), i / 8 == 2) << i << " with key " << hidden;
        }
      }
    }
  }
}

TEST(Edge, ASinkIsAWeightWithoutAValue) {
  for (const Tuning& way : Ways()) {
    for (float sink : {-kInfinity, -30.0f, 0.0f, 2.0f, 30.0f, kInfinity, kNan}) {
      for (int64_t length : {0, 1, 43}) {
        for (float softcap : {0.0f, 5.0f}) {
          Small small(2, 3, 40, 3, 8);
          const float sinks[] = {sink, 0.5f};
          small.p.sinks = sinks;
          small.p.lengths64 = &length;
          small.p.softcap = softcap;
          small.Run(way);
          small.ExpectReference();
        }
      }
    }
  }
}

TEST(Edge, WithoutAnyKeyTheOutputIsTheEmptySum) {
  Small small(2, 3, 0, 0, 8);
  small.Run();
  for (float y : small.output) EXPECT_EQ(y, 0.0f);
}

TEST(Edge, AFillThatSwampsEveryScoreGivesUniformWeights) {
  // What GPT-2's exporters write: Where(mask, score, finfo.min), also in rows that see nothing.
  for (const Tuning& way : Ways()) {
    Small small(1, 2, 30, 2, 8);
    const std::vector<uint8_t> mask(2 * 32, 0);
    small.p.mask.data = mask.data();
    small.p.mask.strides = {0, 0, 32, 1};
    small.p.mask_fill = std::numeric_limits<float>::lowest();
    small.Run(way);
    small.ExpectReference();
    double mean = 0.0;
    for (int64_t j = 0; j < 30; ++j) mean += small.past_value[static_cast<size_t>(j * 8)];
    for (int64_t j = 0; j < 2; ++j) mean += small.value[static_cast<size_t>(j * 8)];
    EXPECT_NEAR(small.output[0], mean / 32, 1e-6);
  }
}

TEST(Edge, ABiasThatSwampsEveryScoreGivesUniformWeights) {
  for (const Tuning& way : Ways()) {
    Small small(1, 2, 30, 2, 8);
    const float lowest = std::numeric_limits<float>::lowest();
    small.p.bias.data = &lowest;
    small.p.bias.strides = {0, 0, 0, 0};
    small.Run(way);
    small.ExpectReference();
  }
}

TEST(Edge, NanInAVisibleKeyReachesTheRowsThatSeeItAndNoOthers) {
  for (const Tuning& way : Ways()) {
    Small small(1, 4, 100, 4, 8);
    small.p.causal = true;
    small.key[2 * 8 + 3] = kNan;  // position 102: visible to queries 2 and 3
    small.Run(way);
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t f = 0; f < 8; ++f) {
        EXPECT_EQ(std::isnan(small.output[static_cast<size_t>(i * 8 + f)]), i >= 2) << i;
      }
    }
  }
}

TEST(Edge, InfiniteScoresGiveWhatASoftmaxGives) {
  for (const Tuning& way : Ways()) {
    for (float k : {kInfinity, -kInfinity}) {
      Small small(1, 1, 100, 1, 8);
      for (float& q : small.query) q = 1.0f;
      for (int64_t f = 0; f < 8; ++f) small.past_key[static_cast<size_t>(50 * 8 + f)] = k;
      small.Run(way);
      for (float y : small.output) {
        // exp(inf - inf) is NaN; a score of -inf has weight 0.
        EXPECT_EQ(std::isnan(y), k > 0.0f);
      }
      if (k < 0.0f) small.ExpectReference();
    }
  }
}

TEST(Edge, HugeScoresDoNotOverflow) {
  for (const Tuning& way : Ways()) {
    Small small(1, 2, 90, 2, 8);
    for (float& q : small.query) q *= 1e4f;
    for (float& k : small.past_key) k *= 1e4f;
    small.Run(way);
    for (float y : small.output) {
      EXPECT_TRUE(std::isfinite(y));
      EXPECT_LE(std::fabs(y), 1.0f + 1e-5f);
    }
  }
}

// Near the largest number a sum of weighted values overflows where their mean, which a softmax
// before a matmul computes, does not.
TEST(Edge, ValuesWhoseSumOverflowsHaveTheirMean) {
  constexpr float kLarge = 3e38f;
  for (const Tuning& way : Ways()) {
    for (int64_t queries : {1, 4, 24}) {
      for (int kind = 0; kind < 7; ++kind) {
        SCOPED_TRACE(::testing::Message()
                     << "queries " << queries << ", kind " << kind << ", packed " << way.packed_rows
                     << ", splits " << way.splits);
        const int64_t past = 300, keys = past + queries;
        Small small(3, queries, past, queries, 24);
        // Features of one sign, of each, and small ones beside them.
        const auto enlarge = [](std::vector<float>& values) {
          for (size_t i = 0; i < values.size(); ++i) {
            const size_t f = i % 24;
            if (f < 8) values[i] = kLarge * (0.5f + 0.5f * std::fabs(values[i]));
            if (f >= 8 && f < 16) values[i] = kLarge * (i / 24 % 90 < 45 ? 1.0f : -1.0f);
          }
        };
        enlarge(small.past_value);
        enlarge(small.value);
        std::vector<float> bias(static_cast<size_t>(queries * keys));
        std::vector<uint8_t> mask(static_cast<size_t>(queries * keys));
        std::vector<float> scores(static_cast<size_t>(3 * queries * keys), kNan);
        for (size_t i = 0; i < bias.size(); ++i) {
          bias[i] = i % 5 == 0 ? -kInfinity : static_cast<float>(i % 7) * 0.1f;
          mask[i] = i % 5 != 0;
        }
        small.p.causal = kind == 1;
        small.p.window = kind == 1 ? 40 : 0;
        if (kind == 2) small.p.bias = {bias.data(), {0, 0, keys, 1}};
        if (kind == 3) small.p.mask = {mask.data(), {0, 0, keys, 1}};
        if (kind == 4) small.p.scores = {scores.data(), {0, queries * keys, keys, 1}};
        if (kind == 5) small.p.softcap = 3.0f;
        const float sinks[] = {0.5f, 3.0f, -kInfinity};
        if (kind == 6) small.p.sinks = sinks;
        small.Run(way);
        const Expected expected = Compute(small.p);
        for (size_t i = 0; i < small.output.size(); ++i) {
          const double size = i % 24 < 16 ? kLarge : 1.0;
          ASSERT_NEAR(small.output[i] / size, expected.output[i] / size, 1e-5) << i;
        }
      }
    }
  }
}

// A row that is computed again shows what stands where it has a weight, and only that.
TEST(Edge, ValuesWhoseSumOverflowsHideNoInfinity) {
  for (const Tuning& way : Ways()) {
    for (int64_t queries : {4, 24}) {
      Small small(1, queries, 100, queries, 8);
      std::vector<uint8_t> mask(static_cast<size_t>(100 + queries), 1);
      mask[7] = 0;
      small.p.mask = {mask.data(), {0, 0, 0, 1}};
      for (size_t i = 0; i < small.past_value.size(); ++i) {
        if (i % 8 == 0) small.past_value[i] = 3e38f;
      }
      std::fill_n(small.past_value.begin() + 7 * 8, 8, kNan);  // hidden from all
      small.past_value[9 * 8 + 1] = kInfinity;
      small.past_value[9 * 8 + 2] = kNan;
      small.Run(way);
      for (size_t i = 0; i < small.output.size(); ++i) {
        switch (i % 8) {
          case 1:
            ASSERT_EQ(small.output[i], kInfinity) << i;
            break;
          case 2:
            ASSERT_TRUE(std::isnan(small.output[i])) << i;
            break;
          default:
            ASSERT_TRUE(std::isfinite(small.output[i])) << i;
        }
      }
    }
  }
}

TEST(Edge, PresentInPlaceOfPastReceivesOnlyTheNewPositions) {
  const int64_t capacity = 64, past = 40, size = 16, heads = 2;
  for (const Tuning& way : Ways()) {
    Small plain(heads, 1, past, 1, size);
    plain.Run(way);
    Small shared(heads, 1, past, 1, size);
    std::vector<float> keys(static_cast<size_t>(heads * capacity * size), kNan);
    std::vector<float> values = keys;
    const Strides strides{heads * capacity * size, capacity * size, size, 1};
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < past * size; ++i) {
        keys[static_cast<size_t>(h * capacity * size + i)] =
            shared.past_key[static_cast<size_t>(h * past * size + i)];
        values[static_cast<size_t>(h * capacity * size + i)] =
            shared.past_value[static_cast<size_t>(h * past * size + i)];
      }
    }
    shared.p.past_key = {keys.data(), strides};
    shared.p.past_value = {values.data(), strides};
    shared.p.present_key = {keys.data(), strides};
    shared.p.present_value = {values.data(), strides};
    shared.Run(way);
    EXPECT_EQ(shared.output, plain.output);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < capacity; ++j) {
        const float k = keys[static_cast<size_t>((h * capacity + j) * size)];
        if (j < past) {
          EXPECT_EQ(k, shared.past_key[static_cast<size_t>((h * past + j) * size)]);
        } else if (j == past) {
          EXPECT_EQ(k, shared.key[static_cast<size_t>(h * size)]);
        } else {
          EXPECT_TRUE(std::isnan(k));
        }
      }
    }
  }
}

TEST(Edge, EverySplitAndRowChunkGivesTheSameAnswerWithinRounding) {
  Small whole(2, 9, 700, 9, 64);
  whole.p.causal = true;
  whole.Run();
  for (int64_t splits : {2, 5, 22}) {
    for (int64_t chunk : {1, 4, 9}) {
      Small parts(2, 9, 700, 9, 64);
      parts.p.causal = true;
      Tuning tuning;
      tuning.splits = splits;
      tuning.row_chunk = chunk;
      tuning.serial_cost = 0;
      test::ThreadPool<Runner> pool(3);
      parts.Run(tuning, pool.runner());
      for (size_t i = 0; i < whole.output.size(); ++i) {
        ASSERT_NEAR(parts.output[i], whole.output[i], 2e-6);
      }
    }
  }
}

TEST(Edge, ConcurrentRunsDoNotDisturbEachOther) {
  Small expected(4, 1, 300, 1, 64);
  expected.Run();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int repetition = 0; repetition < 50; ++repetition) {
        Small mine(4, 1, 300, 1, 64);
        std::vector<char> workspace(WorkspaceSize(mine.p, 1));
        attention::Run(mine.p, workspace.data(), Runner());
        if (mine.output != expected.output) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Edge, SmallProblemsStayOnOneThread) {
  Small small(12, 1, 4, 1, 64);
  Runner runner;
  runner.threads = 8;
  static int calls;
  calls = 0;
  runner.parallel_for = [](void*, int64_t count, void (*task)(void*, int64_t), void* argument) {
    ++calls;
    for (int64_t i = 0; i < count; ++i) task(argument, i);
  };
  small.Run(Tuning(), runner);
  EXPECT_EQ(calls, 0);
  small.ExpectReference();
  Small large(12, 1, 900, 1, 64);
  large.Run(Tuning(), runner);
  EXPECT_EQ(calls, 1);
  large.ExpectReference();
}

TEST(Validate, SaysWhatIsWrong) {
  const auto fault = [](auto change) {
    Small small(2, 1, 4, 1, 8);
    change(small.p);
    const char* text = Validate(small.p);
    return std::string(text != nullptr ? text : "");
  };
  EXPECT_EQ(fault([](Problem&) {}), "");
  EXPECT_EQ(fault([](Problem& p) { p.past = -1; }), "a dimension is negative");
  EXPECT_EQ(fault([](Problem& p) { p.head_size = 0; }), "head sizes must be at least 1");
  EXPECT_EQ(fault([](Problem& p) { p.kv_heads = 3; }),
            "the number of query heads must be a multiple of the number of key/value heads");
  EXPECT_EQ(fault([](Problem& p) { p.query.data = nullptr; }), "query and output are required");
  EXPECT_EQ(fault([](Problem& p) { p.value.data = nullptr; }),
            "key and value are required unless all keys come from past_key");
  EXPECT_EQ(fault([](Problem& p) { p.past_key.data = nullptr; }),
            "past_key and past_value are required when past positions are counted");
  EXPECT_EQ(fault([](Problem& p) {
              p.present_key.data = const_cast<void*>(p.past_key.data);
              p.present_key.strides = p.past_key.strides;
              p.present_key.strides.head += 8;
            }),
            "present_key shares its memory with past_key but has other strides");
  static const int32_t a = 1;
  static const int64_t b = 1;
  EXPECT_EQ(fault([](Problem& p) {
              p.lengths32 = &a;
              p.lengths64 = &b;
            }),
            "lengths are given twice");
  EXPECT_EQ(fault([](Problem& p) { p.window = -2; }), "the window is negative");
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
