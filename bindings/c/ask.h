// Running the command graft.
#ifndef GRAFT_C_ASK_H_
#define GRAFT_C_ASK_H_

#include "text.h"

namespace graft {

enum class Answer {
  kDone,      // exit code 0
  kFailed,    // another exit code, or a signal
  kNotRun,    // it could not be started
  kDeadline,  // it was killed because it took too long
};

// Runs a program and waits for it, at most so many milliseconds. argv ends with a null pointer;
// argv[0] is the program's path. Of what it prints on standard error, text gets the first bytes;
// where it could not be started or was ended by a signal, the reason.
//
// The program is the child of a process of its own that waits for it, so that this process gets no
// SIGCHLD and a wait for any child does not see it; and it dies with all that it started when the
// time is over or this process has ended.
Answer Run(const char* const* argv, int milliseconds, Text* text);

}  // namespace graft

#endif  // GRAFT_C_ASK_H_
