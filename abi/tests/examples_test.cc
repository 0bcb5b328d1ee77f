// The example plugins against float64, over random shapes, with poisoned outputs and guarded
// memory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "host.h"

namespace graft::test {
namespace {

double Gelu(double x, bool tanh_form) {
  if (tanh_form) return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x / 2 * (1 + std::erf(x / std::sqrt(2)));
}

TEST(FusedGelu, TenThousandShapes) {
  const graft_plugin* table = Load(FUSED_GELU);
  Kernel erf(table, "FusedGelu"), tanh(table, "FusedGelu");
  ASSERT_EQ(erf.Create(), GRAFT_OK);
  ASSERT_EQ(tanh.Create(Attributes().String("approximate", "tanh")), GRAFT_OK);
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 10000; ++round) {
    std::vector<int64_t> shape(static_cast<size_t>(pick(0, 4)));
    for (int64_t& size : shape) size = pick(0, 9);
    if (round % 500 == 0) shape = {2, pick(4000, 9000)};  // several tasks
    const bool half = pick(0, 3) == 0, tanh_form = pick(0, 1) == 1;
    const DataType type = half ? kFloat16 : kFloat32;
    Buffer x(type, shape, static_cast<uint64_t>(pick(0, 15)));
    Buffer y(type, shape, static_cast<uint64_t>(pick(0, 15)));
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      if (half) {
        x.data<Float16>()[i] = Float16::From(normal(random));
      } else {
        x.data<float>()[i] = normal(random);
      }
    }
    Kernel& kernel = tanh_form ? tanh : erf;
    ASSERT_EQ(kernel.Run({x.tensor()}, {y.tensor()}, round % 500 == 0 ? 3 : 1), GRAFT_OK)
        << kernel.message.text;
    for (int64_t i = 0; i < count; ++i) {
      const double in = half ? x.data<Float16>()[i].ToFloat() : x.data<float>()[i];
      const double out = half ? y.data<Float16>()[i].ToFloat() : y.data<float>()[i];
      const double want = Gelu(in, tanh_form);
      const double bound = half ? 1e-6 + 6e-4 * std::abs(want) : 1e-6 + 5e-7 * std::abs(want);
      ASSERT_LE(std::abs(out - want), bound) << "x = " << in << " round " << round;
    }
    ASSERT_TRUE(x.intact() && y.intact()) << round;
  }
}

TEST(FusedGelu, SpecialValues) {
  Kernel kernel(Load(FUSED_GELU), "FusedGelu");
  ASSERT_EQ(kernel.Create(), GRAFT_OK);
  Buffer x(kFloat32, {5}), y(kFloat32, {5});
  x.Set<float>({0, 1e30f, -1e5f, INFINITY, NAN});
  ASSERT_EQ(kernel.Run({x.tensor()}, {y.tensor()}), GRAFT_OK);
  const std::vector<float> got = y.Get<float>();
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 1e30f);
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], INFINITY);
  EXPECT_TRUE(std::isnan(got[4]));
  EXPECT_EQ(
      Kernel(Load(FUSED_GELU), "FusedGelu").Create(Attributes().String("approximate", "sigmoid")),
      GRAFT_ERROR_INVALID_ARGUMENT);
}

#ifdef LOW_RANK

// A k x n matrix of the given rank, rounded to float32 as weights in a model are.
void FillLowRank(Buffer* w, int64_t k, int64_t n, int64_t rank, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> left(static_cast<size_t>(k * rank)), right(static_cast<size_t>(rank * n));
  for (double& value : left) value = normal(random);
  for (double& value : right) value = normal(random);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < rank; ++r) {
        sum += left[static_cast<size_t>(i * rank + r)] * right[static_cast<size_t>(r * n + j)];
      }
      w->data<double>()[i * n + j] = static_cast<float>(sum);
    }
  }
}

TEST(LowRank, SplitsWhatHasLowRank) {
  const graft_plugin* table = Load(LOW_RANK);
  for (const auto& [k, n, rank] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {96, 64, 7}, {40, 300, 1}, {128, 128, 32}}) {
    Buffer w(kFloat64, {k, n});
    FillLowRank(&w, k, n, rank, 5);
    std::map<std::string, Folded> results;
    Message message;
    ASSERT_EQ(Fold(table, "LowRankMatMul", {{"weight", w.tensor()}}, &results, &message), GRAFT_OK)
        << message.text;
    ASSERT_EQ(results["left"].shape, (std::vector<int64_t>{k, rank}));
    ASSERT_EQ(results["right"].shape, (std::vector<int64_t>{rank, n}));
    double error = 0, norm = 0;
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r) {
          sum += results["left"].values[static_cast<size_t>(i * rank + r)] *
                 results["right"].values[static_cast<size_t>(r * n + j)];
        }
        const double want = w.data<double>()[i * n + j];
        error += (sum - want) * (sum - want);
        norm += want * want;
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6);
  }
}

TEST(LowRank, RefusesTheRest) {
  const graft_plugin* table = Load(LOW_RANK);
  std::map<std::string, Folded> results;
  Message message;
  const auto refused = [&](Buffer* w, const char* text) {
    EXPECT_EQ(Fold(table, "LowRankMatMul", {{"weight", w->tensor()}}, &results, &message),
              GRAFT_REFUSED);
    EXPECT_STREQ(message.text, text);
    EXPECT_TRUE(results.empty());
  };
  Buffer full(kFloat64, {60, 60});
  FillLowRank(&full, 60, 60, 60, 1);
  refused(&full, "the rank of the 60 x 60 weight is above 15");
  Buffer hidden(kFloat64, {60, 60});  // a corner of low rank, the rest of full rank
  FillLowRank(&hidden, 60, 60, 60, 1);
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 16; ++j) hidden.data<double>()[i * 60 + j] = hidden.data<double>()[i * 60];
  }
  refused(&hidden, "the rank of the 60 x 60 weight is 23, needed is 1 to 15");
  Buffer zero(kFloat64, {8, 8});
  zero.Set(std::vector<double>(64, 0.0));
  refused(&zero, "the rank of the 8 x 8 weight is 0, needed is 1 to 2");
  Buffer column(kFloat64, {60, 1});
  column.Set(std::vector<double>(60, 1.0));
  refused(&column, "a 60 x 1 weight is too small to split");
  zero.data<double>()[5] = NAN;
  refused(&zero, "the weight holds values that are not finite");
  Buffer ints(kInt64, {8, 8});
  refused(&ints, "weight is no real matrix");
}

#endif  // LOW_RANK

}  // namespace
}  // namespace graft::test
