// The entries of the vector code, one set an instruction set.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_KERNEL_H_
#define GRAFT_PLUGINS_FLASH_DECODE_KERNEL_H_

#include <cstdint>

#include "attention.h"
#include "cached_plan.h"
#include "plan.h"
#include "sequences.h"
#include "sequences_plan.h"

namespace graft {
namespace attention {

struct Kernel {
  // Takes items of the plan until none is left. workspace is aligned to 64 bytes.
  void (*run_worker)(const Problem& problem, const Plan& plan, char* workspace, int64_t worker);
  // Takes items of all sequences until none is left.
  void (*run_sequences)(const Sequences& sequences, const SequencesPlan& plan, char* workspace,
                        int64_t worker);
  // Writes the call's keys and values, then takes tasks of the stage until none is left.
  void (*run_cached)(const CachedProblem& problem, const CachedPlan& plan, char* workspace,
                     int64_t worker, CachedStage stage);
  // Writes `count` floats that stand `stride` apart as a pool stores them, and returns their scale.
  float (*store)(Storage storage, const float* from, int64_t stride, int64_t count, void* to);
  // Elementwise in place; count is a multiple of 16. For tests of their accuracy.
  void (*exponential)(float* values, int64_t count);
  void (*power_of_two)(float* values, int64_t count);
  void (*hyperbolic_tangent)(float* values, int64_t count);
};

// The kernel for `isa`, or nullptr when this CPU or this build has none. Never null for kBest and
// kBaseline.
const Kernel* FindKernel(Isa isa);

// The kernel to run: FindKernel, except that kBest is narrower for work that does little but read
// floats, on CPUs that have wide registers but narrow loads.
const Kernel* ChooseKernel(Isa isa, bool streams_floats);

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_KERNEL_H_
