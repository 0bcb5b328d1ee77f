// The launches of attention over shared rows, without a GPU.
#include "plan.h"

#include <gtest/gtest.h>

namespace graft {
namespace cuda {
namespace el_attention {
namespace {

Problem Dense(int32_t samples, int32_t tokens, int32_t heads, int32_t keys, int32_t width,
              Type type = Type::kBFloat16) {
  Problem p;
  p.rows.type = p.output_type = type;
  p.rows.width = width;
  p.rows.slots = samples * keys;
  p.rows.block_slots = keys;
  p.rows.row_bytes = width * BytesOf(type);
  p.rows.block_bytes = keys * p.rows.row_bytes;
  p.query_stride = p.output_stride = width;
  p.lists.groups = samples;
  p.lists.group_tokens = tokens;
  p.lists.group_keys = keys;
  p.tokens = samples * tokens;
  p.heads = heads;
  return p;
}

DeviceLimits Ampere() {
  DeviceLimits limits;
  limits.multiprocessors = 108;
  limits.major = 8;
  limits.shared_per_block = 163 * 1024;
  limits.clusters[0] = 108;
  limits.clusters[1] = limits.clusters[2] = limits.clusters[3] = 0;
  return limits;
}

// A part on which not every group of multiprocessors is a multiple of four or eight.
DeviceLimits Uneven(int32_t fours, int32_t eights) {
  DeviceLimits limits;
  limits.clusters[2] = fours;
  limits.clusters[3] = eights;
  return limits;
}

TEST(ElAttentionPlan, BartLargeFillsTheDeviceInOneLaunch) {
  const Plan plan = MakePlan(Dense(32, 4, 16, 1024, 1024), DeviceLimits());
  ASSERT_TRUE(plan.legal && plan.cluster && !plan.simple);
  EXPECT_EQ(plan.cluster_cut.warp_columns, 64);
  EXPECT_EQ(plan.cluster_cut.columns, 2);
  EXPECT_EQ(plan.cluster_cut.splits, 2);
  EXPECT_EQ(plan.cluster_cut.parts, 1);
  EXPECT_EQ(plan.cluster_shape.grid_x, 128);
  EXPECT_EQ(plan.cluster_shape.cluster, 4);
  EXPECT_EQ(plan.workspace, 0);
  EXPECT_EQ(plan.launches(), 1);
}

TEST(ElAttentionPlan, NoSecondWaveForTheLastClusters) {
  for (const DeviceLimits& limits : {Uneven(31, 14), Uneven(30, 13), Uneven(16, 0), Uneven(0, 0)}) {
    const Plan plan = MakePlan(Dense(32, 4, 16, 1024, 1024), limits);
    ASSERT_TRUE(plan.legal && plan.cluster && !plan.simple);
    EXPECT_EQ(plan.cluster_shape.cluster, 2);  // the two blocks of columns
    EXPECT_EQ(plan.cluster_cut.splits, 1);
    EXPECT_EQ(plan.cluster_cut.parts, 2);  // the keys in two, joined through the workspace
    EXPECT_EQ(plan.cluster_shape.grid_x * plan.cluster_shape.grid_y, 128);
    EXPECT_EQ(plan.workspace, 2 * 2048 * (1024 * 4 + 4));
    EXPECT_EQ(plan.launches(), 2);
    EXPECT_TRUE(plan.chained);
  }
  // Fewer requests leave room for splits within the cluster after all.
  EXPECT_EQ(MakePlan(Dense(31, 4, 16, 1024, 1024), Uneven(31, 14)).cluster_cut.splits, 2);
  // A second wave that cannot be avoided is no reason for parts.
  const Plan many = MakePlan(Dense(256, 4, 16, 1024, 1024), Uneven(31, 14));
  EXPECT_EQ(many.cluster_cut.splits * many.cluster_cut.parts, 1);
}

TEST(ElAttentionPlan, WithoutClustersOfTwoWideRowsAreSimple) {
  DeviceLimits limits = Uneven(0, 0);
  limits.clusters[1] = 0;
  EXPECT_FALSE(MakePlan(Dense(32, 4, 16, 1024, 1024), limits).cluster);
  EXPECT_TRUE(MakePlan(Dense(32, 4, 6, 1024, 384), limits).cluster);
}

TEST(ElAttentionPlan, WhatIsForcedIsTaken) {
  Tuning two;
  two.splits = 1;
  two.parts = 2;
  const Plan plan = MakePlan(Dense(32, 4, 16, 1024, 1024), DeviceLimits(), two);
  EXPECT_EQ(plan.cluster_cut.splits, 1);
  EXPECT_EQ(plan.cluster_cut.parts, 2);
  two.splits = 4;
  EXPECT_EQ(MakePlan(Dense(32, 4, 16, 1024, 1024), DeviceLimits(), two).cluster_cut.splits, 4);
  EXPECT_EQ(MakePlan(Dense(32, 4, 16, 1024, 1024), Uneven(31, 0), two).cluster_cut.splits, 1);
}

TEST(ElAttentionPlan, TunedWidthsWasteNoColumns) {
  for (const auto& [width, warp_columns] : {std::pair{768, 48}, {1024, 64}, {1280, 80}}) {
    const Plan plan = MakePlan(Dense(32, 4, 16, 1024, width), DeviceLimits());
    EXPECT_TRUE(plan.cluster);
    EXPECT_EQ(plan.cluster_cut.warp_columns, warp_columns);
    EXPECT_EQ(plan.cluster_cut.columns * 8 * warp_columns, width);
  }
}

TEST(ElAttentionPlan, OneSampleIsSplitOverTheDevice) {
  const Plan plan = MakePlan(Dense(1, 4, 16, 65536, 1024), DeviceLimits());
  EXPECT_EQ(plan.cluster_cut.splits, 4);
  EXPECT_EQ(plan.cluster_cut.parts, 16);
  EXPECT_LE(plan.cluster_shape.grid_x * plan.cluster_shape.grid_y, 132);
  EXPECT_GT(plan.workspace, 0);
}

TEST(ElAttentionPlan, ClustersNeedHopper) {
  EXPECT_FALSE(MakePlan(Dense(32, 4, 16, 1024, 1024), Ampere()).cluster);
  const Plan plan = MakePlan(Dense(108, 1, 6, 1500, 384), Ampere());
  EXPECT_TRUE(plan.cluster);
  EXPECT_EQ(plan.cluster_shape.cluster, 1);
  EXPECT_FALSE(plan.chained);
}

TEST(ElAttentionPlan, EverythingElseIsSimple) {
  EXPECT_FALSE(MakePlan(Dense(2, 4, 16, 64, 1024, Type::kFloat32), DeviceLimits()).cluster);
  EXPECT_FALSE(MakePlan(Dense(2, 4, 16, 64, 1020), DeviceLimits()).cluster);
  EXPECT_FALSE(MakePlan(Dense(2, 4, 16, 64, 4096), DeviceLimits()).cluster);
  Problem shifted = Dense(2, 4, 16, 64, 1024);
  shifted.rows.data = reinterpret_cast<const void*>(uintptr_t{2});
  EXPECT_FALSE(MakePlan(shifted, DeviceLimits()).cluster);
}

TEST(ElAttentionPlan, WideRowsFoldHeads) {
  const Plan plan = MakePlan(Dense(1, 1, 16, 64, 16384, Type::kFloat32), DeviceLimits());
  ASSERT_TRUE(plan.legal);
  EXPECT_EQ(plan.simple_cut.heads, 1);
  EXPECT_LE(plan.simple_shape.shared_bytes, DeviceLimits().shared_per_block);
  EXPECT_FALSE(MakePlan(Dense(1, 1, 1, 4, 16385, Type::kFloat32), DeviceLimits()).legal);
}

TEST(ElAttentionPlan, PositionsThatTokensDoNotShareGoBeside) {
  Problem p = Dense(2, 4, 16, 1024, 1024);
  static const int32_t somewhere = 0;
  p.lists.sequences = &somewhere;
  p.lists.shared_length = 2048;
  EXPECT_FALSE(MakePlan(p, DeviceLimits()).simple);
  p.lists.private_length = 80;
  const Plan plan = MakePlan(p, DeviceLimits());
  EXPECT_TRUE(plan.cluster && plan.simple);
  EXPECT_EQ(plan.parts, plan.cluster_cut.parts + plan.simple_cut.parts);
}

// Random problems of all sizes fit a launch, and the planned workspace suffices for every address.
TEST(ElAttentionPlan, AllSizesAreLegal) {
  for (const DeviceLimits& limits : {DeviceLimits(), Ampere(), Uneven(30, 13), Uneven(0, 0)}) {
    for (const int32_t width : {1, 8, 100, 512, 640, 1000, 1536, 1544, 2048, 16384}) {
      for (const int32_t tokens : {1, 7, 5000}) {
        for (const int32_t keys : {0, 1, 700, 100000}) {
          for (const Type type : {Type::kFloat32, Type::kFloat16}) {
            Problem p = Dense(3, tokens, 12, keys, width, type);
            const int64_t maximum = WorkspaceBytes(p, limits);
            for (const uintptr_t address : {uintptr_t{0}, uintptr_t{4}}) {
              p.rows.data = reinterpret_cast<const void*>(address);
              const Plan plan = MakePlan(p, limits);
              EXPECT_TRUE(plan.legal) << width << ' ' << tokens << ' ' << keys;
              EXPECT_LE(plan.workspace, maximum);
              EXPECT_LE(plan.workspace, int64_t{64} << 20);
              if (!plan.cluster) continue;
              EXPECT_LE(plan.cluster_shape.shared_bytes, limits.shared_per_block);
              EXPECT_GE(plan.cluster_cut.columns * 8 * plan.cluster_cut.warp_columns, width);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace el_attention
}  // namespace cuda
}  // namespace graft
