// The CUDA variant on the emulator, through the plugin's table, against the CPU one on random
// steps: candidates, samples, faults, bans from an index.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "host.h"
#include "index.h"

namespace graft::test {
namespace {

class LogitsTopKCuda : public ::testing::Test {
 protected:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }
  float Real(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  }

  std::mt19937 random{12};
  const graft_plugin* cpu = Load(CPU_LIBRARY);
  const graft_plugin* cuda = Load(CUDA_LIBRARY);
};

// Outputs of one variant.
struct Answer {
  Answer(int64_t groups, int64_t width)
      : scores(kFloat32, {groups, width}),
        rows(kInt32, {groups, width}),
        tokens(kInt32, {groups, width}),
        fault(kInt32, {4}) {}
  std::vector<graft_tensor*> tensors() {
    return {scores.tensor(), rows.tensor(), tokens.tensor(), fault.tensor()};
  }
  bool intact() const {
    return scores.intact() && rows.intact() && tokens.intact() && fault.intact();
  }
  Buffer scores, rows, tokens, fault;
};

// Whole numbers as scores, so that order and ties are the same in every arithmetic; samples are
// apart from any border by the choice of numbers.
TEST_F(LogitsTopKCuda, StepsAgree) {
  int64_t compared = 0, sampled = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t groups = Pick(1, 3), vocab = Pick(0, 4) == 0 ? Pick(1, 2500) : Pick(1, 200);
    const int64_t width = Pick(0, 12) == 0 ? Pick(65, 90) : Pick(1, 12);
    const bool samples = Pick(0, 3) == 0, edits = Pick(0, 1) == 0, biased = Pick(0, 1) == 0;
    const int64_t n = Pick(0, 2) == 0 ? Pick(1, 3) : 0;
    std::vector<int32_t> group;
    std::vector<float> warpers, random_numbers;
    int64_t rows = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const bool sample = samples && Pick(0, 1) == 0, beams = sample && Pick(0, 1) == 0;
      const int64_t count = sample && !beams ? 1 : Pick(1, 4),
                    k = Pick(1, std::min<int64_t>(width, 20));
      group.insert(group.end(),
                   {static_cast<int32_t>(rows), static_cast<int32_t>(count),
                    static_cast<int32_t>(k), static_cast<int32_t>(sample ? 2 : Pick(0, 1)),
                    static_cast<int32_t>((beams ? 1 : 0) | (Pick(0, 3) == 0 ? 2 : 0)),
                    static_cast<int32_t>(Pick(0, 1) * Pick(1, 30)),
                    static_cast<int32_t>(Pick(0, 3)), static_cast<int32_t>(random_numbers.size())});
      for (int64_t i = 0; sample && i < k; ++i) random_numbers.push_back(Real(0, 0.999f));
      warpers.insert(warpers.end(), {Pick(0, 1) == 0 ? 0.0f : Real(0.4f, 2), 0, 0, 0});
      if (Pick(0, 2) == 0) warpers[warpers.size() - 2] = Real(0.01f, 0.3f);
      rows += count;
    }
    Buffer scores(kFloat32, {rows, vocab}, static_cast<uint64_t>(Pick(0, 15)));
    for (int64_t i = 0; i < rows * vocab; ++i) {
      scores.data<float>()[i] = Pick(0, 9) == 0
                                    ? -INFINITY
                                    : static_cast<float>(Pick(-40, 40)) / (Pick(0, 1) == 0 ? 1 : 4);
    }
    const bool bad = Pick(0, 15) == 0;
    if (bad) scores.data<float>()[Pick(0, rows * vocab - 1)] = Pick(0, 1) == 0 ? NAN : INFINITY;
    std::vector<int32_t> offsets{0}, edit_tokens, edit_ops;
    std::vector<float> edit_values;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t e = edits ? Pick(0, 9) : 0; e > 0; --e) {
        edit_tokens.push_back(static_cast<int32_t>(Pick(0, std::min<int64_t>(vocab, 6) - 1)));
        edit_ops.push_back(static_cast<int32_t>(Pick(0, 60) == 0 ? 3 : Pick(0, 2)));
        edit_values.push_back(static_cast<float>(Pick(2, 8)) / 4);
      }
      offsets.push_back(static_cast<int32_t>(edit_tokens.size()));
    }
    const auto count = static_cast<int64_t>(edit_tokens.size());
    Buffer group_(kInt32, {groups, 8}), warper(kFloat32, {groups, 4}), bias(kFloat32, {rows});
    Buffer offset(kInt32, {rows + 1}), token(kInt32, {count}), op(kInt32, {count}),
        value(kFloat32, {count});
    Buffer number(kFloat32, {static_cast<int64_t>(random_numbers.size())});
    group_.Set(group), warper.Set(warpers), offset.Set(offsets), token.Set(edit_tokens);
    op.Set(edit_ops), value.Set(edit_values), number.Set(random_numbers);
    for (int64_t r = 0; r < rows; ++r) bias.data<float>()[r] = static_cast<float>(Pick(-20, 0)) / 4;
    const int64_t more = Pick(1, 40), bytes = ngram::Index::Bytes(400, 12);
    Buffer fresh(kInt32, {rows, more}), parents(kInt32, {rows}), index(kUInt8, {bytes});
    for (int64_t i = 0; i < rows * more; ++i) {
      fresh.data<int32_t>()[i] = static_cast<int32_t>(Pick(0, std::min<int64_t>(vocab, 5) - 1));
    }
    std::fill_n(parents.data<int32_t>(), rows, -1);

    Attributes attributes;
    attributes.Int("k", width).Int("ngram_size", n);
    const auto run = [&](const graft_plugin* table, Answer& answer) {
      Kernel kernel(table, "LogitsTopK");
      std::memset(index.data<void>(), 0, static_cast<size_t>(bytes));
      if (kernel.Create(attributes) != GRAFT_OK) return std::string(kernel.message.text);
      const auto when = [](bool is, Buffer& buffer) { return is ? buffer.tensor() : nullptr; };
      const int32_t code =
          kernel.Run({scores.tensor(), group_.tensor(), warper.tensor(), when(biased, bias),
                      when(edits, offset), when(edits, token), when(edits, op), when(edits, value),
                      when(!random_numbers.empty(), number), when(n > 0, fresh),
                      when(n > 0, parents), when(n > 0, index)},
                     answer.tensors());
      return code == GRAFT_OK ? std::string() : std::string(kernel.message.text);
    };
    Answer want(groups, width), got(groups, width);
    ASSERT_EQ(run(cpu, want), "");
    ASSERT_EQ(run(cuda, got), "");
    ASSERT_TRUE(got.intact() && index.intact() && scores.intact());
    const std::vector<int32_t> fault = want.fault.Get<int32_t>();
    ASSERT_EQ(got.fault.Get<int32_t>()[0], fault[0]) << "round " << round;
    ASSERT_EQ(got.fault.Get<int32_t>()[1], fault[1]) << "round " << round;
    ASSERT_EQ(got.fault.Get<int32_t>()[2], fault[2]) << "round " << round;
    if (fault[0] != 0) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const bool sample = group[static_cast<size_t>(g * 8 + 3)] == 2;
      for (int64_t i = g * width; i < (g + 1) * width; ++i) {
        const float a = want.scores.data<float>()[i], b = got.scores.data<float>()[i];
        const bool same = want.tokens.data<int32_t>()[i] == got.tokens.data<int32_t>()[i] &&
                          want.rows.data<int32_t>()[i] == got.rows.data<int32_t>()[i];
        // Logarithms of two arithmetics may differ by a rounding, and put rows in another order.
        if (sample) {
          if (!same) break;  // of a border, after which samples without replacement differ
          ++sampled;
        }
        ASSERT_TRUE(a == b || std::abs(a - b) <= 1e-5f + 1e-6f * std::abs(a) + 2e-5f * sample)
            << "round " << round << ", place " << i << ": " << b << ", the CPU has " << a;
        if (!sample && group[static_cast<size_t>(g * 8 + 3)] == 1) {
          ASSERT_TRUE(same) << "round " << round << ", place " << i;
        }
        compared += same;
      }
    }
  }
  EXPECT_GT(compared, 2000);
  EXPECT_GT(sampled, 150);
}

TEST_F(LogitsTopKCuda, WhatContradictsItselfIsAFault) {
  Kernel kernel(cuda, "LogitsTopK");
  ASSERT_EQ(kernel.Create(Attributes().Int("k", 2)), GRAFT_OK);
  Buffer scores(kFloat32, {2, 3}), groups(kInt32, {2, 8});
  scores.Set<float>({1, 2, 3, 4, 5, 6});
  groups.Set<int32_t>({1, 1, 2, 1, 0, 0, 0, 0, /* rows 0 to 2 of 2 */ 0, 3, 2, 1, 0, 0, 0, 0});
  Answer answer(2, 2);
  ASSERT_EQ(kernel.Run({scores.tensor(), groups.tensor()}, answer.tensors()), GRAFT_OK)
      << kernel.message.text;
  EXPECT_EQ(answer.fault.Get<int32_t>(), (std::vector<int32_t>{3, 0, -1, 0}));
  EXPECT_EQ(answer.tokens.Get<int32_t>(), (std::vector<int32_t>{2, 1, -1, -1}));
  EXPECT_TRUE(std::isnan(answer.scores.data<float>()[2]));
}

TEST_F(LogitsTopKCuda, LogSoftmaxTopKAgrees) {
  for (int round = 0; round < 60; ++round) {
    const int64_t rows = Pick(0, 5), vocab = round % 10 == 0 ? Pick(3000, 9000) : Pick(1, 200);
    const int64_t k = Pick(0, std::min<int64_t>(vocab, Pick(0, 9) == 0 ? 100 : 20));
    Buffer x(kFloat32, {1, rows, vocab}), count(kInt64, {1});
    count.Set<int64_t>({k});
    for (int64_t i = 0; i < rows * vocab; ++i) {
      x.data<float>()[i] = Pick(0, 3) == 0 ? -INFINITY : static_cast<float>(Pick(-9, 9));
    }
    if (Pick(0, 2) == 0 && rows > 0) x.data<float>()[Pick(0, rows * vocab - 1)] = NAN;
    Buffer values_a(kFloat32, {1, rows, k}), indices_a(kInt64, {1, rows, k});
    Buffer values_b(kFloat32, {1, rows, k}), indices_b(kInt64, {1, rows, k});
    const auto run = [&](const graft_plugin* table, Buffer& values, Buffer& indices) {
      Kernel kernel(table, "LogSoftmaxTopK");
      if (kernel.Create({}, {nullptr, count.tensor()}) != GRAFT_OK) return -1;
      return static_cast<int>(
          kernel.Run({x.tensor(), count.tensor()}, {values.tensor(), indices.tensor()}));
    };
    ASSERT_EQ(run(cpu, values_a, indices_a), GRAFT_OK);
    ASSERT_EQ(run(cuda, values_b, indices_b), GRAFT_OK);
    ASSERT_TRUE(values_b.intact() && indices_b.intact());
    ASSERT_EQ(indices_a.Get<int64_t>(), indices_b.Get<int64_t>()) << "round " << round;
    for (int64_t i = 0; i < rows * k; ++i) {
      const float a = values_a.data<float>()[i], b = values_b.data<float>()[i];
      ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) < 1e-5f)
          << a << ' ' << b;
    }
  }
}

}  // namespace
}  // namespace graft::test
