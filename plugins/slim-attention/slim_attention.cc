// The plugin slim-attention: attention over keys alone, or over a layer's inputs.
#include "fold_hook.h"
#include "hidden_state_attention.h"
#include "key_attention.h"
#include "store_rows.h"

GRAFT_PLUGIN_WITH(graft::fold::Hooks, graft::ForEngine<graft::row_attention::KeyAttention>,
                  graft::ForEngine<graft::row_attention::InputAttention>,
                  graft::ForEngine<graft::row_attention::StoreRows>);
