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

bool SameStrides(const Strides& a, const Strides& b) {
  return a.batch == b.batch && a.head == b.head && a.position == b.position &&
         a.feature == b.feature;
}

}  // namespace

bool Supports(Isa isa) { return FindKernel(isa) != nullptr; }

const char* Validate(const Problem& p) {
  if (p.batch < 0 || p.heads < 0 || p.kv_heads < 0 || p.queries < 0 || p.past < 0 || p.fresh < 0) {
    return "a dimension is negative";
  }
  if (p.head_size < 1 || p.value_size < 1) return "head sizes must be at least 1";
  if (p.heads < 1 || p.kv_heads < 1 || p.heads % p.kv_heads != 0) {
    return "the number of query heads must be a multiple of the number of key/value heads";
  }
  if (p.query.data == nullptr || p.output.data == nullptr) return "query and output are required";
  if (p.fresh > 0 && (p.key.data == nullptr || p.value.data == nullptr)) {
    return "key and value are required unless all keys come from past_key";
  }
  if (p.past > 0 && (p.past_key.data == nullptr || p.past_value.data == nullptr)) {
    return "past_key and past_value are required when past positions are counted";
  }
  if (p.present_key.strides.feature != 1 || p.present_value.strides.feature != 1) {
    return "rows of present_key and present_value must be contiguous";
  }
  if (p.past > 0) {
    if (p.present_key.data == p.past_key.data &&
        !SameStrides(p.present_key.strides, p.past_key.strides)) {
      return "present_key shares its memory with past_key but has other strides";
    }
    if (p.present_value.data == p.past_value.data &&
        !SameStrides(p.present_value.strides, p.past_value.strides)) {
      return "present_value shares its memory with past_value but has other strides";
    }
  }
  if (p.lengths32 != nullptr && p.lengths64 != nullptr) return "lengths are given twice";
  if (p.window < 0) return "the window is negative";
  return nullptr;
}

size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + 64;
}

void Run(const Problem& problem, void* workspace, const Runner& runner, const Tuning& tuning) {
  const Plan plan = MakePlan(problem, runner.threads, tuning);
  const bool streams_floats = !plan.packed && problem.type == Type::kFloat32;
  const Kernel* kernel = ChooseKernel(tuning.isa, streams_floats);
  if (kernel == nullptr) kernel = ChooseKernel(Isa::kBest, streams_floats);
  if (plan.items == 0) return;
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
