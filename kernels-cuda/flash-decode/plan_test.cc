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

DeviceLimits A100() {
  DeviceLimits a100;
  a100.multiprocessors = 108;
  a100.major = 8;
  a100.shared_per_block = 163 * 1024;
  a100.shared_per_processor = 164 * 1024;
  for (int32_t& count : a100.clusters) count = 0;
  return a100;
}

// Requests with beams which share a prompt.
Problem Beams(int64_t samples, int64_t beams, int64_t prefix, int64_t suffix) {
  Problem p = Sequences(samples, 32, 32, 128, prefix + suffix);
  p.places = Places::kIndirection;
  p.rows = beams;
  p.blocks = samples * beams;
  p.prefix = prefix;
  return p;
}

// The same in a pool, whose lists say only on the device which row belongs to which request.
Problem PooledBeams(int64_t samples, int64_t beams, int64_t prefix, int64_t suffix) {
  Problem p = Sequences(samples, 32, 32, 128, 0);
  p.places = Places::kPool;
  p.rows = samples * beams;
  p.block_slots = 16;
  p.shared_length = samples * prefix;
  p.private_length = p.rows * suffix;
  return p;
}

const Slots kTwoEach = SlotsOf(kH200, 2);  // 264 blocks, 32 clusters of 8

TEST(Plan, LongContextFillsMostOfOneWave) {
  for (const int64_t keys : {16384, 32768, 65536, 131072}) {
    const Plan plan = MakePlan(Sequences(1, 32, 32, 128, keys), kH200);
    EXPECT_TRUE(plan.fast);
    EXPECT_EQ(plan.size_class, 128);
    EXPECT_EQ(plan.cut.stages, 3);
    EXPECT_EQ(plan.resident, 2);
    // 32 clusters of 8 run at once where blocks share a multiprocessor: all of them, in one launch.
    EXPECT_EQ(plan.cut.splits, 8);
    EXPECT_TRUE(plan.cut.clustered);
    EXPECT_EQ(plan.attend.cluster, 8);
    EXPECT_EQ(plan.attend.grid_x, 256);
    EXPECT_FALSE(plan.attend.followed);
    EXPECT_EQ(plan.workspace_bytes, 0);
  }
}

TEST(Plan, ALaunchOfItsOwnJoinsSplitsThatNoClusterHolds) {
  const Problem p = Sequences(1, 32, 32, 128, 16384);
  // Groups of multiprocessors so uneven that 32 clusters would take two waves.
  DeviceLimits uneven = kH200;
  uneven.clusters[3] = 15;
  Plan plan = MakePlan(p, uneven);
  EXPECT_EQ(plan.cut.splits, 8);
  EXPECT_FALSE(plan.cut.clustered);
  EXPECT_EQ(plan.attend.cluster, 1);
  EXPECT_TRUE(plan.attend.followed);
  EXPECT_TRUE(plan.merge.dependent);
  EXPECT_EQ(plan.merge.grid_x, 32);  // 32 rows, of four runs of 32 columns
  // No number of splits that a cluster has.
  plan = MakePlan(Sequences(1, 32, 8, 128, 16384), kH200);
  EXPECT_EQ(plan.cut.splits, 32);
  EXPECT_FALSE(plan.cut.clustered);
  EXPECT_TRUE(plan.merge.dependent);
  // Neither clusters nor dependent launches.
  Tuning tuning;
  tuning.join = JoinBy::kCluster;
  tuning.splits = 8;
  plan = MakePlan(p, A100(), tuning);
  EXPECT_FALSE(plan.cut.clustered);
  EXPECT_FALSE(plan.attend.followed);
  EXPECT_FALSE(plan.merge.dependent);
  EXPECT_EQ(plan.merge.grid_x, 32);
}

