#include "attention.h"

#include <atomic>
#include <cstdint>
#include <new>

#include "kernel.h"
#include "plan.h"

namespace graft {
namespace attention {
namespace {

struct Call {
  const Problem* problem;
  const Plan* plan;
  const Kernel* kernel;
  char* workspace;
};

void RunTask(void* argument, int64_t index) {
  const Call& call = *static_cast<const Call*>(argument);
  call.kernel->run_worker(*call.problem, *call.plan, call.workspace, index);
}

}  // namespace

bool Supports(Isa isa) { return FindKernel(isa) != nullptr; }

size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + 64;
}

void Run(const Problem& problem, void* workspace, const Runner& runner, const Tuning& tuning) {
  const Plan plan = MakePlan(problem, runner.threads, tuning);
  const bool streams_floats = !plan.packed && problem.type == Type::kFloat32;
  const Kernel* kernel = ChooseKernel(tuning.isa, streams_floats);
  if (kernel == nullptr) kernel = ChooseKernel(Isa::kBest, streams_floats);
  // Without queries there is present to write, and where that has no positions either, nothing:
  // then no memory bounds the other sizes.
  const bool writes = problem.present_key.data != nullptr || problem.present_value.data != nullptr;
  if (plan.items == 0 || (plan.rows == 0 && (plan.keys == 0 || !writes))) return;
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + 63) &
                                          ~static_cast<uintptr_t>(63));
  char* counters = aligned + plan.counter_offset;
  for (size_t i = 0; i < plan.counter_count; ++i) {
    new (counters + i * sizeof(int64_t)) std::atomic<int64_t>(0);
  }
  Call call{&problem, &plan, kernel, aligned};
  if (plan.workers == 1 || runner.parallel_for == nullptr) {
    RunTask(&call, 0);
  } else {
    runner.parallel_for(runner.context, plan.workers, RunTask, &call);
  }
}

}  // namespace attention
}  // namespace graft
