#include "linear.h"

#include <atomic>
#include <new>

#include "kernel.h"
#include "plan.h"

namespace graft {
namespace linear {
namespace {

constexpr uintptr_t kAlignment = 64;

struct Call {
  const Problem* problem;
  const Plan* plan;
  const Kernel* kernel;
  char* workspace;
};

void Work(void* argument, int64_t worker) {
  const Call& call = *static_cast<const Call*>(argument);
  call.kernel->run_worker(*call.problem, *call.plan, call.workspace, worker);
}

}  // namespace

bool Supports(Isa isa) { return FindKernel(isa) != nullptr; }

size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + kAlignment - 1;
}

void Run(const Problem& problem, void* workspace, const Runner& runner, const Tuning& tuning) {
  if (problem.rows == 0 || problem.columns == 0) return;
  const Plan plan = MakePlan(problem, runner.threads, tuning);
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  char* aligned = reinterpret_cast<char*>((address + kAlignment - 1) & ~(kAlignment - 1));
  for (size_t i = 0; i < plan.counter_count; ++i) {
    new (aligned + plan.counter_offset + i * sizeof(int64_t)) std::atomic<int64_t>(0);
  }
  Call call{&problem, &plan, ChooseKernel(tuning.isa, problem.rows, plan.path), aligned};
  if (runner.parallel_for == nullptr || plan.workers == 1) {
    for (int64_t worker = 0; worker < plan.workers; ++worker) Work(&call, worker);
    return;
  }
  runner.parallel_for(runner.context, plan.workers, &Work, &call);
}

}  // namespace linear
}  // namespace graft
