// The CUDA variant on the emulator, through the plugin's table, against the CPU one: bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "host.h"
#include "index.h"

namespace graft::test {
namespace {

class Both : public ::testing::Test {
 protected:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }
  void FillAnyBits(Buffer& buffer, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i)
      buffer.data<uint8_t>()[i] = static_cast<uint8_t>(Pick(0, 255));
  }
  void SetToken(Buffer& buffer, DataType type, int64_t i, int64_t token) {
    if (type == kInt32) {
      buffer.data<int32_t>()[i] = static_cast<int32_t>(token);
    } else {
      buffer.data<int64_t>()[i] = token;
    }
  }
  std::mt19937 random{11};
  const graft_plugin* cpu = Load(CPU_LIBRARY);
  const graft_plugin* cuda = Load(CUDA_LIBRARY);
};

using NGramBlockCuda = Both;

TEST_F(NGramBlockCuda, ScansAgree) {
  for (int round = 0; round < 600; ++round) {
    const int64_t n = Pick(1, 6), rows = Pick(0, 5);
    const int64_t length = Pick(0, 40) == 0 ? Pick(1024, 2500) : Pick(0, 60);
    const int64_t kinds = Pick(1, 20), vocab = kinds + Pick(0, 40), pad = Pick(0, kinds - 1);
    const bool pads = Pick(0, 3) == 0, lengths = Pick(0, 2) == 0, in_place = Pick(0, 3) == 0;
    const DataType types[] = {kFloat32, kFloat16, kBFloat16};
    const DataType type = types[Pick(0, 2)], ids = Pick(0, 1) == 0 ? kInt32 : kInt64;
    const DataType length_type = Pick(0, 1) == 0 ? kInt32 : kInt64;
    Buffer scores(type, {rows, vocab}, static_cast<uint64_t>(Pick(0, 15)));
    Buffer want(type, {rows, vocab});
    Buffer got(type, {rows, vocab}, static_cast<uint64_t>(Pick(0, 15)));
    Buffer tokens(ids, {rows, length}, static_cast<uint64_t>(Pick(0, 7)));
    Buffer valid(length_type, {rows});
    const int64_t bytes = rows * vocab * static_cast<int64_t>(BytesOf(type));
    FillAnyBits(scores, bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t count = lengths ? Pick(0, length) : length;
      const int64_t left = pads ? Pick(0, count) : 0, right = pads ? Pick(0, count - left) : 0;
      for (int64_t i = 0; i < length; ++i) {
        const bool is_pad = i < left || (i >= count - right && i < count);
        SetToken(tokens, ids, r * length + i,
                 i >= count ? -100
                 : is_pad   ? pad
                            : Pick(0, kinds - 1));
      }
      SetToken(valid, length_type, r, count);
    }
    Attributes attributes;
    attributes.Int("ngram_size", n);
    if (pads) attributes.Int("pad_token_id", pad);
    Kernel a(cpu, "NGramBlock"), b(cuda, "NGramBlock");
    ASSERT_EQ(a.Create(attributes), GRAFT_OK) << a.message.text;
    ASSERT_EQ(b.Create(attributes), GRAFT_OK) << b.message.text;
    graft_tensor* length_tensor = lengths ? valid.tensor() : nullptr;
    ASSERT_EQ(a.Run({scores.tensor(), tokens.tensor(), length_tensor}, {want.tensor()}), GRAFT_OK)
        << a.message.text;
    Buffer& to = in_place ? scores : got;
    ASSERT_EQ(b.Run({scores.tensor(), tokens.tensor(), length_tensor}, {to.tensor()}), GRAFT_OK)
        << b.message.text;
    ASSERT_EQ(std::memcmp(to.data<void>(), want.data<void>(), static_cast<size_t>(bytes)), 0)
        << "round " << round;
    ASSERT_TRUE(scores.intact() && got.intact() && tokens.intact() && valid.intact());
  }
}

// Steps of one index that are taken now by the one variant and now by the other.
TEST_F(NGramBlockCuda, AnIndexGoesOnOnTheOtherDevice) {
  int64_t bans = 0;
  for (int round = 0; round < 60; ++round) {
    const int64_t n = Pick(1, 4), vocab = 30, bytes = ngram::Index::Bytes(Pick(300, 900), 6);
    Buffer shared(kUInt8, {bytes}), alone(kUInt8, {bytes});
    std::memset(shared.data<void>(), 0, static_cast<size_t>(bytes));
    std::memset(alone.data<void>(), 0, static_cast<size_t>(bytes));
    Attributes attributes;
    attributes.Int("ngram_size", n);
    Kernel a(cpu, "NGramBlock"), b(cuda, "NGramBlock");
    ASSERT_EQ(a.Create(attributes), GRAFT_OK);
    ASSERT_EQ(b.Create(attributes), GRAFT_OK);
    int64_t rows = 0;
    for (int step = 0; step < 40; ++step) {
      const int64_t count = step == 0 ? 1 : Pick(1, 6),
                    more = step == 0 ? Pick(1, 90) : Pick(0, 8) / 4;
      Buffer parents(kInt32, {count}), tokens(kInt64, {count, more}),
          scores(kFloat32, {count, vocab});
      for (int64_t r = 0; r < count; ++r) {
        parents.data<int32_t>()[r] = static_cast<int32_t>(rows == 0 ? -1 : Pick(0, rows - 1));
        for (int64_t i = 0; i < more; ++i) tokens.data<int64_t>()[r * more + i] = Pick(0, 7);
      }
      rows = count;
      FillAnyBits(scores, count * vocab * 4);
      Buffer want(kFloat32, {count, vocab}), got(kFloat32, {count, vocab});
      const auto run = [&](Kernel& kernel, Buffer& index, Buffer& to) {
        return kernel.Run(
            {scores.tensor(), tokens.tensor(), nullptr, parents.tensor(), index.tensor()},
            {to.tensor()});
      };
      ASSERT_EQ(run(a, alone, want), GRAFT_OK) << a.message.text;
      ASSERT_EQ(run(Pick(0, 1) == 0 ? a : b, shared, got), GRAFT_OK) << b.message.text;
      ASSERT_EQ(got.Get<uint32_t>(), want.Get<uint32_t>())
          << "round " << round << ", step " << step;
      ASSERT_TRUE(shared.intact() && alone.intact() && got.intact());
      for (int64_t i = 0; i < count * vocab; ++i) bans += want.data<uint32_t>()[i] == 0xff800000;
    }
  }
  EXPECT_GT(bans, 1000);
}

