#include "fold.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "poison.h"

namespace graft {
namespace fold {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix Of(const RowMajor& m) { return {m.data(), m.rows(), m.cols()}; }

RowMajor Gaussian(std::mt19937& random, int64_t rows, int64_t columns) {
  std::normal_distribution<double> normal;
  return RowMajor::NullaryExpr(rows, columns, [&] { return normal(random); });
}

RowMajor Orthonormal(std::mt19937& random, int64_t rows, int64_t columns) {
  const Eigen::MatrixXd g = Gaussian(random, rows, columns);
  return Eigen::HouseholderQR<Eigen::MatrixXd>(g).householderQ() *
         Eigen::MatrixXd::Identity(rows, columns);
}

// A d x e matrix, e >= d, with singular values from 1 down to 1 / condition at even ratios.
RowMajor WithCondition(std::mt19937& random, int64_t d, int64_t e, double condition) {
  Eigen::VectorXd values(d);
  for (int64_t i = 0; i < d; ++i) {
    values[i] = std::pow(condition, d > 1 ? -static_cast<double>(i) / (d - 1.0) : 0.0);
  }
  const RowMajor left = Orthonormal(random, d, d);
  const RowMajor right = Orthonormal(random, e, d);
  return left * values.asDiagonal() * right.transpose();
}

struct Outcome {
  std::string fault;
  Measured measured;
  double condition;
};

Outcome FoldAndMeasure(const RowMajor& key, const RowMajor& value, int64_t head_size,
                       Storage storage) {
  const Inverse inverse(Of(key));
  Outcome out{inverse.fault(), {}, inverse.condition()};
  if (!out.fault.empty()) return out;
  const std::vector<double> folded = inverse.Times(Of(value));
  out.measured = Measure(Of(key), nullptr, Of(value), nullptr,
                         {folded.data(), key.cols(), value.cols()}, nullptr, head_size, storage);
  return out;
}

bool Accepted(const Outcome& outcome) { return outcome.fault.empty() && outcome.measured.holds(); }

// The share of what is allowed that a fold's error takes, measured without the library: other rows,
// other code, a right inverse by the singular value decomposition.
double Share(std::mt19937& random, const RowMajor& key, const RowMajor& value, int64_t head_size,
             Storage storage) {
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(key, Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Eigen::MatrixXf folded = (svd.matrixV() * svd.singularValues().cwiseInverse().asDiagonal() *
                                  svd.matrixU().transpose() * value)
                                     .cast<float>();
  const RowMajor x = Gaussian(random, 64, key.rows());
  const RowMajor exact = x * value;
  const RowMajor keys = x * key;
  const Eigen::MatrixXf stored =
      keys.unaryExpr([&](double k) -> double { return Stored(k, storage); }).cast<float>();
  const RowMajor found = (stored * folded).cast<double>();
  const double absolute = storage == Storage::kFloat32   ? 1e-5
                          : storage == Storage::kFloat16 ? 2.5e-3
                                                         : 2e-2;
  const double relative = storage == Storage::kFloat32   ? 1e-4
                          : storage == Storage::kFloat16 ? 1e-3
                                                         : 1e-2;
  double share = 0;
  for (int64_t c = 0; c < value.cols(); c += head_size) {
    const double rms = std::sqrt(exact.middleCols(c, head_size).array().square().mean());
    const double error = (found - exact).middleCols(c, head_size).cwiseAbs().maxCoeff();
    share = std::max(share, error / (absolute + relative * rms));
  }
  return share;
}

TEST(Fold, SolvesSquareAndWideWeights) {
  std::mt19937 random(1);
  for (int64_t d : {1, 2, 5, 16, 33, 64}) {
    for (int64_t e : {d, d + 1, 2 * d, 5 * d}) {
      const RowMajor key = WithCondition(random, d, e, 30);
      const RowMajor value = Gaussian(random, d, 3 * d);
      const Inverse inverse(Of(key));
      ASSERT_EQ(inverse.fault(), "") << d << " x " << e;
      const std::vector<double> folded = inverse.Times(Of(value));
      const Eigen::Map<const RowMajor> b(folded.data(), e, 3 * d);
      EXPECT_LT((key * b - value).cwiseAbs().maxCoeff(), 1e-12 * 30) << d << " x " << e;
      // The one of least norm is W^T (W W^T)^-1, which has nothing outside the rows' span.
      const RowMajor gram = key * key.transpose();
      const RowMajor least = key.transpose() * gram.inverse() * value;
      EXPECT_LT((least - b).cwiseAbs().maxCoeff(), 1e-9) << d << " x " << e;
    }
  }
}

TEST(Fold, EstimatesTheConditionNumber) {
  std::mt19937 random(2);
  for (double condition : {1.0, 10.0, 1e3, 1e6, 1e9}) {
    for (int64_t e : {24, 60}) {
      const Inverse inverse(Of(RowMajor(WithCondition(random, 24, e, condition) * 1e-7)));
      EXPECT_GT(inverse.condition(), 0.8 * condition) << e;
      EXPECT_LT(inverse.condition(), 1.01 * condition + 1e-9) << e;
    }
  }
}

// Whatever the check says agrees with an independent measurement, but where that lies at the limit.
TEST(Fold, IllConditionedWeightsAreCaught) {
  std::mt19937 random(3);
  const int repeats = testing::Proportion(3);
  int accepted = 0, refused = 0, undecided = 0;
  for (Storage storage : {Storage::kFloat32, Storage::kFloat16, Storage::kBfloat16}) {
    for (int exponent = 1; exponent <= 16; ++exponent) {
      for (int64_t d : {8, 40, 72}) {
        for (int64_t e : {d, 2 * d}) {
          for (int repeat = 0; repeat < repeats; ++repeat) {
            const RowMajor key = WithCondition(random, d, e, std::pow(10.0, exponent));
            const RowMajor value = Gaussian(random, d, e) / std::sqrt(static_cast<double>(d));
            const Outcome outcome = FoldAndMeasure(key, value, e / 4, storage);
            const double share = Share(random, key, value, e / 4, storage);
            const auto what = [&] {
              std::ostringstream text;
              text << d << " x " << e << ", condition 1e" << exponent << ", storage "
                   << static_cast<int>(storage) << ": share " << share << ", error "
                   << outcome.measured.error << " of " << outcome.measured.allowed << ", "
                   << outcome.fault;
              return text.str();
            };
            if (share > 2) {
              EXPECT_FALSE(Accepted(outcome)) << what();
              ++refused;
            } else if (share < 0.5) {
              EXPECT_TRUE(Accepted(outcome)) << what();
              ++accepted;
            } else {
              ++undecided;
            }
            if (exponent >= 6) {
              EXPECT_FALSE(Accepted(outcome)) << what();
            }
            if (exponent == 1 && storage == Storage::kFloat32) {
              EXPECT_TRUE(Accepted(outcome)) << what();
            }
            if (exponent == 16) {
              EXPECT_NE(outcome.fault.find("singular"), std::string::npos);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 10 * repeats);
  EXPECT_GT(refused, 160 * repeats);
  EXPECT_LT(undecided, 27 * repeats);
}

TEST(Fold, SingularWeightsAreCaught) {
  std::mt19937 random(4);
  for (int64_t d : {1, 2, 7, 32, 96, 200}) {
    for (int64_t e : {d, d + 3, 3 * d}) {
      for (int repeat = 0; repeat < testing::Proportion(5); ++repeat) {
        const RowMajor good = Gaussian(random, d, e);
        const auto pick = [&](int64_t n) {
          return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
        };
        const auto caught = [&](const RowMajor& key, const char* what) {
          const Inverse inverse(Of(key));
          EXPECT_EQ(inverse.fault().rfind("singular", 0), 0u) << what << ", " << d << " x " << e;
        };
        RowMajor zero_row = good;
        zero_row.row(pick(d)).setZero();
        caught(zero_row, "a zero row");
        caught(RowMajor::Zero(d, e), "zeros");
        if (d < 2) continue;
        RowMajor twice = good;
        const int64_t row = pick(d);
        twice.row(row) = twice.row((row + 1) % d) * -0.7;
        caught(twice, "a row twice");
        if (e == d) {
          RowMajor column = good;
          const int64_t c = pick(e);
          column.col(c) = column.col((c + 1) % e) * 3;
          caught(column, "a column twice");
        }
        caught(Gaussian(random, d, d - 1) * Gaussian(random, d - 1, e), "rank n-1");
        caught(Gaussian(random, d, 1) * Gaussian(random, 1, e), "rank 1");
      }
    }
  }
  const RowMajor tall = Gaussian(random, 9, 8);
  EXPECT_EQ(Inverse(Of(tall)).fault(), "singular: the 9 x 8 weight has fewer columns than rows");
  RowMajor bad = Gaussian(random, 4, 4);
  bad(2, 1) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Inverse(Of(bad)).fault(), "the weight holds numbers that are not finite");
}

TEST(Fold, BiasesOfKeyAndValue) {
  std::mt19937 random(5);
  const RowMajor key = WithCondition(random, 32, 48, 20), value = Gaussian(random, 32, 24);
  const RowMajor key_bias = Gaussian(random, 1, 48), value_bias = Gaussian(random, 1, 24);
  const std::vector<double> folded = Inverse(Of(key)).Times(Of(value));
  const Matrix view{folded.data(), 48, 24};
  const std::vector<double> bias = FoldBias(key_bias.data(), view, value_bias.data());
  const Measured with = Measure(Of(key), key_bias.data(), Of(value), value_bias.data(), view,
                                bias.data(), 12, Storage::kFloat32);
  EXPECT_TRUE(with.holds()) << with.error << " of " << with.allowed;
  // Left out, it is what the measure must see.
  const Measured without = Measure(Of(key), key_bias.data(), Of(value), value_bias.data(), view,
                                   value_bias.data(), 12, Storage::kFloat32);
  EXPECT_FALSE(without.holds()) << without.error;
  EXPECT_EQ(FoldBias(nullptr, view, value_bias.data()),
            std::vector<double>(value_bias.data(), value_bias.data() + 24));
  EXPECT_EQ(FoldBias(nullptr, view, nullptr), std::vector<double>(24, 0.0));
}

TEST(Fold, OverflowOfStorageIsNoFold) {
  std::mt19937 random(6);
  const RowMajor key = WithCondition(random, 16, 16, 1.5) * 1e6, value = Gaussian(random, 16, 16);
  const Outcome half = FoldAndMeasure(key, value, 8, Storage::kFloat16);
  EXPECT_EQ(half.fault, "");
  EXPECT_FALSE(half.measured.holds());
  EXPECT_TRUE(FoldAndMeasure(key, value, 8, Storage::kFloat32).measured.holds());
}

TEST(Fold, StoredRoundsToEven) {
  EXPECT_EQ(Stored(0.1, Storage::kFloat32), 0.1f);
  EXPECT_EQ(Stored(1 + 0x1p-11, Storage::kFloat16), 1.0f);
  EXPECT_EQ(Stored(1 + 0x3p-11, Storage::kFloat16), 1 + 0x1p-9f);
  EXPECT_EQ(Stored(-65519.0, Storage::kFloat16), -65504.0f);
  EXPECT_EQ(Stored(65520.0, Storage::kFloat16), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Stored(0x1p-24, Storage::kFloat16), 0x1p-24f);
  EXPECT_EQ(Stored(0x1p-25, Storage::kFloat16), 0.0f);
  EXPECT_EQ(Stored(1 + 0x1p-8, Storage::kBfloat16), 1.0f);
  EXPECT_EQ(Stored(1 + 0x3p-8, Storage::kBfloat16), 1 + 0x1p-6f);
  EXPECT_EQ(Stored(3.0e38, Storage::kBfloat16), 0x1.C4p127f);
  EXPECT_EQ(Stored(0.0, Storage::kBfloat16), 0.0f);
#ifdef __FLT16_MAX__
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random),
                               std::uniform_int_distribution<int>(-28, 17)(random));
    EXPECT_EQ(Stored(x, Storage::kFloat16), static_cast<float>(static_cast<_Float16>(x))) << x;
  }
#endif
}

TEST(Fold, Panels) {
  // 3 rows, 2 heads of 17 columns.
  RowMajor w(3, 34);
  for (int64_t i = 0; i < w.size(); ++i) w.data()[i] = static_cast<double>(i + 1);
  const std::vector<double> columns = ColumnPanels(Of(w), 2);
  ASSERT_EQ(columns.size(), size_t{2 * 2 * 3 * 16});
  const std::vector<double> rows = RowPanels(Of(w), 2);
  ASSERT_EQ(rows.size(), size_t{2 * 1 * 17 * 16});
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t f = 0; f < 3; ++f) {
      for (int64_t c = 0; c < 32; ++c) {
        const double want = c < 17 ? w(f, h * 17 + c) : 0.0;
        EXPECT_EQ(columns[static_cast<size_t>(((h * 2 + c / 16) * 3 + f) * 16 + c % 16)], want);
      }
    }
    for (int64_t c = 0; c < 17; ++c) {
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(rows[static_cast<size_t>((h * 17 + c) * 16 + i)], i < 3 ? w(i, h * 17 + c) : 0.0);
      }
    }
  }
}

// The size of a layer of Whisper large.
TEST(Fold, LargeLayer) {
  std::mt19937 random(8);
  const RowMajor key = Gaussian(random, 1280, 1280) / std::sqrt(1280.0) +
                       2.0 * RowMajor(RowMajor::Identity(1280, 1280));
  const RowMajor value = Gaussian(random, 1280, 1280) / std::sqrt(1280.0);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = FoldAndMeasure(key, value, 64, Storage::kFloat32);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(outcome.fault, "");
  EXPECT_TRUE(outcome.measured.holds())
      << outcome.measured.error << " of " << outcome.measured.allowed;
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("a fold of 1280 x 1280: %.2f s, condition %.3g, error %.2g of %.2g\n", seconds,
              outcome.condition, outcome.measured.error, outcome.measured.allowed);
}

}  // namespace
}  // namespace fold
}  // namespace graft
