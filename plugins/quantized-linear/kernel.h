// The inner loops, one set an instruction set.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_KERNEL_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_KERNEL_H_

#include <cstdint>

#include "linear.h"
#include "norm.h"

namespace graft {
namespace quantized {

// Rows and panels of a tile whose sums fill the registers of AVX-512.
constexpr int kTileRows = 8;
constexpr int kTilePanels = 3;

// A rectangle of one y: up to kTileRows rows, up to kTilePanels panels.
struct Tile {
  int rows, panels;
  const uint8_t* x;  // [rows][steps * kDepthStep]
  int64_t x_stride;
  int64_t steps;         // of the depth
  const int8_t* weight;  // the first panel
  int64_t panel_bytes;   // from one panel to the next

  const int32_t* start;     // sums begin with it, one a column
  const int32_t* zeros;     // of W, or none: subtracted times row_sums
  const int32_t* row_sums;  // of x
  const float* scales;
  const float* bias;  // or none
  bool gelu;          // of what becomes of it

  int64_t columns;        // that are stored
  Range* range;           // takes in what is stored, or none
  float* y[kTilePanels];  // of the first row, and the first column of each panel
  int64_t row_stride;     // floats from one row to the next: 1 where column_stride is not
  int64_t column_stride;  // floats from one column to the next
};

struct Kernel {
  // The least and the greatest number, and 0. False where there is NaN.
  bool (*range)(const float* x, int64_t count, float* least, float* greatest);
  // to[i] = round(x[i] / scale) + zero, saturated.
  void (*quantize)(const float* x, int64_t count, float scale, uint8_t zero, uint8_t* to);
  int32_t (*sum)(const uint8_t* bytes, int64_t count);
  void (*tile)(const Tile& tile);
  void (*normalise)(const Norm& norm, int64_t row, int64_t rows, int64_t columns, float* y,
                    Range* range);
};

extern const Kernel kPortableKernel;

// Null where the build has none.
const Kernel* VnniKernel();

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_KERNEL_H_
