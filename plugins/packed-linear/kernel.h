// The entries of the vector code, one set an instruction set.
#ifndef GRAFT_PLUGINS_PACKED_LINEAR_KERNEL_H_
#define GRAFT_PLUGINS_PACKED_LINEAR_KERNEL_H_

#include <cstdint>

#include "linear.h"
#include "plan.h"

namespace graft {
namespace linear {

// Instructions for dot products of bytes, which a kernel uses where the CPU has them.
enum class Dots { kNone, kVnni512, kVnni256, kNeon };

// Whether the CPU has them.
bool CpuHas(Dots dots);

struct Kernel {
  // Takes tasks of the plan until none is left. workspace is aligned to 64 bytes.
  void (*run_worker)(const Problem& problem, const Plan& plan, char* workspace, int64_t worker);
  Dots dots;
};

// The kernel for `isa`, or nullptr when this CPU or this build has none. Never null for kBest and
// kBaseline.
const Kernel* FindKernel(Isa isa);

// The kernel to run: FindKernel, except that kBest is narrower for a matmul that does little but
// read, on CPUs that have wide registers but narrow loads.
const Kernel* ChooseKernel(Isa isa, int64_t rows, Path path);

}  // namespace linear
}  // namespace graft

#endif  // GRAFT_PLUGINS_PACKED_LINEAR_KERNEL_H_
