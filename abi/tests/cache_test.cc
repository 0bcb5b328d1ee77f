// The worked examples of "The KV cache" in README.md; host/abi checks the Go mirror with the same.
#include <gtest/gtest.h>

#include "graft_cache.h"

namespace {

TEST(Cache, KeysAndValues) {
  const int64_t area = graft_cache_kv_area(2, 4, 4);
  EXPECT_EQ(area, 256);
  EXPECT_EQ(graft_cache_key_offset(19, 1, 2 * area, area, 4), 844);
  EXPECT_EQ(graft_cache_value_offset(19, 1, 2 * area, area, 2, 4, 4), 972);
}

TEST(Cache, Rows) {
  EXPECT_EQ(graft_cache_row_area(5, 4), 80);
  EXPECT_EQ(graft_cache_row_area(5, 2), 48);
  EXPECT_EQ(graft_cache_row_area(6, 2), 48);
  EXPECT_EQ(graft_cache_row_offset(19, 48, 0, 5, 2), 222);
}

TEST(Cache, Blocks) {
  EXPECT_EQ(graft_cache_blocks(0), 0);
  EXPECT_EQ(graft_cache_blocks(16), 1);
  EXPECT_EQ(graft_cache_blocks(17), 2);
}

TEST(Cache, Panels) {
  EXPECT_EQ(graft_panels(16), 1);
  EXPECT_EQ(graft_panels(20), 2);
  EXPECT_EQ(graft_panel_offset(17, 3, 8), 177);
}

}  // namespace
