// libgraft.so: graft for programs that use ONNX Runtime's C API from C, C++ or any language that
// calls C.
//
// A program that is started by `graft run` needs none of this. One that links libgraft.so calls
// graft_enable once; sessions that are created from then on are patched. Where graft cannot, the
// session is the one that the program asked for, and one warning on standard error says why.
//
// All functions may be called from any thread.
#ifndef GRAFT_ENABLE_H_
#define GRAFT_ENABLE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Patches sessions from now on, those of every ONNX Runtime that is loaded and of those that are
// loaded later. options are those of `graft graph`, one a line ("--padding=ignore\n--except=NAME");
// NULL for none. Calling it again replaces the options. Returns how many runtimes are loaded now,
// or -1 where the options are no options, and then changes nothing.
//
// The command graft is found by GRAFT_BINARY, beside libgraft.so, in ../bin or ../../bin from
// there, and on PATH.
int graft_enable(const char* options);

// Makes sessions from now on as without graft. Those that are there stay as they are.
void graft_disable(void);

// How many sessions of the process were created patched, and how many left as they were while graft
// was enabled. Either may be NULL.
void graft_sessions(uint64_t* patched, uint64_t* left);

// How many of the patched sessions run without graft since an operator failed in a run of theirs.
uint64_t graft_reverted(void);

#ifdef __cplusplus
}
#endif

#endif  // GRAFT_ENABLE_H_
