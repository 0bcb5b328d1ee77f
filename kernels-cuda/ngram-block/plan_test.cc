#include "plan.h"

#include <gtest/gtest.h>

namespace graft {
namespace cuda {
namespace ngram_block {
namespace {

TEST(NGramPlan, AStepOfManyRowsIsOneWaveOfWholeRows) {
  const DeviceLimits h200;
  const ScanPlan plan = PlanScan(512, 1024, 3, true, h200);
  EXPECT_TRUE(plan.staged);
  EXPECT_LE(plan.parts, 2);
  EXPECT_EQ(plan.shape.grid_x, 512 * plan.parts);
  // Blocks by threads: all at once on the device.
  EXPECT_LE(plan.shape.grid_x * plan.shape.threads, int64_t{h200.multiprocessors} * 2048);
}

TEST(NGramPlan, LongRowsAreDealtOut) {
  const DeviceLimits h200;
  const ScanPlan plan = PlanScan(1, 100000, 3, false, h200);
  EXPECT_TRUE(plan.staged);
  EXPECT_GE(plan.parts, h200.multiprocessors);
  EXPECT_GE(plan.parts * plan.chunk, 100000);
}

// Whatever the shape: legal, every place of every row taken, shared memory as planned.
TEST(NGramPlan, EveryShapeIsLegal) {
  const DeviceLimits h200;
  for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{65536}, int64_t{3000000000}}) {
    for (const int64_t columns : {1, 2, 31, 1025, 5000, 1000000}) {
      for (const int64_t n : {1, 2, 3, 50, 3000, 2000000}) {
        for (const bool wide : {false, true}) {
          const ScanPlan plan = PlanScan(rows, columns, n, wide, h200);
          ASSERT_TRUE(IsLegal(plan.shape)) << rows << " x " << columns << ", n " << n;
          ASSERT_LE(plan.shape.shared_bytes, kSharedByDefault);
          ASSERT_EQ(plan.shape.threads % kWarp, 0);
          if (plan.staged) ASSERT_GE(plan.parts * plan.chunk, columns);
        }
      }
    }
  }
}

TEST(NGramPlan, NGramsTooLongForSharedMemoryAreScannedWhereTheyLie) {
  EXPECT_FALSE(PlanScan(4, 100000, 50000, true, DeviceLimits()).staged);
}

TEST(NGramPlan, AStepOfFewTokensIsTwoLaunches) {
  EXPECT_TRUE(PlanIndex(512, 1).grow_at_once);
  EXPECT_FALSE(PlanIndex(64, 1024).grow_at_once);
  for (const int64_t rows : {1, 40, 5000}) {
    for (const int64_t columns : {0, 1, 7, 100000}) {
      const IndexPlan plan = PlanIndex(rows, columns);
      EXPECT_TRUE(IsLegal(plan.begin) && IsLegal(plan.grow) && IsLegal(plan.ban));
      EXPECT_EQ(plan.begin.threads % kWarp + plan.ban.threads % kWarp, 0);
    }
  }
}

}  // namespace
}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft
