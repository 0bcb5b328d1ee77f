#include "attention.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "graft/checked.h"
#include "graft/tasks.h"

namespace graft {
namespace quantized {
namespace {

constexpr int64_t kAlignment = 64;

// Rows of a task: those of one head whose keys are read once from further away.
constexpr int64_t kTaskRows = 64;

// Problems of fewer products stay on the caller's thread.
constexpr int64_t kSerialProducts = 300000;

struct AttentionPlan {
  int64_t blocks;  // of the rows of a head
  int64_t tasks, workers;
  int64_t stride;        // floats of a row of scores
  int64_t worker_bytes;  // of scores
  size_t total_bytes;
};

AttentionPlan MakeAttentionPlan(const Attention& p, int64_t threads) {
  AttentionPlan plan{};
  plan.blocks = DivideUp(Size(p.queries), kTaskRows);
  plan.tasks = Size(p.batch) * p.heads * plan.blocks;
  const int64_t products = Size(p.batch) * p.heads * p.queries * p.keys * (Size(p.size) + p.values);
  plan.workers =
      products < kSerialProducts ? 1 : std::max<int64_t>(1, std::min(threads, plan.tasks));
  plan.stride = RoundUp(Size(p.keys), kSoftmaxLanes);
  plan.worker_bytes = Size(plan.stride) * kAttentionRows * sizeof(float);
  plan.total_bytes = (Size(plan.worker_bytes) * plan.workers + 3 * kAlignment).To<size_t>();
  return plan;
}

struct AttentionCall {
  const Attention& problem;
  const AttentionPlan& plan;
  bool (*rows)(const AttentionRows& rows);
  char* workspace;
  std::atomic<int64_t>* next;
  std::atomic<int64_t>* without;  // tasks with a row that has no softmax

  void Work(int64_t worker) {
    float* scores = reinterpret_cast<float*>(workspace + worker * plan.worker_bytes);
    for (;;) {
      const int64_t task = next->fetch_add(1, std::memory_order_relaxed);
      if (task >= plan.tasks) return;
      if (!Task(task, scores)) without->fetch_add(1, std::memory_order_relaxed);
    }
  }

  bool Task(int64_t task, float* scores) const {
    const Attention& p = problem;
    const int64_t head = task / plan.blocks, first = task % plan.blocks * kTaskRows,
                  end = std::min(p.queries, first + kTaskRows);
    AttentionRows r{};
    r.keys = p.keys;
    r.size = p.size;
    r.values = p.values;
    r.k = p.k + head * p.size * p.keys;
    r.v = p.v + head * p.keys * p.values;
    r.scale = p.scale;
    r.mask_row = p.mask_strides[2];
    r.mask_column = p.mask_strides[3];
    r.size_chain = ChainOf(p.keys, p.size);
    r.key_chain = ChainOf(p.values, p.keys);
    r.scores = scores;
    r.stride = plan.stride;
    for (int64_t row = first; row < end; row += r.rows) {
      r.rows = std::min(kAttentionRows, end - row);
      r.q = p.q + (head * p.queries + row) * p.size;
      r.y = p.y + (head * p.queries + row) * p.values;
      if (p.mask != nullptr) {
        r.mask = p.mask + head / p.heads * p.mask_strides[0] + head % p.heads * p.mask_strides[1] +
                 row * r.mask_row;
      }
      if (!rows(r)) return false;
    }
    return true;
  }
};

}  // namespace

// Blocks of 128 by 128 that become narrower and deeper, or wider and flatter, as the product is.
int64_t ChainOf(int64_t columns, int64_t depth) {
  int64_t wide = 128, deep = 128;
  if (columns >= depth) return deep;
  while (wide > 16 && wide / 2 >= columns) {
    deep *= 2;
    wide /= 2;
  }
  return deep;
}

size_t AttentionWorkspace(const Attention& problem, int64_t threads) {
  return MakeAttentionPlan(problem, threads).total_bytes;
}

bool Attend(const Attention& problem, void* workspace, const Runner& runner, Code code) {
  const AttentionPlan plan = MakeAttentionPlan(problem, runner.threads);
  if (plan.tasks == 0 || problem.values == 0) return true;
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  char* aligned = reinterpret_cast<char*>((address + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
  auto* next = new (aligned) std::atomic<int64_t>(0);
  auto* without = new (aligned + sizeof *next) std::atomic<int64_t>(0);
  AttentionCall call{
      problem,
      plan,
      code != Code::kPortable && Supports(Code::kVnni) ? &AttendRowsVnni : &AttendRowsPortable,
      aligned + kAlignment,
      next,
      without};
  if (runner.parallel_for == nullptr || plan.workers == 1) {
    call.Work(0);
  } else {
    runner.parallel_for(
        runner.context, plan.workers,
        [](void* argument, int64_t worker) { static_cast<AttentionCall*>(argument)->Work(worker); },
        &call);
  }
  return without->load(std::memory_order_relaxed) == 0;
}

}  // namespace quantized
}  // namespace graft
