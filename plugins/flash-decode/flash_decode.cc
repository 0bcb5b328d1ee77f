// The operators of flash-decode on the CPU.
#include "flash_decode.h"

#include "cached_attention.h"

namespace graft {
namespace attention {

class FlashDecode : public FlashDecodeBase {
 public:
  static Operator Describe() { return FlashDecodeBase::Describe({kFloat32, kFloat16}); }

  using FlashDecodeBase::FlashDecodeBase;

  uint64_t Workspace(const WorkspaceContext& context) const {
    return WorkspaceSize(Bind(context.inputs, context.outputs), ThreadsOf(context.concurrency));
  }

  void Run(const RunContext& context) const {
    const Problem problem = Bind(context.inputs, context.outputs);
    if (const char* fault = Validate(problem)) {
      throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("FlashDecode: ", fault));
    }
    attention::Run(problem, context.workspace(), RunnerOf(context));
  }
};

}  // namespace attention
}  // namespace graft

GRAFT_PLUGIN(graft::attention::FlashDecode, graft::ForEngine<graft::attention::CachedAttention>,
             graft::ForEngine<graft::attention::StoreCache>);