TEST(Plan, ClustersGoThroughTilesTogether) {
  Tuning tuning;
  tuning.join = JoinBy::kCluster;
  tuning.splits = 4;
  for (int64_t maximum = 1; maximum < 12; ++maximum) {
    tuning.max_blocks = maximum;
    const Plan plan = MakePlan(Sequences(3, 8, 2, 64, 1000), kH200, tuning);
    EXPECT_TRUE(plan.cut.clustered);
    EXPECT_EQ(plan.attend.grid_x, std::max<int64_t>(4, maximum / 4 * 4));
    EXPECT_TRUE(IsLegal(plan.attend));
  }
}

TEST(Clusters, AllRunAtOnceOrThereAreNone) {
  EXPECT_TRUE(FitsAsClusters(32, 8, kTwoEach));
  EXPECT_FALSE(FitsAsClusters(33, 8, kTwoEach));
  EXPECT_TRUE(FitsAsClusters(64, 4, kTwoEach));
  EXPECT_TRUE(FitsAsClusters(132, 2, kTwoEach));
  EXPECT_FALSE(FitsAsClusters(1, 2, SlotsOf(A100(), 2)));
  for (int32_t splits = 1; splits <= 16; ++splits) {
    EXPECT_EQ(IsCluster(splits, kTwoEach), splits == 2 || splits == 4 || splits == 8) << splits;
    EXPECT_FALSE(IsCluster(splits, SlotsOf(A100(), 2)));
  }
}

// Whichever of shared memory and registers holds fewer.
TEST(Plan, BlocksOfAMultiprocessorFitItsRegisters) {
  const auto resident = [](int64_t heads, int64_t kv_heads, int64_t size, Type type) {
    return MakePlan(Sequences(1, heads, kv_heads, size, 4096, type), kH200).resident;
  };
  EXPECT_EQ(resident(32, 32, 32, Type::kFloat16), 3);  // shared memory would hold five
  EXPECT_EQ(resident(32, 32, 64, Type::kFloat16), 3);
  EXPECT_EQ(resident(32, 32, 128, Type::kFloat16), 2);
  EXPECT_EQ(resident(32, 32, 256, Type::kFloat16), 1);
  EXPECT_EQ(resident(32, 32, 32, Type::kFloat32), 4);
  EXPECT_EQ(resident(32, 8, 32, Type::kFloat32), 2);
  EXPECT_EQ(resident(32, 8, 256, Type::kFloat32), 1);
}

// Little: 4.8 TB/s for 700 ns over 132 multiprocessors are 25 KB that must be in flight in each.
TEST(Plan, HoldsEnoughBytesUnderWay) {
  for (const Type type : {Type::kFloat32, Type::kFloat16}) {
    for (const int64_t size : {32, 64, 96, 128, 192, 256}) {
      const Plan plan = MakePlan(Sequences(1, 32, 32, size, 32768, type), kH200);
      const int64_t stage = kWarps * KeysOf(type) * 2 * size * BytesOf(type);
      EXPECT_GE(plan.resident * (plan.cut.stages - 1) * stage, 40 * 1024) << size;
      EXPECT_LE(plan.attend.shared_bytes, kH200.shared_per_block) << size;
    }
  }
}

TEST(Plan, FitsAnOlderDevice) {
  const DeviceLimits a100 = A100();
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
  EXPECT_EQ(ChooseSplits(1, 4, kTwoEach), 1);
  EXPECT_GT(ChooseSplits(1, 5, kTwoEach), 1);
  EXPECT_EQ(ChooseSplits(106, 1000, kTwoEach), 1);
  EXPECT_GT(ChooseSplits(105, 1000, kTwoEach), 1);
}

