// Workers that share the tasks of a run's phases, through counters in its workspace that begin at
// 0.
#ifndef GRAFT_KIT_TASKS_H_
#define GRAFT_KIT_TASKS_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace graft {

// Takes tasks 0 .. count - 1 from `next` until none is left, and calls body(task) for each. The
// other workers take from the same counter.
template <class Body>
void TakeTasks(std::atomic<int64_t>& next, int64_t count, const Body& body) {
  if (count <= 0) return;
  for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(task);
}

// The same, and counts in `finished` what is done, for WaitForTasks.
template <class Body>
void TakeTasks(std::atomic<int64_t>& next, std::atomic<int64_t>& finished, int64_t count,
               const Body& body) {
  TakeTasks(next, count, [&](int64_t task) {
    body(task);
    finished.fetch_add(1, std::memory_order_acq_rel);
  });
}

// Returns when `count` tasks are finished; what they wrote is then seen. Its caller has seen
// TakeTasks return, so only tasks that run already are waited for: a host that runs workers one
// after the other does not hang. Spins, since tasks take microseconds; gives the CPU away where
// that was not enough.
inline void WaitForTasks(const std::atomic<int64_t>& finished, int64_t count) {
  for (int spin = 0; finished.load(std::memory_order_acquire) < count;) {
    if (++spin >= 1000) {
      std::this_thread::yield();
    } else {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    }
  }
}

}  // namespace graft

#endif  // GRAFT_KIT_TASKS_H_
