// Splits a weight W of low numerical rank r into W = L R, so that x W costs r (K + N) instead of K
// N. There is no operator here: the work is all in `fold`, and plain ONNX nodes stand in the place
// of one.
#include <Eigen/Dense>
#include <random>

#include "graft.h"

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Largest relative error, in the Frobenius norm, that a split may add: some roundings of float32.
constexpr double kTolerance = 1e-6;
// The split must at least halve the arithmetic, or the second matmul's overhead eats the gain.
constexpr double kWorthwhile = 0.5;

struct LowRank {
  static void Fold(const graft::FoldContext& context) {
    const graft::Tensor weight = context.Constant("weight");
    if (weight.type() != graft::kFloat64 || weight.rank() != 2)
      context.Refuse("weight is no real matrix");
    const graft::Size k = weight.dim(0), n = weight.dim(1);
    const Eigen::Map<const Matrix> w(weight.data<double>(), k, n);
    const auto limit =
        static_cast<int64_t>(kWorthwhile * static_cast<double>(k * n) / static_cast<double>(k + n));
    if (limit < 1) context.Refuse("a ", k, " x ", n, " weight is too small to split");
    if (!w.allFinite()) context.Refuse("the weight holds values that are not finite");

    // A corner of full rank settles most weights at a fraction of the cost.
    const int64_t side = std::min<int64_t>({limit + 1, k, n});
    if (side > limit && Rank(w.topLeftCorner(side, side)) > limit) {
      context.Refuse("the rank of the ", k, " x ", n, " weight is above ", limit);
    }

    // Range finder (Halko, Martinsson and Tropp 2011, algorithm 4.1): the matmuls of W with a few
    // more random vectors than its rank span its columns.
    const int64_t probes = std::min<int64_t>(limit + 8, n);
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    Matrix sample = Matrix::NullaryExpr(n, probes, [&] { return normal(random); });
    const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr = Decompose(w * sample);
    const int64_t rank = qr.rank();
    if (rank < 1 || rank > limit) {
      context.Refuse("the rank of the ", k, " x ", n, " weight is ", rank, ", needed is 1 to ",
                     limit);
    }
    const Matrix left = qr.householderQ() * Eigen::MatrixXd::Identity(k, rank);
    const Matrix right = left.transpose() * w;
    const double error = (w - left * right).norm() / w.norm();
    if (!(error <= kTolerance)) {
      context.Refuse("rank ", rank, " leaves a relative error of ", error, ", above ", kTolerance);
    }
    context.Emit("left", {k, rank}, left.data());
    context.Emit("right", {rank, n}, right.data());
  }

 private:
  static Eigen::ColPivHouseholderQR<Eigen::MatrixXd> Decompose(const Eigen::MatrixXd& matrix) {
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr;
    qr.setThreshold(kTolerance);
    qr.compute(matrix);
    return qr;
  }

  static int64_t Rank(const Eigen::MatrixXd& matrix) { return Decompose(matrix).rank(); }
};

}  // namespace

GRAFT_PLUGIN_WITH(LowRank);
