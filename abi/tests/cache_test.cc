// The worked examples of "The KV cache" in README.md; host/base/abi checks the Go mirror with the
// same.
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

TEST(Cache, Types) {
  EXPECT_EQ(graft_cache_typed_kv_area(2, 4, 4, 2, 0), 128);
  EXPECT_EQ(graft_cache_typed_kv_area(2, 4, 4, 1, graft_cache_scales(2)), 128);
  EXPECT_EQ(graft_cache_typed_kv_area(3, 5, 7, 4, 0), graft_cache_kv_area(3, 5, 7));
  EXPECT_EQ(graft_cache_typed_key_offset(19, 1, 128, 0, 4, 1, graft_cache_scales(2)), 844);
  EXPECT_EQ(graft_cache_typed_value_offset(19, 1, 128, 0, 2, 4, 4, 1, graft_cache_scales(2)),
            844 + 2 * 16 * 4);
  EXPECT_EQ(graft_cache_typed_value_offset(19, 1, 512, 256, 2, 4, 6, 4, 0),
            4 * graft_cache_value_offset(19, 1, 512, 256, 2, 4, 6));
  EXPECT_EQ(graft_cache_scale_offset(19, 1, 128, 0), 147);
  EXPECT_EQ(graft_cache_scale_offset(19, 2 + 1, 128, 0), 179);
  EXPECT_EQ(graft_cache_int8_row(70), 80);
  EXPECT_EQ(graft_cache_int8_row(64), 68);
}

TEST(Cache, Panels) {
  EXPECT_EQ(graft_panels(16), 1);
  EXPECT_EQ(graft_panels(20), 2);
  EXPECT_EQ(graft_panel_offset(17, 3, 8), 177);
}

}  // namespace
