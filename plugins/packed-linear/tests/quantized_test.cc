// Weights in panels of fewer bits: what they are rounded to, and what comes out of a matmul where
// numbers are extreme.
#include "quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "graft/type.h"
#include "linear.h"
#include "rounded_row.h"
#include "thread_pool.h"

namespace graft {
namespace linear {
namespace {

using ThreadPool = test::ThreadPool<Runner>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// W [K, N] in panels.
struct Panels {
  WeightType type;
  int64_t depth, columns, group;
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;
  std::vector<int8_t> zeros;  // of none where symmetric

  Panels(WeightType type, const std::vector<float>& w, int64_t depth, int64_t columns,
         int64_t group, bool asymmetric = false)
      : type(type), depth(depth), columns(columns), group(group) {
    const PackedShape shape = ShapeOf(type, depth, columns, group);
    bytes.assign(PackedBytes(type, depth, columns), 0xff);
    scales.assign(static_cast<size_t>(shape.panels * shape.groups * kPanelColumns), 0xffff);
    if (asymmetric) zeros.assign(scales.size(), 0x55);
    Quantize(type, w.data(), depth, columns, false, group, bytes.data(), scales.data(), Zeros(),
             Runner());
  }

  int8_t* Zeros() { return zeros.empty() ? nullptr : zeros.data(); }

  void Describe(Problem* problem) const {
    problem->depth = depth;
    problem->columns = columns;
    problem->panels = true;
    problem->type = type;
    problem->quantized = bytes.data();
    problem->weight_scale = scales.data();
    problem->weight_zero = zeros.empty() ? nullptr : zeros.data();
    problem->group = group;
  }

  float Value(int64_t k, int64_t column) const {
    Problem problem;
    Describe(&problem);
    return ValueOf(problem, k, column);
  }

  // The squared error of the values.
  double Error(const std::vector<float>& w) const {
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        const double off = double{w[static_cast<size_t>(k * columns + j)]} - Value(k, j);
        sum += off * off;
      }
    }
    return sum;
  }
};

std::vector<float> Normals(size_t count, uint64_t seed, float deviation) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> numbers(count);
  for (float& v : numbers) v = normal(random);
  return numbers;
}

std::vector<float> Multiply(const Panels& w, const std::vector<float>& x, const Tuning& tuning = {},
                            RowType row_type = RowType::kInt8, const Runner& runner = Runner()) {
  Problem p;
  w.Describe(&p);
  p.rows = static_cast<int64_t>(x.size()) / w.depth;
  p.x = x.data();
  p.x_stride = w.depth;
  p.row_type = row_type;
  std::vector<float> y(static_cast<size_t>(p.rows * p.columns), kNaN);
  p.y = y.data();
  p.y_stride = p.columns;
  std::vector<char> workspace(WorkspaceSize(p, runner.threads, tuning), static_cast<char>(0xff));
  linear::Run(p, workspace.data(), runner, tuning);
  return y;
}

// What every instruction set, and each with and without dot products of bytes, is tried with.
std::vector<Tuning> Tunings() {
  std::vector<Tuning> list;
  for (const Isa isa : kIsas) {
    if (!Supports(isa)) continue;
    for (const bool no_dots : {false, true}) {
      Tuning tuning;
      tuning.isa = isa;
      tuning.no_dots = no_dots;
      list.push_back(tuning);
    }
  }
  return list;
}

constexpr WeightType kIntegerTypes[] = {WeightType::kInt8, WeightType::kInt4};
constexpr RowType kRowTypes[] = {RowType::kInt8, RowType::kInt16, RowType::kFloat32};
constexpr RowType kIntegerRows[] = {RowType::kInt8, RowType::kInt16};

// The greatest integer of a row.
constexpr float LimitOf(RowType type) { return type == RowType::kInt16 ? 32639 : 127; }

