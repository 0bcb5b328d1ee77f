// The index over random lineages, against whole rows.
#include "index.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "poison.h"
#include "reference.h"

namespace graft {
namespace ngram {
namespace {

using Row = std::vector<int64_t>;

// Zeroed memory between bands that nothing may write to.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes), all_(static_cast<size_t>(bytes + 256), 0xa5) {
    const auto address = reinterpret_cast<uintptr_t>(all_.data());
    first_ = 128 - static_cast<int64_t>(address % 64);
    std::memset(data(), 0, static_cast<size_t>(bytes));
  }
  void* data() { return all_.data() + first_; }
  int64_t bytes() const { return bytes_; }
  bool intact() const {
    for (int64_t i = 0; i < static_cast<int64_t>(all_.size()); ++i) {
      if ((i < first_ || i >= first_ + bytes_) && all_[static_cast<size_t>(i)] != 0xa5) {
        return false;
      }
    }
    return true;
  }

 private:
  int64_t bytes_, first_;
  std::vector<uint8_t> all_;
};

std::set<int64_t> Banned(const Index& index, int64_t row) {
  std::set<int64_t> got;
  index.ForEachBanned(row, [&](int64_t token) { got.insert(token); });
  return got;
}

// One step over vectors: padded to the longest.
void Advance(Memory& memory, int64_t n, const std::vector<int32_t>& parents,
             const std::vector<Row>& tokens) {
  size_t stride = 0;
  for (const Row& row : tokens) stride = std::max(stride, row.size());
  std::vector<int32_t> flat(tokens.size() * stride, -7);
  for (size_t r = 0; r < tokens.size(); ++r) {
    std::copy(tokens[r].begin(), tokens[r].end(), flat.begin() + static_cast<int64_t>(r * stride));
  }
  Index index(memory.data(), memory.bytes(), n);
  index.Advance(parents.data(), flat.data(), static_cast<int64_t>(stride),
                static_cast<int64_t>(tokens.size()), [&](int64_t r) {
                  return static_cast<int64_t>(tokens[static_cast<size_t>(r)].size());
                });
}

// Rows that fork, end, swap, and begin anew beside others; the index is bound afresh each step, as
// an operator does.
TEST(Index, RandomLineages) {
  std::mt19937 random(2);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int64_t wanted = testing::Proportion(30000);
  int64_t steps = 0, bans = 0, dropped = 0;
  while (steps < wanted) {
    const int64_t n = pick(1, 5);
    const int kinds = pick(2, 12);
    const int length = pick(1, 600);
    // Often too small for all that is ever generated, so that dead beams must go.
    Memory memory(Index::Bytes(pick(0, 1) == 0 ? 9000 : 1800, 16));
    std::vector<Row> rows;
    for (int step = 0; step < length; ++step, ++steps) {
      std::vector<int32_t> parents(static_cast<size_t>(pick(1, 12)));
      std::vector<Row> fresh(parents.size()), grown;
      for (size_t r = 0; r < parents.size(); ++r) {
        const bool begins = rows.empty() || pick(0, 40) == 0;
        parents[r] = begins ? -1 : pick(0, static_cast<int>(rows.size()) - 1);
        const int more = begins ? pick(0, 70) : pick(0, 9) == 0 ? pick(0, 3) : 1;
        for (int i = 0; i < more; ++i) fresh[r].push_back(pick(0, kinds));
        grown.push_back(begins ? Row() : rows[static_cast<size_t>(parents[r])]);
        grown.back().insert(grown.back().end(), fresh[r].begin(), fresh[r].end());
      }
      const int64_t before = Index(memory.data(), memory.bytes(), n).nodes();
      Advance(memory, n, parents, fresh);
      rows = grown;
      const Index index(memory.data(), memory.bytes(), n);
      dropped += index.nodes() < before;
      ASSERT_EQ(index.rows(), static_cast<int64_t>(rows.size()));
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::set<int64_t> want = Repeats(rows[r], n);
        ASSERT_EQ(index.length(static_cast<int64_t>(r)), static_cast<int64_t>(rows[r].size()));
        ASSERT_EQ(Banned(index, static_cast<int64_t>(r)), want)
            << "row " << r << ", n " << n << ", step " << step;
        bans += static_cast<int64_t>(want.size());
      }
    }
    ASSERT_TRUE(memory.intact());
  }
  EXPECT_GT(bans, wanted / 3);
  EXPECT_GT(dropped, wanted / 1500);
}

