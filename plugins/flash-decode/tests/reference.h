// The operator in float64, one loop a formula: what every kernel is held against.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_TESTS_REFERENCE_H_
#define GRAFT_PLUGINS_FLASH_DECODE_TESTS_REFERENCE_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "attention.h"

namespace graft {
namespace attention {
namespace testing {

struct Expected {
  std::vector<double> output;  // [B, H, S, E]
  std::vector<double> scores;  // [B, H, S, T], of problem.scores_stage
  // [B, H, S]: how far a weight may be off, relatively, because float32 cannot resolve the row's
  // scores better. Zero unless a large bias or fill makes all of them large.
  std::vector<double> slack;
};

// float from, and to, the bits of an IEEE binary16 (nearest even).
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);

// Element `index` (in elements) of a tensor of `type`.
double Element(Type type, const void* data, int64_t index);

// Scores beyond window_left and window_right are window_fill, whatever else is done to them.
Expected Compute(const Problem& problem,
                 float window_fill = -std::numeric_limits<float>::infinity());

}  // namespace testing
}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_TESTS_REFERENCE_H_
