#include "plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace graft {
namespace cuda {
namespace flash_decode {
namespace {

const DeviceLimits kH200;

// Decode steps of `rows` sequences with a cache each.
Problem Sequences(int64_t rows, int64_t heads, int64_t kv_heads, int64_t size, int64_t keys,
                  Type type = Type::kBFloat16) {
  Problem p;
  p.type = type;
  p.groups = rows;
  p.rows = 1;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.head_size = p.value_size = size;
  p.keys = keys;
  p.key.strides = {kv_heads * keys * size, keys * size, size, 1};
  p.value.strides = p.key.strides;
  return p;
}

// Samples with beams which share a prompt.
Problem Beams(int64_t samples, int64_t beams, int64_t prefix, int64_t suffix) {
  Problem p = Sequences(samples, 32, 32, 128, prefix + suffix);
  p.places = Places::kIndirection;
  p.rows = beams;
  p.blocks = samples * beams;
  p.prefix = prefix;
  return p;
}

int64_t Slots(const Plan& plan) {
  return kH200.multiprocessors * (kH200.shared_per_processor / (plan.attend.shared_bytes + 1024));
}

TEST(Plan, LongContextFillsMostOfOneWave) {
  for (const int64_t keys : {16384, 32768, 65536, 131072}) {
    const Plan plan = MakePlan(Sequences(1, 32, 32, 128, keys), kH200);
    EXPECT_TRUE(plan.fast);
    EXPECT_EQ(plan.size_class, 128);
    EXPECT_EQ(plan.cut.stages, 3);
    EXPECT_EQ(Slots(plan), 264);  // two blocks a multiprocessor
    EXPECT_EQ(plan.attend.grid_x, 32 * plan.cut.splits);
    EXPECT_GE(plan.attend.grid_x, 224);
    EXPECT_LE(plan.attend.grid_x, 264);
    EXPECT_EQ(plan.merge.grid_x, 32 * 16 / kWarps);
  }
}

// Little: 4.8 TB/s for 700 ns over 132 multiprocessors are 25 KB that must be under way in each.
TEST(Plan, KeepsEnoughBytesUnderWay) {
  for (const Type type : {Type::kFloat32, Type::kFloat16}) {
    for (const int64_t size : {32, 64, 96, 128, 192, 256}) {
      const Plan plan = MakePlan(Sequences(1, 32, 32, size, 32768, type), kH200);
      const int64_t stage = kWarps * KeysOf(type) * 2 * size * BytesOf(type);
      const int64_t blocks = Slots(plan) / kH200.multiprocessors;
      EXPECT_GE(blocks * (plan.cut.stages - 1) * stage, 40 * 1024) << size;
      EXPECT_LE(plan.attend.shared_bytes, kH200.shared_per_block) << size;
    }
  }
}

TEST(Plan, FitsAnOlderDevice) {
  DeviceLimits a100;
  a100.multiprocessors = 108;
  a100.major = 8;
  a100.shared_per_block = 163 * 1024;
  a100.shared_per_processor = 164 * 1024;
  for (const Type type : {Type::kFloat32, Type::kFloat16}) {
    for (const int64_t size : {64, 128, 256}) {
      const Plan plan = MakePlan(Sequences(1, 32, 32, size, 32768, type), a100);
      EXPECT_TRUE(plan.fast) << size;
      EXPECT_LE(plan.attend.shared_bytes, a100.shared_per_block) << size;
      EXPECT_GE(plan.cut.stages, 2) << size;
    }
  }
}

TEST(Splits, NoneWhereThereIsLittleToSplitOrEnoughToDo) {
  EXPECT_EQ(ChooseSplits(1, 4, 132, 264), 1);
  EXPECT_GT(ChooseSplits(1, 5, 132, 264), 1);
  EXPECT_EQ(ChooseSplits(106, 1000, 132, 264), 1);
  EXPECT_GT(ChooseSplits(105, 1000, 132, 264), 1);
}

TEST(Splits, AreTheFewestThatFillNearlyAsMuchAsTheBest) {
  for (int64_t blocks = 1; blocks < 106; ++blocks) {
    for (const int64_t steps : {5, 16, 100, 2048}) {
      const auto filled = [&](int64_t s) {
        const int64_t waves = CeilDivide(blocks * s, 264);
        return static_cast<double>(blocks * s) / static_cast<double>(waves * 264);
      };
      const int64_t splits = ChooseSplits(blocks, steps, 132, 264);
      ASSERT_GE(splits, 1);
      ASSERT_LE(splits, std::min<int64_t>(steps, 128));
      for (int64_t fewer = 1; fewer < splits; ++fewer) {
        if (CeilDivide(steps, fewer) == CeilDivide(steps, fewer - 1 + (fewer == 1))) {
          if (fewer > 1) continue;
        }
        double best = 0;
        for (int64_t s = 1; s <= std::min<int64_t>({steps, 128, 264}); ++s) {
          if (s == 1 || CeilDivide(steps, s) != CeilDivide(steps, s - 1)) {
            best = std::max(best, filled(s));
          }
        }
        ASSERT_LT(filled(fewer), 0.85 * best + 1e-9) << blocks << ' ' << steps << ' ' << fewer;
      }
    }
  }
}

TEST(Plan, PacksGroupedHeads) {
  Plan plan = MakePlan(Sequences(4, 32, 8, 128, 4096), kH200);
  EXPECT_EQ(plan.cut.tile_heads, 4);
  EXPECT_EQ(plan.cut.head_parts, 1);
  EXPECT_EQ(plan.cut.tiles, 4);
  // More query heads than a tile has rows.
  plan = MakePlan(Sequences(4, 71, 1, 64, 4096), kH200);
  EXPECT_EQ(plan.cut.tile_heads, 16);
  EXPECT_EQ(plan.cut.head_parts, 5);
  EXPECT_EQ(plan.cut.tiles, 20);
  // In float32 a single row has a kernel of its own.
  EXPECT_EQ(MakePlan(Sequences(4, 8, 8, 64, 4096, Type::kFloat32), kH200).tile_rows, 1);
  EXPECT_EQ(MakePlan(Sequences(4, 8, 4, 64, 4096, Type::kFloat32), kH200).tile_rows, 8);
}

TEST(Plan, SharedPrefixIsReadOnce) {
  for (const int64_t beams : {4, 8}) {
    for (const int64_t prefix : {1024, 4096, 16384}) {
      const Plan plan = MakePlan(Beams(32, beams, prefix, 64), kH200);
      EXPECT_EQ(plan.cut.tile_tokens, beams);
      EXPECT_EQ(plan.cut.tiles, 32);
      EXPECT_EQ(plan.cut.splits, 1);  // 1,024 blocks, and no second launch
    }
  }
}

// What the crossover rule promises: the tile is chosen only where the model says that reading row
// by row is no faster, and for one row there is nothing to choose.
TEST(Plan, SharesOnlyWhereItPays) {
  const auto tokens = [](int64_t groups, int64_t shared, int64_t own, int64_t heads) {
    return ChooseTileTokens(groups, 4, shared, own, heads, 16, 64, 132, 264);
  };
  EXPECT_EQ(tokens(32, 512, 64, 32), 4);
  EXPECT_EQ(tokens(32, 64, 64, 32), 4);
  EXPECT_EQ(tokens(1, 100000, 64, 1), 4);
  // Nothing is shared, and there are multiprocessors to spare: rows go separately.
  EXPECT_EQ(tokens(8, 0, 200, 4), 1);
  EXPECT_EQ(tokens(1, 16, 240, 32), 1);
  EXPECT_EQ(ChooseTileTokens(32, 1, 512, 64, 32, 16, 64, 132, 264), 1);
}

TEST(Plan, AnyNumberOfBlocksIsLegal) {
  for (const int64_t rows : {70000, 3000000}) {
    const Plan plan = MakePlan(Sequences(rows, 32, 32, 128, 16), kH200);
    EXPECT_TRUE(IsLegal(plan.attend));
    EXPECT_EQ(plan.cut.items, rows * 32);
  }
  Problem p = Sequences(100000000, 64, 64, 128, 1);
  p.rows = 2;
  Tuning tuning;
  tuning.path = Path::kSimple;
  EXPECT_TRUE(IsLegal(MakePlan(p, kH200, tuning).attend));  // 12.8 billion blocks' work
  EXPECT_TRUE(IsLegal(MakePlan(p, kH200).attend));
}

TEST(Plan, WorkspaceHoldsEverySplit) {
  Tuning tuning;
  tuning.splits = 5;
  const Plan plan = MakePlan(Sequences(3, 4, 2, 64, 1000), kH200, tuning);
  const int64_t rows = 3 * 2 * 16 * 5;  // tiles, KV heads, rows of a tile, splits
  EXPECT_EQ(plan.sums_at, RoundUp(rows * 8, 256));
  EXPECT_EQ(plan.workspace_bytes, plan.sums_at + rows * 64 * 4);
  EXPECT_EQ(MakePlan(Sequences(300, 4, 2, 64, 1000), kH200).workspace_bytes, 0);
}

TEST(Plan, TilesCoverAnySplitIntoGroups) {
  Problem p = Sequences(7, 8, 8, 64, 0);
  p.places = Places::kPool;
  p.rows = 20;
  p.block_slots = 16;
  p.shared_length = 3000;
  Tuning tuning;
  tuning.tile_tokens = 4;
  const Plan plan = MakePlan(p, kH200, tuning);
  // Six groups of one row and one of fourteen need most: 6 + 4.
  EXPECT_GE(plan.cut.tiles, 10);
  EXPECT_LE(plan.cut.tiles, 10 + 1);
}

TEST(Plan, TheSimpleKernelServesTheRest) {
  EXPECT_TRUE(IsFast(Sequences(1, 8, 8, 256, 100)));
  EXPECT_FALSE(IsFast(Sequences(1, 8, 8, 264, 100)));
  EXPECT_FALSE(IsFast(Sequences(1, 8, 8, 100, 100)));                 // 200 bytes
  EXPECT_TRUE(IsFast(Sequences(1, 8, 8, 100, 100, Type::kFloat32)));  // 400 bytes
  Problem p = Sequences(1, 8, 8, 64, 100);
  p.key.data = reinterpret_cast<const void*>(uintptr_t{8});
  EXPECT_FALSE(IsFast(p));
  p.key.data = nullptr;
  p.key.strides.feature = 100;
  EXPECT_FALSE(IsFast(p));
  p = Sequences(1, 8, 8, 64, 100);
  char scores;
  p.scores.data = &scores;
  EXPECT_FALSE(IsFast(p));
  EXPECT_EQ(MakePlan(p, kH200).cut.items, 8);
}

}  // namespace
}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft
