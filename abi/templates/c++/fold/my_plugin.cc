// Two matmuls with constant matrices, one after the other with nothing between, are one with their
// product. There is no operator here: the work is done in `fold`, once, when a session is made.
#include <cstdint>
#include <vector>

#include "graft.h"

namespace {

struct Hooks {
  // `first` [k, m] and `second` [m, n] come as float64; what is emitted gets the type of the graph.
  static void Fold(const graft::FoldContext& context) {
    const graft::Tensor first = context.Constant("first"), second = context.Constant("second");
    if (first.type() != graft::kFloat64 || second.type() != graft::kFloat64) {
      context.Refuse("the matrices are not real");
    }
    const graft::Size k = first.dim(0), m = first.dim(1), n = second.dim(1);
    if (second.dim(0) != m) context.Refuse("the matrices do not fit each other");
    if (k * n >= m * (k + n)) {
      context.Refuse("the product of ", k, " x ", m, " and ", m, " x ", n, " is no smaller");
    }
    std::vector<double> product((k * n).To<size_t>());
    const double *a = first.data<double>(), *b = second.data<double>();
    for (int64_t i = 0; i < k; ++i) {
      double* row = product.data() + i * n;
      for (int64_t l = 0; l < m; ++l) {
        for (int64_t j = 0; j < n; ++j) row[j] += a[i * m + l] * b[l * n + j];
      }
    }
    context.Emit("product", {k, n}, product.data());
  }
};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks);
