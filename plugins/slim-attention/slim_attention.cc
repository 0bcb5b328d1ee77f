// The plugin slim-attention: attention over keys alone, or over a layer's inputs.
#include "fold_hook.h"
#include "key_attention.h"
#include "latent_attention.h"
#include "store_rows.h"

GRAFT_PLUGIN_WITH(graft::fold::Hooks, graft::latent::KeyAttention, graft::latent::InputAttention,
                  graft::latent::StoreRows);
