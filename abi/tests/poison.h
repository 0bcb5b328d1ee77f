// Memory that shows what a kernel should not have read or written, and how many random problems a
// test takes.
#ifndef GRAFT_TESTS_POISON_H_
#define GRAFT_TESTS_POISON_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace graft {
namespace testing {

// GRAFT_TEST_PROBLEMS where it is set.
inline int ProblemCount(int usual) {
  const char* text = std::getenv("GRAFT_TEST_PROBLEMS");
  return text != nullptr ? std::atoi(text) : usual;
}

// Of what takes `usual` rounds beside the usual 1,000 problems, in proportion where others are
// asked for.
inline int Proportion(int usual) {
  const int64_t rounds = int64_t{usual} * ProblemCount(1000) / 1000;
  return static_cast<int>(rounds > 0 ? rounds : 1);
}

// Calls run(workspace) with `size` bytes on an odd address, full of NaN, and followed by a band.
template <class Run>
void WithPoisonedWorkspace(size_t size, const Run& run) {
  std::vector<char> workspace(size + 1 + 64, static_cast<char>(0xFF));
  run(workspace.data() + 1);
  for (size_t i = size + 1; i < workspace.size(); ++i) {
    ASSERT_EQ(workspace[i], static_cast<char>(0xFF)) << "wrote past the workspace";
  }
}

}  // namespace testing
}  // namespace graft

#endif  // GRAFT_TESTS_POISON_H_
