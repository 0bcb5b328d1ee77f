// The operator through the C table: types, lengths, pads, an index, errors; memory is guarded.
#include <gtest/gtest.h>

#include <random>

#include "host.h"
#include "index.h"
#include "poison.h"
#include "reference.h"

namespace graft::test {
namespace {

constexpr uint16_t kBanned16 = 0xfc00, kBannedB16 = 0xff80;
constexpr uint32_t kBanned32 = 0xff800000;

uint32_t Word(Buffer& buffer, DataType type, int64_t i) {
  return type == kFloat32 ? buffer.data<uint32_t>()[i] : buffer.data<uint16_t>()[i];
}
uint32_t BannedWord(DataType type) {
  return type == kFloat32 ? kBanned32 : type == kFloat16 ? kBanned16 : kBannedB16;
}

void SetToken(Buffer& buffer, DataType type, int64_t i, int64_t token) {
  if (type == kInt32) {
    buffer.data<int32_t>()[i] = static_cast<int32_t>(token);
  } else {
    buffer.data<int64_t>()[i] = token;
  }
}

TEST(NGramBlock, RandomCases) {
  const graft_plugin* table = Load(NGRAM_BLOCK_LIBRARY);
  std::mt19937 random(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int64_t bans = 0;
  for (int round = 0; round < testing::Proportion(10000); ++round) {
    const int64_t n = pick(1, 6), rows = pick(0, 5);
    const int64_t length = pick(0, 50) == 0 ? pick(1024, 2500) : pick(0, 40);
    const int64_t kinds = pick(1, 20), vocab = kinds + pick(0, 40);
    const bool pads = pick(0, 3) == 0, lengths = pick(0, 2) == 0;
    const int64_t pad = pick(0, kinds - 1);
    const DataType types[] = {kFloat32, kFloat16, kBFloat16};
    const DataType type = types[pick(0, 2)], ids = pick(0, 1) == 0 ? kInt32 : kInt64;
    const DataType length_type = pick(0, 1) == 0 ? kInt32 : kInt64;

    Buffer scores(type, {rows, vocab}, static_cast<uint64_t>(pick(0, 15)));
    Buffer output(type, {rows, vocab}, static_cast<uint64_t>(pick(0, 15)));
    Buffer tokens(ids, {rows, length}, static_cast<uint64_t>(pick(0, 7)));
    Buffer valid(length_type, {rows});
    // Any bits at all: NaN and infinities must come through as they are.
    for (int64_t i = 0; i < rows * vocab * static_cast<int64_t>(BytesOf(type)); ++i) {
      scores.data<uint8_t>()[i] = static_cast<uint8_t>(pick(0, 255));
    }
    std::vector<std::set<int64_t>> want;
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int64_t> row;
      for (int64_t i = 0; i < length; ++i) row.push_back(pick(0, kinds - 1));
      const int64_t count = lengths ? pick(0, length) : length;
      const int64_t left = pads ? pick(0, count) : 0, right = pads ? pick(0, count - left) : 0;
      for (int64_t i = 0; i < left; ++i) row[static_cast<size_t>(i)] = pad;
      for (int64_t i = count - right; i < count; ++i) row[static_cast<size_t>(i)] = pad;
      for (int64_t i = 0; i < length; ++i) {
        // Beyond its length a row may hold anything.
        SetToken(tokens, ids, r * length + i, i < count ? row[static_cast<size_t>(i)] : -100);
      }
      SetToken(valid, length_type, r, count);
      row.resize(static_cast<size_t>(count));
      if (pads) {
        while (!row.empty() && row.back() == pad) row.pop_back();
        while (!row.empty() && row.front() == pad) row.erase(row.begin());
      }
      want.push_back(ngram::Repeats(row, n));
    }
    Kernel kernel(table, "NGramBlock");
    Attributes attributes;
    attributes.Int("ngram_size", n);
    if (pads) attributes.Int("pad_token_id", pad);
    ASSERT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
    ASSERT_EQ(kernel.Run({scores.tensor(), tokens.tensor(), lengths ? valid.tensor() : nullptr},
                         {output.tensor()}, pick(0, 50) == 0 ? 3 : 1),
              GRAFT_OK)
        << kernel.message.text;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < vocab; ++t) {
        const bool banned = want[static_cast<size_t>(r)].count(t) != 0;
        bans += banned;
        ASSERT_EQ(Word(output, type, r * vocab + t),
                  banned ? BannedWord(type) : Word(scores, type, r * vocab + t))
            << "round " << round << ", row " << r << ", token " << t;
      }
    }
    ASSERT_TRUE(scores.intact() && output.intact() && tokens.intact() && valid.intact());
  }
  EXPECT_GT(bans, testing::Proportion(10000));
}

