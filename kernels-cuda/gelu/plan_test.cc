#include "plan.h"

#include <gtest/gtest.h>

namespace graft {
namespace cuda {
namespace {

const void* At(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(GeluPlan, VectorsWhereBothAddressesAllowThem) {
  const DeviceLimits limits;
  EXPECT_EQ(gelu::PlanGelu(At(256), At(512), 1003, 2, limits).vectors, 125);
  EXPECT_EQ(gelu::PlanGelu(At(256), At(512), 1003, 4, limits).vectors, 250);
  EXPECT_EQ(gelu::PlanGelu(At(256), At(512), 3, 4, limits).vectors, 0);
  EXPECT_EQ(gelu::PlanGelu(At(258), At(512), 1003, 2, limits).vectors, 0);
  EXPECT_EQ(gelu::PlanGelu(At(256), At(516), 1003, 4, limits).vectors, 0);
}

TEST(GeluPlan, NoMoreBlocksThanWorkOrRoom) {
  DeviceLimits limits;
  limits.multiprocessors = 10;
  EXPECT_EQ(gelu::PlanGelu(At(0), At(0), 1, 4, limits).shape.grid_x, 1);
  EXPECT_EQ(gelu::PlanGelu(At(0), At(0), 4 * 256, 4, limits).shape.grid_x, 1);
  EXPECT_EQ(gelu::PlanGelu(At(0), At(0), 4 * 257, 4, limits).shape.grid_x, 2);
  EXPECT_EQ(gelu::PlanGelu(At(4), At(0), 4 * 256, 4, limits).shape.grid_x, 4);
  const LaunchShape maximum = gelu::PlanGelu(At(0), At(0), int64_t{1} << 40, 2, limits).shape;
  EXPECT_EQ(maximum.grid_x, 80);
  EXPECT_TRUE(IsLegal(maximum));
}

}  // namespace
}  // namespace cuda
}  // namespace graft
