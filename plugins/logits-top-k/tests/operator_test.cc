// The operators through the C table, with guarded memory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "host.h"
#include "index.h"

namespace graft::test {
namespace {

// One step over an index of n-grams: the tokens that would repeat one are no candidates.
TEST(LogitsTopK, BansFromTheIndex) {
  const graft_plugin* table = Load(LOGITS_TOP_K_LIBRARY);
  Kernel kernel(table, "LogitsTopK");
  ASSERT_EQ(kernel.Create(Attributes().Int("k", 2).Int("ngram_size", 2).String("mode", "raw")),
            GRAFT_OK);
  const int64_t bytes = ngram::Index::Bytes(100, 8);
  Buffer index(kUInt8, {bytes});
  std::memset(index.data<void>(), 0, static_cast<size_t>(bytes));
  const auto step = [&](std::vector<int32_t> parents, std::vector<int32_t> tokens) {
    const auto rows = static_cast<int64_t>(parents.size());
    Buffer scores(kFloat32, {rows, 5}), p(kInt32, {rows});
    Buffer t(kInt32, {rows, static_cast<int64_t>(tokens.size()) / rows});
    for (int64_t i = 0; i < rows * 5; ++i) scores.data<float>()[i] = static_cast<float>(i % 5);
    p.Set(parents);
    t.Set(tokens);
    Buffer values(kFloat32, {rows, 2}), row(kInt32, {rows, 2}), token(kInt32, {rows, 2});
    EXPECT_EQ(kernel.Run({scores.tensor(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                          nullptr, nullptr, t.tensor(), p.tensor(), index.tensor()},
                         {values.tensor(), row.tensor(), token.tensor()}),
              GRAFT_OK)
        << kernel.message.text;
    EXPECT_TRUE(index.intact() && values.intact() && row.intact() && token.intact());
    return token.Get<int32_t>();
  };
  using Tokens = std::vector<int32_t>;
  // 1 4 1: after 1 came 4.
  EXPECT_EQ(step({-1}, {1, 4, 1}), (Tokens{3, 2}));
  // Two beams: 1 4 1 3 and 1 4 1 4. After 4 came 1, which is not among the best.
  EXPECT_EQ(step({0, 0}, {3, 4}), (Tokens{4, 3, 4, 3}));
  // Both go on from the first: after 3 of the row 1 4 1 3 3 came 3; 4 is followed by 1 only.
  EXPECT_EQ(step({0, 0}, {3, 4}), (Tokens{4, 2, 4, 3}));
}

TEST(LogitsTopK, FaultsAreThrownOrTold) {
  const graft_plugin* table = Load(LOGITS_TOP_K_LIBRARY);
  Kernel kernel(table, "LogitsTopK");
  ASSERT_EQ(kernel.Create(Attributes().Int("k", 1)), GRAFT_OK);
  Buffer scores(kFloat16, {2, 3}), values(kFloat32, {2, 1}), row(kInt32, {2, 1});
  Buffer token(kInt32, {2, 1}), fault(kInt32, {4});
  const uint16_t one = 0x3c00, inf = 0x7c00, nothing = 0xfc00;
  const std::vector<graft_tensor*> plain = {values.tensor(), row.tensor(), token.tensor()};
  const std::vector<graft_tensor*> told = {values.tensor(), row.tensor(), token.tensor(),
                                           fault.tensor()};
  scores.Set<uint16_t>({one, one, one, one, inf, one});
  EXPECT_EQ(kernel.Run({scores.tensor()}, plain), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text, "LogitsTopK: row 1 has the score inf for token 1");
  EXPECT_EQ(kernel.Run({scores.tensor()}, told), GRAFT_OK);
  EXPECT_EQ(fault.Get<int32_t>(), (std::vector<int32_t>{1, 1, 1, 0x7f800000}));
  scores.Set<uint16_t>({nothing, nothing, nothing, one, one, one});
  EXPECT_EQ(kernel.Run({scores.tensor()}, plain), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text,
               "LogitsTopK: every token of the group that begins with row 0 is banned");
  EXPECT_EQ(kernel.Run({scores.tensor()}, told), GRAFT_OK);
  EXPECT_EQ(fault.data<int32_t>()[0], 2);
  EXPECT_EQ(fault.data<int32_t>()[1], 0);
  scores.Set<uint16_t>({one, one, one, one, one, one});
  EXPECT_EQ(kernel.Run({scores.tensor()}, told), GRAFT_OK);
  EXPECT_EQ(fault.data<int32_t>()[0], 0);
  EXPECT_TRUE(fault.intact() && values.intact());
}

TEST(LogSoftmaxTopK, AsTheTwoNodes) {
  const graft_plugin* table = Load(LOGITS_TOP_K_LIBRARY);
  std::mt19937 random(8);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int64_t rows = pick(0, 5), vocab = round % 10 == 0 ? pick(3000, 20000) : pick(1, 200);
    const int64_t k = pick(0, std::min<int64_t>(vocab, 20));
    Buffer x(kFloat32, {1, rows, vocab}), count(kInt64, {1});
    Buffer values(kFloat32, {1, rows, k}), indices(kInt64, {1, rows, k});
    count.Set<int64_t>({k});
    for (int64_t i = 0; i < rows * vocab; ++i) {
      x.data<float>()[i] = std::normal_distribution<float>(0, 3)(random);
      if (pick(0, 3) == 0) x.data<float>()[i] = -INFINITY;
    }
    const int64_t broken = pick(0, 2) == 0 && rows > 0 ? pick(0, rows - 1) : -1;
    if (broken >= 0) x.data<float>()[broken * vocab + pick(0, vocab - 1)] = NAN;
    Kernel kernel(table, "LogSoftmaxTopK");
    ASSERT_EQ(kernel.Create({}, {nullptr, count.tensor()}), GRAFT_OK) << kernel.message.text;
    ASSERT_EQ(kernel.Infer({x.tensor(), count.tensor()}, {values.tensor(), indices.tensor()}),
              GRAFT_OK);
    ASSERT_EQ(kernel.Run({x.tensor(), count.tensor()}, {values.tensor(), indices.tensor()}),
              GRAFT_OK)
        << kernel.message.text;
    ASSERT_TRUE(values.intact() && indices.intact());
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data<float>() + r * vocab;
      std::vector<int64_t> order;
      double sum = 0;
      for (int64_t t = 0; t < vocab; ++t) {
        order.push_back(t);
        sum += std::exp(static_cast<double>(row[t]));
      }
      if (r != broken && sum > 0) {
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return row[a] > row[b]; });
      }
      for (int64_t i = 0; i < k; ++i) {
        const float value = values.data<float>()[r * k + i];
        const int64_t index = indices.data<int64_t>()[r * k + i];
        ASSERT_EQ(index, order[static_cast<size_t>(i)]) << "row " << r << ", place " << i;
        if (r == broken || sum == 0) {
          ASSERT_TRUE(std::isnan(value));
        } else if (std::isinf(row[index])) {
          ASSERT_EQ(value, -INFINITY);
        } else {
          ASSERT_NEAR(value, row[index] - std::log(sum), 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace graft::test
