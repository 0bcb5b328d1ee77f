// RemovePadding and RestorePadding through the C table: masks and rows of every type, hostile ones;
// memory is guarded.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "host.h"

namespace graft::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const std::vector<DataType> kMaskTypes = {kBool, kInt32, kInt64, kFloat32, kFloat16};

void Set(Buffer& buffer, DataType type, int64_t i, double value) {
  if (type == kBool) buffer.data<uint8_t>()[i] = static_cast<uint8_t>(value);
  if (type == kInt32) buffer.data<int32_t>()[i] = static_cast<int32_t>(value);
  if (type == kInt64) buffer.data<int64_t>()[i] = static_cast<int64_t>(value);
  if (type == kFloat32) buffer.data<float>()[i] = static_cast<float>(value);
  if (type == kFloat16) buffer.data<Float16>()[i] = Float16::From(static_cast<float>(value));
}

// A kernel of RemovePadding, and what it made of one mask.
struct Removed {
  Removed(DataType type, int64_t batch, int64_t positions, const Attributes& attributes)
      : kernel(Load(REMOVE_PADDING_LIBRARY), "RemovePadding"),
        mask(type, {batch, positions}, 1),
        keep(kBool, {batch, positions}, 3),
        hidden(kBool, {batch, positions}, 1),
        offsets(kInt32, {batch + 1}),
        first(kInt32, {batch}) {
    created = kernel.Create(attributes);
  }
  int32_t Run(bool with_hidden) {
    return kernel.Run({mask.tensor()}, {keep.tensor(), offsets.tensor(), first.tensor(),
                                        with_hidden ? hidden.tensor() : nullptr});
  }
  bool intact() const {
    return mask.intact() && keep.intact() && hidden.intact() && offsets.intact() && first.intact();
  }

  Kernel kernel;
  Buffer mask, keep, hidden, offsets, first;
  int32_t created;
};

TEST(RemovePadding, RetainsSpansOfVisibleTokens) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 5000; ++round) {
    const int64_t batch = pick(0, 4), positions = pick(0, 5) == 0 ? pick(0, 3) : pick(1, 40);
    const bool keep_first = pick(0, 3) == 0, keep_last = pick(0, 3) == 0;
    const bool keep_empty = pick(0, 2) == 0;
    const DataType type = kMaskTypes[static_cast<size_t>(pick(0, 4))];
    const bool additive = type != kBool && pick(0, 2) == 0;
    Removed r(type, batch, positions,
              Attributes()
                  .Int("additive", additive)
                  .Int("keep_first", keep_first)
                  .Int("keep_last", keep_last)
                  .Int("keep_empty", keep_empty));
    ASSERT_EQ(r.created, GRAFT_OK);
    std::vector<std::vector<bool>> visible(static_cast<size_t>(batch));
    const bool floats = type == kFloat32 || type == kFloat16;
    const double kHides[] = {-1e4, floats ? -kInfinity : -1e5, type == kFloat16 ? -65504.0 : -2e9};
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t mode = pick(0, 3), from = pick(0, positions), to = pick(0, positions);
      for (int64_t s = 0; s < positions; ++s) {
        const bool one = mode == 0   ? s >= from
                         : mode == 1 ? s < to
                         : mode == 2 ? pick(0, 2) == 0
                                     : false;
        visible[static_cast<size_t>(b)].push_back(one);
        Set(r.mask, type, b * positions + s,
            additive ? (one ? (floats && pick(0, 1) == 0 ? -0.0 : 0.0) : kHides[pick(0, 2)])
                     : (one ? 1.0 : 0.0));
      }
    }
    const bool with_hidden = pick(0, 1) == 0;
    const auto shows_none = [](const std::vector<bool>& row) {
      return !row.empty() && std::find(row.begin(), row.end(), true) == row.end();
    };
    // What a row that shows no token sees follows from the numbers of a mask that is added.
    if (additive && keep_empty && std::any_of(visible.begin(), visible.end(), shows_none)) {
      ASSERT_EQ(r.Run(with_hidden), GRAFT_ERROR_INVALID_ARGUMENT);
      continue;
    }
    ASSERT_EQ(r.Run(with_hidden), GRAFT_OK) << r.kernel.message.text;
    int32_t total = 0;
    EXPECT_EQ(r.offsets.data<int32_t>()[0], 0);
    for (int64_t b = 0; b < batch; ++b) {
      const std::vector<bool>& row = visible[static_cast<size_t>(b)];
      // The span, position by position: what is between two that must be kept is kept.
      std::vector<bool> must(row);
      const bool none = std::find(row.begin(), row.end(), true) == row.end();
      if (keep_first && positions > 0 && !(none && keep_last)) must.front() = true;
      if (keep_last && positions > 0 && !(none && keep_first)) must.back() = true;
      if (none && keep_first && keep_last && positions > 0) must.front() = must.back() = true;
      if (none && keep_empty) must.assign(row.size(), true);
      int32_t length = 0, first = -1;
      for (int64_t s = 0; s < positions; ++s) {
        const auto before = std::find(must.begin(), must.begin() + s + 1, true);
        const auto after = std::find(must.begin() + s, must.end(), true);
        const bool kept = before != must.begin() + s + 1 && after != must.end();
        if (kept && first < 0) first = static_cast<int32_t>(s);
        length += kept ? 1 : 0;
        ASSERT_EQ(r.keep.data<uint8_t>()[b * positions + s], kept)
            << round << ": " << b << ", " << s;
        if (!with_hidden) continue;
        ASSERT_EQ(r.hidden.data<uint8_t>()[b * positions + s], !row[static_cast<size_t>(s)]);
      }
      total += length;
      ASSERT_EQ(r.offsets.data<int32_t>()[b + 1], total);
      ASSERT_EQ(r.first.data<int32_t>()[b], std::max(first, 0));
    }
    ASSERT_TRUE(r.intact());
  }
}

