// Settings of the process: from its environment, and by graft_enable.
#ifndef GRAFT_C_SETTINGS_H_
#define GRAFT_C_SETTINGS_H_

#include "text.h"

namespace graft {

// Reads the settings of the environment, once. Every exported function begins with it.
void Begin();

// Whether sessions are patched.
bool Enabled();

// See graft_enable.h.
bool Enable(const char* options);
void Disable();

// Adds the options of the command, one a line.
void AddOptions(Text* lines);

// How long the command may take, in milliseconds.
int Deadline();

// The command graft: GRAFT_BINARY, near this library, or on PATH. Where there is none, path is what
// was named, or "".
bool FindBinary(Text* path);

// The folder of rewritten graphs, with a slash at its end, as the command finds it.
bool CacheFolder(Text* folder);

}  // namespace graft

#endif  // GRAFT_C_SETTINGS_H_
