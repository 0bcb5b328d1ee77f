// Sessions that were created patched, and their way back: where an operator fails in a run, a
// session of the program's own model is created, and runs in its place from then on.
#ifndef GRAFT_C_WAYBACK_H_
#define GRAFT_C_WAYBACK_H_

#include "entry.h"
#include "runtime.h"

namespace graft {

// A session that was created patched, until it is released.
struct Patched {
  const Runtime* runtime = nullptr;
  void* session = nullptr;
  Bytes weights;  // that the runtime may read as long as the session is there

  // What the program's own session is created from.
  void* env = nullptr;
  void* options = nullptr;    // a copy; null for the standard ones
  Text name;                  // of the model, for messages
  Text path;                  // absolute, of the model or of a copy of its bytes
  char hash[65] = "";         // of bytes; "" for a file
  List<File> files;           // that must be as they were; paths and hashes are this struct's
  bool has_way_back = false;  // there was memory for all this

  void* own = nullptr;    // the program's own session, once there is one
  bool reverted = false;  // it runs
  bool said = false;      // that it cannot be created
  Patched* next = nullptr;

  static Patched* New();
  void Delete();  // with the options and the program's own session

  Patched(const Patched&) = delete;
  Patched& operator=(const Patched&) = delete;

 private:
  Patched() = default;
  ~Patched() = default;
};

// Takes a patched session into the list.
void Keep(Patched* session);

// How many sessions run without graft because an operator failed.
uint64_t Reverted();

// Releases a session, and what there is beside it.
void Release(const Runtime& r, void* session);

// The arguments of OrtApi's Run.
struct RunArguments {
  void* session;
  const void* options;
  const char* const* input_names;
  const void* const* inputs;
  size_t n;
  const char* const* output_names;
  size_t m;
  void** outputs;
};
using RunEnded = void (*)(void* user, void** outputs, size_t m, Status* status);

// Run a session as OrtApi's functions do.
Status* Run(const Runtime& r, const RunArguments& a);
Status* RunAsync(const Runtime& r, const RunArguments& a, RunEnded ended, void* user);
Status* RunWithBinding(const Runtime& r, void* session, const void* options, const void* binding);

// Bindings of patched sessions, and the memory of their inputs, which ONNX Runtime does not tell.
void BindingCreated(void* session, const void* binding);
void BindingReleased(const void* binding);
void InputBound(const Runtime& r, const void* binding, const char* name, const void* value);
void InputsCleared(const void* binding);

}  // namespace graft

#endif  // GRAFT_C_WAYBACK_H_
