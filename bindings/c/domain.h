// The domain of plugins' operators, "graft".
#ifndef GRAFT_C_DOMAIN_H_
#define GRAFT_C_DOMAIN_H_

#include "runtime.h"

namespace graft {

// Has a runtime enter the domain in its table of domains before it creates another session.
//
// ONNX Runtime enters a domain while it creates the first session that has it, and does not guard
// the table: of sessions that are created at once all but one would fail (its issues 22663 and
// 26366), and another would read what is being written. Where it fails, the next call tries again.
void KnowDomain(const Runtime& r, void* env);

}  // namespace graft

#endif  // GRAFT_C_DOMAIN_H_
