#include "plan.h"

#include <gtest/gtest.h>

namespace graft {
namespace cuda {
namespace logits_top_k {
namespace {

Shape ShapeOf(int64_t rows, int64_t vocab, int64_t groups, int64_t group_rows, int64_t width) {
  Shape shape;
  shape.rows = rows;
  shape.vocab = vocab;
  shape.groups = groups;
  shape.group_rows = group_rows;
  shape.width = width;
  return shape;
}

TEST(TopKPlan, BeamSearchIsOneWaveOfClusters) {
  const DeviceLimits h200;
  for (const Type type : {Type::kFloat32, Type::kBFloat16}) {
    for (const bool named : {false, true}) {
      Shape shape = ShapeOf(128, 50257, 32, 4, 8);
      shape.type = type;
      shape.named = named;
      const TopKPlan plan = PlanTopK(shape, h200);
      EXPECT_TRUE(plan.fast);
      EXPECT_EQ(plan.shape.cluster, 8);
      EXPECT_EQ(plan.shape.grid_x, 256);
      // A team a row, and room for three blocks a multiprocessor: 256 are there at once even where
      // clusters cannot fill a part of the device evenly.
      EXPECT_EQ(plan.layout.at_once, 4);
      EXPECT_EQ(plan.layout.teams, 4);
      EXPECT_EQ(plan.shape.threads, 256);
      EXPECT_LE((plan.shape.shared_bytes + 1024) * 3, h200.shared_per_processor);
      // Of float32 more than half of the block's 100 KB are in flight at once, of 16 bits all.
      const int64_t under_way = int64_t{kSlots} * plan.layout.chunk * 16 * 4;
      EXPECT_GE(under_way, type == Type::kFloat32 ? 58000 : 50000);
      EXPECT_EQ(plan.layout.chunks, type == Type::kFloat32 ? 7 : 4);
      EXPECT_EQ(plan.workspace, 0);
    }
  }
}

TEST(TopKPlan, TeamsHaveTwoThreadsACandidate) {
  for (const int64_t width : {1, 8, 33, 64}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 9}) {
      const TopKPlan plan = PlanTopK(ShapeOf(rows * 8, 50257, 8, rows, width), DeviceLimits());
      ASSERT_TRUE(plan.fast);
      ASSERT_GE(plan.shape.threads / plan.layout.teams, 2 * width);
      ASSERT_LE(plan.shape.threads, kMaxThreads);
      ASSERT_LE(plan.layout.teams, plan.layout.at_once);
    }
  }
  // Five rows are three and two, not four and one.
  EXPECT_EQ(PlanTopK(ShapeOf(40, 50257, 8, 5, 8), DeviceLimits()).layout.at_once, 3);
}

TEST(TopKPlan, OneRowAGroupIsReadByAllThreads) {
  const TopKPlan plan = PlanTopK(ShapeOf(64, 50257, 64, 1, 1), DeviceLimits());
  EXPECT_EQ(plan.shape.grid_x, 256);
  EXPECT_EQ(plan.layout.teams, 1);
  EXPECT_EQ(plan.shape.threads, 256);
  EXPECT_EQ(plan.layout.chunks, kSlots);  // all of a part is in flight at once
}

// Clusters of 8 need parts of the device that they fill; where too few run at once, smaller ones
// are planned, so that no second wave doubles the time.
TEST(TopKPlan, ClustersAreAsLargeAsRunAtOnce) {
  DeviceLimits uneven;
  uneven.clusters[3] = 14;
  EXPECT_EQ(PlanTopK(ShapeOf(128, 50257, 32, 4, 8), uneven).shape.cluster, 8);
  uneven.clusters[3] = 10;
  EXPECT_EQ(PlanTopK(ShapeOf(128, 50257, 32, 4, 8), uneven).shape.cluster, 4);
}

TEST(TopKPlan, ManyGroupsNeedNoCluster) {
  EXPECT_EQ(PlanTopK(ShapeOf(4096, 50257, 1024, 4, 8), DeviceLimits()).shape.cluster, 1);
}

TEST(TopKPlan, WithoutClustersABlockReadsAll) {
  DeviceLimits a100;
  a100.major = 8;
  a100.multiprocessors = 108;
  a100.shared_per_block = 163 * 1024;
  const TopKPlan plan = PlanTopK(ShapeOf(128, 50257, 32, 4, 8), a100);
  EXPECT_TRUE(plan.fast);
  EXPECT_EQ(plan.shape.cluster, 1);
}

TEST(TopKPlan, SamplesAndManyCandidatesAreSimple) {
  Shape shape = ShapeOf(4, 1000, 4, 1, 3);
  shape.samples = true;
  EXPECT_FALSE(PlanTopK(shape, DeviceLimits()).fast);
  EXPECT_EQ(PlanTopK(shape, DeviceLimits()).workspace, 16016);
  EXPECT_FALSE(PlanTopK(ShapeOf(4, 1000, 4, 1, 65), DeviceLimits()).fast);
}

// Whatever the shape: legal, no more shared memory than there is, places apart from each other.
TEST(TopKPlan, EveryShapeIsLegal) {
  for (const int64_t groups : {int64_t{1}, int64_t{7}, int64_t{70000}, int64_t{5000000}}) {
    for (const int64_t vocab : {int64_t{1}, int64_t{50257}, int64_t{300000}, int64_t{3000000}}) {
      for (const int64_t width : {1, 2, 64, 65, 5000}) {
        for (const int64_t group_rows : {1, 3, 64}) {
          for (const bool named : {false, true}) {
            Shape shape = ShapeOf(groups * group_rows, vocab, groups, group_rows, width);
            shape.named = named;
            const TopKPlan plan = PlanTopK(shape, DeviceLimits());
            ASSERT_TRUE(IsLegal(plan.shape)) << groups << ' ' << vocab << ' ' << width;
            ASSERT_LE(plan.shape.shared_bytes, DeviceLimits().shared_per_block);
            if (!plan.fast) continue;
            const Layout& at = plan.layout;
            ASSERT_EQ(plan.shape.grid_x % at.parts, 0);
            const int64_t threads = plan.shape.threads / at.teams;
            ASSERT_EQ(threads * at.teams, plan.shape.threads);
            ASSERT_EQ(threads % kWarp, 0);
            ASSERT_GE(at.gathered - at.lists, at.teams * int64_t{8} * at.found);
            ASSERT_EQ(at.found, kHeld * threads);
            ASSERT_GE(at.kept, width);
            ASSERT_GE(at.found, at.kept);
            ASSERT_GE(at.joined - at.gathered, at.parts * at.at_once * 4 * RecordWords(at));
            ASSERT_GE(at.ring - at.bitmaps, int64_t{4} * at.at_once * at.words);
            // A part's tokens from anywhere within a word on.
            const int64_t span = (vocab / 4 + at.parts - 1) / at.parts * 4 + 6;
            ASSERT_GE(int64_t{32} * at.words, named ? 31 + span : 0);
            ASSERT_GE(at.ranked, at.parts * at.at_once * at.kept + width + plan.shape.threads);
            ASSERT_GE(at.bytes - at.bans, named ? (vocab + 31) / 32 * 4 * at.ban_rows : 0);
            ASSERT_GE(at.bytes - at.ring, int64_t{16} * at.teams * kSlots * at.chunk);
            ASSERT_GE(int64_t{at.chunks} * at.chunk, vocab / 4 / at.parts);
            ASSERT_GE(at.chunk, 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft
