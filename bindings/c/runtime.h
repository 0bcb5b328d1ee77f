// The ONNX Runtimes of the process, and what stands in their tables of functions.
#ifndef GRAFT_C_RUNTIME_H_
#define GRAFT_C_RUNTIME_H_

#include <stdint.h>

#include "slots.h"
#include "text.h"

namespace graft {

// ONNX Runtime's OrtStatus; null is success.
struct Status;

// ONNX Runtime's OrtApiBase.
struct ApiBase {
  void** (*get_api)(uint32_t version);
  const char* (*get_version)();
};

#define GRAFT_SLOT(name, index) k##name = index,
enum Slot : int { GRAFT_CALLED_SLOTS(GRAFT_SLOT) GRAFT_HOOKED_SLOTS(GRAFT_SLOT) };
#undef GRAFT_SLOT

#define GRAFT_HOOK(name, index) kHook##name,
enum HookIndex : int { GRAFT_HOOKED_SLOTS(GRAFT_HOOK) kHooks };
#undef GRAFT_HOOK

template <typename R, typename... A>
R CallAt(void* function, A... a) {
  return reinterpret_cast<R (*)(A...)>(function)(a...);
}

struct Runtime {
  void** table;  // null for a place that is free
  int api;       // the newest version of its API
  void* original[kHooks];
  mutable bool knows_domain;  // see KnowDomain

  // ONNX Runtime's own function.
  void* Own(Slot slot) const {
    // Whoever was called by the table sees what was noted before it was filled.
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    switch (slot) {
#define GRAFT_OWN(name, index) \
  case k##name:                \
    return original[kHook##name];
      GRAFT_HOOKED_SLOTS(GRAFT_OWN)
#undef GRAFT_OWN
      default:
        return table[slot];
    }
  }
  template <typename R, typename... A>
  R Call(Slot slot, A... a) const {
    return CallAt<R>(Own(slot), a...);
  }
  // Whether it succeeded; the error's text otherwise.
  bool Succeeded(Status* status, Text* error) const;
};

// Puts libgraft's functions in the table of a runtime, where they are not yet. function is its
// OrtGetApiBase.
void Attach(const ApiBase* base, const void* function);

// How many runtimes have them.
int Attached();

// A runtime that has them; null for none.
const Runtime* AnyRuntime();

}  // namespace graft

#endif  // GRAFT_C_RUNTIME_H_
