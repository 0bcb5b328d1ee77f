#include "fold.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "graft/error.h"
#include "graft_cache.h"

namespace graft {
namespace fold {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const RowMajor>;
using FloatRows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

View ViewOf(const Matrix& matrix) { return View(matrix.data, matrix.rows, matrix.columns); }

// Rounds of power iteration for a singular value. Each brings the estimate nearer by the ratio of
// neighbouring singular values squared.
constexpr int kIterations = 40;

// Standard normal numbers that are the same with every standard library (Box and Muller 1958).
class Normal {
 public:
  explicit Normal(uint64_t seed) : random_(seed) {}
  double operator()() {
    if (have_) {
      have_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(Uniform()));
    const double angle = 2.0 * 3.14159265358979323846 * Uniform();
    have_ = true;
    spare_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  double Uniform() { return (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53; }

  std::mt19937_64 random_;
  double spare_ = 0;
  bool have_ = false;
};

// The largest eigenvalue's square root of a symmetric operator given as `apply`.
template <typename Apply>
double SpectralNorm(int64_t size, const Apply& apply) {
  Normal normal(7);
  Eigen::VectorXd x = Eigen::VectorXd::NullaryExpr(size, [&] { return normal(); });
  double norm = x.norm();
  for (int i = 0; i < kIterations && norm > 0 && std::isfinite(norm); ++i) {
    x = apply(Eigen::VectorXd(x / norm));
    norm = x.norm();
  }
  return std::sqrt(norm);
}

}  // namespace

// W = P^-1 L U where W is square, and W^T = Q [R; 0] where it has more columns.
struct Inverse::Factors {
  Eigen::PartialPivLU<Eigen::MatrixXd> lu;
  Eigen::HouseholderQR<Eigen::MatrixXd> qr;
  int64_t rows = 0, columns = 0;
  bool square() const { return rows == columns; }

  auto R() const { return qr.matrixQR().topRows(rows).triangularView<Eigen::Upper>(); }

  auto Rt() const { return qr.matrixQR().topRows(rows).transpose().triangularView<Eigen::Lower>(); }

  // Diagonal of U or R: the factorization stops at a zero in it.
  double SmallestPivot() const {
    if (square()) return lu.matrixLU().diagonal().cwiseAbs().minCoeff();
    return qr.matrixQR().diagonal().cwiseAbs().minCoeff();
  }

  Eigen::MatrixXd Solve(const Eigen::Ref<const Eigen::MatrixXd>& weight) const {
    if (square()) return lu.solve(weight);
    Eigen::MatrixXd padded = Eigen::MatrixXd::Zero(columns, weight.cols());
    padded.topRows(rows) = Rt().solve(weight);
    padded.applyOnTheLeft(qr.householderQ());
    return padded;
  }

