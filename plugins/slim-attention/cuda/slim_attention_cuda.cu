// The CUDA variant of slim-attention: attention over keys alone, or over a layer's inputs.
#include "cuda/latent_attention.h"
#include "cuda/store_rows.h"
#include "fold_hook.h"
#include "graft/cuda.h"
#include "key_attention_cuda.h"

namespace {

// Weights are computed from weights on the host, as for the CPU.
struct Hooks : graft::cuda::Hooks, graft::fold::Hooks {};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, graft::latent_cuda::KeyAttention, graft::latent_cuda::InputAttention,
                  graft::latent_cuda::StoreRows);
