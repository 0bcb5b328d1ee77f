#include <string>

#include "graft/checked.h"
#include "graft/error.h"
#include "row_attention.h"

namespace graft {
namespace row_attention {

std::string ValidatePool(const RowPool& p) {
  if (p.width < 1) return Text("rows are ", p.width, " wide, needed is at least 1");
  if (p.blocks < 0 || p.block_floats < 0) return "the pool has a negative size";
  if (!HoldsRange(p.block_floats, p.offset, p.area_floats())) {
    return Text("a block has ", p.block_floats, " floats, rows take ", p.area_floats(), " from ",
                p.offset, " on");
  }
  return std::string();
}

std::string ValidateSizes(const Problem& p) {
  if (p.pool.width < 1) return Text("rows are ", p.pool.width, " wide, needed is at least 1");
  if (p.tokens < 0 || p.groups < 0 || p.shared_length < 0 || p.private_length < 0) {
    return "a size is negative";
  }
  if (p.heads < 1 || p.kv_heads < 1 || p.heads % p.kv_heads != 0) {
    return Text("there are ", p.heads, " query heads, needed is a multiple of ", p.kv_heads,
                " key and value heads");
  }
  if (p.head_size < 1 || p.value_size < 1) return "a head has no size";
  const Size keys = Size(p.heads) * p.head_size;
  if (p.kind == RowKind::kKeys && (p.heads != p.kv_heads || p.pool.width != keys)) {
    return Text("rows are ", p.pool.width, " wide, keys of ", p.heads, " heads of ", p.head_size,
                " need ", keys, " and as many KV heads, not ", p.kv_heads);
  }
  if (p.rotary != Rotary::kNone && p.kind == RowKind::kKeys &&
      (p.pairs < 1 || p.pairs > p.head_size / 2)) {
    return Text("rotary positions turn ", p.pairs, " pairs, heads of ", p.head_size, " have 1 to ",
                p.head_size / 2);
  }
  if (p.window < 0) return Text("window is ", p.window, ", needed is 0 or more");
  if (p.bias != nullptr && p.distances < 1) return "the bias has no distances";
  return std::string();
}

}  // namespace row_attention
}  // namespace graft
