// Prints the hashes of beginnings of a sequence of bytes.
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
  }
}
