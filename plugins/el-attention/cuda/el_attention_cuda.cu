// The CUDA variant of el-attention: the operators of el_attention.cc, with the same face and fold.
#include <string>

#include "../../latent/cuda/latent_attention.h"
#include "../../latent/cuda/store_rows.h"
#include "fold_hook.h"

namespace {

// Weights are folded on the host, as for the CPU.
struct Hooks : graft::cuda::Hooks {
  static void Fold(const graft::FoldContext& context) { graft::fold::Hooks::Fold(context); }
};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, graft::latent_cuda::ELAttention, graft::latent_cuda::StoreRows);
