// The CUDA variant of slim-attention: attention over keys alone, or over a layer's inputs.
#include "cuda/hidden_state_attention_cuda.h"
#include "cuda/store_rows.h"
#include "fold_hook.h"
#include "graft/cuda.h"
#include "key_attention_cuda.h"

namespace {

// Weights are computed from weights on the host, as for the CPU.
struct Hooks : graft::cuda::Hooks, graft::fold::Hooks {};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, graft::ForEngine<graft::row_attention_cuda::KeyAttention>,
                  graft::ForEngine<graft::row_attention_cuda::InputAttention>,
                  graft::ForEngine<graft::row_attention_cuda::StoreRows>);
