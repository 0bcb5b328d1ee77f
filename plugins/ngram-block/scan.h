// Finds a token in a run of tokens, or the last two tokens of an n-gram's context: the inner loop
// of every scan for repeated n-grams. Vector code, chosen once for the machine.
#ifndef GRAFT_PLUGINS_NGRAM_BLOCK_SCAN_H_
#define GRAFT_PLUGINS_NGRAM_BLOCK_SCAN_H_

#include <cstdint>

#include "graft/isa.h"

namespace graft {
namespace ngram {

struct Scanner {
  // Writes every i in [0, count) with tokens[i] == token into `at`, ascending, and gives their
  // number. `at` has room for count + kSlack.
  int64_t (*find32)(const int32_t* tokens, int64_t count, int32_t token, int32_t* at);
  int64_t (*find64)(const int64_t* tokens, int64_t count, int64_t token, int32_t* at);
  // The same for every i with tokens[i] == first and tokens[i + 1] == second; reads count + 1.
  int64_t (*find_pair32)(const int32_t* tokens, int64_t count, int32_t first, int32_t second,
                         int32_t* at);
  int64_t (*find_pair64)(const int64_t* tokens, int64_t count, int64_t first, int64_t second,
                         int32_t* at);
  // The first i with tokens[i] outside [0, limit), or count.
  int64_t (*outside32)(const int32_t* tokens, int64_t count, int32_t limit);
  int64_t (*outside64)(const int64_t* tokens, int64_t count, int64_t limit);
};

inline constexpr int64_t kSlack = 16;

// The scanner for `isa`, or nullptr when this CPU or this build has none. Never null for kBest and
// kBaseline.
const Scanner* FindScanner(Isa isa);

// By type of token.
inline int64_t Find(const Scanner& s, const int32_t* tokens, int64_t count, int32_t token,
                    int32_t* at) {
  return s.find32(tokens, count, token, at);
}
inline int64_t Find(const Scanner& s, const int64_t* tokens, int64_t count, int64_t token,
                    int32_t* at) {
  return s.find64(tokens, count, token, at);
}
inline int64_t FindPair(const Scanner& s, const int32_t* tokens, int64_t count, int32_t first,
                        int32_t second, int32_t* at) {
  return s.find_pair32(tokens, count, first, second, at);
}
inline int64_t FindPair(const Scanner& s, const int64_t* tokens, int64_t count, int64_t first,
                        int64_t second, int32_t* at) {
  return s.find_pair64(tokens, count, first, second, at);
}
inline int64_t Outside(const Scanner& s, const int32_t* tokens, int64_t count, int64_t limit) {
  return s.outside32(tokens, count, static_cast<int32_t>(limit > INT32_MAX ? INT32_MAX : limit));
}
inline int64_t Outside(const Scanner& s, const int64_t* tokens, int64_t count, int64_t limit) {
  return s.outside64(tokens, count, limit);
}

// Calls ban(token) for every token that would end an n-gram which the row already has: t such that
// the last n - 1 tokens, followed by t, stand somewhere in row[0, length). A token may come several
// times. `n` is at least 1.
template <typename T, typename Ban>
void ForEachRepeat(const Scanner& scanner, const T* row, int64_t length, int64_t n,
                   const Ban& ban) {
  if (length < n) return;
  const int64_t context = n - 1;
  if (context == 0) {
    for (int64_t i = 0; i < length; ++i) ban(row[i]);
    return;
  }
  // The context's last tokens are looked for: where they stand, the rest is compared.
  const T* tail = row + length - context;
  constexpr int64_t kChunk = 1024;
  int32_t at[kChunk + kSlack];
  const int64_t lead = context - 1;  // tokens before the last one
  const bool pairs = lead > 0;
  for (int64_t begin = lead; begin < length - 1; begin += kChunk) {
    const int64_t count = length - 1 - begin < kChunk ? length - 1 - begin : kChunk;
    const int64_t found =
        pairs ? FindPair(scanner, row + begin - 1, count, tail[lead - 1], tail[lead], at)
              : Find(scanner, row + begin, count, tail[lead], at);
    for (int64_t k = 0; k < found; ++k) {
      const int64_t last = begin + at[k];
      bool equal = true;
      for (int64_t j = 2; j <= lead && equal; ++j) equal = row[last - j] == tail[lead - j];
      if (equal) ban(row[last + 1]);
    }
  }
}

}  // namespace ngram
}  // namespace graft

#endif  // GRAFT_PLUGINS_NGRAM_BLOCK_SCAN_H_
