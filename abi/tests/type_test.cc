// Float16 against the definition of IEEE 754, and sizes that may be unknown.
#include "graft/type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graft/tensor.h"

namespace graft {
namespace {

// The value of a binary16 by its definition, in double.
double Value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, EveryValueGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = Float16{half}.ToFloat();
    if (std::isnan(Value(half))) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(Float16::From(value).ToFloat()));
    } else {
      ASSERT_EQ(value, Value(half)) << bits;
      ASSERT_EQ(Float16::From(value).bits, half);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    // Between a value and its successor: the middle goes to the even one, its neighbours to the
    // nearer.
    const double low = Value(bits);
    const double high = bits == 0x7bff ? 65536 : Value(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(Float16::From(middle).bits, even) << bits;
    ASSERT_EQ(Float16::From(-middle).bits, even | 0x8000);
    ASSERT_EQ(Float16::From(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Float16::From(std::nextafter(middle, 1e9f)).bits, bits + 1);
  }
  EXPECT_EQ(Float16::From(1e30f).bits, 0x7c00);
  EXPECT_EQ(Float16::From(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Tensor, WhatIsNotThereThrows) {
  const Tensor absent;
  EXPECT_FALSE(absent.present());
  EXPECT_THROW(absent.rank(), Error);
  EXPECT_THROW(absent.dim(0), Error);
  EXPECT_THROW(absent.shape(), Error);
  EXPECT_THROW(absent.type(), Error);
  EXPECT_THROW(absent.elements(), Error);
  EXPECT_THROW(absent.compact(), Error);
  EXPECT_THROW(absent.raw(), Error);
  EXPECT_THROW(absent.data<float>(), Error);
  EXPECT_THROW(MutableTensor().raw(), Error);

  int64_t shape[] = {2, 3};
  graft_tensor two{};
  two.dtype = kFloat32;
  two.ndim = 2;
  two.shape = shape;
  const Tensor tensor(&two);
  EXPECT_NE(tensor.raw(), nullptr);  // while a workspace is sized, and where there are no elements
  EXPECT_EQ(tensor.dim(-1), 3);
  EXPECT_EQ(tensor.stride(0), 3);
  for (const int32_t axis : {2, -3, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tensor.dim(axis), Error) << axis;
    EXPECT_THROW(tensor.stride(axis), Error) << axis;
  }
}

TEST(Dim, UnknownSpreads) {
  const Dim symbol(-5), three(3), four(4);
  EXPECT_EQ((three + four).value(), 7);
  EXPECT_EQ((three * four).value(), 12);
  EXPECT_EQ((four - three).value(), 1);
  EXPECT_EQ((four / three).value(), 1);
  EXPECT_FALSE((symbol + three).known());
  EXPECT_FALSE((three * symbol).known());
  EXPECT_FALSE((three / Dim(0)).known());
  EXPECT_EQ((three + symbol).value(), GRAFT_UNKNOWN_DIM);
  EXPECT_EQ(Dim(symbol).value(), -5);  // a copy retains the symbol
  EXPECT_TRUE(Fits(symbol, three));
  EXPECT_FALSE(Fits(four, three));
}

}  // namespace
}  // namespace graft