TEST(Quantized, BytesLieAsTheHeaderSays) {
  // Columns 0 and 17 are multiples of their scale, the rest zeros; 34 positions fill up to 64.
  constexpr int64_t kDepth = 34, kColumns = 18;
  std::vector<float> w(kDepth * kColumns, 0.0f);
  for (int64_t k = 0; k < kDepth; ++k) {
    w[static_cast<size_t>(k * kColumns)] = 0.5f * static_cast<float>(k % 8 - 8);
    w[static_cast<size_t>(k * kColumns + 17)] = 2.0f * static_cast<float>(k % 16 - 8);
  }
  const Panels four(WeightType::kInt4, w, kDepth, kColumns, 32);
  ASSERT_EQ(four.bytes.size(), size_t{2 * 32 * 16});
  ASSERT_EQ(four.scales.size(), size_t{2 * 2 * 16});
  EXPECT_EQ(four.scales[0], 0x3f00);           // 0.5
  EXPECT_EQ(four.scales[1], 0);                // a column of zeros
  EXPECT_EQ(four.scales[2 * 16 + 1], 0x4000);  // 2, of column 17
  EXPECT_EQ(four.bytes[0], 0x40);              // positions 4 and 0 of column 0: 4 and 0, less 8
  EXPECT_EQ(four.bytes[3], 0x73);              // positions 7 and 3
  EXPECT_EQ(four.bytes[4], 0x88);              // column 1
  EXPECT_EQ(four.bytes[512 + 4], 0x40);        // the second panel: column 17
  EXPECT_EQ(four.bytes[512 + 64 + 4], 0xc8);   // positions 12 and 8
  EXPECT_EQ(four.bytes[4 * 64 + 2], 0x88);     // position 34 does not exist

  for (int64_t k = 0; k < kDepth; ++k) {
    w[static_cast<size_t>(k * kColumns)] = 0.5f * static_cast<float>(k * 7 % 64 - 127);
  }
  const Panels eight(WeightType::kInt8, w, kDepth, kColumns, 64);
  ASSERT_EQ(eight.bytes.size(), size_t{2 * 64 * 16});
  EXPECT_EQ(eight.scales[0], 0x3f00);
  EXPECT_EQ(static_cast<int8_t>(eight.bytes[0]), -127);
  EXPECT_EQ(static_cast<int8_t>(eight.bytes[1]), 7 - 127);
  EXPECT_EQ(static_cast<int8_t>(eight.bytes[64]), 28 - 127);  // position 4
  EXPECT_EQ(eight.bytes[8 * 64 + 2], 0);                      // position 34 does not exist
}

TEST(Quantized, ValuesAreWithinAStep) {
  constexpr int64_t kDepth = 200, kColumns = 40;
  const std::vector<float> w = Normals(kDepth * kColumns, 1, 0.1f);
  for (const int64_t group : {32, 64, 128}) {
    const Panels eight(WeightType::kInt8, w, kDepth, kColumns, group);
    const Panels half(WeightType::kBFloat16, w, kDepth, kColumns, group);
    for (int64_t j = 0; j < kColumns; ++j) {
      for (int64_t k = 0; k < kDepth; ++k) {
        float most = 0;
        for (int64_t i = k / group * group; i < std::min(kDepth, k / group * group + group); ++i) {
          most = std::max(most, std::abs(w[static_cast<size_t>(i * kColumns + j)]));
        }
        const float exact = w[static_cast<size_t>(k * kColumns + j)];
        // A scale of bfloat16 is at most 2^-7 above the exact one, and clips at most half a step.
        ASSERT_LE(std::abs(eight.Value(k, j) - exact), most / 127 * 1.02f);
        ASSERT_LE(std::abs(half.Value(k, j) - exact), std::abs(exact) / 256);
      }
    }
  }
}

// Squared errors of blocks as llama.cpp rounds them: d is a float16; for Q8_0 the greatest becomes
// 127, for Q4_0 it becomes -8.
double BlockError(const std::vector<float>& w, int64_t depth, int64_t columns, bool eight) {
  double sum = 0;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t begin = 0; begin < depth; begin += 32) {
      float most = 0;
      for (int64_t k = begin; k < begin + 32; ++k) {
        const float v = w[static_cast<size_t>(k * columns + j)];
        if (std::abs(v) > std::abs(most)) most = v;
      }
      const float d = eight ? std::abs(most) / 127 : most / -8;
      const float by = d != 0 ? 1 / d : 0;
      const float stored = Float16::From(d).ToFloat();
      for (int64_t k = begin; k < begin + 32; ++k) {
        const float v = w[static_cast<size_t>(k * columns + j)];
        const float q = eight ? std::round(v * by) : std::min(15.0f, std::floor(v * by + 8.5f)) - 8;
        sum += (double{v} - q * stored) * (double{v} - q * stored);
      }
    }
  }
  return sum;
}

