// The scanner of every instruction set against plain loops.
#include "scan.h"

#include <gtest/gtest.h>

#include <random>

#include "poison.h"
#include "reference.h"

namespace graft {
namespace ngram {
namespace {

std::vector<const Scanner*> Scanners() {
  std::vector<const Scanner*> all;
  for (const Isa isa : kIsas) {
    if (const Scanner* scanner = FindScanner(isa)) all.push_back(scanner);
  }
  return all;
}

template <typename T>
void Compare(std::mt19937& random, const Scanner& scanner) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  // Exactly as large as it may be read, so that a sanitizer sees one element too many.
  const int64_t length = pick(0, 9) == 0 ? pick(0, 3000) : pick(0, 90);
  const int64_t n = pick(1, 6);
  const int kinds = pick(1, 30);
  std::vector<T> row(static_cast<size_t>(length));
  for (T& token : row) token = static_cast<T>(pick(0, kinds));
  std::set<int64_t> got;
  ForEachRepeat(scanner, row.data(), length, n, [&](int64_t token) { got.insert(token); });
  ASSERT_EQ(got, Repeats({row.begin(), row.end()}, n)) << "length " << length << ", n " << n;

  const int64_t limit = pick(0, kinds + 1);
  int64_t outside = 0;
  if (pick(0, 1) == 1 && length > 0)
    row[static_cast<size_t>(pick(0, static_cast<int>(length) - 1))] = -1;
  while (outside < length && row[static_cast<size_t>(outside)] >= 0 &&
         row[static_cast<size_t>(outside)] < static_cast<T>(limit)) {
    ++outside;
  }
  ASSERT_EQ(Outside(scanner, row.data(), length, limit), outside);
}

TEST(Scan, RandomRowsOnEveryInstructionSet) {
  for (const Scanner* scanner : Scanners()) {
    std::mt19937 random(1);
    for (int round = 0; round < testing::Proportion(5000); ++round) {
      Compare<int32_t>(random, *scanner);
      Compare<int64_t>(random, *scanner);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Scan, TokensThatDifferOnlyInTheUpperHalf) {
  const std::vector<int64_t> row = {1, 2, int64_t{1} << 32 | 1, 3, 1};
  for (const Scanner* scanner : Scanners()) {
    std::set<int64_t> got;
    ForEachRepeat(*scanner, row.data(), 5, 2, [&](int64_t token) { got.insert(token); });
    EXPECT_EQ(got, std::set<int64_t>{2});
  }
}

}  // namespace
}  // namespace ngram
}  // namespace graft
