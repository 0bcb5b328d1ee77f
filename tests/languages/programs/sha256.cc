// Prints the hashes of beginnings of a sequence of bytes, taken whole and in parts.
#include "sha256.h"

#include <cstdio>
#include <vector>

int main() {
  std::vector<unsigned char> data(70000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 256);
  char hex[65];
  for (size_t n = 0; n <= data.size(); n += 1 + n / 60) {
    graft::Sha256(data.data(), n, hex);
    std::puts(hex);
    graft::Sha256Sum sum;
    const size_t half = n / 128, rest = n / 64 - half;
    sum.Add(data.data(), half);
    sum.Add(data.data() + half * 64, rest);
    sum.Finish(data.data() + (half + rest) * 64, n % 64, hex);
    std::puts(hex);
  }
}
