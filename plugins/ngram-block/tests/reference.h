// What a repeated n-gram is, as plainly as it can be written.
#ifndef GRAFT_PLUGINS_NGRAM_BLOCK_TESTS_REFERENCE_H_
#define GRAFT_PLUGINS_NGRAM_BLOCK_TESTS_REFERENCE_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace graft {
namespace ngram {

// The tokens that may not follow `row`: every n-gram is written down under its first n - 1 tokens,
// and the row's last n - 1 are looked up.
inline std::set<int64_t> Repeats(const std::vector<int64_t>& row, int64_t n) {
  std::map<std::vector<int64_t>, std::set<int64_t>> followers;
  const auto length = static_cast<int64_t>(row.size());
  if (length < n) return {};
  for (int64_t i = 0; i + n <= length; ++i) {
    followers[std::vector<int64_t>(row.begin() + i, row.begin() + i + n - 1)].insert(
        row[static_cast<size_t>(i + n - 1)]);
  }
  return followers[std::vector<int64_t>(row.end() - (n - 1), row.end())];
}

}  // namespace ngram
}  // namespace graft

#endif  // GRAFT_PLUGINS_NGRAM_BLOCK_TESTS_REFERENCE_H_