TEST(Quantized, ErrorsAreBelowThoseOfBlocksOfTheSameSize) {
  constexpr int64_t kDepth = 512, kColumns = 160;
  const std::vector<float> normal = Normals(kDepth * kColumns, 2, 0.05f);
  std::vector<float> heavy = Normals(kDepth * kColumns, 3, 0.05f);
  for (float& v : heavy) v *= std::abs(v) * 20;
  for (const std::vector<float>& w : {normal, heavy}) {
    for (const WeightType type : kIntegerTypes) {
      const Panels panels(type, w, kDepth, kColumns, 32);
      const double sum = panels.Error(w);
      const bool eight = type == WeightType::kInt8;
      const double block = BlockError(w, kDepth, kColumns, eight);
      RecordProperty(eight ? "int8" : "int4", std::to_string(sum / block));
      EXPECT_LE(sum, block * (eight ? 1.0 : 0.95)) << (eight ? "int8" : "int4");
    }
  }
}

TEST(Quantized, ZeroPointsLieAsTheHeaderSays) {
  // From 0 to 15, and from -1 to 14, in steps of a half; a column of zeros; one below zero.
  constexpr int64_t kDepth = 32, kColumns = 18;
  std::vector<float> w(kDepth * kColumns, 0.0f);
  for (int64_t k = 0; k < kDepth; ++k) {
    w[static_cast<size_t>(k * kColumns)] = 0.5f * static_cast<float>(k % 16);
    w[static_cast<size_t>(k * kColumns + 17)] = 0.5f * static_cast<float>(k % 16 - 1);
    w[static_cast<size_t>(k * kColumns + 3)] = -0.5f * static_cast<float>(k % 16);
  }
  const Panels four(WeightType::kInt4, w, kDepth, kColumns, 32, true);
  ASSERT_EQ(four.zeros.size(), size_t{2 * 16});
  EXPECT_EQ(four.scales[0], 0x3f00);  // 0.5
  EXPECT_EQ(four.zeros[0], -8);
  EXPECT_EQ(four.zeros[1], 0);
  EXPECT_EQ(four.zeros[3], 7);
  EXPECT_EQ(four.zeros[16 + 1], -7);
  EXPECT_EQ(four.zeros[16 + 2], 0);  // beyond the last column
  EXPECT_EQ(four.bytes[0], 0x40);    // positions 4 and 0 of column 0
  EXPECT_EQ(four.bytes[64], 0xc8);   // positions 12 and 8
  EXPECT_EQ(four.Error(w), 0.0);
  for (float& v : w) v *= 17;  // 255 steps of a half
  const Panels eight(WeightType::kInt8, w, kDepth, kColumns, 32, true);
  EXPECT_EQ(eight.zeros[0], -128);
  EXPECT_EQ(eight.zeros[3], 127);
  EXPECT_EQ(eight.scales[0], 0x3f00);
  EXPECT_EQ(eight.Error(w), 0.0);
}

TEST(Quantized, ZeroPointsNeverAddToTheError) {
  constexpr int64_t kDepth = 500, kColumns = 50;
  const std::vector<float> normal = Normals(kDepth * kColumns, 13, 0.05f);
  std::vector<float> heavy = normal, moved = normal, above = normal;
  for (float& v : heavy) v *= std::abs(v) * 20;
  for (float& v : moved) v += 0.03f;
  for (float& v : above) v = std::abs(v) + 0.01f;
  struct {
    const char* name;
    const std::vector<float>& w;
    double four, eight;  // at most this share of the symmetric error
  } const table[] = {{"normal", normal, 0.97, 0.97},
                     {"heavy", heavy, 0.9, 0.9},
                     {"moved", moved, 0.85, 0.85},
                     {"above", above, 0.4, 0.4}};
  for (const auto& line : table) {
    for (const WeightType type : kIntegerTypes) {
      for (const int64_t group : {32, 128}) {
        const Panels symmetric(type, line.w, kDepth, kColumns, group);
        const Panels zeros(type, line.w, kDepth, kColumns, group, true);
        for (int64_t j = 0; j < kColumns; ++j) {
          for (int64_t begin = 0; begin < kDepth; begin += group) {
            double before = 0, after = 0;
            for (int64_t k = begin; k < std::min(kDepth, begin + group); ++k) {
              const double exact = line.w[static_cast<size_t>(k * kColumns + j)];
              before += std::pow(exact - symmetric.Value(k, j), 2);
              after += std::pow(exact - zeros.Value(k, j), 2);
            }
            ASSERT_LE(after, before * 1.00001) << line.name;
          }
        }
        const double share = zeros.Error(line.w) / symmetric.Error(line.w);
        const bool eight = type == WeightType::kInt8;
        EXPECT_LE(share, eight ? line.eight : line.four)
            << line.name << (eight ? ", int8" : ", int4") << " in groups of " << group;
      }
    }
  }
}

