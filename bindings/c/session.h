// Sessions that are being created.
#ifndef GRAFT_C_SESSION_H_
#define GRAFT_C_SESSION_H_

#include "runtime.h"

namespace graft {

// One call of a function that creates a session.
struct Creation {
  const Runtime* runtime;
  void* env;
  const char* path;   // null for a model given as bytes
  const void* model;  // null for a file
  size_t size;
  void* options;  // may be null
  void* container;
  bool prepacked;  // whether there is a container
  void** out;
  // Why the session is left as it is, from what is known of its options; null for no reason.
  const char* left;
};

// Creates the session, patched where that can be.
Status* Create(const Creation& c);

// See graft_sessions of graft_enable.h.
void Count(uint64_t* patched, uint64_t* left);

}  // namespace graft

#endif  // GRAFT_C_SESSION_H_