TEST(RemovePadding, OtherNumbersAreNamed) {
  struct Case {
    DataType type;
    bool additive;
    double value;
    std::string found;
  };
  const Case kCases[] = {
      {kInt64, false, 2, "2"},
      {kInt64, false, -1, "-1"},
      {kInt32, false, 255, "255"},
      {kBool, false, 2, "2"},
      {kFloat32, false, 0.5, "0.5"},
      {kFloat32, false, kNaN, "nan"},
      {kFloat32, false, kInfinity, "inf"},
      {kFloat16, false, 1.0009765625, "1.00098"},
      {kFloat32, true, 1, "1"},
      {kFloat32, true, -9999, "-9999"},
      {kFloat32, true, kNaN, "nan"},
      {kFloat32, true, kInfinity, "inf"},
      {kInt64, true, 1, "1"},
      {kFloat16, true, -9992, "-9992"},
  };
  for (const Case& c : kCases) {
    Removed r(c.type, 3, 70, Attributes().Int("additive", c.additive));
    for (int64_t i = 0; i < 210; ++i) Set(r.mask, c.type, i, 0.0);
    Set(r.mask, c.type, 2 * 70 + 65, c.value);
    EXPECT_EQ(r.Run(true), GRAFT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(r.kernel.message.text,
              "RemovePadding: element [2, 65] of mask is " + c.found + ", needed is " +
                  (c.additive ? "0 where a token is visible, and at most -10000 where it is hidden"
                              : "1 where a token is visible, and 0 where it is hidden"));
    EXPECT_TRUE(r.intact());
  }
}

TEST(RestorePadding, PutsRowsInTheirPlaces) {
  std::mt19937 random(4);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const DataType kTypes[] = {kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kInt16,
                             kInt8,    kUInt64,  kUInt32,   kUInt16,  kUInt8, kBool};
  for (int round = 0; round < 2000; ++round) {
    const DataType type = kTypes[pick(0, 12)];
    const int64_t batch = pick(0, 4), positions = pick(0, 30);
    std::vector<int64_t> inner;
    for (int64_t i = pick(0, 3); i > 0; --i) inner.push_back(pick(0, 9) == 0 ? 0 : pick(1, 40));
    if (pick(0, 50) == 0) inner = {3000};  // several tasks
    std::vector<int64_t> places;
    const int64_t mode = pick(0, 3);
    for (int64_t i = 0; i < batch * positions; ++i) {
      if (mode == 0 || (mode != 1 && pick(0, 2) != 0)) places.push_back(i);
    }
    const auto count = static_cast<int64_t>(places.size());
    std::vector<int64_t> shape = {1, count}, output_shape = {batch, positions};
    int64_t bytes = static_cast<int64_t>(BytesOf(type));
    for (const int64_t size : inner) {
      shape.push_back(size);
      output_shape.push_back(size);
      bytes *= size;
    }
    Buffer packed(type, shape, static_cast<uint64_t>(pick(0, 3)));
    Buffer output(type, output_shape, static_cast<uint64_t>(pick(0, 3)));
    Buffer rows(kInt64,
                pick(0, 1) == 0 ? std::vector<int64_t>{count} : std::vector<int64_t>{1, count});
    Buffer like(kMaskTypes[static_cast<size_t>(pick(0, 4))], {batch, positions});
    for (int64_t i = 0; i < count * bytes; ++i) {
      packed.data<uint8_t>()[i] = static_cast<uint8_t>(random());
    }
    std::copy(places.begin(), places.end(), rows.data<int64_t>());
    Kernel kernel(Load(REMOVE_PADDING_LIBRARY), "RestorePadding");
    ASSERT_EQ(kernel.Create(), GRAFT_OK);
    ASSERT_EQ(kernel.Run({packed.tensor(), rows.tensor(), like.tensor()}, {output.tensor()},
                         pick(0, 9) == 0 ? 3 : 1),
              GRAFT_OK)
        << kernel.message.text;
    std::vector<uint8_t> want(static_cast<size_t>(batch * positions * bytes), 0);
    for (int64_t i = 0; i < count * bytes; ++i) {
      want[static_cast<size_t>(places[static_cast<size_t>(i / bytes)] * bytes + i % bytes)] =
          packed.data<uint8_t>()[i];
    }
    ASSERT_EQ(output.Get<uint8_t>(), want) << "round " << round;
    ASSERT_TRUE(packed.intact() && output.intact() && rows.intact());
  }
}

TEST(RestorePadding, HostileRowsAreNamed) {
  struct Case {
    std::vector<int64_t> rows;
    std::string text;
  };
  const int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = -kMost - 1;
  const Case kCases[] = {
      {{0, 1, 6}, "element 2 of rows is 6, needed is 2 to 5"},
      {{-1, 1, 2}, "element 0 of rows is -1, needed is 0 to 5"},
      {{0, 2, 2}, "element 2 of rows is 2, needed is 3 to 5"},
      {{3, 2, 5}, "element 1 of rows is 2, needed is 4 to 5"},
      {{0, kMost, 2}, "element 1 of rows is 9223372036854775807, needed is 1 to 5"},
      {{kLeast, 0, 1}, "element 0 of rows is -9223372036854775808, needed is 0 to 5"},
      {{0, kMost, kLeast}, "element 1 of rows is 9223372036854775807, needed is 1 to 5"},
  };
  for (const Case& c : kCases) {
    Buffer packed(kFloat32, {1, 3, 2}), output(kFloat32, {2, 3, 2}), rows(kInt64, {3});
    Buffer like(kBool, {2, 3});
    rows.Set(c.rows);
    Kernel kernel(Load(REMOVE_PADDING_LIBRARY), "RestorePadding");
    ASSERT_EQ(kernel.Create(), GRAFT_OK);
    EXPECT_EQ(kernel.Run({packed.tensor(), rows.tensor(), like.tensor()}, {output.tensor()}),
              GRAFT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(kernel.message.text, "RestorePadding: " + c.text + ": places in ascending order");
    EXPECT_TRUE(output.intact());
  }
}

}  // namespace
}  // namespace graft::test
