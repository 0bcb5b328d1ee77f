// The range of numbers, and layer normalisation of a sum, with the bits of ONNX Runtime's two
// nodes.
//
// The mean is that of four partial sums in float64. Squares of what is left are added up in eight
// partial sums by fused multiply-adds, and the last step is one of those.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_

#include <cstdint>

namespace graft {
namespace quantized {

// The least and the greatest of some numbers and 0, and whether all are numbers.
struct Range {
  float least = 0.0f, greatest = 0.0f;
  float numbers = 1.0f;  // 0 where there is NaN, and the others are of no use then
};

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

// range, where it is not null, takes in what y becomes.
void NormalisePortable(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y,
                       Range* range);
void NormaliseVnni(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y,
                   Range* range);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_NORM_H_
