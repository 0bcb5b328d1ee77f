#include "plan.h"

#include <gtest/gtest.h>

#include <utility>

namespace graft {
namespace cuda {
namespace slim_attention {
namespace {

// `groups` of `tokens` over contiguous rows.
Problem Contiguous(int64_t groups, int64_t tokens, int64_t heads, int64_t head_size, int64_t keys,
                   Type type = Type::kBFloat16) {
  Problem p;
  p.groups = groups;
  p.tokens = groups * tokens;
  p.heads = heads;
  p.head_size = p.value_size = head_size;
  p.row_type = p.type = p.weight_type = type;
  p.row_stride = p.width();
  p.positions = keys;
  p.block_stride = keys * p.width();
  return p;
}

Problem Pool(int64_t groups, int64_t tokens, int64_t heads, int64_t head_size, int64_t shared) {
  static const int32_t somewhere = 0;
  Problem p = Contiguous(groups, 0, heads, head_size, 0);
  p.tokens = tokens;
  p.slots = shared;
  p.block_stride = kBlockSlots * p.row_stride;
  p.sequences = p.shared_slots = &somewhere;
  p.shared_length = shared;
  return p;
}

// An A100.
DeviceLimits Ampere() {
  DeviceLimits limits;
  limits.major = 8;
  limits.multiprocessors = 108;
  limits.shared_per_block = 163 * 1024;
  return limits;
}

TEST(SlimAttentionPlan, WhisperLargeIsOneWaveOfWholeRows) {
  const Plan plan = MakePlan(Contiguous(64, 1, 20, 64, 1500), DeviceLimits());
  ASSERT_EQ(plan.way, Way::kStream);
  EXPECT_EQ(plan.stream.row_tiles, 2);
  EXPECT_EQ(plan.stream.warps, 16);
  EXPECT_EQ(plan.stream.cluster, 1);
  EXPECT_EQ(plan.stream.items, 64);
  EXPECT_EQ(plan.stream.splits, 2);  // 128 blocks on 132 multiprocessors
  EXPECT_LE(plan.stream.bytes, DeviceLimits().shared_per_block);
  EXPECT_EQ(plan.stream.joined, 2);  // in 64 of 66 clusters
  EXPECT_EQ(plan.states, 64 * 1 * 20 * 1280 * 4);
  EXPECT_TRUE(plan.dependent);
}

TEST(SlimAttentionPlan, SplitsAreJoinedWhereClustersHoldThem) {
  const Problem whisper = Contiguous(64, 1, 20, 64, 1500);
  const Problem small = Contiguous(32, 1, 12, 64, 1500);
  EXPECT_EQ(MakePlan(small, DeviceLimits()).stream.joined, 2);
  EXPECT_EQ(MakePlan(small, Ampere()).stream.joined, 1);
  EXPECT_FALSE(MakePlan(small, Ampere()).dependent);
  // Groups of multiprocessors that hold fewer pairs than there are multiprocessors for.
  DeviceLimits uneven;
  uneven.clusters[1] = 40;
  EXPECT_EQ(MakePlan(small, uneven).stream.joined, 1);
  const auto joined = [](const Problem& p, int32_t splits, int32_t wanted) {
    Tuning tuning;
    tuning.splits = splits;
    tuning.joined = wanted;
    const StreamShape s = MakePlan(p, DeviceLimits(), tuning).stream;
    EXPECT_EQ(s.splits, splits);
    return s.joined;
  };
  EXPECT_EQ(joined(whisper, 1, 4), 1);
  EXPECT_EQ(joined(whisper, 3, 4), 1);
  EXPECT_EQ(joined(whisper, 6, 4), 2);
  EXPECT_EQ(joined(whisper, 8, 4), 4);
  EXPECT_EQ(joined(whisper, 8, 1), 1);
  // Eight blocks a cluster: three share a row's columns.
  EXPECT_EQ(joined(Contiguous(64, 5, 20, 64, 1500), 4, 4), 2);
  // What three others send fits where tiles stood for 16 and 32 rows, not for 64.
  EXPECT_EQ(joined(Contiguous(64, 4, 2, 64, 1500), 4, 4), 4);
  EXPECT_EQ(joined(Contiguous(64, 5, 8, 64, 1500), 4, 4), 2);
  // A pair of neighbours leaves an odd multiprocessor out; where that costs a wave, none is joined.
  DeviceLimits odd;
  odd.multiprocessors = odd.clusters[0] = 3;
  odd.clusters[1] = 1;
  Problem p = Contiguous(3, 1, 20, 64, 1500);
  p.positions = 100;
  EXPECT_EQ(MakePlan(p, odd).stream.splits, 1);
  Tuning two;
  two.splits = 2;
  EXPECT_EQ(MakePlan(p, odd, two).stream.joined, 1);
}

// Each multiprocessor multiplies about as much by W_KV as any other.
TEST(SlimAttentionPlan, TheMatmulIsOneWaveOfBlocks) {
  const auto finish = [](int64_t batch, const DeviceLimits& limits, int64_t heads = 20) {
    Problem p = Contiguous(batch, 1, heads, 64, 1500);
    p.weight_head = 64;
    p.weight_panel = kPanel;
    p.weight_row = p.width();
    return MakePlan(p, limits).finish;
  };
  const FinishShape whisper = finish(64, DeviceLimits());
  EXPECT_EQ(whisper.row_tiles, 2);
  EXPECT_EQ(whisper.cuts, 3);
  EXPECT_EQ(whisper.blocks, 120);  // on 132 multiprocessors
  EXPECT_EQ(whisper.warps, 8);
  const FinishShape one = finish(1, DeviceLimits());
  EXPECT_EQ(one.row_tiles, 1);
  EXPECT_EQ(one.cuts, 6);
  EXPECT_EQ(one.blocks, 120);
  const FinishShape many = finish(1024, DeviceLimits());
  EXPECT_EQ(many.row_tiles, 2);
  EXPECT_EQ(many.cuts, 1);
  EXPECT_EQ(many.blocks, 640);
  const FinishShape ampere = finish(64, Ampere(), 12);  // no clusters: more blocks of fewer tokens
  EXPECT_EQ(ampere.row_tiles, 1);
  EXPECT_EQ(ampere.cuts, 1);
  EXPECT_EQ(ampere.blocks, 48);
}

TEST(SlimAttentionPlan, BeamsThatShareKeysShareABlock) {
  const Plan plan = MakePlan(Contiguous(64, 5, 20, 64, 1500), DeviceLimits());
  ASSERT_EQ(plan.way, Way::kStream);
  EXPECT_EQ(plan.stream.row_tiles, 4);
  EXPECT_EQ(plan.stream.tokens, 3);  // 60 of 64 rows
  EXPECT_EQ(plan.stream.cluster, 3);
  EXPECT_EQ(plan.stream.heads, 7);
  EXPECT_EQ(plan.stream.items, 128);
}

TEST(SlimAttentionPlan, WideRowsTakeClustersWhereThereAreAny) {
  const Problem p = Contiguous(4, 1, 32, 128, 4096);  // CodeLlama-7B
  const Plan plan = MakePlan(p, DeviceLimits());
  ASSERT_EQ(plan.way, Way::kStream);
  EXPECT_EQ(plan.stream.row_tiles, 2);
  EXPECT_EQ(plan.stream.cluster, 4);
  EXPECT_EQ(plan.stream.heads, 8);
  EXPECT_EQ(MakePlan(p, Ampere()).way, Way::kSimple);
}

// The tokens of lists are known to the device only: there are blocks enough for any of them.
TEST(SlimAttentionPlan, PoolsHaveBlocksForEveryCutOfTheTokens) {
  for (const auto& [groups, tokens] :
       {std::pair<int64_t, int64_t>{1, 1}, {64, 64}, {5, 64}, {7, 13}, {3, 3}, {40, 41}}) {
    const Plan plan = MakePlan(Pool(groups, tokens, 4, 64, 4096), DeviceLimits());
    ASSERT_EQ(plan.way, Way::kStream);
    const int64_t size = plan.stream.tokens;
    // The worst cut: as many groups as there can be with one token more than chunks hold.
    int64_t left = tokens, chunks = 0;
    for (int64_t g = 0; g < groups && left > 0; ++g) {
      const int64_t mine = g + 1 == groups ? left : 1;
      chunks += CeilDivide(mine, size);
      left -= mine;
    }
    EXPECT_GE(plan.stream.items, chunks) << groups << " groups of " << tokens << " tokens";
    EXPECT_LE(plan.stream.items, tokens);
  }
}

TEST(SlimAttentionPlan, LongPromptsMakeValuesFirst) {
  const DeviceLimits limits;
  EXPECT_EQ(MakePlan(Contiguous(1, 1, 12, 64, 512, Type::kFloat32), limits).way, Way::kStream);
  const Plan prompt = MakePlan(Contiguous(1, 512, 12, 64, 512, Type::kFloat32), limits);
  EXPECT_EQ(prompt.way, Way::kValues);
  EXPECT_EQ(prompt.workspace, 512 * 12 * 64 * 4);
  // A row that is stored turned is turned back by a position, which a place in a list has not.
  Problem turned = Pool(1, 512, 12, 64, 512);
  turned.row_type = Type::kFloat32;
  turned.rotary = Rotary::kHalf;
  EXPECT_EQ(MakePlan(turned, limits).way, Way::kValues);
  turned.rotated = true;
  EXPECT_NE(MakePlan(turned, limits).way, Way::kValues);
}

// Table 2: O((h + 1) n d) against O((n + 3) d^2) a step.
TEST(SlimAttentionPlan, CountsOperationsAsThePaperDoes) {
  const Problem p = Contiguous(1, 1, 20, 64, 1500);
  const double n = 1500, d = 1280, h = 20;
  EXPECT_DOUBLE_EQ(CostOfSums(p, n, DeviceLimits()).flops, 2 * ((h + 1) * n * d + d * d));
  EXPECT_DOUBLE_EQ(CostOfValues(p, n, DeviceLimits()).flops, 2 * (n * d * d + 2 * n * d));
  EXPECT_LT(CostOfSums(p, n, DeviceLimits()).seconds, CostOfValues(p, n, DeviceLimits()).seconds);
}

TEST(SlimAttentionPlan, WhatNothingFastServesIsServedPlainly) {
  const DeviceLimits limits;
  Problem odd = Contiguous(1, 1, 4, 20, 100);
  EXPECT_EQ(MakePlan(odd, limits).way, Way::kSimple);
  Problem many = Contiguous(1, 1, 65, 16, 100);
  EXPECT_EQ(MakePlan(many, limits).way, Way::kSimple);
  Problem shifted = Contiguous(1, 1, 4, 64, 100);
  shifted.rows = reinterpret_cast<const void*>(2);
  EXPECT_EQ(MakePlan(shifted, limits).way, Way::kSimple);
  EXPECT_GT(WorkspaceOf(shifted, limits), 0);  // for when it is not
  EXPECT_EQ(MakePlan(Contiguous(1, 1, 4, 64, 0), limits).way, Way::kStream);
}

TEST(SlimAttentionPlan, MultipliesWholePanelsOfWeightsOnMatrices) {
  const DeviceLimits limits;
  Problem p = Contiguous(2, 1, 4, 64, 100);
  p.weight_head = 64;
  p.weight_panel = kPanel;
  p.weight_row = 256;
  EXPECT_TRUE(MakePlan(p, limits).finish.matrix);
  Problem odd = p;
  odd.value_size = 60;
  EXPECT_FALSE(MakePlan(odd, limits).finish.matrix);
  Problem shifted = p;
  shifted.value_weight = reinterpret_cast<const void*>(2);
  EXPECT_FALSE(MakePlan(shifted, limits).finish.matrix);
  Problem wide = p;
  wide.weight_type = Type::kFloat32;
  EXPECT_FALSE(MakePlan(wide, limits).finish.matrix);
}

// Every plan can be launched.
TEST(SlimAttentionPlan, StaysWithinTheDevice) {
  for (const DeviceLimits& limits : {DeviceLimits(), Ampere()}) {
    for (const Type type : {Type::kFloat32, Type::kFloat16}) {
      for (int64_t heads = 1; heads <= 64; ++heads) {
        for (const int64_t head_size : {16, 48, 64, 80, 128, 256}) {
          for (const int64_t tokens : {1, 2, 5, 9}) {
            Problem p = Contiguous(3, tokens, heads, head_size, 300, type);
            p.rotary = Rotary::kHalf;
            Tuning tuning;
            if (heads % 2 == 0) tuning.splits = tuning.joined = 4;
            const Plan plan = MakePlan(p, limits, tuning);
            if (plan.way != Way::kStream) continue;
            const StreamShape& s = plan.stream;
            const LaunchShape shape{s.blocks(),      1,       1,
                                    s.warps * kWarp, s.bytes, s.cluster * s.joined};
            ASSERT_TRUE(IsLegal(shape)) << heads << " heads of " << head_size;
            ASSERT_LE(s.bytes, limits.shared_per_block);
            ASSERT_LE(s.tokens * heads, 16 * s.row_tiles);
            ASSERT_LE(s.tokens, kStreamTokens);
            ASSERT_GE(s.heads * s.cluster, heads);
            ASSERT_LT(s.heads * (s.cluster - 1), heads) << "a block without a head";
            ASSERT_LE(CeilDivide(s.heads * head_size, 16), s.warps * PairsOf(s.row_tiles));
            ASSERT_TRUE(s.cluster * s.joined == 1 || limits.major >= 9);
            ASSERT_EQ(s.splits % s.joined, 0);
            const auto pairs = static_cast<int32_t>(s.heads * head_size / 16);
            ASSERT_LE((s.joined - 1) * 2 * s.row_tiles * SentSlots(pairs, s.joined) * kWarp * 8,
                      kStages * TileKeys(type) * s.tile_stride);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft
