/* Two matmuls with constant matrices, one after the other with nothing between, are one with their
 * product. There is no operator here: the work is done in fold, once, when a session is made. */
#include "graft_c.h"

/* first [k, m] and second [m, n] come as float64; what is emitted gets the type of the graph. */
static int32_t fold(const graft_fold_request* request, graft_message* message) {
  const graft_tensor* first = graft_constant(request, "first");
  const graft_tensor* second = graft_constant(request, "second");
  if (first == NULL || second == NULL) {
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT, "fold: no constants first and second");
  }
  if (first->dtype.code != GRAFT_TYPE_FLOAT || second->dtype.code != GRAFT_TYPE_FLOAT ||
      first->ndim != 2 || second->ndim != 2 || first->shape[1] != second->shape[0]) {
    return graft_fail(message, GRAFT_REFUSED, "the matrices do not fit each other");
  }
  const int64_t k = first->shape[0], m = first->shape[1], n = second->shape[1];
  if ((double)k * (double)n >= (double)m * (double)(k + n)) {
    return graft_fail(message, GRAFT_REFUSED,
                      "the product of %lld x %lld and %lld x %lld is no smaller", (long long)k,
                      (long long)m, (long long)m, (long long)n);
  }
  double* product = calloc((size_t)(k * n) + 1, sizeof *product);
  if (product == NULL) return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
  const double *a = graft_data(first), *b = graft_data(second);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t l = 0; l < m; ++l) {
      for (int64_t j = 0; j < n; ++j) product[i * n + j] += a[i * m + l] * b[l * n + j];
    }
  }
  int64_t shape[] = {k, n};
  const graft_tensor result = {product, {GRAFT_DEVICE_CPU, 0}, 2, GRAFT_FLOAT64, shape, NULL, 0};
  const int32_t code = request->emit(request->emit_context, "product", &result);
  free(product);
  return code;
}

GRAFT_C_FOLD_PLUGIN(&fold);