  // (W W^T)^-1 x.
  Eigen::VectorXd SolveGram(const Eigen::VectorXd& x) const {
    if (square()) return lu.transpose().solve(Eigen::VectorXd(lu.solve(x)));
    return R().solve(Eigen::VectorXd(Rt().solve(x)));
  }
};

Inverse::Inverse(const Matrix& base) : factors_(new Factors) {
  const int64_t d = base.rows, e = base.columns;
  if (d < 1 || e < d) {
    fault_ = Text("singular: the ", d, " x ", e, " weight has fewer columns than rows");
    condition_ = std::numeric_limits<double>::infinity();
    return;
  }
  const View w = ViewOf(base);
  if (!w.allFinite()) {
    fault_ = "the weight holds numbers that are not finite";
    condition_ = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  Factors& f = *factors_;
  f.rows = d;
  f.columns = e;
  if (f.square()) {
    f.lu.compute(w);
  } else {
    f.qr.compute(w.transpose());
  }
  // Scaled so that neither squares of singular values nor of their inverses leave the range.
  const double scale = w.cwiseAbs().maxCoeff();
  if (scale == 0 || f.SmallestPivot() == 0) {
    condition_ = std::numeric_limits<double>::infinity();
  } else {
    const double largest = SpectralNorm(e, [&](const Eigen::VectorXd& x) -> Eigen::VectorXd {
      return w.transpose() * (w * x / scale) / scale;
    });
    const double inverse = SpectralNorm(d, [&](const Eigen::VectorXd& x) -> Eigen::VectorXd {
      return f.SolveGram(x * scale) * scale;
    });
    condition_ = std::isfinite(inverse) ? largest * inverse  //
                                        : std::numeric_limits<double>::infinity();
  }
  // Beyond this the factors themselves are rounding errors.
  const double limit = 1.0 / (std::numeric_limits<double>::epsilon() * static_cast<double>(e));
  if (!(condition_ < limit)) {
    fault_ = Text("singular: the ", d, " x ", e, " weight has a condition number of about ",
                  condition_, ", beyond ", limit);
  }
}

Inverse::~Inverse() = default;

std::vector<double> Inverse::Times(const Matrix& weight) const {
  std::vector<double> out(static_cast<size_t>(factors_->columns * weight.columns));
  Eigen::Map<RowMajor>(out.data(), factors_->columns, weight.columns) =
      factors_->Solve(ViewOf(weight));
  return out;
}

Tolerance ToleranceOf(Storage storage) {
  switch (storage) {
    case Storage::kFloat16:
      return {2.5e-3, 1e-3};
    case Storage::kBfloat16:
      return {2e-2, 1e-2};
    case Storage::kInt8:
      // The numbers of a group are rounded to 1/127 of the greatest: of numbers of a normal
      // distribution to about twice what the greatest loses as bfloat16.
      return {4e-2, 2e-2};
    case Storage::kFloat32:
      break;
  }
  return {1e-5, 1e-4};
}

float Stored(double number, Storage storage) {
  const float single = static_cast<float>(number);
  if (storage == Storage::kFloat32 || !std::isfinite(single)) return single;
  // Rounds to even at the lowest bit that the type has.
  const bool half = storage == Storage::kFloat16;
  const int digits = half ? 11 : 8, least_exponent = half ? -14 : -126;
  const float maximum = half ? 65504.0f : 0x1.FEp127f;
  int exponent = 0;
  std::frexp(single, &exponent);  // |single| lies in [2^(exponent-1), 2^exponent)
  const float step = std::ldexp(1.0f, std::max(exponent - 1, least_exponent) - (digits - 1));
  const float rounded = std::nearbyint(single / step) * step;
  return std::fabs(rounded) > maximum
             ? std::copysign(std::numeric_limits<float>::infinity(), rounded)
             : rounded;
}

void StoreInt8(float* row, int64_t width) {
  for (int64_t begin = 0; begin < width; begin += GRAFT_CACHE_SCALE_GROUP) {
    const int64_t end = std::min<int64_t>(width, begin + GRAFT_CACHE_SCALE_GROUP);
    float maximum = 0;
    for (int64_t f = begin; f < end; ++f) maximum = std::max(maximum, std::fabs(row[f]));
    const float scale = maximum / 127.0f;
    for (int64_t f = begin; f < end && scale > 0; ++f) {
      row[f] = scale * std::nearbyint(row[f] * (127.0f / maximum));
    }
  }
}

Measured Measure(const Matrix& base, const double* base_bias, const Matrix& weight,
                 const double* bias, const Matrix& folded, const double* folded_bias,
                 int64_t head_size, Storage storage, uint64_t seed) {
  Normal normal(seed);
  const RowMajor x = RowMajor::NullaryExpr(kSampleRows, base.rows, [&] { return normal(); });
  const RowMajor keys = x * ViewOf(base);
  const RowMajor exact = x * ViewOf(weight);

  const FloatRows weights = ViewOf(folded).cast<float>();
  FloatRows found = FloatRows::Zero(kSampleRows, folded.columns);
  FloatRows stored(kSampleRows, folded.rows);
  for (int64_t i = 0; i < kSampleRows; ++i) {
    for (int64_t f = 0; f < folded.rows; ++f) {
      const double key = keys(i, f) + (base_bias != nullptr ? base_bias[f] : 0.0);
      stored(i, f) = Stored(key, storage == Storage::kInt8 ? Storage::kFloat32 : storage);
    }
    if (storage == Storage::kInt8) StoreInt8(stored.row(i).data(), folded.rows);
  }
  // A sum a number, over the keys' features in order. Some columns at a time stay in the cache.
  constexpr int64_t kColumns = 256;
  for (int64_t c = 0; c < folded.columns; c += kColumns) {
    const int64_t count = std::min(kColumns, folded.columns - c);
    for (int64_t f = 0; f < folded.rows; ++f) {
      for (int64_t i = 0; i < kSampleRows; ++i) {
        found.row(i).segment(c, count) += stored(i, f) * weights.row(f).segment(c, count);
      }
    }
  }

  const Tolerance tolerance = ToleranceOf(storage);
  Measured worst;
  double worst_share = -1;
  for (int64_t head = 0; head * head_size < weight.columns; ++head) {
    double error = 0, squares = 0;
    for (int64_t c = head * head_size; c < (head + 1) * head_size; ++c) {
      for (int64_t i = 0; i < kSampleRows; ++i) {
        float number = found(i, c);
        if (folded_bias != nullptr) number += static_cast<float>(folded_bias[c]);
        const double want = exact(i, c) + (bias != nullptr ? bias[c] : 0.0);
        const double difference = std::fabs(static_cast<double>(number) - want);
        error = difference > error || std::isnan(difference) ? difference : error;
        squares += exact(i, c) * exact(i, c);
      }
    }
    const double rms = std::sqrt(squares / static_cast<double>(head_size * kSampleRows));
    const double allowed = tolerance.absolute + tolerance.relative * rms;
    const double share = std::isnan(error) ? std::numeric_limits<double>::infinity()  //
                                           : error / allowed;
    if (share > worst_share) {
      worst_share = share;
      worst = {error, allowed, head};
    }
  }
  return worst;
}

std::vector<double> FoldBias(const double* base_bias, const Matrix& folded, const double* bias) {
  std::vector<double> out(static_cast<size_t>(folded.columns), 0.0);
  for (int64_t c = 0; c < folded.columns; ++c) {
    double sum = bias != nullptr ? bias[c] : 0.0;
    for (int64_t f = 0; base_bias != nullptr && f < folded.rows; ++f) {
      sum -= base_bias[f] * folded.data[f * folded.columns + c];
    }
    out[static_cast<size_t>(c)] = sum;
  }
  return out;
}

std::vector<double> ColumnPanels(const Matrix& weight, int64_t heads) {
  const int64_t size = weight.columns / heads, panels = graft_panels(size);
  std::vector<double> out(static_cast<size_t>(heads * panels * weight.rows * kPanel), 0.0);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < size; ++c) {
      double* to =
          out.data() + h * panels * weight.rows * kPanel + graft_panel_offset(c, 0, weight.rows);
      const double* from = weight.data + h * size + c;
      for (int64_t f = 0; f < weight.rows; ++f) to[f * kPanel] = from[f * weight.columns];
    }
  }
  return out;
}

std::vector<double> RowPanels(const Matrix& weight, int64_t heads) {
  const int64_t size = weight.columns / heads, panels = graft_panels(weight.rows);
  std::vector<double> out(static_cast<size_t>(heads * panels * size * kPanel), 0.0);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t f = 0; f < weight.rows; ++f) {
      double* to = out.data() + h * panels * size * kPanel + graft_panel_offset(f, 0, size);
      const double* from = weight.data + f * weight.columns + h * size;
      for (int64_t c = 0; c < size; ++c) to[c * kPanel] = from[c];
    }
  }
  return out;
}

}  // namespace fold
}  // namespace graft