// Turns are waves times those of a block, and its two; a cluster joins splits in the time of one
// more, a launch of four.
TEST(Splits, AreThoseThatTakeTheFewestTurns) {
  EXPECT_EQ(ChooseSplits(32, 256, kTwoEach), 8);  // 256 / 8 + 2 + 1 = 35
  EXPECT_EQ(ChooseSplits(8, 16, kTwoEach), 8);    // 5; a launch would join 16 in 7
  EXPECT_EQ(ChooseSplits(8, 256, kTwoEach), 32);  // 14; a cluster of 8 takes 35
  EXPECT_EQ(ChooseSplits(64, 256, kTwoEach), 4);  // 67
  EXPECT_EQ(ChooseSplits(96, 256, kTwoEach), 8);  // three waves of 34, and 4; 2 splits take 133
  EXPECT_EQ(ChooseSplits(1, 2048, kTwoEach), 128);
}

TEST(Splits, AreAtMostTheSteps) {
  for (int64_t blocks = 1; blocks < 106; ++blocks) {
    for (const int64_t steps : {5, 16, 100, 2048}) {
      const int64_t splits = ChooseSplits(blocks, steps, kTwoEach);
      ASSERT_GE(splits, 1);
      ASSERT_LE(splits, std::min<int64_t>(steps, kMaxSplits));
      // One less would leave each with more to do, or be no cluster.
      if (splits == 1 || IsCluster(static_cast<int32_t>(splits), kTwoEach)) continue;
      ASSERT_LT(CeilDivide(steps, splits), CeilDivide(steps, splits - 1));
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

// Turns of the loop, in waves of 264 blocks, of (P + 64) / 64 keys a row and beam by beam against
// (P + 64 b) / 64 together, each with two turns for a block's beginning and end:
//
//   P          64        128        256        512
//   b = 4      64 28     80 32      112 40     176 56
//   b = 8      128 44    160 48     224 56     352 72
TEST(Plan, ShortPrefixesAreSharedToo) {
  for (const int64_t beams : {4, 8}) {
    for (const int64_t prefix : {64, 128, 256, 512}) {
      for (const Problem& p : {Beams(32, beams, prefix, 64), PooledBeams(32, beams, prefix, 64)}) {
        const Plan plan = MakePlan(p, kH200);
        EXPECT_EQ(plan.cut.tile_tokens, beams);
        EXPECT_EQ(plan.cut.splits, 1);
      }
      const Plan alone = MakePlan(Sequences(32 * beams, 32, 32, 128, prefix + 64), kH200);
      EXPECT_EQ(alone.cut.tile_tokens, 1);
      EXPECT_EQ(alone.cut.splits, 1);
    }
  }
}

// What the crossover rule promises: the tile is chosen only where the model says that reading row
// by row is no faster, and for one row there is nothing to choose.
TEST(Plan, SharesOnlyWhereItPays) {
  const auto tokens = [](int64_t groups, int64_t shared, int64_t private_count, int64_t heads) {
    return ChooseTileTokens(groups, 4, shared, private_count, heads, 16, 64, kTwoEach);
  };
  EXPECT_EQ(tokens(32, 512, 64, 32), 4);
  EXPECT_EQ(tokens(32, 64, 64, 32), 4);
  EXPECT_EQ(tokens(1, 100000, 64, 1), 4);
  // Nothing is shared, and there are multiprocessors to spare: rows go separately.
  EXPECT_EQ(tokens(8, 0, 64, 4), 1);     // 3 turns; 6 together
  EXPECT_EQ(tokens(1, 16, 100, 32), 1);  // 4; 5 together, in clusters of four
  EXPECT_EQ(ChooseTileTokens(32, 1, 512, 64, 32, 16, 64, kTwoEach), 1);
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
  const int64_t rows = 3 * 2 * 2 * 5;  // tiles, KV heads, rows of a tile, splits
  EXPECT_EQ(plan.sums_at, RoundUp(rows * 8, 256));
  EXPECT_EQ(plan.workspace_bytes, plan.sums_at + rows * 64 * 4);
  tuning.splits = 1000;
  EXPECT_EQ(MakePlan(Sequences(3, 4, 2, 64, 1000), kH200, tuning).cut.splits, kMaxSplits);
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
