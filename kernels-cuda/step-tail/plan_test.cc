#include "plan.h"

#include <gtest/gtest.h>

namespace graft {
namespace cuda {
namespace step_tail {
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

TEST(TailPlan, BeamSearchIsOneWaveOfClusters) {
  const DeviceLimits h200;
  const TailPlan plan = PlanTail(ShapeOf(128, 50257, 32, 4, 8), h200);
  EXPECT_TRUE(plan.fast);
  EXPECT_EQ(plan.shape.cluster, 8);
  EXPECT_EQ(plan.shape.grid_x, 256);
  // Blocks for which a multiprocessor has registers at once: three.
  EXPECT_LE(plan.shape.grid_x, int64_t{3} * h200.multiprocessors);
  EXPECT_LE(plan.shape.shared_bytes * 3, h200.shared_per_processor);
  EXPECT_EQ(plan.workspace, 0);
}

TEST(TailPlan, ManyGroupsNeedNoCluster) {
  EXPECT_EQ(PlanTail(ShapeOf(4096, 50257, 1024, 4, 8), DeviceLimits()).shape.cluster, 1);
}

TEST(TailPlan, WithoutClustersABlockReadsAll) {
  DeviceLimits a100;
  a100.major = 8;
  a100.multiprocessors = 108;
  a100.shared_per_block = 163 * 1024;
  const TailPlan plan = PlanTail(ShapeOf(128, 50257, 32, 4, 8), a100);
  EXPECT_TRUE(plan.fast);
  EXPECT_EQ(plan.shape.cluster, 1);
}

TEST(TailPlan, DrawsAndManyCandidatesAreSimple) {
  Shape shape = ShapeOf(4, 1000, 4, 1, 3);
  shape.samples = true;
  EXPECT_FALSE(PlanTail(shape, DeviceLimits()).fast);
  EXPECT_EQ(PlanTail(shape, DeviceLimits()).workspace, 16016);
  EXPECT_FALSE(PlanTail(ShapeOf(4, 1000, 4, 1, 65), DeviceLimits()).fast);
}

// Whatever the shape: legal, no more shared memory than there is, places apart from each other.
TEST(TailPlan, EveryShapeIsLegal) {
  for (const int64_t groups : {int64_t{1}, int64_t{7}, int64_t{70000}, int64_t{5000000}}) {
    for (const int64_t vocab : {int64_t{1}, int64_t{50257}, int64_t{300000}, int64_t{3000000}}) {
      for (const int64_t width : {1, 2, 64, 65, 5000}) {
        for (const int64_t group_rows : {1, 3, 64}) {
          for (const bool named : {false, true}) {
            Shape shape = ShapeOf(groups * group_rows, vocab, groups, group_rows, width);
            shape.named = named;
            const TailPlan plan = PlanTail(shape, DeviceLimits());
            ASSERT_TRUE(IsLegal(plan.shape)) << groups << ' ' << vocab << ' ' << width;
            ASSERT_LE(plan.shape.shared_bytes, DeviceLimits().shared_per_block);
            if (!plan.fast) continue;
            const Layout& at = plan.layout;
            ASSERT_EQ(plan.shape.grid_x % at.parts, 0);
            ASSERT_GE(at.list - at.bitmap, named ? (vocab + 31) / 32 * 4 : 0);
            ASSERT_GE(at.records - at.list, int64_t{8} * at.found);
            ASSERT_GE(at.kept, width);
            ASSERT_GE(at.found, at.kept);
            ASSERT_GE(at.ranked, at.parts * at.at_once * at.kept + width);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace step_tail
}  // namespace cuda
}  // namespace graft
