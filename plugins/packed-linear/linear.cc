#include "linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "graft/checked.h"
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

struct PackCall {
  const float* weight;
  int64_t depth, columns;
  bool transposed;
  float* panels;
};

// Panels of a task: pieces of rows of W that are read in stretches of 1 KiB.
constexpr int64_t kPackPanels = 16;

// One panel of W [N, K]: sixteen of its rows become columns.
void PackRows(const PackCall& call, int64_t first, int64_t width, float* to) {
  constexpr int64_t kStretch = 16;
  for (int64_t k = 0; k < call.depth; k += kStretch) {
    const int64_t depth = std::min(kStretch, call.depth - k);
    for (int64_t i = 0; i < width; ++i) {
      const float* from = call.weight + (first + i) * call.depth + k;
      for (int64_t j = 0; j < depth; ++j) {
        std::memcpy(to + (k + j) * kPanelColumns + i, from + j, sizeof(float));
      }
    }
  }
}

void PackSome(void* argument, int64_t task) {
  const PackCall& call = *static_cast<const PackCall*>(argument);
  const int64_t end = std::min(call.columns, (task + 1) * kPackPanels * kPanelColumns);
  const int64_t begin = task * kPackPanels * kPanelColumns, size = call.depth * kPanelColumns;
  float* to = call.panels + begin / kPanelColumns * size;
  if (const int64_t rest = end % kPanelColumns; rest != 0) {
    float* last = call.panels + end / kPanelColumns * size;
    std::fill(last, last + size, 0.0f);
  }
  if (call.transposed) {
    for (int64_t first = begin; first < end; first += kPanelColumns, to += size) {
      PackRows(call, first, std::min(kPanelColumns, end - first), to);
    }
    return;
  }
  for (int64_t k = 0; k < call.depth; ++k) {
    float* row = to + k * kPanelColumns;
    for (int64_t first = begin; first < end; first += kPanelColumns, row += size) {
      const int64_t width = std::min(kPanelColumns, end - first);
      std::memcpy(row, call.weight + k * call.columns + first,
                  static_cast<size_t>(width) * sizeof(float));
    }
  }
}

void Work(void* argument, int64_t worker) {
  const Call& call = *static_cast<const Call*>(argument);
  call.kernel->run_worker(*call.problem, *call.plan, call.workspace, worker);
}

}  // namespace

size_t PackedFloats(int64_t depth, int64_t columns) {
  return (RoundUp(Size(columns), kPanelColumns) * depth).To<size_t>();
}

void Pack(const float* weight, int64_t depth, int64_t columns, bool transposed, float* panels,
          const Runner& runner) {
  if (depth == 0 || columns == 0) return;
  PackCall call{weight, depth, columns, transposed, panels};
  const int64_t tasks = DivideUp(Size(columns), kPackPanels * kPanelColumns);
  if (runner.parallel_for == nullptr) {
    for (int64_t task = 0; task < tasks; ++task) PackSome(&call, task);
    return;
  }
  runner.parallel_for(runner.context, tasks, &PackSome, &call);
}

bool Supports(Isa isa) { return FindKernel(isa) != nullptr; }

size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + kAlignment - 1;
}

void Run(const Problem& problem, void* workspace, const Runner& runner, const Tuning& tuning) {
  if (problem.rows == 0 || problem.columns == 0) return;
  Plan plan = MakePlan(problem, runner.threads, tuning);
  const bool quantized = problem.type != WeightType::kFloat32;
  const Kernel* kernel =
      quantized ? FindKernel(tuning.isa) : ChooseKernel(tuning.isa, problem.rows, plan.path);
  plan.dots = !tuning.no_dots && CpuHas(kernel->dots);
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  char* aligned = reinterpret_cast<char*>((address + kAlignment - 1) & ~(kAlignment - 1));
  for (size_t i = 0; i < plan.counter_count; ++i) {
    new (aligned + plan.counter_offset + i * sizeof(int64_t)) std::atomic<int64_t>(0);
  }
  Call call{&problem, &plan, kernel, aligned};
  if (runner.parallel_for == nullptr || plan.workers == 1) {
    for (int64_t worker = 0; worker < plan.workers; ++worker) Work(&call, worker);
    return;
  }
  runner.parallel_for(runner.context, plan.workers, &Work, &call);
}

}  // namespace linear
}  // namespace graft
