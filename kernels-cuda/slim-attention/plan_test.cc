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
  p.steps = p.shared = &somewhere;
  p.shared_length = shared;
  return p;
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
  EXPECT_EQ(plan.states, 64 * 2 * 20 * 1280 * 4);
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
  DeviceLimits ampere;
  ampere.major = 8;
  ampere.shared_per_block = 163 * 1024;
  EXPECT_EQ(MakePlan(p, ampere).way, Way::kSimple);
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
  // A row that is kept turned is turned back by a position, which a place in a list has not.
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
  EXPECT_TRUE(MakePlan(p, limits).matrix_finish);
  Problem odd = p;
  odd.value_size = 60;
  EXPECT_FALSE(MakePlan(odd, limits).matrix_finish);
  Problem shifted = p;
  shifted.value_weight = reinterpret_cast<const void*>(2);
  EXPECT_FALSE(MakePlan(shifted, limits).matrix_finish);
  Problem wide = p;
  wide.weight_type = Type::kFloat32;
  EXPECT_FALSE(MakePlan(wide, limits).matrix_finish);
}

// Every plan can be launched.
TEST(SlimAttentionPlan, StaysWithinTheDevice) {
  DeviceLimits ampere;
  ampere.major = 8;
  ampere.shared_per_block = 163 * 1024;
  for (const DeviceLimits& limits : {DeviceLimits(), ampere}) {
    for (const Type type : {Type::kFloat32, Type::kFloat16}) {
      for (int64_t heads = 1; heads <= 64; ++heads) {
        for (const int64_t head_size : {16, 48, 64, 80, 128, 256}) {
          for (const int64_t tokens : {1, 2, 5, 9}) {
            Problem p = Contiguous(3, tokens, heads, head_size, 300, type);
            p.rotary = Rotary::kHalf;
            const Plan plan = MakePlan(p, limits);
            if (plan.way != Way::kStream) continue;
            const StreamShape& s = plan.stream;
            const LaunchShape shape{
                s.items * s.splits * s.cluster, 1, 1, s.warps * kWarp, s.bytes, s.cluster};
            ASSERT_TRUE(IsLegal(shape)) << heads << " heads of " << head_size;
            ASSERT_LE(s.bytes, limits.shared_per_block);
            ASSERT_LE(s.tokens * heads, 16 * s.row_tiles);
            ASSERT_LE(s.tokens, kStreamTokens);
            ASSERT_GE(s.heads * s.cluster, heads);
            ASSERT_LT(s.heads * (s.cluster - 1), heads) << "a block without a head";
            ASSERT_LE(CeilDivide(s.heads * head_size, 16), s.warps * PairsOf(s.row_tiles));
            ASSERT_TRUE(s.cluster == 1 || limits.major >= 9);
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
