#include "attention.h"
#include "cached.h"
#include "graft/checked.h"
#include "graft/error.h"

namespace graft {
namespace attention {
namespace {

bool SameStrides(const Strides& a, const Strides& b) {
  return a.batch == b.batch && a.head == b.head && a.position == b.position &&
         a.feature == b.feature;
}

}  // namespace

const char* ValidateSizes(const Problem& p) {
  if (p.batch < 0 || p.heads < 0 || p.kv_heads < 0 || p.queries < 0 || p.past < 0 || p.fresh < 0) {
    return "a dimension is negative";
  }
  if (p.head_size < 1 || p.value_size < 1) return "head sizes must be at least 1";
  if (p.heads < 1 || p.kv_heads < 1 || p.heads % p.kv_heads != 0) {
    return "the number of query heads must be a multiple of the number of key/value heads";
  }
  if (p.window < 0) return "the window is negative";
  if (p.window_left < -1 || p.window_right < -1) return "a side of the window is below -1";
  return nullptr;
}

const char* Validate(const Problem& p) {
  if (const char* fault = ValidateSizes(p)) return fault;
  // A tensor without elements may have no address.
  if (p.batch > 0 && p.queries > 0 && (p.query.data == nullptr || p.output.data == nullptr)) {
    return "query and output are required";
  }
  if (p.batch > 0 && p.fresh > 0 && (p.key.data == nullptr || p.value.data == nullptr)) {
    return "key and value are required unless all keys come from past_key";
  }
  if (p.batch > 0 && p.past > 0 && (p.past_key.data == nullptr || p.past_value.data == nullptr)) {
    return "past_key and past_value are required when past positions are counted";
  }
  if (p.present_key.strides.feature != 1 || p.present_value.strides.feature != 1) {
    return "rows of present_key and present_value must be contiguous";
  }
  if (p.past > 0) {
    if (p.present_key.data == p.past_key.data &&
        !SameStrides(p.present_key.strides, p.past_key.strides)) {
      return "present_key shares its memory with past_key but has other strides";
    }
    if (p.present_value.data == p.past_value.data &&
        !SameStrides(p.present_value.strides, p.past_value.strides)) {
      return "present_value shares its memory with past_value but has other strides";
    }
  }
  if (p.lengths32 != nullptr && p.lengths64 != nullptr) return "lengths are given twice";
  return nullptr;
}

std::string ValidatePool(const Pool& p) {
  if (p.kv_heads < 1 || p.head_size < 1 || p.value_size < 1) {
    return Text("the pool has ", p.kv_heads, " heads of ", p.head_size, " and ", p.value_size,
                ", needed are at least 1 of 1");
  }
  if (p.blocks < 0 || p.block_floats < 0) return "the pool has a negative size";
  if (!HoldsRange(p.block_floats, p.offset, p.floats())) {
    return Text("a block has ", p.block_floats, " floats, the layer takes ", p.floats(), " from ",
                p.offset, " on");
  }
  return std::string();
}

}  // namespace attention
}  // namespace graft
