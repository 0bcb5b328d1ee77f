// The tail of a step as plainly as it can be written, in double.
#ifndef GRAFT_PLUGINS_STEP_TAIL_TESTS_REFERENCE_H_
#define GRAFT_PLUGINS_STEP_TAIL_TESTS_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "tail.h"

namespace graft {
namespace tail {

struct Scored {
  int64_t row, token;
  double score;
};

// Every possible pair of a group in mode kLogProbs or kRaw with its score, best first; equal ones
// by row and token. `scores` are the problem's as floats.
std::vector<Scored> AllPairs(const Problem& problem, const std::vector<float>& scores,
                             const Group& group);

}  // namespace tail
}  // namespace graft

#endif  // GRAFT_PLUGINS_STEP_TAIL_TESTS_REFERENCE_H_
