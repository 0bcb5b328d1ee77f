// The entries of the vector code, one set an instruction set.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_ROW_KERNEL_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_ROW_KERNEL_H_

#include <cstdint>

#include "row_attention.h"
#include "row_plan.h"

namespace graft {
namespace row_attention {

struct Kernel {
  // Takes tasks of every phase until none is left. workspace is aligned to 64 bytes.
  void (*run_worker)(const Problem& problem, const Plan& plan, char* workspace, int64_t worker);
  // Makes keys and values of the `index`th kPromptTile positions, in the scratch of that worker.
  void (*make_keys)(const Problem& problem, const Plan& plan, const Prompt& prompt, int64_t index,
                    char* scratch);
  void (*write_row)(Storage storage, const float* from, int64_t width, char* to);
};

// The kernel for `isa`, or that for kBest when this CPU or this build has none.
const Kernel& ChooseKernel(Isa isa);

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_ROW_KERNEL_H_
