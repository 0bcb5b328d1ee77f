// SHA-256 (FIPS 180-4).
#ifndef GRAFT_C_SHA256_H_
#define GRAFT_C_SHA256_H_

#include <stddef.h>

namespace graft {

// Writes the hash of bytes as 64 hexadecimal digits and a zero.
void Sha256(const void* bytes, size_t n, char hex[65]);

}  // namespace graft

#endif  // GRAFT_C_SHA256_H_