TEST(Quantized, NothingSaturates) {
  for (const WeightType type : kIntegerTypes) {
    for (const int64_t group : {32, 64, 128}) {
      // The greatest integers of both, of one sign and of both, in all positions.
      constexpr int64_t kDepth = 256, kColumns = 20;
      const float most = type == WeightType::kInt8 ? 127.0f : 8.0f;
      std::vector<float> w(kDepth * kColumns), signs(9 * kDepth);
      for (int64_t k = 0; k < kDepth; ++k) {
        for (int64_t j = 0; j < kColumns; ++j) {
          w[static_cast<size_t>(k * kColumns + j)] = (j % 2 == 0 || k % 2 == 0) ? -most : most - 1;
        }
        for (int64_t r = 0; r < 9; ++r) {
          signs[static_cast<size_t>(r * kDepth + k)] =
              (r % 3 == 0 || (k + r) % 2 == 0) ? 1.0f : -1.0f;
        }
      }
      const Panels panels(type, w, kDepth, kColumns, group);
      for (const RowType row_type : kIntegerRows) {
        std::vector<float> x = signs;
        for (float& v : x) v *= LimitOf(row_type);
        for (const Tuning& tuning : Tunings()) {
          const std::vector<float> y = Multiply(panels, x, tuning, row_type);
          for (int64_t r = 0; r < 9; ++r) {
            for (int64_t j = 0; j < kColumns; ++j) {
              double sum = 0, size = 0;
              for (int64_t k = 0; k < kDepth; ++k) {
                const double term =
                    double{x[static_cast<size_t>(r * kDepth + k)]} * panels.Value(k, j);
                sum += term;
                size += std::abs(term);
              }
              ASSERT_NEAR(y[static_cast<size_t>(r * kColumns + j)], sum, size * 1e-6)
                  << "row " << r << " column " << j;
            }
          }
        }
      }
    }
  }
}

TEST(Quantized, RowsOfSixteenBitsCostNextToNothing) {
  // What rounding x adds to the error that weights have is a 256th of what eight bits add.
  constexpr int64_t kDepth = 512, kColumns = 48;
  const Panels panels(WeightType::kInt8, Normals(kDepth * kColumns, 14, 0.05f), kDepth, kColumns,
                      32);
  const std::vector<float> x = Normals(5 * kDepth, 15, 1.0f);
  for (const Tuning& tuning : Tunings()) {
    const std::vector<float> exact = Multiply(panels, x, tuning, RowType::kFloat32);
    double errors[2] = {0, 0};
    for (const RowType row_type : kIntegerRows) {
      const std::vector<float> y = Multiply(panels, x, tuning, row_type);
      for (size_t i = 0; i < y.size(); ++i) {
        const double off = double{y[i]} - double{exact[i]};
        errors[static_cast<size_t>(row_type)] += off * off;
      }
    }
    EXPECT_LT(std::sqrt(errors[1]), std::sqrt(errors[0]) / 200);
  }
}

