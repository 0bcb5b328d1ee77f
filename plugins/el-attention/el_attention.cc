// The plugin el-attention: attention over hidden states that all heads, beams and layers share.
#include "fold_hook.h"
#include "graft.h"
#include "hidden_state_attention.h"
#include "store_rows.h"

GRAFT_PLUGIN_WITH(graft::fold::Hooks, graft::ForEngine<graft::row_attention::ELAttention>,
                  graft::ForEngine<graft::row_attention::StoreRows>);
