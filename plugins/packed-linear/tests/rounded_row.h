// A row of x rounded to integers as integers-inl.h says, step by step.
#ifndef GRAFT_PLUGINS_PACKED_LINEAR_TESTS_ROUNDED_ROW_H_
#define GRAFT_PLUGINS_PACKED_LINEAR_TESTS_ROUNDED_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "quantized.h"

namespace graft {
namespace test {

// Replaces a row by its integers, at most `limit`, times their scales. `off` is how far a number
// may be from what the kernel rounds, and a scale from its own, relative to it: where a tie is that
// near, `slack` is what the other side of it would add.
inline void RoundRow(double* row, size_t depth, size_t group, float limit, double off,
                     double* slack) {
  for (size_t begin = 0; begin < depth; begin += group) {
    const size_t end = std::min(begin + group, depth);
    float most = 0;
    bool finite = true;
    for (size_t i = begin; i < end; ++i) {
      const auto x = static_cast<float>(row[i]);
      most = std::max(most, std::abs(x));
      finite = finite && std::isfinite(x);
    }
    for (size_t i = begin; i < end; ++i) {
      if (!finite || most < linear::kLeastNumber) {
        row[i] = finite ? 0 : std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      const float by = limit / most, scaled = static_cast<float>(row[i]) * by;
      const float scale = most / limit, q = std::nearbyint(scaled);
      row[i] = double{q} * double{scale};
      const double tie = std::abs(std::abs(double{scaled} - double{q}) - 0.5);
      slack[i] = off > 0 && tie < off * (double{limit} + double{by}) ? double{scale} : 0;
    }
  }
}

}  // namespace test
}  // namespace graft

#endif  // GRAFT_PLUGINS_PACKED_LINEAR_TESTS_ROUNDED_ROW_H_