TEST(Index, LongPromptSharedByBeams) {
  std::mt19937 random(3);
  Row prompt;
  for (int i = 0; i < 5000; ++i)
    prompt.push_back(std::uniform_int_distribution<int>(0, 40)(random));
  Memory memory(Index::Bytes(6000, 8));
  Advance(memory, 3, {-1}, {prompt});
  std::vector<Row> rows(8, prompt);
  for (int step = 0; step < 100; ++step) {
    std::vector<int32_t> parents;
    std::vector<Row> fresh, grown;
    for (int r = 0; r < 8; ++r) {
      parents.push_back(step == 0 ? 0 : std::uniform_int_distribution<int>(0, 7)(random));
      fresh.push_back({std::uniform_int_distribution<int>(0, 40)(random)});
      grown.push_back(rows[static_cast<size_t>(parents.back())]);
      grown.back().push_back(fresh.back()[0]);
    }
    Advance(memory, 3, parents, fresh);
    rows = grown;
    const Index index(memory.data(), memory.bytes(), 3);
    EXPECT_LE(index.nodes(), 5000 + 8 * (step + 1)) << "the prompt stands once";
    for (int r = 0; r < 8; ++r)
      ASSERT_EQ(Banned(index, r), Repeats(rows[static_cast<size_t>(r)], 3));
  }
}

TEST(Index, RefusalsLeaveTheRowsAsTheyWere) {
  Memory memory(Index::Bytes(16, 4));
  Advance(memory, 2, {-1}, {{1, 2, 1}});
  const auto refused = [&](const std::vector<int32_t>& parents, const std::vector<Row>& tokens) {
    try {
      Advance(memory, 2, parents, tokens);
    } catch (const Error& error) {
      const Index index(memory.data(), memory.bytes(), 2);
      EXPECT_EQ(index.rows(), 1);
      EXPECT_EQ(Banned(index, 0), std::set<int64_t>{2});
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({1}, {{1}}), "row 0 continues row 1, the step before had 1 rows");
  EXPECT_EQ(refused({-2}, {{1}}), "row 0 continues row -2, the step before had 1 rows");
  EXPECT_NE(
      refused({0}, {Row(100, 1)}).find("give it at least " + std::to_string(Index::Bytes(103, 1))),
      std::string::npos);
  EXPECT_NE(refused(std::vector<int32_t>(50, 0), std::vector<Row>(50)).find("room for "),
            std::string::npos);
  const auto bound = [&](int64_t bytes, int64_t n) {
    try {
      Index(memory.data(), bytes, n);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("bound");
  };
  EXPECT_NE(bound(memory.bytes(), 3).find("was made for n = 2, needed is n = 3"),
            std::string::npos);
  EXPECT_NE(bound(memory.bytes() - 1, 2).find("bytes"), std::string::npos);
  EXPECT_NE(bound(8, 2).find("the n-gram index has 8 bytes"), std::string::npos);
}

// The sizes that refusals name are enough.
TEST(Index, BytesAreEnough) {
  for (int64_t nodes = 16; nodes < 3000; nodes += 7) {
    for (const int64_t rows : {int64_t{4}, int64_t{33}, int64_t{500}}) {
      Memory memory(Index::Bytes(nodes, rows));
      Advance(memory, 2, std::vector<int32_t>(static_cast<size_t>(rows), -1),
              std::vector<Row>(static_cast<size_t>(rows)));
      Advance(memory, 2, {0}, {Row(static_cast<size_t>(nodes), 1)});
      ASSERT_EQ(Index(memory.data(), memory.bytes(), 2).nodes(), nodes);
      ASSERT_TRUE(memory.intact());
    }
  }
}

}  // namespace
}  // namespace ngram
}  // namespace graft
