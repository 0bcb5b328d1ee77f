// Lines on standard error.
#ifndef GRAFT_C_SAY_H_
#define GRAFT_C_SAY_H_

#include "text.h"

namespace graft {

// Causes of warnings: each is said once in a process.
enum class Cause {
  kOldRuntime,
  kManyRuntimes,
  kNoRuntime,
  kProtected,
  kNoCache,
  kNoBinary,
  kDeadline,
  kFailed,
  kEntry,
  kChanged,
  kSession,
  kMemory,
  kOptions,
  kCount,
};

// Prints "graft: ..." where the cause was not said before.
void Warn(Cause cause, const Text& text);

// Prints "graft: ...".
void Say(const Text& text);

// Prints a line where GRAFT_VERBOSE is 1.
void Tell(const Text& text);

}  // namespace graft

#endif  // GRAFT_C_SAY_H_