TEST(Quantized, EveryByteOfAPanelHasItsValue) {
  // Panels that no Quantize made: all bytes, -128 too.
  constexpr int64_t kDepth = 256, kColumns = 16;
  for (const WeightType type : kIntegerTypes) {
    Panels panels(type, std::vector<float>(kDepth * kColumns, 1.0f), kDepth, kColumns, 64);
    for (size_t i = 0; i < panels.bytes.size(); ++i) {
      panels.bytes[i] = static_cast<uint8_t>(i * 37 + i / 256);
    }
    std::vector<float> x = Normals(6 * kDepth, 4, 1.0f);
    for (const Tuning& tuning : Tunings()) {
      for (const RowType row_type : kRowTypes) {
        const std::vector<float> y = Multiply(panels, x, tuning, row_type);
        for (size_t r = 0; r < 6; ++r) {
          std::vector<double> row(x.begin() + static_cast<int64_t>(r) * kDepth,
                                  x.begin() + static_cast<int64_t>(r + 1) * kDepth);
          std::vector<double> slack(kDepth);
          if (row_type != RowType::kFloat32) {
            test::RoundRow(row.data(), kDepth, 64, LimitOf(row_type), 0, slack.data());
          }
          for (int64_t j = 0; j < kColumns; ++j) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < kDepth; ++k) {
              sum += row[static_cast<size_t>(k)] * panels.Value(k, j);
              size += std::abs(row[static_cast<size_t>(k)] * panels.Value(k, j));
            }
            ASSERT_NEAR(y[r * kColumns + static_cast<size_t>(j)], sum, size * 1e-6);
          }
        }
      }
    }
  }
}

TEST(Quantized, ARowHasTheSameBitsWhateverStandsBesideIt) {
  constexpr int64_t kDepth = 1100, kColumns = 100;
  const std::vector<float> x = Normals(23 * kDepth, 5, 1.0f);
  ThreadPool pool(3);
  for (size_t way = 0; way < 4; ++way) {
    const Panels panels(kIntegerTypes[way / 2], Normals(kDepth * kColumns, 6, 0.05f), kDepth,
                        kColumns, 128);
    const RowType row_type = kIntegerRows[way % 2];
    std::vector<float> wide;  // of instruction sets that have fused multiply-adds
    for (const Tuning& of : Tunings()) {
      Tuning tuning = of;
      const std::vector<float> all = Multiply(panels, x, tuning, row_type);
      tuning.panel = 16;
      EXPECT_EQ(all, Multiply(panels, x, tuning, row_type, pool.runner()));
      for (size_t r = 0; r < 23; r += 11) {
        const std::vector<float> row(x.begin() + static_cast<int64_t>(r) * kDepth,
                                     x.begin() + static_cast<int64_t>(r + 1) * kDepth);
        const std::vector<float> y = Multiply(panels, row, tuning, row_type);
        EXPECT_TRUE(
            std::equal(y.begin(), y.end(), all.begin() + static_cast<int64_t>(r) * kColumns));
      }
      if (of.isa != Isa::kAvx2 && of.isa != Isa::kAvx512) continue;
      if (wide.empty()) wide = all;
      EXPECT_EQ(wide, all) << "instruction sets differ";
    }
  }
}

