// SHA-256 (FIPS 180-4).
#ifndef GRAFT_C_SHA256_H_
#define GRAFT_C_SHA256_H_

#include <stddef.h>
#include <stdint.h>

namespace graft {

// The hash of bytes that come in parts: any number of whole blocks of 64, then the rest.
class Sha256Sum {
 public:
  void Add(const void* bytes, size_t blocks);
  // n is below 64. Writes 64 hexadecimal digits and a zero.
  void Finish(const void* rest, size_t n, char hex[65]);

 private:
  // The first 32 bits of the fractional parts of the square roots of the first 8 primes.
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t blocks_ = 0;
};

// Writes the hash of bytes as 64 hexadecimal digits and a zero.
void Sha256(const void* bytes, size_t n, char hex[65]);

}  // namespace graft

#endif  // GRAFT_C_SHA256_H_
