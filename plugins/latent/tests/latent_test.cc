// The kernel against multi-head attention in float64: random problems, then what must be refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "latent_problem.h"
#include "latent_reference.h"
#include "thread_pool.h"

namespace graft {
namespace latent {
namespace testing {
namespace {

using attention::testing::ThreadPool;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int ProblemCount() {
  const char* text = std::getenv("GRAFT_TEST_PROBLEMS");
  return text != nullptr ? std::atoi(text) : 10000;
}

ThreadPool& Threads(int threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  std::unique_ptr<ThreadPool>& pool = pools[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

// Runs with a workspace on an odd address, full of NaN, and followed by a band.
void RunPoisoned(const Problem& problem, int threads, const Tuning& tuning) {
  const size_t size = WorkspaceSize(problem, threads, tuning);
  std::vector<char> workspace(size + 1 + 64, static_cast<char>(0xFF));
  Run(problem, workspace.data() + 1, Threads(threads).runner(), tuning);
  for (size_t i = size + 1; i < workspace.size(); ++i) {
    ASSERT_EQ(workspace[i], static_cast<char>(0xFF)) << "wrote behind the workspace";
  }
}

void ExpectOutput(const RandomProblem& made, const std::vector<double>& expected) {
  const Problem& p = made.problem;
  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = made.output[kOutputBand + i];
    const double want = expected[i];
    if (std::isnan(want) ? std::isnan(got)
                         : std::fabs(got - want) <= 1e-5 + 1e-4 * std::fabs(want)) {
      continue;
    }
    if (++wrong > 3) return;
    const int64_t at = static_cast<int64_t>(i);
    ADD_FAILURE() << "token " << at / (p.heads * p.value_size) << ", head "
                  << at / p.value_size % p.heads << ", feature " << at % p.value_size << " is "
                  << got << ", the reference " << want << "\n"
                  << made.description;
  }
  for (size_t i = 0; i < kOutputBand; ++i) {
    ASSERT_TRUE(std::isnan(made.output[i])) << "wrote before the output";
    ASSERT_TRUE(std::isnan(made.output[kOutputBand + expected.size() + i]))
        << "wrote behind the output";
  }
}

TEST(Latent, AgreesWithMultiHeadAttentionOnRandomProblems) {
  for (int index = 0; index < ProblemCount(); ++index) {
    RandomProblem made;
    Make(static_cast<uint32_t>(index), made);
    ASSERT_EQ(Validate(made.problem), "") << made.description;
    const std::vector<char> rows = ExpectedRows(made), keys = ExpectedKeys(made);
    RunPoisoned(made.problem, made.threads, made.tuning);
    // Nothing but the written slots changed, bit for bit.
    ASSERT_EQ(std::memcmp(rows.data(), made.rows.data(), rows.size()), 0) << made.description;
    ASSERT_TRUE(keys == made.keys) << made.description;
    ExpectOutput(made, Compute(made, rows.data() + made.rows_start, keys.data() + made.keys_start));
    for (size_t i = 0; i + 1 < made.skipped.size(); ++i) {
      ASSERT_EQ(made.skipped[i], 0.0f) << made.description;
    }
    if (HasFailure()) FAIL() << "problem " << index;
  }
}

// A sample's tokens must not depend on what else is in the batch, or on the machine's load.
TEST(Latent, ResultsDoNotDependOnThreadsOrCompany) {
  int groups = 0;
  for (uint32_t index = 0; index < 300; ++index) {
    RandomProblem made;
    Make(index, made);
    Tuning tuning;
    tuning.isa = made.tuning.isa;
    RunPoisoned(made.problem, 1, tuning);
    const std::vector<float> alone = made.output;
    tuning.serial_cost = 0;
    RunPoisoned(made.problem, 3, tuning);
    ASSERT_EQ(std::memcmp(alone.data(), made.output.data(), alone.size() * sizeof(float)), 0)
        << made.description;
    const Problem& all = made.problem;
    for (int64_t g = 0; g < all.groups; ++g, ++groups) {
      Problem one = all;
      std::vector<int32_t> step(made.steps.begin() + g * 8, made.steps.begin() + g * 8 + 8);
      std::vector<int32_t> behind;
      const int64_t token = step[0];
      step[0] = 0;
      one.steps = step.data();
      if (one.kv_steps != nullptr) {
        behind.assign(made.kv_steps.begin() + g * 8, made.kv_steps.begin() + g * 8 + 8);
        behind[0] = 0;
        one.kv_steps = behind.data();
      }
      one.groups = 1;
      one.tokens = step[1];
      one.query += token * one.query_stride;
      one.input = nullptr;  // written already
      one.write = one.kv_write = nullptr;
      if (one.key != nullptr) {
        one.key += token * one.key_stride;
        one.value += token * one.value_stride;
      }
      one.skipped = nullptr;
      std::vector<float> output(static_cast<size_t>(one.tokens * one.heads * one.value_size), kNan);
      one.output = output.data();
      RunPoisoned(one, 2, tuning);
      ASSERT_EQ(std::memcmp(output.data(), all.output + token * all.heads * all.value_size,
                            output.size() * sizeof(float)),
                0)
          << "group " << g << " of " << made.description;
    }
  }
  EXPECT_GT(groups, 500);
}

}  // namespace
}  // namespace testing
}  // namespace latent
}  // namespace graft
