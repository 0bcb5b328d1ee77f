// The CUDA variant of el-attention: the operators of el_attention.cc, with the same signature and
// fold.
#include <string>

#include "../../row-attention/cuda/hidden_state_attention_cuda.h"
#include "../../row-attention/cuda/store_rows.h"
#include "fold_hook.h"

namespace {

// Weights are folded on the host, as for the CPU.
struct Hooks : graft::cuda::Hooks {
  static void Fold(const graft::FoldContext& context) { graft::fold::Hooks::Fold(context); }
};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, graft::ForEngine<graft::row_attention_cuda::ELAttention>,
                  graft::ForEngine<graft::row_attention_cuda::StoreRows>);
