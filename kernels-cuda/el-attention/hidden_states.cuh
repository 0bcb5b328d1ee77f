// Multi-head attention over hidden states that stand in for keys and values (Yan et al.:
// EL-Attention, 2021, equations 5 to 9), in full:
//
//   expanded = query W_K^T of the head                       project_*.cuh
//   sums     = softmax(scale * (expanded X^T + query b_K)) X attention.cuh
//   output   = sums W_V of the head + b_V                    project_*.cuh
//
// with new rows written first, and joined by log-sum-exp with attention over keys and values that
// stand after the rows in a pool of their own (flash-decode). The three run one after the other,
// each beginning while the one before it ends.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_HIDDEN_STATES_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_HIDDEN_STATES_CUH_

#include <cmath>

#include "../flash-decode/flash_decode.cuh"
#include "attention.cuh"
#include "project_float.cuh"
#include "project_matrix.cuh"
#include "store.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

// All tensors but the rows are float32.
struct HiddenStates {
  Rows rows;
  Lists lists;  // `second` is not set here: it is kv_lists.sequences
  int32_t tokens = 0, heads = 0, kv_heads = 0, head_size = 0, value_size = 0;

  const float* query = nullptr;         // [tokens][heads][head_size]
  int64_t query_stride = 0;             // floats from token to token
  const float* key_weight = nullptr;    // [kv_heads][width / 16, rounded up][head_size][16]
  const float* value_weight = nullptr;  // [kv_heads][value_size / 16, rounded up][width][16]
  const float* key_bias = nullptr;      // [kv_heads][head_size], or none
  const float* value_bias = nullptr;    // [kv_heads][value_size], or none
  const float* bias = nullptr;          // [heads][distances], or none
  int32_t distances = 0;
  float scale = 0.0f;    // 0: 1 / sqrt(head_size)
  float softcap = 0.0f;  // 0: none
  int32_t window = 0;    // 0: none

  const float* input = nullptr;  // [tokens][width], rows to write, or none
  int64_t input_stride = 0;
  const int32_t* slot_mapping = nullptr;  // [tokens]

  // Positions after the rows: the same groups. None where kv_lists.sequences is.
  KeyPool kv_pool;
  Lists kv_lists;
  const float* key = nullptr;  // [tokens][kv_heads][head_size], written at kv_slot_mapping, or none
  const float* value = nullptr;
  int64_t key_stride = 0, value_stride = 0;
  const int32_t* kv_slot_mapping = nullptr;

  float* output = nullptr;  // [tokens][heads][value_size]

  bool HasSecond() const { return kv_lists.sequences != nullptr; }
  float Scale() const {
    return scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(head_size));
  }
};

// Where things stand in the workspace, in bytes, all multiples of 64.
struct HiddenStatesPlan {
  int64_t expanded = 0;  // [tokens * heads][stride], of the rows' type
  int64_t stride = 0;    // numbers: the width in vectors of 16 bytes
  int64_t shift = 0;     // [tokens * heads]
  int64_t sums = 0;      // [tokens * heads][stride], of the rows' type
  int64_t lse = 0;       // [tokens * heads]
  int64_t second = 0;    // [tokens * heads][value_size]
  int64_t second_lse = 0;
  int64_t inner = 0;  // workspace of the attentions, one after the other
  int64_t total = 0;
};

// The attention over rows of a call whose workspace begins at `workspace`.
inline Problem AttentionOf(const HiddenStates& l, const HiddenStatesPlan& plan, void* workspace) {
  auto* at = static_cast<char*>(workspace);
  Problem p;
  p.rows = l.rows;
  p.lists = l.lists;
  p.lists.second = l.kv_lists.sequences;
  p.tokens = l.tokens;
  p.heads = l.heads;
  p.query = at + plan.expanded;
  p.query_stride = p.output_stride = plan.stride;
  p.shift = l.key_bias == nullptr ? nullptr : reinterpret_cast<float*>(at + plan.shift);
  p.bias = l.bias;
  p.distances = l.distances;
  p.scale = l.Scale();
  p.softcap = l.softcap;
  p.window = l.window;
  p.output = at + plan.sums;
  p.output_type = l.rows.type;
  p.lse = reinterpret_cast<float*>(at + plan.lse);
  return p;
}

