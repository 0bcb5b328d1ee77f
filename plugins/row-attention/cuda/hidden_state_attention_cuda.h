// The operators ELAttention and InputAttention on CUDA: the signature of hidden_state_attention.h,
// bound to kernels-cuda/el-attention.
//
// Lists, steps and slots stay in device memory: nothing of a call is read or checked by the host
// but shapes. An index that lies outside of its list or pool is a key that is not there, or is not
// written; on the CPU the call fails.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_CUDA_HIDDEN_STATE_ATTENTION_CUDA_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_CUDA_HIDDEN_STATE_ATTENTION_CUDA_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "../hidden_state_attention.h"
#include "el-attention/hidden_states.cuh"
#include "graft/cuda.h"

namespace graft {
namespace row_attention_cuda {

namespace el = cuda::el_attention;

inline int32_t Int32(const char* name, const char* what, int64_t size) {
  Require(size >= 0 && size <= std::numeric_limits<int32_t>::max(), name, ": ", what, " is ", size,
          ", needed is at most ", std::numeric_limits<int32_t>::max());
  return static_cast<int32_t>(size);
}

inline cuda::Type TypeOf(row_attention::Storage storage) {
  return storage == row_attention::Storage::kFloat32   ? cuda::Type::kFloat32
         : storage == row_attention::Storage::kFloat16 ? cuda::Type::kFloat16
                                                       : cuda::Type::kBFloat16;
}

// The area of rows of a pool.
inline el::Rows RowsOf(const char* name, const row_attention::RowPool& pool) {
  Require(pool.width <= el::kMaxWidth, name, ": width is ", pool.width, ", needed is at most ",
          el::kMaxWidth);
  el::Rows rows;
  rows.data = pool.data == nullptr ? nullptr : pool.data + Size(pool.offset);
  rows.type = TypeOf(pool.storage);
  rows.slots = Int32(name, "the number of slots", pool.slots());
  rows.width = static_cast<int32_t>(pool.width);
  rows.block_slots = static_cast<int32_t>(row_attention::kBlockSlots);
  rows.block_bytes = Size(pool.block_floats) * 4;
  rows.row_bytes = Size(pool.width) * pool.element_bytes();
  return rows;
}

inline el::Lists ListsOf(const char* name, int64_t groups, const int32_t* sequences,
                         const int32_t* shared_slots, int64_t shared_length,
                         const int32_t* private_slots, int64_t private_length) {
  el::Lists lists;
  lists.groups = Int32(name, "the number of groups", groups);
  lists.sequences = sequences;
  lists.shared_slots = shared_slots;
  lists.private_slots = private_slots;
  lists.shared_length = Int32(name, "the length of shared_slots", shared_length);
  lists.private_length = Int32(name, "the length of private_slots", private_length);
  return lists;
}

// A call of the CPU's operator, whose pointers are the device's.
inline el::HiddenStates CallOf(const char* name, const row_attention::Problem& p) {
  Require((p.input != nullptr) == (p.slot_mapping != nullptr) || p.tokens == 0, name,
          ": rows and their slots must be given together");
  const std::string fault = row_attention::ValidateSizes(p);
  Require(fault.empty(), name, ": ", fault);
  const int64_t shared = std::max(p.shared_length, p.kv_shared_length);
  const int64_t own = std::max(p.private_length, p.kv_private_length);
  cuda::RequireCountable(name, {p.tokens, p.heads, Size(p.head_size) + p.value_size});
  cuda::RequireCountable(name, {p.tokens, p.heads, Size(shared) + own});
  cuda::RequireCountable(name, {p.tokens, p.heads, p.pool.width});
  el::HiddenStates l;
  l.rows = RowsOf(name, p.pool);
  l.lists = ListsOf(name, p.groups, p.sequences, p.shared_slots, p.shared_length, p.private_slots,
                    p.private_length);
  l.tokens = Int32(name, "the number of tokens", p.tokens);
  Int32(name, "the number of rows", Size(p.tokens) * p.heads);
  l.heads = Int32(name, "num_heads", p.heads);
  l.kv_heads = Int32(name, "kv_num_heads", p.kv_heads);
  l.head_size = Int32(name, "head_size", p.head_size);
  l.value_size = Int32(name, "value_size", p.value_size);
  l.query = p.query;
  l.query_stride = p.query_stride;
  l.key_weight = p.key_weight;
  l.value_weight = p.value_weight;
  l.key_bias = p.key_bias;
  l.value_bias = p.value_bias;
  l.bias = p.bias;
  l.distances = Int32(name, "the number of distances", p.distances);
  l.scale = p.scale;
  l.softcap = p.softcap;
  l.window = Int32(name, "window", p.window);
  l.input = p.input;
  l.input_stride = p.input_stride;
  l.slot_mapping = p.slot_mapping;
  l.output = p.output;
  if (p.kv_sequences == nullptr) return l;
  const attention::Pool& pool = p.kv_pool;
  l.kv_lists = ListsOf(name, p.groups, p.kv_sequences, p.kv_shared_slots, p.kv_shared_length,
                       p.kv_private_slots, p.kv_private_length);
  l.kv_pool.data = pool.data == nullptr ? nullptr : pool.data + Size(pool.offset);
  l.kv_pool.blocks = pool.blocks;
  l.kv_pool.block_floats = pool.block_floats;
  l.kv_pool.kv_heads = l.kv_heads;
  l.kv_pool.head_size = l.head_size;
  l.kv_pool.value_size = l.value_size;
  l.key = p.key;
  l.value = p.value;
  l.key_stride = p.key_stride;
  l.value_stride = p.value_stride;
  l.kv_slot_mapping = p.kv_slot_mapping;
  return l;
}

template <bool kSecondPart>
class HiddenStateAttention : public row_attention::HiddenStateAttention<kSecondPart> {
  using Base = row_attention::HiddenStateAttention<kSecondPart>;

 public:
  explicit HiddenStateAttention(const CreateContext& context) : Base(context) {
    attention::RequireOnDevice(Base::kName, "storage", this->storage_, true);
    attention::RequireOnDevice(Base::kName, "kv_storage", this->kv_storage_, false);
  }

  uint64_t Workspace(const WorkspaceContext& context) const {
    const el::HiddenStates l = CallOf(Base::kName, this->Bind(context.inputs));
    return static_cast<uint64_t>(el::MakeHiddenStatesPlan(l, cuda::Limits()).total);
  }

  void Run(const RunContext& context) const {
    el::HiddenStates l = CallOf(Base::kName, this->Bind(context.inputs));
    l.output = context.outputs[0].data<float>();
    const cuda::DeviceLimits& limits = cuda::Limits();
    cuda::Check(el::Enqueue(l, el::MakeHiddenStatesPlan(l, limits), limits, context.workspace(),
                            cuda::StreamOf(context)),
                Base::kName);
  }
};

using ELAttention = HiddenStateAttention<true>;
using InputAttention = HiddenStateAttention<false>;

}  // namespace row_attention_cuda
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_CUDA_HIDDEN_STATE_ATTENTION_CUDA_H_
