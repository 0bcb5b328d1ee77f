// Threads for tests and benchmarks of kernels.
#ifndef GRAFT_TESTS_THREAD_POOL_H_
#define GRAFT_TESTS_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace graft::test {

// Holds threads - 1 threads beside the caller's. `spins` is how often an idle thread looks for work
// before it sleeps: a runtime's threads spin, so a benchmark's should. `Runner` is how a kernel is
// given threads: a struct of parallel_for, context and threads.
template <typename Runner>
class ThreadPool {
 public:
  explicit ThreadPool(int threads, int spins = 0) : spins_(spins) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      round_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  Runner runner() {
    Runner runner;
    runner.context = this;
    runner.threads = static_cast<int64_t>(threads_.size()) + 1;
    runner.parallel_for = [](void* context, int64_t count, Task task, void* argument) {
      static_cast<ThreadPool*>(context)->Run(count, task, argument);
    };
    return runner;
  }

 private:
  using Task = void (*)(void* argument, int64_t index);

  void Run(int64_t count, Task task, void* argument) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      task_ = task;
      argument_ = argument;
      count_ = count;
      next_.store(0);
      busy_.store(static_cast<int>(threads_.size()));
      round_.fetch_add(1);
    }
    wake_.notify_all();
    TakeTasks();
    for (int spin = 0; spin < spins_ && busy_.load() != 0; ++spin) std::this_thread::yield();
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return busy_.load() == 0; });
  }

  void TakeTasks() {
    for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) task_(argument_, i);
  }

  void Work() {
    for (int64_t seen = 0;;) {
      for (int spin = 0; spin < spins_ && round_.load() == seen; ++spin) {
        std::this_thread::yield();
      }
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return round_.load() != seen; });
        seen = round_.load();
        if (stop_) return;
      }
      TakeTasks();
      if (busy_.fetch_sub(1) == 1) {
        std::lock_guard<std::mutex> lock(mutex_);
        finished_.notify_one();
      }
    }
  }

  const int spins_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable finished_;
  std::atomic<int64_t> round_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
  bool stop_ = false;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  int64_t count_ = 0;
};

// Runs on `threads` threads, which stay for the next call. Call it from one thread only.
template <typename Runner>
Runner Threads(int threads) {
  static std::map<int, std::unique_ptr<ThreadPool<Runner>>> pools;
  std::unique_ptr<ThreadPool<Runner>>& pool = pools[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool<Runner>>(threads);
  return pool->runner();
}

}  // namespace graft::test

#endif  // GRAFT_TESTS_THREAD_POOL_H_