inline flash_decode::Problem SecondOf(const HiddenStates& l, const HiddenStatesPlan& plan,
                                      void* workspace) {
  auto* at = static_cast<char*>(workspace);
  flash_decode::Problem p;
  p.groups = l.kv_lists.groups;
  p.rows = l.tokens;
  p.heads = l.heads;
  p.kv_heads = l.kv_heads;
  p.head_size = l.head_size;
  p.value_size = l.value_size;
  p.query = {l.query, {0, l.head_size, l.query_stride, 1}};
  p.output = {at + plan.second, {0, l.value_size, int64_t{l.heads} * l.value_size, 1}};
  p.lse = reinterpret_cast<float*>(at + plan.second_lse);
  p.places = flash_decode::Places::kPool;
  const KeyPool& pool = l.kv_pool;
  p.key = {pool.data, {pool.block_floats, kBlockSlots * pool.head_size, pool.head_size, 1}};
  p.value = {pool.data + kBlockSlots * pool.kv_heads * pool.head_size,
             {pool.block_floats, kBlockSlots * pool.value_size, pool.value_size, 1}};
  p.blocks = pool.blocks;
  p.block_slots = kBlockSlots;
  p.sequences = l.kv_lists.sequences;
  p.shared_slots = l.kv_lists.shared_slots;
  p.private_slots = l.kv_lists.private_slots;
  p.shared_length = l.kv_lists.shared_length;
  p.private_length = l.kv_lists.private_length;
  p.scale = l.scale;
  p.softcap = l.softcap;
  p.window = l.window;
  p.distance_bias = l.bias;
  p.distances = l.distances;
  p.zero_masked_rows = true;
  return p;
}

// Reads shapes and addresses alone; the workspace does for any address.
inline HiddenStatesPlan MakeHiddenStatesPlan(const HiddenStates& l, const DeviceLimits& limits,
                                             const Tuning& tuning = Tuning()) {
  HiddenStatesPlan plan;
  const int64_t rows = int64_t{l.tokens} * l.heads;
  int64_t offset = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = offset;
    offset += RoundUp(bytes, 64);
    return begin;
  };
  plan.stride = RoundUp(l.rows.width, 8);
  plan.expanded = take(rows * plan.stride * BytesOf(l.rows.type));
  plan.shift = take(l.key_bias != nullptr ? rows * 4 : 0);
  plan.sums = take(rows * plan.stride * BytesOf(l.rows.type));
  plan.lse = take(rows * 4);
  plan.second = take(l.HasSecond() ? rows * l.value_size * 4 : 0);
  plan.second_lse = take(l.HasSecond() ? rows * 4 : 0);
  int64_t inner = WorkspaceBytes(AttentionOf(l, plan, nullptr), limits, tuning);
  if (l.HasSecond()) {
    const auto second = flash_decode::MakePlan(SecondOf(l, plan, nullptr), limits);
    inner = std::max(inner, second.workspace_bytes);
  }
  plan.inner = take(inner);
  plan.total = offset;
  return plan;
}

inline LaunchShape GemmShape(const Product& p, int32_t rows, int32_t columns, int32_t threads,
                             int64_t bytes) {
  LaunchShape shape;
  shape.grid_x = CeilDivide(p.rows(), rows);
  shape.grid_y = p.kv_heads;
  shape.grid_z = CeilDivide(p.columns, columns);
  shape.threads = threads;
  shape.shared_bytes = bytes;
  return shape;
}

inline Product GemmOf(const HiddenStates& l) {
  Product p;
  p.tokens = l.tokens;
  p.heads = l.heads;
  p.kv_heads = l.kv_heads;
  return p;
}

template <typename T>
Status Expand(const HiddenStates& l, const HiddenStatesPlan& plan, bool chained, char* at,
              Stream stream) {
  Product p = GemmOf(l);
  p.left = l.query;
  p.token_stride = l.query_stride;
  p.head_stride = p.depth = l.head_size;
  p.weight = l.key_weight;
  p.columns = l.rows.width;
  const Shift shift{l.key_bias, l.Scale(), reinterpret_cast<float*>(at + plan.shift)};
  auto* expanded = reinterpret_cast<T*>(at + plan.expanded);
  if constexpr (sizeof(T) == 4) {
    LaunchShape shape = GemmShape(p, kFloatRows, kFloatColumns, kFloatThreads, kFloatBytes);
    shape.followed = chained;
    return Launch(&ExpandFloatKernel<kFloatThreads>, shape, stream, p, shift, expanded,
                  plan.stride);
  } else {
    LaunchShape shape = GemmShape(p, kMatrixRows, kExpandColumns, kMatrixThreads,
                                  MatrixGemm<float, kExpandColumns>::Bytes(p.depth));
    shape.followed = chained;
    return Launch(&ExpandKernel<T>, shape, stream, p, shift, expanded, plan.stride);
  }
}

