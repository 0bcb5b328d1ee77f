// Weights in panels of fewer bits: their layouts, and how they are rounded. Raw pointers, no
// runtime. What is made is the same on every CPU of an architecture.
//
// A panel is sixteen columns, as in float32. The depth is filled up with zeros to KP, a multiple of
// 32, and columns to whole panels. A value is q times the scale of its column and its group of
// positions of the depth; a scale is a bfloat16.
//
//   int8      int8 [P][KP][16]: 64 bytes are four positions of sixteen columns; of a panel, q of
//             position k and column i is the byte k / 4 * 64 + i * 4 + k % 4. q in -127 .. 127
//   int4      uint8 [P][KP / 2][16]: 64 bytes are eight positions of sixteen columns; q + 8 of
//             position k and column i is in the byte k / 8 * 64 + i * 4 + k % 4, in its low half
//             where k % 8 < 4. q in -8 .. 7
//   bfloat16  [P][K][16], as in float32
//
// scales are bfloat16 [P][K / group, rounded up][16]. There may be zero points, int8 laid out as
// scales are: a value is then (q - zero) times the scale. q and zero of int8 are -128 .. 127 there,
// zeros of int4 -8 .. 7. Integers that somebody else made may have scales of float32.
#ifndef GRAFT_PLUGINS_PACKED_LINEAR_QUANTIZED_H_
#define GRAFT_PLUGINS_PACKED_LINEAR_QUANTIZED_H_

#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace graft {
namespace linear {

// Positions of the depth that are multiplied before sums may be taken: groups are whole chunks.
constexpr int64_t kChunk = 32;
constexpr int64_t kMaxGroup = 128;

// Below this the numbers of a group count as zeros: their scale, or its inverse, could be no normal
// number.
constexpr float kLeastNumber = 0x1p-110f;

// What PackPanels makes of W [K, N].
struct PackedShape {
  int64_t panels;  // P
  int64_t rows;    // the middle size: KP, KP / 2 or K
  int64_t groups;  // of the depth; 0 without scales
};
PackedShape ShapeOf(WeightType type, int64_t depth, int64_t columns, int64_t group);

// Bytes of the panels.
size_t PackedBytes(WeightType type, int64_t depth, int64_t columns);

constexpr bool IsInteger(WeightType type) {
  return type == WeightType::kInt8 || type == WeightType::kInt4;
}

// Rounds W, [K, N] or [N, K] when transposed, compact, any alignment, to `type`, which is not
// float32. Scales are those with the least squared error among a few; int8 alone never clips by
// more than half a step. A group of a column with a number that is not finite has the scale NaN:
// all that is multiplied with it is NaN. With `zeros`, which may be null, each group has a zero
// point too, 0 where that leaves the smaller error. bfloat16 rounds to nearest, ties to even, and
// takes neither scales nor zeros.
void Quantize(WeightType type, const float* weight, int64_t depth, int64_t columns, bool transposed,
              int64_t group, void* panels, uint16_t* scales, int8_t* zeros, const Runner& runner);

// Bytes of a scale of a problem.
constexpr int64_t ScaleBytes(const Problem& problem) { return problem.wide_scales ? 4 : 2; }

// A value of a problem's panels, for tests and reference implementations.
float ValueOf(const Problem& problem, int64_t k, int64_t column);

// A value of panels that Quantize made, likewise.
float ValueOf(WeightType type, const void* panels, const uint16_t* scales, int64_t depth,
              int64_t group, int64_t k, int64_t column);

}  // namespace linear
}  // namespace graft

#endif  // GRAFT_PLUGINS_PACKED_LINEAR_QUANTIZED_H_
