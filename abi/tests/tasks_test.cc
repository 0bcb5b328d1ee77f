// Workers that share tasks: each is taken once, and what is waited for is done.
#include "graft/tasks.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace graft {
namespace {

constexpr int64_t kTasks = 10000;

struct Counters {
  std::atomic<int64_t> next{0}, finished{0};
};

TEST(Tasks, EachIsTakenOnceAndSeenAfterTheWait) {
  for (const int workers : {1, 2, 5}) {
    Counters counters;
    std::vector<int64_t> done(kTasks);
    std::atomic<int64_t> missing{0};
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&] {
        TakeTasks(counters.next, counters.finished, kTasks, [&](int64_t task) { ++done[task]; });
        WaitForTasks(counters.finished, kTasks);
        for (const int64_t times : done) missing += times != 1;  // a plain read: the wait orders it
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(missing, 0) << workers << " workers";
  }
}

TEST(Tasks, WorkersOneAfterTheOtherDoNotHang) {
  Counters counters;
  for (int w = 0; w < 3; ++w) {
    TakeTasks(counters.next, counters.finished, kTasks, [](int64_t) {});
    WaitForTasks(counters.finished, kTasks);
  }
  EXPECT_EQ(counters.finished, kTasks);
}

TEST(Tasks, NoTasks) {
  Counters counters;
  TakeTasks(counters.next, 0, [](int64_t) { FAIL(); });
  WaitForTasks(counters.finished, 0);
  EXPECT_EQ(counters.next, 0);
}

}  // namespace
}  // namespace graft
