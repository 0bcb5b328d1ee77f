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

// What is to be done when a session is released: before it is, and after.
void* Releasing(void* session);
void Released(void* memory);

// Reads the settings of the environment, once. Every exported function begins with it.
void Begin();

// Whether sessions are patched.
bool Enabled();

// See graft_enable.h.
bool Enable(const char* options);
void Disable();
void Count(uint64_t* patched, uint64_t* left);

// The lock of what is changed for moments only. It is held during fork.
void StateLock();
void StateUnlock();

}  // namespace graft

#endif  // GRAFT_C_SESSION_H_
