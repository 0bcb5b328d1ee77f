// Layer normalisation of a sum, with the bits of ONNX Runtime's two nodes.
//
// The mean is that of four partial sums in float64. Squares of what is left are added up in eight
// partial sums by fused multiply-adds, and the last step is one of those.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_

#include <cstdint>

namespace graft {
namespace quantized {

// Columns are a multiple of it.
constexpr int64_t kNormColumns = 16;

// y, [rows, columns], becomes the normalisation of y + residual.
struct Norm {
  bool wanted = false;
  const float* residual = nullptr;  // [rows, columns]
  const float* scale = nullptr;     // [columns]
  const float* bias = nullptr;      // [columns]
  float epsilon = 0.0f;
};

void NormalisePortable(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y);
void NormaliseVnni(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_