// What is an error on the CPU and cannot be one on a device.
TEST_F(NGramBlockCuda, WhatIsOutOfRangeIsNotFollowed) {
  Kernel kernel(cuda, "NGramBlock");
  ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", 1)), GRAFT_OK);
  Buffer scores(kFloat32, {2, 3}), tokens(kInt32, {2, 3}), lengths(kInt64, {2}),
      output(kFloat32, {2, 3});
  scores.Set<float>({1, 2, 3, 4, 5, 6});
  tokens.Set<int32_t>({-1, 3, 1, 0, 2000000000, 2});
  lengths.Set<int64_t>({100, -5});
  ASSERT_EQ(kernel.Run({scores.tensor(), tokens.tensor(), lengths.tensor()}, {output.tensor()}),
            GRAFT_OK);
  EXPECT_EQ(output.Get<float>(), (std::vector<float>{1, -INFINITY, 3, 4, 5, 6}));
  EXPECT_TRUE(output.intact());
}

// An index without room refuses the step by scores from which no search continues.
TEST_F(NGramBlockCuda, AnIndexWithoutRoomMakesScoresNaN) {
  Kernel kernel(cuda, "NGramBlock");
  ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", 2)), GRAFT_OK);
  Buffer index(kUInt8, {ngram::Index::Bytes(20, 4)}), parents(kInt32, {1}),
      tokens(kInt32, {1, 500});
  std::memset(index.data<void>(), 0, static_cast<size_t>(ngram::Index::Bytes(20, 4)));
  std::memset(tokens.data<void>(), 0, 2000);
  parents.Set<int32_t>({-1});
  Buffer scores(kFloat32, {1, 2}), output(kFloat32, {1, 2});
  scores.Set<float>({1, 2});
  ASSERT_EQ(
      kernel.Run({scores.tensor(), tokens.tensor(), nullptr, parents.tensor(), index.tensor()},
                 {output.tensor()}),
      GRAFT_OK);
  EXPECT_TRUE(std::isnan(output.data<float>()[0]) && std::isnan(output.data<float>()[1]));
  EXPECT_TRUE(index.intact());
}

// The memory of an index may be a stranger's: whatever stands in it, nothing outside is touched and
// every step ends.
TEST_F(NGramBlockCuda, ADamagedIndexIsNotFollowed) {
  constexpr int64_t kBytes = 2048, kVocab = 9;
  for (int round = 0; round < 400; ++round) {
    Kernel kernel(round % 2 == 0 ? cuda : cpu, "NGramBlock");
    ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", Pick(1, 3))), GRAFT_OK);
    Buffer index(kUInt8, {kBytes});
    std::memset(index.data<void>(), 0, kBytes);
    for (int step = 0; step < 6; ++step) {
      const int64_t more = step == 0 ? 20 : Pick(1, 3);
      Buffer scores(kFloat32, {2, kVocab}), output(kFloat32, {2, kVocab}), parents(kInt32, {2}),
          tokens(kInt32, {2, more});
      FillAnyBits(scores, 2 * kVocab * 4);
      for (int64_t i = 0; i < 2 * more; ++i) SetToken(tokens, kInt32, i, Pick(0, 2));
      parents.Set<int32_t>({step == 0 ? -1 : 0, step == 0 ? -1 : 1});
      const int32_t code =
          kernel.Run({scores.tensor(), tokens.tensor(), nullptr, parents.tensor(), index.tensor()},
                     {output.tensor()});
      ASSERT_TRUE(code == GRAFT_OK || code == GRAFT_ERROR_INVALID_ARGUMENT) << round;
      ASSERT_TRUE(index.intact() && output.intact()) << round;
      const int64_t words[] = {1, 9, Pick(16, kBytes / 4 - 1), Pick(16, kBytes / 4 - 1)};
      const int64_t values[] = {-1, INT32_MIN, INT32_MAX, 1 << 24, Pick(0, 60), Pick(0, 60)};
      index.data<int32_t>()[words[Pick(0, 3)]] = static_cast<int32_t>(values[Pick(0, 5)]);
    }
  }
}

TEST_F(NGramBlockCuda, ShapesThatDoNotFitAreErrors) {
  Kernel kernel(cuda, "NGramBlock");
  ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", 2)), GRAFT_OK);
  Buffer scores(kFloat32, {2, 3}), tokens(kInt32, {3, 1}), output(kFloat32, {2, 3});
  EXPECT_EQ(kernel.Run({scores.tensor(), tokens.tensor()}, {output.tensor()}),
            GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text, "NGramBlock: scores have 6 elements, needed are 3 rows of 3");
}

}  // namespace
}  // namespace graft::test
