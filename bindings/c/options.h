// What is known of session options.
#ifndef GRAFT_C_OPTIONS_H_
#define GRAFT_C_OPTIONS_H_

#include "runtime.h"

namespace graft {

// Notes of options, kept by their address until Forget.
void NoteProvider(void* options);  // other providers than the CPU's were appended to them
void NoteLends(void* options);     // initializers of the program's own were
void CopyNotes(void* from, void* to);
void Forget(void* options);

// Why a session with options is left as it is, from what was noted of them; null for no reason.
const char* LeftFor(void* options);

// A session config entry of options; false where there is none.
bool Config(const Runtime& r, void* options, const char* key, Text* value);

// Whether options have entries of providers, which those that are appended by name leave there.
bool HasProviderEntries(const Runtime& r, void* options);

}  // namespace graft

#endif  // GRAFT_C_OPTIONS_H_
