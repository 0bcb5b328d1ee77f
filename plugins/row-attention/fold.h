// Weights computed from weights in float64 for attention that holds something else than keys and
// values, and a check of what the computation costs in accuracy.
//
// With K = X W_K + b_K and V = X W_V + b_V, a layer that holds its keys alone finds its values by
//
//   V = K W_KV + b_KV,   W_KV = W_K^-1 W_V,   b_KV = b_V - b_K W_KV
//
// (slim attention, equation 1.6 and section 5). W_K is d x e. For e > d it has many right inverses;
// the one used, W_K^T (W_K W_K^T)^-1 (section 6), is the one of least norm and so the one that
// makes least of the keys' rounding. It is found by QR, since W_K W_K^T would square the condition
// number. For e < d there is none.
//
// The same inverse is used for layers that read another layer's keys K1 = X W_1 in place of X
// (section 7's hybrid): their weights become W_1^-1 W_K and W_1^-1 W_V.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_FOLD_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_FOLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graft_cache.h"

namespace graft {
namespace fold {

// A row-major matrix of the caller's.
struct Matrix {
  const double* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};

// The right inverse of a matrix of full row rank, factored.
class Inverse {
 public:
  // `base` is d x e and must stay as long as this.
  explicit Inverse(const Matrix& base);
  ~Inverse();
  Inverse(const Inverse&) = delete;
  Inverse& operator=(const Inverse&) = delete;

  // Why there is no inverse; empty when there is one.
  const std::string& fault() const { return fault_; }

  // Largest singular value over the smallest, estimated from below (power iterations, within a few
  // per cent where singular values lie apart). Infinite when a pivot is 0.
  double condition() const { return condition_; }

  // The matrix B of least norm with base * B = weight: e x weight.columns, row-major. weight has d
  // rows. Only without a fault.
  std::vector<double> Times(const Matrix& weight) const;

 private:
  struct Factors;
  std::unique_ptr<Factors> factors_;
  std::string fault_;
  double condition_ = 0;
};

// What cached numbers are stored as.
enum class Storage { kFloat32, kFloat16, kBfloat16, kInt8 };

// A number as it comes back from storage, which is not kInt8.
float Stored(double number, Storage storage);

// A row of numbers as it comes back from kInt8, in place.
void StoreInt8(float* row, int64_t width);

// What a fold may add to a number: absolute + relative * its magnitude.
struct Tolerance {
  double absolute, relative;
};
Tolerance ToleranceOf(Storage storage);

// How far values computed with folded weights are from those of the weights themselves.
struct Measured {
  double error = 0;    // of the worst head
  double allowed = 0;  // for that head
  int64_t head = 0;
  bool holds() const { return error <= allowed; }  // not for NaN
};

// Rows of the sample on which a fold is measured.
constexpr int64_t kSampleRows = 64;

// Samples rows X of standard normal numbers from `seed`, the same everywhere, and compares X weight
// + bias, in float64, with K folded + folded_bias, where K = X base + base_bias is rounded to
// `storage` and the rest is float32 arithmetic in the kernels' order. The norm: the error of a head
// (head_size columns of weight) is the largest |difference| of any of its numbers; allowed is
// ToleranceOf(storage) at the root mean square of X weight over the head. Biases may be null; they
// widen nothing that is allowed.
Measured Measure(const Matrix& base, const double* base_bias, const Matrix& weight,
                 const double* bias, const Matrix& folded, const double* folded_bias,
                 int64_t head_size, Storage storage, uint64_t seed = 1);

// base_bias * folded subtracted from bias: b_KV. Either bias may be null, which is zeros.
std::vector<double> FoldBias(const double* base_bias, const Matrix& folded, const double* bias);

constexpr int64_t kPanel = GRAFT_PANEL_COLUMNS;

// [heads][ceil(head_size / 16)][rows][16] from rows x heads * head_size: columns of a head side by
// side, zero beyond head_size. For matmuls with rows of width `rows`.
std::vector<double> ColumnPanels(const Matrix& weight, int64_t heads);

// [heads][ceil(rows / 16)][head_size][16] from rows x heads * head_size: rows of the matrix side by
// side, zero beyond the last. For matmuls with a head's own columns.
std::vector<double> RowPanels(const Matrix& weight, int64_t heads);

}  // namespace fold
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_FOLD_H_
