// Accumulators of integers are exact: where rows are integers already, and scales are powers of
// two, a matmul has the bits of sums of each group in 64-bit integers. The integers are all that
// exports may hold, -128 and zero points too, in panels that this file lays out as quantized.h
// says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "dice.h"
#include "linear.h"
#include "poison.h"
#include "quantized.h"
#include "thread_pool.h"

namespace graft {
namespace linear {
namespace {

using ThreadPool = test::ThreadPool<Runner>;
using testing::Dice;

// A matmul of integers: x [M, K] and q [K, N], with a zero point and twice a scale of each group of
// K and column.
struct Integers {
  int64_t rows, depth, columns, group, groups;
  WeightType type;
  RowType row_type;
  std::vector<int64_t> x, q, zero, twice_scale;

  explicit Integers(Dice* dice) {
    constexpr int64_t kGroups[] = {32, 64, 128};
    type = dice->Chance(50) ? WeightType::kInt8 : WeightType::kInt4;
    group = dice->Pick(kGroups);
    rows = dice->Chance(80) ? dice->Between(1, 9) : dice->Between(10, 60);
    depth = dice->Between(1, 200);
    row_type = dice->Chance(50) ? RowType::kInt8 : RowType::kInt16;
    const int64_t limit = row_type == RowType::kInt8 ? 127 : 32639;
    columns = dice->Chance(80) ? dice->Between(1, 60) : dice->Between(61, 300);
    groups = (depth + group - 1) / group;
    const int64_t most = type == WeightType::kInt8 ? 128 : 8;
    const bool zeros = dice->Chance(50), extreme = dice->Chance(10);
    for (int64_t i = 0; i < rows * depth; ++i) {
      // A number of each group is the greatest, so that integers are what a row is rounded to.
      const bool greatest = extreme || i % depth % group == 0;
      x.push_back(greatest ? (dice->Chance(50) ? limit : -limit) : dice->Between(-limit, limit));
    }
    for (int64_t i = 0; i < depth * columns; ++i) {
      q.push_back(extreme ? (dice->Chance(50) ? -most : most - 1) : dice->Between(-most, most - 1));
    }
    for (int64_t i = 0; i < groups * columns; ++i) {
      zero.push_back(zeros ? dice->Between(-most, most - 1) : 0);
      twice_scale.push_back(int64_t{1} << dice->Between(0, 2));
    }
  }

  size_t At(int64_t k, int64_t column) const {
    return static_cast<size_t>(k / group * columns + column);
  }

  float Want(int64_t row, int64_t column) const {
    float all = 0;
    for (int64_t begin = 0; begin < depth; begin += group) {
      int64_t sum = 0;
      for (int64_t k = begin; k < std::min(begin + group, depth); ++k) {
        const auto w = static_cast<size_t>(k * columns + column);
        sum += x[static_cast<size_t>(row * depth + k)] * (q[w] - zero[At(k, column)]);
      }
      all += static_cast<float>(sum) * static_cast<float>(twice_scale[At(begin, column)]) / 2;
    }
    return all;
  }
};

// The integers as panels.
struct Laid {
  std::vector<uint8_t> panels;
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  std::vector<int8_t> zeros;

  explicit Laid(const Integers& m) {
    const int64_t deep = (m.depth + kChunk - 1) / kChunk * kChunk,
                  across = (m.columns + kPanelColumns - 1) / kPanelColumns;
    const bool four = m.type == WeightType::kInt4;
    panels.assign(PackedBytes(m.type, m.depth, m.columns), four ? 0x88 : 0);
    const auto scales = static_cast<size_t>(across * m.groups * kPanelColumns);
    wide.assign(scales, 1.0f);
    narrow.assign(scales, 0x3f80);
    zeros.assign(scales, 0);
    const int64_t panel_bytes = deep * kPanelColumns / (four ? 2 : 1);
    for (int64_t j = 0; j < m.columns; ++j) {
      const int64_t panel = j / kPanelColumns, i = j % kPanelColumns;
      for (int64_t k = 0; k < m.depth; ++k) {
        const int64_t q = m.q[static_cast<size_t>(k * m.columns + j)];
        uint8_t* at = panels.data() + panel * panel_bytes + i * 4 + k % 4;
        if (four) {
          uint8_t& byte = at[k / 8 * 64];
          const auto half = static_cast<uint8_t>(q + 8);
          byte = static_cast<uint8_t>(k % 8 < 4 ? (byte & 0xf0) | half : (byte & 0xf) | half << 4);
        } else {
          at[k / 4 * 64] = static_cast<uint8_t>(q);
        }
      }
      for (int64_t g = 0; g < m.groups; ++g) {
        const auto at = static_cast<size_t>((panel * m.groups + g) * kPanelColumns + i);
        wide[at] = static_cast<float>(m.twice_scale[m.At(g * m.group, j)]) / 2;
        uint32_t bits;
        std::memcpy(&bits, &wide[at], sizeof bits);
        narrow[at] = static_cast<uint16_t>(bits >> 16);
        zeros[at] = static_cast<int8_t>(m.zero[m.At(g * m.group, j)]);
      }
    }
  }
};

TEST(Exact, AccumulatorsHaveTheBitsOf64BitSums) {
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (int index = 0; index < testing::ProblemCount(10000); ++index) {
    Dice dice(static_cast<uint32_t>(index));
    const Integers m(&dice);
    const Laid laid(m);
    const std::vector<float> x(m.x.begin(), m.x.end());
    const bool zeros = dice.Chance(80), wide = dice.Chance(50);
    ThreadPool& pool = pools[dice.Between(0, 2)];
    for (const Isa isa : kIsas) {
      if (!Supports(isa)) continue;
      for (const bool no_dots : {false, true}) {
        Problem p;
        p.rows = m.rows;
        p.depth = p.x_stride = m.depth;
        p.columns = p.y_stride = m.columns;
        p.x = x.data();
        p.panels = true;
        p.type = m.type;
        p.row_type = m.row_type;
        p.group = m.group;
        p.quantized = laid.panels.data();
        p.wide_scales = wide;
        p.weight_scale = wide ? static_cast<const void*>(laid.wide.data()) : laid.narrow.data();
        const bool none =
            std::all_of(m.zero.begin(), m.zero.end(), [](int64_t z) { return z == 0; });
        p.weight_zero = zeros || !none ? laid.zeros.data() : nullptr;
        std::vector<float> y(static_cast<size_t>(m.rows * m.columns),
                             std::numeric_limits<float>::quiet_NaN());
        p.y = y.data();
        Tuning tuning;
        tuning.isa = isa;
        tuning.no_dots = no_dots;
        const Runner runner = pool.runner();
        testing::WithPoisonedWorkspace(
            WorkspaceSize(p, runner.threads, tuning),
            [&](char* workspace) { linear::Run(p, workspace, runner, tuning); });
        for (int64_t r = 0; r < m.rows; ++r) {
          for (int64_t j = 0; j < m.columns; ++j) {
            ASSERT_EQ(y[static_cast<size_t>(r * m.columns + j)], m.Want(r, j))
                << "problem " << index << ", row " << r << ", column " << j << " of " << m.rows
                << " x " << m.depth << " x " << m.columns << ", groups of " << m.group << ", type "
                << static_cast<int>(m.type) << ", rows of " << static_cast<int>(m.row_type)
                << ", isa " << static_cast<int>(isa) << ", no dots " << no_dots << ", zeros "
                << (p.weight_zero != nullptr) << ", wide " << wide;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace linear
}  // namespace graft
