// Problems of the CPU kernel's signatures as those of kernels-cuda/flash-decode.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_CUDA_FLASH_DECODE_CUDA_H_
#define GRAFT_PLUGINS_FLASH_DECODE_CUDA_FLASH_DECODE_CUDA_H_

#include <cstdint>

#include "../attention.h"
#include "../cached.h"
#include "flash-decode/problem.h"
#include "flash-decode/store.cuh"
#include "graft/error.h"

namespace graft {
namespace attention {

namespace fd = ::graft::cuda::flash_decode;

inline fd::Strides DeviceStrides(const Strides& s) {
  return {s.batch, s.head, s.position, s.feature};
}
inline fd::Input DeviceInput(const Input& input) {
  return {input.data, DeviceStrides(input.strides)};
}
inline fd::Output DeviceOutput(const Output& output) {
  return {output.data, DeviceStrides(output.strides)};
}

// FlashDecode's problem. Where both tensors of present are wanted they are written first, and then
// read instead of past and fresh: they are compact, whatever the others are.
inline fd::Problem DeviceProblem(const Problem& p, cuda::Type type) {
  Require(p.sinks == nullptr, "FlashDecode: sinks is an input that the CPU variant alone takes");
  fd::Problem d;
  d.type = type;
  d.groups = p.batch;
  d.rows = p.queries;
  d.heads = p.heads;
  d.kv_heads = p.kv_heads;
  d.head_size = p.head_size;
  d.value_size = p.value_size;
  d.query = DeviceInput(p.query);
  d.output = DeviceOutput(p.output);
  d.keys = Size(p.past) + p.fresh;
  if (p.present_key.data != nullptr && p.present_value.data != nullptr) {
    d.key = {p.present_key.data, DeviceStrides(p.present_key.strides)};
    d.value = {p.present_value.data, DeviceStrides(p.present_value.strides)};
  } else {
    d.past = p.past;
    d.key = DeviceInput(p.past_key);
    d.value = DeviceInput(p.past_value);
    d.fresh_key = DeviceInput(p.key);
    d.fresh_value = DeviceInput(p.value);
  }
  d.lengths32 = p.lengths32;
  d.lengths64 = p.lengths64;
  d.key_limit = p.key_limit;
  d.scale = p.scale;
  d.softcap = p.softcap;
  d.causal = p.causal;
  d.window = p.window;
  d.diagonal = p.diagonal == DiagonalFrom::kPast ? p.past : -1;
  d.bias = DeviceInput(p.bias);
  d.mask = DeviceInput(p.mask);
  d.mask_fill = p.mask_fill;
  d.mask_after_bias = p.mask_after_bias;
  d.zero_masked_rows = p.zero_masked_rows;
  d.clear_nan = p.clear_nan;
  d.scores = DeviceOutput(p.scores);
  d.scores_stage = static_cast<fd::ScoresStage>(p.scores_stage);
  return d;
}

// Positions of past, or of fresh, on their way into present.
inline fd::StoreProblem PresentOf(const Problem& p, cuda::Type type, bool past) {
  fd::StoreProblem s;
  s.type = type;
  s.batch = p.batch;
  s.heads = p.kv_heads;
  s.positions = past ? p.past : p.fresh;
  s.first_position = past ? 0 : p.past;
  const Input& key = past ? p.past_key : p.key;
  const Input& value = past ? p.past_value : p.value;
  s.tensors[0] = {DeviceInput(key), DeviceOutput(p.present_key), p.head_size};
  s.tensors[1] = {DeviceInput(value), DeviceOutput(p.present_value), p.value_size};
  // Present may be past itself.
  for (fd::Copied& c : s.tensors) {
    if (c.from.data == c.to.data) c.to.data = nullptr;
  }
  return s;
}

// Strides of a layer in a pool: from block to block, head to head, slot to slot.
inline fd::Strides PoolStrides(const Pool& pool, int64_t size) {
  return {pool.block_floats, Size(size) * kBlockSlots, size, 1};
}
// Addresses in a pool, whose numbers are of `type`.
inline char* PoolKeys(const Pool& pool, cuda::Type type) {
  return reinterpret_cast<char*>(pool.data) + Size(pool.offset) * cuda::BytesOf(type);
}
inline char* PoolValues(const Pool& pool, cuda::Type type) {
  const Size keys = Size(pool.kv_heads) * kBlockSlots * pool.head_size;
  return PoolKeys(pool, type) + keys * cuda::BytesOf(type);
}

// CachedAttention's problem.
inline fd::Problem DeviceProblem(const CachedProblem& p, cuda::Type type) {
  Require(p.sinks == nullptr,
          "CachedAttention: sinks is an input that the CPU variant alone takes");
  fd::Problem d;
  d.type = type;
  d.groups = p.groups;
  d.rows = p.rows;
  d.heads = p.heads;
  d.kv_heads = p.pool.kv_heads;
  d.head_size = p.pool.head_size;
  d.value_size = p.pool.value_size;
  d.query = {p.query, {0, d.head_size, p.query_stride, 1}};
  d.output = {p.output, {0, d.value_size, Size(p.heads) * d.value_size, 1}};
  d.places = fd::Places::kPool;
  d.key = {PoolKeys(p.pool, type), PoolStrides(p.pool, d.head_size)};
  d.value = {PoolValues(p.pool, type), PoolStrides(p.pool, d.value_size)};
  d.blocks = p.pool.blocks;
  d.block_slots = kBlockSlots;
  d.sequences = p.sequences;
  d.shared_slots = p.shared_slots;
  d.private_slots = p.private_slots;
  d.shared_length = p.shared_length;
  d.private_length = p.private_length;
  d.scale = p.scale;
  d.softcap = p.softcap;
  d.window = p.window;
  d.distance_bias = p.bias;
  d.distances = p.distances;
  d.distance_bias_stride = p.bias_stride;
  return d;
}

inline fd::StoreProblem PoolStore(const Pool& pool, cuda::Type type) {
  fd::StoreProblem s;
  s.type = type;
  s.heads = pool.kv_heads;
  s.slots = pool.slots();
  s.block_slots = kBlockSlots;
  s.tensors[0].to = {PoolKeys(pool, type), PoolStrides(pool, pool.head_size)};
  s.tensors[0].size = pool.head_size;
  s.tensors[1].to = {PoolValues(pool, type), PoolStrides(pool, pool.value_size)};
  s.tensors[1].size = pool.value_size;
  return s;
}

// New keys and values of CachedAttention on their way into the pool.
inline fd::StoreProblem StoreOf(const CachedProblem& p, cuda::Type type) {
  fd::StoreProblem s = PoolStore(p.pool, type);
  s.batch = 1;
  s.positions = p.rows;
  s.slot_mapping = p.slot_mapping;
  s.tensors[0].from = {p.key, {0, p.pool.head_size, p.key_stride, 1}};
  s.tensors[1].from = {p.value, {0, p.pool.value_size, p.value_stride, 1}};
  return s;
}

inline fd::StoreProblem StoreOf(const StoreProblem& p, cuda::Type type) {
  fd::StoreProblem s = PoolStore(p.pool, type);
  s.batch = p.batch;
  s.positions = p.positions;
  s.slot_mapping = p.slot_mapping;
  s.tensors[0].from = DeviceInput(p.key);
  s.tensors[1].from = DeviceInput(p.value);
  return s;
}

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_CUDA_FLASH_DECODE_CUDA_H_