template <typename T>
Status Contract(const HiddenStates& l, const HiddenStatesPlan& plan, bool chained, char* at,
                Stream stream) {
  Product p = GemmOf(l);
  p.left = at + plan.sums;
  p.head_stride = plan.stride;
  p.token_stride = plan.stride * l.heads;
  p.weight = l.value_weight;
  p.depth = l.rows.width;
  p.columns = l.value_size;
  Join join;
  join.lists = l.lists;
  join.lists.second = l.kv_lists.sequences;
  join.lse = reinterpret_cast<float*>(at + plan.lse);
  join.value_bias = l.value_bias;
  if (l.HasSecond()) {
    join.second = reinterpret_cast<float*>(at + plan.second);
    join.second_lse = reinterpret_cast<float*>(at + plan.second_lse);
  }
  join.output = l.output;
  if constexpr (sizeof(T) == 4) {
    LaunchShape shape = GemmShape(p, kFloatRows, kFloatColumns, kFloatThreads,
                                  kFloatBytes + kFloatRows * sizeof(RowShare));
    shape.dependent = chained;
    return Launch(&ContractFloatKernel<kFloatThreads>, shape, stream, p, join);
  } else {
    LaunchShape shape =
        GemmShape(p, kMatrixRows, kContractColumns, kMatrixThreads,
                  MatrixGemm<T, kContractColumns>::Bytes(p.depth) + kMatrixRows * sizeof(RowShare));
    shape.dependent = chained;
    return Launch(&ContractKernel<T>, shape, stream, p, join);
  }
}

inline Status AttendSecond(const HiddenStates& l, const HiddenStatesPlan& whole,
                           const DeviceLimits& limits, char* at, Stream stream) {
  const flash_decode::Problem p = SecondOf(l, whole, at);
  return flash_decode::RunAs<float>(p, flash_decode::MakePlan(p, limits), at + whole.inner, stream);
}

template <typename T>
Status AttendRows(const HiddenStates& l, const HiddenStatesPlan& plan, const DeviceLimits& limits,
                  char* at, Stream stream, const Tuning& tuning) {
  const Problem p = AttentionOf(l, plan, at);
  const Plan attention = MakePlan(p, limits, tuning);
  if (!attention.legal) return kBadLaunch;
  const bool chained = attention.chained;
  Status status = Expand<T>(l, plan, chained, at, stream);
  if (status == kOk) {
    status = Enqueue(p, attention, at + plan.inner, stream, Neighbours{chained, chained});
  }
  return status == kOk ? Contract<T>(l, plan, chained, at, stream) : status;
}

// Enqueues all of it. `workspace` is plan.total bytes on the device, 64-byte aligned.
inline Status Enqueue(const HiddenStates& l, const HiddenStatesPlan& plan,
                      const DeviceLimits& limits, void* workspace, Stream stream,
                      const Tuning& tuning = Tuning()) {
  if (l.tokens == 0) return kOk;
  auto* at = static_cast<char*>(workspace);
  Status status = kOk;
  const auto then = [&](auto enqueue) {
    if (status == kOk) status = enqueue();
  };
  if (l.input != nullptr && l.slot_mapping != nullptr) {
    then([&] {
      return StoreRows(l.rows, l.input, l.input_stride, l.slot_mapping, l.tokens, stream);
    });
  }
  if (l.key != nullptr && l.kv_slot_mapping != nullptr && l.HasSecond()) {
    then([&] {
      return StoreKeys(l.kv_pool, l.key, l.key_stride, l.value, l.value_stride, l.kv_slot_mapping,
                       l.tokens, stream);
    });
  }
  if (l.HasSecond()) then([&] { return AttendSecond(l, plan, limits, at, stream); });
  then([&] {
    return l.rows.type == Type::kFloat32 ? AttendRows<float>(l, plan, limits, at, stream, tuning)
           : l.rows.type == Type::kFloat16
               ? AttendRows<Half>(l, plan, limits, at, stream, tuning)
               : AttendRows<BFloat16>(l, plan, limits, at, stream, tuning);
  });
  return status;
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_HIDDEN_STATES_CUH_
