// The operators with which an encoder's graph runs without padding rows.
#include "packed_attention.h"
#include "padding.h"

GRAFT_PLUGIN(graft::padding::RemovePadding, graft::attention::PackedAttention,
             graft::padding::RestorePadding);
