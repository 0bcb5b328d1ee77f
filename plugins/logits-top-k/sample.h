// Samples from the rows of a group, after the warpers.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_SAMPLE_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_SAMPLE_H_

#include <vector>

#include "top_k.h"

namespace graft {
namespace top_k {

// The samples of a group in their order; fewer when nothing possible is left.
Fault SampleGroup(const Problem& problem, const Kernel& kernel, const Group& group,
                  std::vector<Candidate>* sampled);

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_SAMPLE_H_