// The same bans from an index that is fed token by token as from whole rows.
TEST(NGramBlock, IndexAgreesWithWholeRows) {
  const graft_plugin* table = Load(NGRAM_BLOCK_LIBRARY);
  std::mt19937 random(6);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr int64_t kVocab = 50;
  for (int round = 0; round < 40; ++round) {
    const int64_t n = pick(1, 4);
    Buffer index(kUInt8, {ngram::Index::Bytes(4000, 8)});
    std::memset(index.data<void>(), 0, static_cast<size_t>(ngram::Index::Bytes(4000, 8)));
    Kernel grown(table, "NGramBlock"), whole(table, "NGramBlock");
    ASSERT_EQ(grown.Create(Attributes().Int("ngram_size", n)), GRAFT_OK);
    ASSERT_EQ(whole.Create(Attributes().Int("ngram_size", n)), GRAFT_OK);
    std::vector<std::vector<int64_t>> rows(1);
    for (int step = 0; step < 60; ++step) {
      const int64_t count = step == 0 ? 1 : 5, more = step == 0 ? pick(1, 300) : 1;
      Buffer parents(kInt32, {count}), fresh(kInt64, {count, more});
      std::vector<std::vector<int64_t>> next;
      for (int64_t r = 0; r < count; ++r) {
        const int parent = step == 0 ? -1 : pick(0, static_cast<int>(rows.size()) - 1);
        parents.data<int32_t>()[r] = parent;
        next.push_back(parent < 0 ? std::vector<int64_t>() : rows[static_cast<size_t>(parent)]);
        for (int64_t i = 0; i < more; ++i) {
          next.back().push_back(pick(0, 9));
          fresh.data<int64_t>()[r * more + i] = next.back().back();
        }
      }
      rows = next;
      const auto length = static_cast<int64_t>(rows[0].size());
      Buffer all(kInt64, {count, length}), scores(kFloat32, {count, kVocab});
      for (int64_t r = 0; r < count; ++r) {
        std::copy(rows[static_cast<size_t>(r)].begin(), rows[static_cast<size_t>(r)].end(),
                  all.data<int64_t>() + r * length);
        std::fill_n(scores.data<float>() + r * kVocab, kVocab, 1.0f);
      }
      Buffer a(kFloat32, {count, kVocab}), b(kFloat32, {count, kVocab});
      ASSERT_EQ(
          grown.Run({scores.tensor(), fresh.tensor(), nullptr, parents.tensor(), index.tensor()},
                    {a.tensor()}),
          GRAFT_OK)
          << grown.message.text;
      ASSERT_EQ(whole.Run({scores.tensor(), all.tensor()}, {b.tensor()}), GRAFT_OK);
      ASSERT_EQ(a.Get<uint32_t>(), b.Get<uint32_t>());
      ASSERT_TRUE(index.intact());
    }
  }
}

TEST(NGramBlock, BadInputIsAnErrorNotAWrite) {
  const graft_plugin* table = Load(NGRAM_BLOCK_LIBRARY);
  Kernel none(table, "NGramBlock");
  EXPECT_NE(none.Create(Attributes().Int("ngram_size", 0)), GRAFT_OK);
  EXPECT_STREQ(none.message.text, "NGramBlock: ngram_size is 0, needed is 1 or more");

  Kernel kernel(table, "NGramBlock");
  ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", 2)), GRAFT_OK);
  Buffer scores(kFloat32, {2, 4}), output(kFloat32, {2, 4}), tokens(kInt64, {2, 3});
  Buffer lengths(kInt32, {2}), parents(kInt32, {2});
  scores.Set<float>(std::vector<float>(8, 0.0f));
  const auto refused = [&](const std::vector<const graft_tensor*>& inputs) {
    EXPECT_EQ(kernel.Run(inputs, {output.tensor()}), GRAFT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(output.intact());
    return std::string(kernel.message.text);
  };
  tokens.Set<int64_t>({0, 1, 2, 3, 4, 3});
  EXPECT_EQ(refused({scores.tensor(), tokens.tensor()}),
            "NGramBlock: row 1 holds token 4 at position 1, the vocabulary has 4");
  tokens.Set<int64_t>({0, -1, 2, 3, 3, 3});
  EXPECT_EQ(refused({scores.tensor(), tokens.tensor()}),
            "NGramBlock: row 0 holds token -1 at position 1, the vocabulary has 4");
  tokens.Set<int64_t>({0, int64_t{1} << 32, 0, 3, 3, 3});
  EXPECT_EQ(refused({scores.tensor(), tokens.tensor()}),
            "NGramBlock: row 0 holds token 4294967296 at position 1, the vocabulary has 4");
  tokens.Set<int64_t>({0, 1, 2, 3, 3, 3});
  lengths.Set<int32_t>({3, 4});
  EXPECT_EQ(refused({scores.tensor(), tokens.tensor(), lengths.tensor()}),
            "NGramBlock: row 1 has length 4, needed is 0 to 3");
  EXPECT_EQ(refused({scores.tensor(), tokens.tensor(), nullptr, parents.tensor()}),
            "NGramBlock: parents are given without an index; give both or neither");
  Buffer other(kFloat32, {3, 4});
  EXPECT_EQ(refused({other.tensor(), tokens.tensor()}),
            "NGramBlock: scores have 12 elements, needed are 2 rows of 4");
}

}  // namespace
}  // namespace graft::test
