// The threads of a run, as kernels take them.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_RUNNER_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_RUNNER_H_

#include <algorithm>
#include <cstdint>

#include "graft.h"
#include "linear.h"

namespace graft {
namespace quantized {

inline int64_t Threads(int32_t concurrency) { return std::max<int32_t>(1, concurrency); }

// The threads of a run.
inline Runner RunnerOf(const RunContext& context) {
  Runner runner;
  runner.threads = Threads(context.concurrency());
  runner.context = const_cast<RunContext*>(&context);
  runner.parallel_for = [](void* host, int64_t count, void (*task)(void*, int64_t),
                           void* argument) {
    static_cast<const RunContext*>(host)->ParallelFor(
        static_cast<uint64_t>(count), [&](uint64_t i) { task(argument, static_cast<int64_t>(i)); });
  };
  return runner;
}

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_RUNNER_H_
