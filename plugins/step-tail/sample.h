// Samples from the rows of a group, after the warpers.
#ifndef GRAFT_PLUGINS_STEP_TAIL_SAMPLE_H_
#define GRAFT_PLUGINS_STEP_TAIL_SAMPLE_H_

#include <vector>

#include "tail.h"

namespace graft {
namespace tail {

// The samples of a group in their order; fewer when nothing possible is left.
Fault SampleGroup(const Problem& problem, const Kernel& kernel, const Group& group,
                  std::vector<Candidate>* sampled);

}  // namespace tail
}  // namespace graft

#endif  // GRAFT_PLUGINS_STEP_TAIL_SAMPLE_H_
