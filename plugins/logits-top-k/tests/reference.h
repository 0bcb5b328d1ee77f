// Logits processing and top-k selection as simply as they can be written, in double.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_TESTS_REFERENCE_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_TESTS_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "top_k.h"

namespace graft {
namespace top_k {

struct Scored {
  int64_t row, token;
  double score;
};

// Every possible pair of a group in mode kLogProbs or kRaw with its score, best first; equal ones
// by row and token. `scores` are the problem's as floats.
std::vector<Scored> AllPairs(const Problem& problem, const std::vector<float>& scores,
                             const Group& group);

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_TESTS_REFERENCE_H_