TEST(Quantized, NumbersThatAreNotFiniteMakeNaN) {
  constexpr int64_t kDepth = 70, kColumns = 33;
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4, WeightType::kBFloat16}) {
    for (const RowType row_type : kRowTypes) {
      for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        std::vector<float> w = Normals(kDepth * kColumns, 7, 1.0f);
        std::vector<float> x = Normals(5 * kDepth, 8, 1.0f);
        const bool asymmetric = IsInteger(type) && bad > 0;
        const Panels clean(type, w, kDepth, kColumns, 32, asymmetric);
        w[40 * kColumns + 20] = bad;
        const Panels panels(type, w, kDepth, kColumns, 32, asymmetric);
        for (const Tuning& tuning : Tunings()) {
          const std::vector<float> before = Multiply(clean, x, tuning, row_type);
          const std::vector<float> y = Multiply(panels, x, tuning, row_type);
          std::vector<float> spoilt = x;
          spoilt[2 * kDepth + 69] = bad;
          const std::vector<float> z = Multiply(clean, spoilt, tuning, row_type);
          for (size_t r = 0; r < 5; ++r) {
            for (size_t j = 0; j < kColumns; ++j) {
              const size_t at = r * kColumns + j;
              // A column with such a number; all others are as they were.
              if (j == 20) {
                EXPECT_FALSE(std::isfinite(y[at]));
              } else {
                EXPECT_EQ(y[at], before[at]);
              }
              // A row with such a number.
              if (r == 2) {
                EXPECT_FALSE(std::isfinite(z[at]));
              } else {
                EXPECT_EQ(z[at], before[at]);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Quantized, ExtremeMagnitudes) {
  // Powers of ten of W and of x whose products are numbers of float32.
  constexpr int64_t kDepth = 64, kColumns = 17;
  const std::vector<float> w = Normals(kDepth * kColumns, 9, 1.0f);
  const std::vector<float> x = Normals(3 * kDepth, 10, 1.0f);
  struct {
    float w, x;
  } const table[] = {{1e36f, 1e-30f}, {1e-30f, 1e36f}, {1e-34f, 1e34f}, {1e36f, 1e-36f},
                     {1e-36f, 1.0f},  {1.0f, 1e-36f},  {1e-40f, 1.0f},  {1.0f, 1e-40f},
                     {0.0f, 1.0f},    {1.0f, 0.0f},    {1e-44f, 1e-44f}};
  for (const auto& line : table) {
    std::vector<float> wide = w, rows = x;
    for (float& v : wide) v *= line.w;
    for (float& v : rows) v *= line.x;
    for (size_t way = 0; way < 8; ++way) {
      const Panels panels(kIntegerTypes[way / 4], wide, kDepth, kColumns, 32, way / 2 % 2 == 1);
      const RowType row_type = kIntegerRows[way % 2];
      for (const Tuning& tuning : Tunings()) {
        const std::vector<float> y = Multiply(panels, rows, tuning, row_type);
        for (size_t r = 0; r < 3; ++r) {
          std::vector<double> row(rows.begin() + static_cast<int64_t>(r) * kDepth,
                                  rows.begin() + static_cast<int64_t>(r + 1) * kDepth);
          std::vector<double> slack(kDepth);
          test::RoundRow(row.data(), kDepth, 32, LimitOf(row_type), 0, slack.data());
          for (int64_t j = 0; j < kColumns; ++j) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < kDepth; ++k) {
              const double term = row[static_cast<size_t>(k)] * panels.Value(k, j);
              sum += term;
              size += std::abs(term);
            }
            ASSERT_NEAR(y[r * kColumns + static_cast<size_t>(j)], sum, size * 1e-6 + 1e-37)
                << "W of " << line.w << " and x of " << line.x;
          }
        }
      }
    }
  }
}

TEST(Quantized, WeightsOfZerosLeaveTheBias) {
  const Panels panels(WeightType::kInt4, std::vector<float>(96 * 16, 0.0f), 96, 16, 32);
  for (const Tuning& tuning : Tunings()) {
    EXPECT_EQ(Multiply(panels, Normals(96, 11, 1.0f), tuning), std::vector<float>(16, 0.0f));
  }
}

TEST(Quantized, TransposedWeightsMakeTheSamePanels) {
  constexpr int64_t kDepth = 75, kColumns = 37;
  const std::vector<float> w = Normals(kDepth * kColumns, 12, 1.0f);
  std::vector<float> t(w.size());
  for (int64_t k = 0; k < kDepth; ++k) {
    for (int64_t j = 0; j < kColumns; ++j) {
      t[static_cast<size_t>(j * kDepth + k)] = w[static_cast<size_t>(k * kColumns + j)];
    }
  }
  ThreadPool pool(3);
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4, WeightType::kBFloat16}) {
    const Panels one(type, w, kDepth, kColumns, 64, type == WeightType::kInt4);
    Panels other = one;
    std::fill(other.bytes.begin(), other.bytes.end(), uint8_t{0xff});
    std::fill(other.scales.begin(), other.scales.end(), uint16_t{0xffff});
    std::fill(other.zeros.begin(), other.zeros.end(), int8_t{0x55});
    Quantize(type, t.data(), kDepth, kColumns, true, 64, other.bytes.data(), other.scales.data(),
             other.Zeros(), pool.runner());
    EXPECT_EQ(one.bytes, other.bytes);
    EXPECT_EQ(one.scales, other.scales);
    EXPECT_EQ(one.zeros, other.zeros);
  }
}

}  // namespace
}  // namespace linear
}  // namespace graft
