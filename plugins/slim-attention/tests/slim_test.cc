// Keys or inputs in place of keys and values, against multi-head attention in float64 that is made
// from W_K, W_V and their biases and knows nothing of the algebra.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "poison.h"
#include "row_attention.h"
#include "slim_problem.h"
#include "thread_pool.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

using graft::testing::ProblemCount;
using graft::testing::WithPoisonedWorkspace;

void RunPoisoned(const Layer& made) {
  WithPoisonedWorkspace(WorkspaceSize(made.problem, made.threads, made.tuning),
                        [&](char* workspace) {
                          row_attention::Run(made.problem, workspace,
                                             test::Threads<Runner>(made.threads), made.tuning);
                        });
}

TEST(Slim, AgreesWithMultiHeadAttentionOnRandomLayers) {
  int skipped_some = 0, turned = 0;
  for (int index = 0; index < ProblemCount(12000); ++index) {
    Layer made;
    Make(static_cast<uint32_t>(index), 4.0, made);
    const Problem& p = made.problem;
    ASSERT_EQ(Validate(p), "") << made.description;
    RunPoisoned(made);
    const Answer answer = Compute(made);
    for (size_t i = 0; i < answer.output.size(); ++i) {
      const size_t row = i / static_cast<size_t>(p.value_size);
      const double got = made.output[kOutputBand + i], want = answer.output[i];
      double allowed = 1e-5 + 1e-4 * std::fabs(want);
      // What was left out is bounded by its probability.
      if (p.skip > 0) allowed += made.skipped[row] * answer.largest[row] * (1 + 1e-4);
      ASSERT_LE(std::fabs(got - want), allowed)
          << "output " << i << " is " << got << ", the reference " << want << "\n"
          << made.description;
    }
    for (size_t i = 0; i < kOutputBand; ++i) {
      ASSERT_TRUE(std::isnan(made.output[i])) << "wrote before the output";
      ASSERT_TRUE(std::isnan(made.output[kOutputBand + answer.output.size() + i]))
          << "wrote past the output";
    }
    for (size_t row = 0; row + 1 < made.skipped.size(); ++row) {
      ASSERT_GE(made.skipped[row], 0.0f) << made.description;
      ASSERT_LE(made.skipped[row], answer.below_skip[row] * (1 + 1e-3) + 1e-6) << made.description;
      if (made.skipped[row] > 0) ++skipped_some;
    }
    if (!made.skipped.empty()) {
      ASSERT_TRUE(std::isnan(made.skipped.back())) << "wrote past skipped";
    }
    if (made.pairs > 0) ++turned;
  }
  EXPECT_GT(skipped_some, ProblemCount(12000) / 20);
  EXPECT_GT(turned, ProblemCount(12000) / 20);
}

// One key has nearly all of the probability, and all others too little to be looked at.
TEST(Slim, ReportsTheProbabilityThatWasSkipped) {
  constexpr int64_t kKeys = 100, kSize = 8;
  std::vector<float> pool(7 * 16 * kSize, 0.0f), query(kSize, 0.0f), weight(kSize * 16, 0.0f);
  for (int64_t s = 0; s < kKeys; ++s) {
    pool[static_cast<size_t>(s * kSize)] = s == 0 ? 10.0f : 0.0f;  // the score
    pool[static_cast<size_t>(s * kSize + 1)] = s == 0 ? 1.0f : 50.0f;
  }
  query[0] = 1.0f;
  for (int64_t f = 0; f < kSize; ++f) weight[static_cast<size_t>(f * 16 + f)] = 1.0f;
  const std::vector<int32_t> sequences = {0, 1, 0, kKeys, 0, 0, 0, 0};
  std::vector<int32_t> shared_slots;
  for (int32_t s = 0; s < kKeys; ++s) shared_slots.push_back(s);
  float output[kSize], skipped = -1;

  Problem p;
  p.pool.data = pool.data();
  p.pool.blocks = 7;
  p.pool.block_floats = 16 * kSize;
  p.pool.width = kSize;
  p.kind = RowKind::kKeys;
  p.tokens = p.heads = p.kv_heads = p.groups = 1;
  p.head_size = p.value_size = kSize;
  p.query = query.data();
  p.query_stride = kSize;
  p.value_weight = weight.data();
  p.sequences = sequences.data();
  p.shared_slots = shared_slots.data();
  p.shared_length = kKeys;
  p.scale = 1.0f;
  p.output = output;
  p.skipped = &skipped;
  Tuning tuning;
  tuning.parts = 1;
  const double others = 99 * std::exp(-10.0) / (1 + 99 * std::exp(-10.0));
  for (float skip : {0.0f, 1e-5f, 1e-4f, 0.5f}) {
    p.skip = skip;
    ASSERT_EQ(Validate(p), "");
    std::vector<char> workspace(WorkspaceSize(p, 1, tuning));
    row_attention::Run(p, workspace.data(), test::Threads<Runner>(1), tuning);
    const bool left_out = skip > std::exp(-10.0);
    EXPECT_NEAR(skipped, left_out ? others : 0.0, 1e-7) << skip;
    EXPECT_NEAR(output[1], (left_out ? 0.0 : 50 * others) + (1 - others), 1e-4) << skip;
    // The error is the probability times the value that was left out, no more.
    EXPECT_LE(std::fabs(output[1] - (50 * others + 1 - others)), skipped * 50 * 1.001 + 1e-4);
  }
}

}  // namespace
}  // namespace testing
}  // namespace row_attention
}  // namespace graft
