// The vector exp and tanh of every instruction set, and half precision, against double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention.h"
#include "kernel.h"
#include "reference.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const Kernel*> AllKernels() {
  std::vector<const Kernel*> kernels;
  for (Isa isa : kIsas) {
    if (const Kernel* kernel = FindKernel(isa)) kernels.push_back(kernel);
  }
  return kernels;
}

// Distance to the exact value in units of the last place of a float of that size.
double UnitsOff(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 24);
}

// A function of Kernel, the one it approximates, and the least argument it is accurate for.
struct Power {
  void (*Kernel::*function)(float*, int64_t);
  double (*exact)(double);
  double least;
};
const Power kPowers[] = {
    {&Kernel::exponential, [](double x) { return std::exp(x); }, -87.2},
    {&Kernel::power_of_two, [](double x) { return std::exp2(x); }, -125.9},
};

TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  for (const Kernel* kernel : AllKernels()) {
    for (const Power& power : kPowers) {
      std::vector<float> x;
      for (double v = power.least; v <= 0.0; v += 1.7e-4) x.push_back(static_cast<float>(v));
      for (float v = 1e-8f; v < 1.0f; v *= 1.01f) x.push_back(-v);
      while (x.size() % 16 != 0) x.push_back(0.0f);
      std::vector<float> y = x;
      (kernel->*power.function)(y.data(), static_cast<int64_t>(y.size()));
      double worst = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        worst = std::fmax(worst, UnitsOff(y[i], power.exact(static_cast<double>(x[i]))));
      }
      EXPECT_LE(worst, 2.0);
    }
  }
}

TEST(Exponential, RetainsTheValuesThatASoftmaxRestsOn) {
  for (const Kernel* kernel : AllKernels()) {
    for (const Power& power : kPowers) {
      float x[16] = {0.0f, -kInfinity, std::nanf(""), -127.0f, -1e30f, -3.4e38f, -0.0f};
      // A NaN with every payload bit set must stay one.
      const uint32_t bits = 0xFFFFFFFFu;
      std::memcpy(&x[7], &bits, sizeof(bits));
      (kernel->*power.function)(x, 16);
      EXPECT_EQ(x[0], 1.0f);
      EXPECT_EQ(x[1], 0.0f);
      EXPECT_TRUE(std::isnan(x[2]));
      EXPECT_EQ(x[3], 0.0f);
      EXPECT_EQ(x[4], 0.0f);
      EXPECT_EQ(x[5], 0.0f);
      EXPECT_EQ(x[6], 1.0f);
      EXPECT_TRUE(std::isnan(x[7]));
    }
  }
}

TEST(HyperbolicTangent, IsAccurateNearAndFarFromZero) {
  for (const Kernel* kernel : AllKernels()) {
    std::vector<float> x;
    for (double v = -12.0; v <= 12.0; v += 1e-4) x.push_back(static_cast<float>(v));
    for (float v = 1e-20f; v < 1.0f; v *= 1.03f) x.push_back(v);
    while (x.size() % 16 != 0) x.push_back(0.0f);
    std::vector<float> y = x;
    kernel->hyperbolic_tangent(y.data(), static_cast<int64_t>(y.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::tanh(static_cast<double>(x[i]));
      ASSERT_LE(std::fabs(y[i] - exact), 3e-7 * std::fabs(exact)) << "at " << x[i];
    }
    float ends[16] = {kInfinity, -kInfinity, std::nanf(""), 0.0f, 1e30f};
    kernel->hyperbolic_tangent(ends, 16);
    EXPECT_EQ(ends[0], 1.0f);
    EXPECT_EQ(ends[1], -1.0f);
    EXPECT_TRUE(std::isnan(ends[2]));
    EXPECT_EQ(ends[3], 0.0f);
    EXPECT_EQ(ends[4], 1.0f);
  }
}

// One key: the output is its value, so the kernel's conversions show as they are.
void PassThrough(Isa isa, const std::vector<uint16_t>& values, std::vector<uint16_t>* output) {
  Problem p;
  p.type = Type::kFloat16;
  p.batch = p.heads = p.kv_heads = p.queries = p.fresh = p.head_size = 1;
  p.value_size = static_cast<int64_t>(values.size());
  const uint16_t one = 0x3C00;
  output->assign(values.size(), 0xFFFF);
  p.query.data = p.key.data = &one;
  p.value.data = values.data();
  p.output.data = output->data();
  Tuning tuning;
  tuning.isa = isa;
  std::vector<char> workspace(WorkspaceSize(p, 1, tuning));
  Run(p, workspace.data(), Runner(), tuning);
}

TEST(HalfPrecision, EveryValueSurvivesTheWayThroughFloat) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (Isa isa : kIsas) {
    if (!Supports(isa)) continue;
    std::vector<uint16_t> output;
    PassThrough(isa, all, &output);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool nan = std::isnan(HalfToFloat(all[i]));
      // -0 comes out as +0: it is added to a sum that begins with +0.
      const uint16_t want = all[i] == 0x8000 ? 0 : all[i];
      if (nan) {
        ASSERT_TRUE(std::isnan(HalfToFloat(output[i]))) << i;
      } else {
        ASSERT_EQ(output[i], want) << i;
      }
    }
  }
}

TEST(HalfPrecision, TheReferenceRoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f), 0x3C00);
  EXPECT_EQ(FloatToHalf(65519.99f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(1.0f + 1.0f / 2048), 0x3C00);
  EXPECT_EQ(FloatToHalf(1.0f + 3.0f / 2048), 0x3C02);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -25)), 0);
  EXPECT_EQ(FloatToHalf(std::ldexp(3.0f, -25)), 2);
  EXPECT_EQ(FloatToHalf(-std::ldexp(1.0f, -24)), 0x8001);
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
