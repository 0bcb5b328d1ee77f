// Libraries of plugins, loaded from the bytes that were verified.
#ifndef GRAFT_C_SEALED_H_
#define GRAFT_C_SEALED_H_

namespace graft {

constexpr int kSealedPath = 32;  // the length of a path below /proc/self/fd

// Reads a library into memory that nobody can change any more, once a process, and gives the path
// that leads there. False where the file is gone or has another SHA-256.
bool Seal(const char* path, const char* hash, char to[kSealedPath]);

}  // namespace graft

#endif  // GRAFT_C_SEALED_H_
