// Arithmetic of graft/checked.h at all its limits, against 128-bit integers.
#include "graft/checked.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace graft {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Numbers around every power of two, of both signs, and what products of them come from.
std::vector<int64_t> Limits() {
  std::vector<int64_t> numbers;
  for (int bit = 0; bit < 63; ++bit) {
    for (int64_t near : {-1, 0, 1}) {
      const int64_t number = (int64_t{1} << bit) + near;
      numbers.insert(numbers.end(), {number, -number});
    }
  }
  for (int64_t near = 0; near < 3; ++near) {
    numbers.insert(numbers.end(),
                   {kMax - near, kMin + near, 3037000499 + near, -3037000499 - near});
  }
  return numbers;
}

template <typename T>
bool Fits(__int128 number) {
  return number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max();
}

// What `compute` gives, or kOverflow where it throws.
constexpr __int128 kOverflow = static_cast<__int128>(1) << 100;
template <typename Compute>
__int128 Outcome(const Compute& compute) {
  try {
    return int64_t{compute()};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRAFT_ERROR_INVALID_ARGUMENT);
    return kOverflow;
  }
}

TEST(Checked, SizesEqual128BitIntegersOrThrow) {
  const auto expected = [](__int128 number) { return Fits<int64_t>(number) ? number : kOverflow; };
  for (const int64_t a : Limits()) {
    for (const int64_t b : Limits()) {
      const __int128 x = a, y = b;
      ASSERT_TRUE(Outcome([&] { return Size(a) + b; }) == expected(x + y)) << a << " + " << b;
      ASSERT_TRUE(Outcome([&] { return a - Size(b); }) == expected(x - y)) << a << " - " << b;
      ASSERT_TRUE(Outcome([&] { return Size(a) * Size(b); }) == expected(x * y)) << a << " * " << b;
      ASSERT_TRUE(Outcome([&] { return Size(a) / b; }) == (b == 0 ? kOverflow : expected(x / y)))
          << a << " / " << b;
      if (a < 0 || b < 1) continue;
      ASSERT_TRUE(Outcome([&] { return Size(a) % b; }) == x % y) << a << " % " << b;
      ASSERT_TRUE(Outcome([&] { return DivideUp(Size(a), b); }) == (x + y - 1) / y)
          << a << " " << b;
      ASSERT_TRUE(Outcome([&] { return RoundUp(a, Size(b)); }) == expected((x + y - 1) / y * y))
          << a << " " << b;
    }
  }
}

TEST(Checked, FunctionsEqual128BitIntegersOrSayNo) {
  for (const int64_t a : Limits()) {
    for (const int64_t b : Limits()) {
      const __int128 x = a, y = b;
      int64_t out = 0;
      ASSERT_EQ(Add(a, b, &out), Fits<int64_t>(x + y));
      if (Fits<int64_t>(x + y)) {
        ASSERT_EQ(out, a + b);
      }
      ASSERT_EQ(Subtract(a, b, &out), Fits<int64_t>(x - y));
      if (Fits<int64_t>(x - y)) {
        ASSERT_EQ(out, a - b);
      }
      ASSERT_EQ(Multiply(a, b, &out), Fits<int64_t>(x * y));
      if (Fits<int64_t>(x * y)) {
        ASSERT_EQ(out, a * b);
      }
      ASSERT_EQ(HoldsIndex(a, b), y >= 0 && y < x);
      for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 32, kMax - 1, kMax, kMin}) {
        ASSERT_EQ(HoldsRange(size, a, b), x >= 0 && y >= 0 && x + y <= size)
            << size << " " << a << " " << b;
      }
    }
    int32_t narrow = 0;
    ASSERT_EQ(Narrow(a, &narrow), Fits<int32_t>(a));
    if (Fits<int32_t>(a)) {
      ASSERT_EQ(narrow, a);
    }
    uint32_t word = 0;
    ASSERT_EQ(Narrow(a, &word), Fits<uint32_t>(a));
    size_t bytes = 0;
    ASSERT_EQ(Narrow(a, &bytes), a >= 0);
    int64_t wide = 0;
    ASSERT_EQ(Narrow(static_cast<uint64_t>(a), &wide), a >= 0);
  }
}

std::string Fault(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Checked, ErrorsNameWhatDidNotFit) {
  EXPECT_EQ(Fault([] { Size(int64_t{1} << 62) * 4; }),
            "a size has more than 63 bits: 4611686018427387904 * 4");
  EXPECT_EQ(Fault([] { Size{} + 1 - Size(kMin); }),
            "a size has more than 63 bits: 1 - -9223372036854775808");
  EXPECT_EQ(Fault([] { Size(7) / Size(0); }), "a size has more than 63 bits: 7 / 0");
  EXPECT_EQ(Fault([] { Size(uint64_t{1} << 63); }),
            "a size of 9223372036854775808 has more than 63 bits");
  EXPECT_EQ(Fault([] { Size(int64_t{1} << 31).To<int32_t>(); }),
            "a size is 2147483648, needed is -2147483648 to 2147483647");
  EXPECT_EQ(Fault([] { Size(-1).To<uint32_t>(); }), "a size is -1, needed is 0 to 4294967295");
}

TEST(Checked, IsConstant) {
  static_assert(Size(3) * 5 + 1 == 16 && RoundUp(Size(17), 16) == 32 && 7 - Size(9) == -2, "");
  static_assert(HoldsRange(10, 4, 6) && !HoldsRange(10, 5, 6) && !HoldsRange(kMax, kMax, 1), "");
}

TEST(Checked, CountsElements) {
  const int64_t shape[] = {kMax, kMax, 0}, few[] = {2, 3, 4},
                many[] = {int64_t{1} << 32, int64_t{1} << 31};
  EXPECT_EQ(ElementsOf(shape, 3), 0);  // of no elements the other sizes do not matter
  EXPECT_EQ(ElementsOf(few, 3), 24);
  EXPECT_EQ(ElementsOf(few, 0), 1);
  EXPECT_THROW(ElementsOf(many, 2), Error);
}

TEST(Checked, LaysOutScratch) {
  Scratch scratch;
  EXPECT_EQ(scratch.Take(3, sizeof(float)), 0u);
  EXPECT_EQ(scratch.Take(0, 8), 64u);
  EXPECT_EQ(scratch.Take(65, 1), 64u);
  EXPECT_EQ(scratch.bytes(), 192u);
  EXPECT_THROW(scratch.Take(kMax, 1), Error);
  EXPECT_THROW(scratch.Take(int64_t{1} << 61, 8), Error);
  EXPECT_THROW(scratch.Take(-1, 8), Error);
}

}  // namespace
}  // namespace graft
