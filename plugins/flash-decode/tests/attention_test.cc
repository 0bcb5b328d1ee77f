// The kernel against the float64 reference over random problems.
#include "attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
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

void RunPoisoned(const RandomProblem& made) {
  WithPoisonedWorkspace(
      WorkspaceSize(made.problem, made.threads, made.tuning), [&](char* workspace) {
        Run(made.problem, workspace, test::Threads<Runner>(made.threads), made.tuning);
      });
}

struct Tolerance {
  double absolute, relative;
};

// True when `got` is `want` within tolerance; equal infinities and NaN for NaN count as equal.
bool Close(double got, double want, Tolerance tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= tolerance.absolute + tolerance.relative * std::fabs(want);
}

void ExpectOutputs(const RandomProblem& made, const Expected& expected) {
  const Problem& p = made.problem;
  const bool half = p.type == Type::kFloat16;
  int64_t wrong = 0;
  int64_t i = 0;
  const auto check = [&](const Tensor& tensor, const void* data, const std::vector<double>& want,
                         int64_t row_size, const char* what, Tolerance tolerance) {
    i = 0;
    tensor.ForEach([&](int64_t index, int64_t b, int64_t h, int64_t s, int64_t f) {
      const int64_t at = i++;
      const double slack = expected.slack[static_cast<size_t>(at / row_size)];
      const Tolerance loose = {tolerance.absolute + 4.0 * slack, tolerance.relative + slack};
      const double got = Element(p.type, data, index);
      double value = want[static_cast<size_t>(at)];
      // What float16 cannot hold is infinite in it.
      if (half && std::fabs(value) >= 65520.0)
        value = HalfToFloat(FloatToHalf(static_cast<float>(value)));
      if (Close(got, value, loose)) return;
      if (++wrong > 3) return;
      ADD_FAILURE() << what << "[" << b << "," << h << "," << s << "," << f << "] is " << got
                    << ", the reference " << value << "\n"
                    << made.description;
    });
  };
  const Tolerance tolerance = half ? Tolerance{1e-3, 1.5e-3} : Tolerance{1e-5, 1e-4};
  check(made.output, p.output.data, expected.output, p.value_size, "output", tolerance);
  if (p.scores.data != nullptr) {
    check(made.scores, p.scores.data, expected.scores, p.past + p.fresh, "scores", tolerance);
  }
}

void ExpectPresent(const RandomProblem& made, const Tensor& past, const Tensor& fresh,
                   const Tensor& present, const char* what) {
  if (present.empty()) return;
  const Problem& p = made.problem;
  const int64_t element = p.type == Type::kFloat32 ? 4 : 2;
  int64_t wrong = 0;
  present.ForEach([&](int64_t index, int64_t b, int64_t g, int64_t j, int64_t f) {
    const Tensor& from = j < p.past ? past : fresh;
    const int64_t source = from.Index(b, g, j < p.past ? j : j - p.past, f);
    const char* want = const_cast<Tensor&>(from).data() + source * element;
    const char* got = const_cast<Tensor&>(present).data() + index * element;
    if (std::memcmp(want, got, static_cast<size_t>(element)) != 0) ++wrong;
  });
  EXPECT_EQ(wrong, 0) << what << " differs from past and fresh\n" << made.description;
  EXPECT_FALSE(present.Damaged()) << what << ": wrote outside\n" << made.description;
}

TEST(Attention, AgreesWithTheReferenceOnRandomProblems) {
  for (int index = 0; index < ProblemCount(10000); ++index) {
    RandomProblem made;
    Make(static_cast<uint32_t>(index), made);
    ASSERT_EQ(Validate(made.problem), nullptr) << made.description;
    RunPoisoned(made);
    ExpectOutputs(made, Compute(made.problem));
    EXPECT_FALSE(made.output.Damaged()) << "wrote outside the output\n" << made.description;
    if (!made.scores.empty()) {
      EXPECT_FALSE(made.scores.Damaged()) << "wrote outside the scores\n" << made.description;
    }
    ExpectPresent(made, made.past_key, made.key, made.present_key, "present_key");
    ExpectPresent(made, made.past_value, made.value, made.present_value, "present_value");
    if (HasFailure()) FAIL() << "problem " << index;
  }
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
