// Parts of a row joined by log-sum-exp against one softmax over all of its scores, in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graft/merge-inl.h"

namespace graft {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kWidth = 16;

// What a task leaves of its keys: key j has the score scores[j] and the value j + 1 everywhere.
struct Part {
  OnlineRow row{kLowest, 0.0f};
  std::vector<float> sums = std::vector<float>(kWidth, 0.0f);

  Part(const std::vector<float>& scores, size_t begin, size_t end) {
    for (size_t j = begin; j < end; ++j) row.maximum = std::max(row.maximum, scores[j]);
    if (row.maximum == kLowest) return;
    for (size_t j = begin; j < end; ++j) {
      const float weight = std::exp(scores[j] - row.maximum);
      row.sum += weight;
      for (float& sum : sums) sum += weight * static_cast<float>(j + 1);
    }
  }
};

std::vector<float> Merged(const std::vector<Part>& parts, OnlineRow* total) {
  std::vector<float> sums(kWidth, 0.0f);
  *total = MergeParts(
      static_cast<int64_t>(parts.size()), [&](int64_t part) { return parts[part].row; },
      [](float x) { return std::exp(x); },
      [&](int64_t part, float weight) {
        AddScaled(weight, parts[part].sums.data(), kWidth, sums.data());
      });
  return sums;
}

TEST(Merge, EqualsOneSoftmax) {
  // Scores far apart, parts that saw no key, and a part whose keys are all hidden.
  const std::vector<float> scores = {-3.0f,   80.0f,   0.5f,   79.0f, kLowest,
                                     kLowest, -200.0f, 80.25f, 1.0f,  -1.0f};
  double top = 80.25, sum = 0, weighted = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    sum += std::exp(scores[j] - top);
    weighted += std::exp(scores[j] - top) * static_cast<double>(j + 1);
  }
  const std::vector<std::vector<size_t>> cuts = {
      {0, 10}, {0, 1, 10}, {0, 4, 6, 10}, {0, 0, 3, 3, 10, 10}};
  for (const auto& cut : cuts) {
    std::vector<Part> parts;
    for (size_t i = 0; i + 1 < cut.size(); ++i) parts.emplace_back(scores, cut[i], cut[i + 1]);
    OnlineRow total;
    const std::vector<float> sums = Merged(parts, &total);
    EXPECT_EQ(total.maximum, 80.25f);
    EXPECT_NEAR(total.sum, sum, 1e-6 * sum);
    for (const float x : sums) EXPECT_NEAR(x / total.sum, weighted / sum, 1e-5);
  }
}

TEST(Merge, NoKeyInAnyPart) {
  const std::vector<float> hidden(4, kLowest);
  OnlineRow total;
  const std::vector<float> sums = Merged({Part(hidden, 0, 2), Part(hidden, 2, 4)}, &total);
  EXPECT_TRUE(total.empty());
  EXPECT_EQ(sums, std::vector<float>(kWidth, 0.0f));
}

TEST(Merge, NotANumberIsNotLost) {
  Part part({1.0f}, 0, 1);
  part.row.sum = std::nanf("");
  OnlineRow total;
  Merged({part, Part({2.0f}, 0, 1)}, &total);
  EXPECT_TRUE(std::isnan(total.sum));
  EXPECT_FALSE(total.empty());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace graft
