// Launches are planned in plain integers, after RequireCountable. Here every plan meets sizes at
// its limits: plans are compiled to trap where a number wraps.
#include "graft/countable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "el-attention/plan.h"
#include "flash-decode/plan.h"
#include "logits-top-k/plan.h"
#include "ngram-block/plan.h"
#include "slim-attention/plan.h"

namespace graft {
namespace cuda {
namespace {

bool Countable(std::initializer_list<int64_t> sizes) {
  try {
    RequireCountable("Test", sizes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const int64_t kMost = INT32_MAX;

TEST(RequireCountable, TakesSizesOf31BitsWhoseProductLeavesRoom) {
  EXPECT_TRUE(Countable({}));
  EXPECT_TRUE(Countable({0, kMost, 0, int64_t{1} << 21}));  // a 0 is taken as 1
  EXPECT_TRUE(Countable({int64_t{1} << 26, int64_t{1} << 26}));
  EXPECT_TRUE(Countable({kMost, int64_t{1} << 21}));
  EXPECT_TRUE(Countable({kMost}));

  EXPECT_FALSE(Countable({kMost + 1}));
  EXPECT_FALSE(Countable({-1}));
  EXPECT_FALSE(Countable({INT64_MIN}));
  EXPECT_FALSE(Countable({(int64_t{1} << 26) + 1, int64_t{1} << 26}));
  EXPECT_FALSE(Countable({0, kMost, int64_t{1} << 22}));
  EXPECT_FALSE(Countable({kMost, kMost, kMost}));
  // 2^64, and more than 64 bits hold again.
  EXPECT_FALSE(Countable({1 << 30, 1 << 30, 16}));
  EXPECT_FALSE(Countable({1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30}));
}

TEST(RequireCountable, NamesTheKernelAndTheSize) {
  try {
    RequireCountable("Kernel", {3, kMost + 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "Kernel: a size is 2147483648, needed is 0 to 2147483647");
  }
}

// Sizes of every magnitude, and the limit.
const std::vector<int64_t> kSizes = {0, 1, 7, 1 << 10, 1 << 16, 1 << 21, 1 << 26, kMost};

// Small devices and one whose numbers are beyond those that are sold.
std::vector<DeviceLimits> Devices() {
  DeviceLimits large;
  large.multiprocessors = 1 << 12;
  return {DeviceLimits(), large};
}

TEST(CountablePlans, NGrams) {
  int planned = 0;
  for (const auto& device : Devices()) {
    for (const int64_t rows : kSizes) {
      for (const int64_t columns : kSizes) {
        if (!Countable({rows, columns})) continue;
        ngram_block::PlanIndex(rows, columns);
        for (const int64_t n : {int64_t{1}, int64_t{3}, std::max<int64_t>(1, columns)}) {
          ngram_block::PlanScan(rows, std::max<int64_t>(1, columns), n, true, device);
          ++planned;
        }
      }
    }
  }
  EXPECT_GT(planned, 150);
}

TEST(CountablePlans, TopK) {
  int planned = 0;
  for (const auto& device : Devices()) {
    for (const int64_t rows : kSizes) {
      for (const int64_t vocab : kSizes) {
        for (const int64_t groups : kSizes) {
          for (const int64_t width : kSizes) {
            if (vocab == 0 || vocab == kMost || rows == 0 || groups == 0 || groups > rows) continue;
            if (!Countable({rows, vocab + 1}) || !Countable({groups, width})) continue;
            logits_top_k::Shape shape;
            shape.rows = rows;
            shape.vocab = vocab;
            shape.groups = groups;
            shape.group_rows = rows / groups;
            shape.width = width;
            for (int i = 0; i < 4; ++i) {
              shape.samples = (i & 1) != 0;
              shape.named = (i & 2) != 0;
              logits_top_k::PlanTopK(shape, device);
              ++planned;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 500);
}

TEST(CountablePlans, SharedRows) {
  int planned = 0;
  for (const auto& device : Devices()) {
    for (const int64_t tokens : kSizes) {
      for (const int64_t heads : kSizes) {
        for (const int64_t keys : kSizes) {
          for (const int64_t width : kSizes) {
            if (tokens == 0 || heads == 0 || width == 0 || width > el_attention::kMaxWidth)
              continue;
            if (!Countable({tokens, heads, width}) || !Countable({tokens, heads, keys})) continue;
            el_attention::Problem p;
            p.rows.type = p.output_type = Type::kBFloat16;
            p.rows.width = static_cast<int32_t>(width);
            p.lists.groups = 1;
            p.lists.group_tokens = static_cast<int32_t>(tokens);
            p.lists.group_keys = static_cast<int32_t>(keys);
            p.tokens = static_cast<int32_t>(tokens);
            p.heads = static_cast<int32_t>(heads);
            el_attention::MakePlan(p, device);
            el_attention::WorkspaceBytes(p, device, {});
            ++planned;
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 150);
}

TEST(CountablePlans, Keys) {
  int planned = 0;
  for (const auto& device : Devices()) {
    for (const int64_t tokens : kSizes) {
      for (const int64_t heads : kSizes) {
        for (const int64_t keys : kSizes) {
          for (const int64_t size : {1, 64, 256, 1 << 16}) {
            if (tokens == 0 || heads == 0) continue;
            if (!Countable({tokens, heads, heads, size}) ||
                !Countable({tokens, heads, size, size}) || !Countable({keys, heads, size}) ||
                !Countable({keys, tokens, heads})) {
              continue;
            }
            slim_attention::Problem p;
            p.groups = 1;
            p.tokens = tokens;
            p.heads = heads;
            p.head_size = p.value_size = size;
            p.row_type = p.type = p.weight_type = Type::kBFloat16;
            p.row_stride = p.width();
            p.positions = keys;
            p.block_stride = keys * p.width();
            slim_attention::MakePlan(p, device);
            ++planned;
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 150);
}

TEST(CountablePlans, Decode) {
  int planned = 0;
  for (const auto& device : Devices()) {
    for (const int64_t groups : kSizes) {
      for (const int64_t rows : kSizes) {
        for (const int64_t heads : kSizes) {
          for (const int64_t keys : kSizes) {
            for (const int64_t size : {1, 64, 256, 1 << 16}) {
              if (groups == 0 || rows == 0 || heads == 0) continue;
              if (!Countable({groups, rows, heads, 2 * size}) ||
                  !Countable({groups, rows, heads, keys})) {
                continue;
              }
              flash_decode::Problem p;
              p.type = Type::kBFloat16;
              p.groups = groups;
              p.rows = rows;
              p.heads = p.kv_heads = heads;
              p.head_size = p.value_size = size;
              p.keys = keys;
              flash_decode::MakePlan(p, device);
              ++planned;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 500);
}

}  // namespace
}  // namespace cuda
}  // namespace graft
