// The operators ELAttention and InputAttention: tensors and attributes of a node bound to the
// kernel in row_attention.h.
//
// They write to `cache` although it is an input: the host owns the pool and must order a node
// that reads a slot after the one that writes it, as for flash-decode's CachedAttention.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_HIDDEN_STATE_ATTENTION_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_HIDDEN_STATE_ATTENTION_H_

#include <cstdint>
#include <string>

#include "cached_attention.h"
#include "graft.h"
#include "row_attention.h"

namespace graft {
namespace row_attention {

// Data of a tensor, null for one that is not given.
template <typename T>
const T* DataOf(const Tensor& tensor) {
  return tensor.present() ? static_cast<const T*>(tensor.raw()) : nullptr;
}

// The area of rows in a pool that an input holds.
inline RowPool RowsIn(const char* name, const Tensor& cache, int64_t width, int64_t offset,
                      Storage storage) {
  Require(cache.rank() == 2, name, ": cache has rank ", cache.rank(),
          ", needed is 2: blocks, one block's floats");
  RowPool pool;
  pool.data = const_cast<float*>(DataOf<float>(cache));
  pool.blocks = cache.dim(0);
  pool.block_floats = cache.dim(1);
  pool.width = width;
  pool.offset = offset;
  pool.storage = storage;
  const std::string fault = ValidatePool(pool);
  Require(fault.empty(), name, ": ", fault);
  return pool;
}

// What the operators over rows have in common: sizes, the form of the output, and checks.
class RowAttention {
 public:
  RowAttention(const char* name, const CreateContext& context)
      : name_(name),
        heads_(context.Int("num_heads")),
        head_size_(context.Int("head_size")),
        value_size_(context.Int("value_size")),
        offset_(context.Int("offset")),
        storage_(attention::StorageOf(name, "storage", context.String("storage"))),
        scale_(static_cast<float>(context.Float("scale"))),
        softcap_(static_cast<float>(context.Float("softcap"))),
        window_(context.Int("window")),
        output_rank_(context.Int("output_rank")) {
    if (value_size_ == 0) value_size_ = head_size_;
    Require(heads_ > 0 && head_size_ > 0 && value_size_ > 0, name, ": num_heads is ", heads_,
            ", head_size ", head_size_, ", value_size ", value_size_,
            ", needed are positive numbers");
    Require(offset_ >= 0, name, ": offset is ", offset_, ", needed is 0 or more");
    Require(window_ >= 0, name, ": window is ", window_, ", needed is 0 or more");
    Require(output_rank_ >= 2 && output_rank_ <= 4, name, ": output_rank is ", output_rank_,
            ", needed is 2, 3 or 4");
    const std::string layout = context.String("output_layout");
    Require(layout == "bhsd" || layout == "bshd", name, ": output_layout is ", layout,
            ", needed is bhsd or bshd");
    heads_first_ = layout == "bhsd";
  }

  // Attributes of all operators over rows.
  static Operator Describe(Operator description) {
    return description.Int("num_heads", 0)
        .Required()
        .Int("head_size", 0)
        .Required()
        .Int("value_size", 0)
        .Int("offset", 0)
        .String("storage", "float32")
        .Float("scale", 0.0)
        .Float("softcap", 0.0)
        .Int("window", 0)
        .String("output_layout", "bhsd")
        .Int("output_rank", 4);
  }

  void InferOutput(InferContext& context) const {
    const Dim rows = context.InputDim(0, 0);
    switch (output_rank_) {
      case 2:
        return context.SetOutput(0, kFloat32, {rows, Size(heads_) * value_size_});
      case 3:
        return context.SetOutput(0, kFloat32, {rows, 1, Size(heads_) * value_size_});
      default:
        if (heads_first_) return context.SetOutput(0, kFloat32, {rows, heads_, 1, value_size_});
        return context.SetOutput(0, kFloat32, {rows, 1, heads_, value_size_});
    }
  }

 protected:
  // Sizes, and the lists of a part: sequences, shared_slots and private_slots.
  void BindSizes(Problem& p) const {
    p.heads = heads_;
    p.head_size = head_size_;
    p.value_size = value_size_;
    p.scale = scale_;
    p.softcap = softcap_;
    p.window = window_;
  }

  void BindLists(const Tensor& sequences, const Tensor& shared_slots, const Tensor& private_slots,
                 Problem& p) const {
    p.groups = GroupsOf(sequences, "sequences");
    p.sequences = DataOf<int32_t>(sequences);
    p.shared_slots = DataOf<int32_t>(shared_slots);
    p.shared_length = shared_slots.present() ? shared_slots.elements() : 0;
    p.private_slots = DataOf<int32_t>(private_slots);
    p.private_length = private_slots.present() ? private_slots.elements() : 0;
  }

  int64_t GroupsOf(const Tensor& sequences, const char* what) const {
    Require(sequences.rank() == 2 && sequences.dim(1) == attention::kSequenceColumns, name_, ": ",
            what, " has rank ", sequences.rank(), " and ",
            sequences.rank() > 0 ? sequences.dim(-1) : 0, " columns, needed are 2 and ",
            static_cast<int>(attention::kSequenceColumns));
    return sequences.dim(0);
  }

  void BindBias(const Tensor& bias, Problem& p) const {
    if (!bias.present()) return;
    Require(bias.rank() == 2 && bias.dim(0) == heads_, name_, ": bias has rank ", bias.rank(),
            " and ", bias.rank() > 0 ? bias.dim(0) : 0, " rows, needed are 2 and ", heads_);
    p.bias = DataOf<float>(bias);
    p.distances = bias.dim(1);
  }

  // `rows` rows of `width` floats, or null where the input is absent.
  const float* FloatsOf(const Tensor& tensor, const char* what, Size rows, Size width) const {
    if (!tensor.present()) return nullptr;
    Require(tensor.elements() == rows * width, name_, ": ", what, " has ", tensor.elements(),
            " elements, ", rows, " rows of ", width, " need ", rows * width);
    return DataOf<float>(tensor);
  }
  const int32_t* SlotsOf(const Tensor& tensor, const char* what, int64_t rows) const {
    if (!tensor.present()) return nullptr;
    Require(tensor.elements() == rows, name_, ": ", what, " has ", tensor.elements(),
            " elements, needed is one a token, ", rows);
    return DataOf<int32_t>(tensor);
  }
  // Weights [heads][panels of `columns`][length][16].
  const float* PanelsOf(const Tensor& tensor, const char* what, int64_t heads, int64_t columns,
                        int64_t length) const {
    const Size panels = DivideUp(Size(columns), kPanel);
    Require(tensor.rank() == 4 && tensor.dim(0) == heads && tensor.dim(1) == panels &&
                tensor.dim(2) == length && tensor.dim(3) == kPanel,
            name_, ": ", what, " has rank ", tensor.rank(), " and ", tensor.elements(),
            " elements, needed is [", heads, ", ", panels, ", ", length, ", ", kPanel, "]");
    return DataOf<float>(tensor);
  }

  void Compute(Problem& problem, const RunContext& context) const {
    problem.output = context.outputs[0].data<float>();
    const std::string fault = Validate(problem);
    Require(fault.empty(), name_, ": ", fault);
    row_attention::Run(problem, context.workspace(), attention::RunnerOf(context));
  }

  const char* name_;
  int64_t heads_, head_size_, value_size_, offset_;
  Storage storage_;
  float scale_, softcap_;
  int64_t window_, output_rank_;
  bool heads_first_;
};

// Attention of T tokens over hidden states, which all heads share, and, with the second part, over
// keys and values after them. Inputs:
//
//   query         [T, ...], num_heads * head_size floats a token, b_Q included
//   cache         [blocks, floats], rows of `width` at `offset`, written in place
//   sequences [G, 8], shared_slots [*], private_slots [*]: see flash-decode's cached.h;
//                 private_slots may be absent
//   key_weight    [kv_num_heads, ceil(width / 16), head_size, 16]: see row_attention.h
//   value_weight  [kv_num_heads, ceil(value_size / 16), width, 16]
//   key_bias      [kv_num_heads * head_size]; value_bias [kv_num_heads * value_size]
//   bias          [num_heads, D], added to the score of a key that is d positions before the query;
//                 D - 1 stands for all that are further
//   input [T, width], slot_mapping [T]: rows written to the slots of cache (or -1) before anything
//                 is read
//   key, value    [T, ...], of the new tokens, written to kv_cache at kv_slot_mapping
//   kv_cache      [blocks, floats], keys and values at `kv_offset` as in CachedAttention, of
//   numbers
//                 as `kv_storage` says
//   kv_sequences, kv_shared_slots, kv_private_slots: the same groups' lists in kv_cache
//   kv_slot_mapping [T]
//
// With kv_slot_mapping and without key and value, query, key and value of a token stand side by
// side.
//
// Output: [T, num_heads, 1, value_size], or as output_layout and output_rank say.
template <bool kSecondPart>
class HiddenStateAttention : public RowAttention {
 public:
  static constexpr const char* kName = kSecondPart ? "ELAttention" : "InputAttention";

  static Operator Describe() {
    Operator description(kName, kSecondPart
                                    ? "attention over hidden states, and keys and values after them"
                                    : "attention over a layer's inputs, kept in place of keys");
    description.Input("query", kFloat32)
        .Input("cache", kFloat32)
        .Input("sequences", kInt32)
        .Input("shared_slots", kInt32)
        .Input("key_weight", kFloat32)
        .Input("value_weight", kFloat32)
        .OptionalInput("key_bias", kFloat32)
        .OptionalInput("value_bias", kFloat32)
        .OptionalInput("bias", kFloat32)
        .OptionalInput("private_slots", kInt32)
        .OptionalInput("input", kFloat32)
        .OptionalInput("slot_mapping", kInt32);
    if (kSecondPart) {
      description.OptionalInput("key", kFloat32)
          .OptionalInput("value", kFloat32)
          .OptionalInput("kv_cache", kFloat32)
          .OptionalInput("kv_sequences", kInt32)
          .OptionalInput("kv_shared_slots", kInt32)
          .OptionalInput("kv_private_slots", kInt32)
          .OptionalInput("kv_slot_mapping", kInt32);
    }
    description.Output("output", kFloat32).Int("width", 0).Required().Int("kv_num_heads", 0);
    if (kSecondPart) description.Int("kv_offset", 0).String("kv_storage", "float32");
    return RowAttention::Describe(description);
  }

  explicit HiddenStateAttention(const CreateContext& context)
      : RowAttention(kName, context),
        kv_heads_(context.Int("kv_num_heads")),
        width_(context.Int("width")),
        kv_offset_(kSecondPart ? context.Int("kv_offset") : 0),
        kv_storage_(kSecondPart
                        ? attention::StorageOf(kName, "kv_storage", context.String("kv_storage"))
                        : Storage::kFloat32) {
    if (kv_heads_ == 0) kv_heads_ = heads_;
    Require(kv_heads_ > 0 && heads_ % kv_heads_ == 0, kName, ": num_heads is ", heads_,
            ", needed is a multiple of kv_num_heads ", kv_heads_);
    Require(width_ > 0, kName, ": width is ", width_, ", needed is a positive number");
    Require(kv_offset_ >= 0, kName, ": kv_offset is ", kv_offset_, ", needed is 0 or more");
  }

  void Infer(InferContext& context) const { InferOutput(context); }

  uint64_t Workspace(const WorkspaceContext& context) const {
    return WorkspaceSize(Bind(context.inputs), attention::ThreadsOf(context.concurrency));
  }

  void Run(const RunContext& context) const {
    Problem problem = Bind(context.inputs);
    Compute(problem, context);
  }

 protected:
  enum Input : uint64_t {
    kQuery,
    kCache,
    kSequences,
    kSharedSlots,
    kKeyWeight,
    kValueWeight,
    kKeyBias,
    kValueBias,
    kBias,
    kPrivateSlots,
    kInput,
    kSlotMapping,
    kKey,
    kValue,
    kKvCache,
    kKvSequences,
    kKvSharedSlots,
    kKvPrivateSlots,
    kKvSlotMapping
  };

  // Shapes, and pointers where there is memory already.
  Problem Bind(const Tensors& inputs) const {
    Problem p;
    BindSizes(p);
    p.kv_heads = kv_heads_;
    p.tokens = inputs[kQuery].rank() > 0 ? inputs[kQuery].dim(0) : 0;
    p.pool = RowsIn(kName, inputs[kCache], width_, offset_, storage_);
    BindLists(inputs[kSequences], inputs[kSharedSlots], inputs[kPrivateSlots], p);
    BindBias(inputs[kBias], p);
    p.key_weight = PanelsOf(inputs[kKeyWeight], "key_weight", kv_heads_, width_, head_size_);
    p.value_weight = PanelsOf(inputs[kValueWeight], "value_weight", kv_heads_, value_size_, width_);
    p.key_bias = FloatsOf(inputs[kKeyBias], "key_bias", kv_heads_, head_size_);
    p.value_bias = FloatsOf(inputs[kValueBias], "value_bias", kv_heads_, value_size_);
    p.input = FloatsOf(inputs[kInput], "input", p.tokens, width_);
    p.input_stride = width_;
    p.slot_mapping = SlotsOf(inputs[kSlotMapping], "slot_mapping", p.tokens);
    p.query_stride = Size(heads_) * head_size_;
    bool packed = false;
    if constexpr (kSecondPart) packed = BindSecond(inputs, p);
    p.query = FloatsOf(inputs[kQuery], "query", p.tokens, p.query_stride);
    if (packed) {
      p.key = p.query + Size(heads_) * head_size_;
      p.value = p.key + Size(kv_heads_) * head_size_;
      p.key_stride = p.value_stride = p.query_stride;
    }
    return p;
  }

 private:
  // Returns whether keys and values stand beside the query.
  bool BindSecond(const Tensors& inputs, Problem& p) const {
    const bool keys = inputs[kKey].present();
    Require(keys == inputs[kValue].present(), kName, ": key and value must be given together");
    const bool second = inputs[kKvCache].present();
    Require(second == inputs[kKvSequences].present() && second == inputs[kKvSharedSlots].present(),
            kName, ": kv_cache, kv_sequences and kv_shared_slots must be given together");
    Require(second || !inputs[kKvSlotMapping].present(), kName, ": kv_slot_mapping needs kv_cache");
    const Size key = Size(kv_heads_) * head_size_, value = Size(kv_heads_) * value_size_;
    p.key_stride = key;
    p.value_stride = value;
    p.key = FloatsOf(inputs[kKey], "key", p.tokens, p.key_stride);
    p.value = FloatsOf(inputs[kValue], "value", p.tokens, p.value_stride);
    p.kv_slot_mapping = SlotsOf(inputs[kKvSlotMapping], "kv_slot_mapping", p.tokens);
    const bool packed = p.kv_slot_mapping != nullptr && !keys;
    if (packed) p.query_stride = key + value + p.query_stride;
    if (!second) return packed;
    p.kv_pool = attention::PoolOf(kName, inputs[kKvCache], kv_offset_, kv_heads_, head_size_,
                                  value_size_, kv_storage_);
    const int64_t groups = GroupsOf(inputs[kKvSequences], "kv_sequences");
    Require(groups == p.groups, kName, ": kv_sequences has ", groups, " groups, sequences ",
            p.groups);
    p.kv_sequences = DataOf<int32_t>(inputs[kKvSequences]);
    p.kv_shared_slots = DataOf<int32_t>(inputs[kKvSharedSlots]);
    p.kv_shared_length = inputs[kKvSharedSlots].elements();
    p.kv_private_slots = DataOf<int32_t>(inputs[kKvPrivateSlots]);
    p.kv_private_length =
        inputs[kKvPrivateSlots].present() ? inputs[kKvPrivateSlots].elements() : 0;
    return packed;
  }

  int64_t kv_heads_, width_, kv_offset_;

 protected:
  Storage kv_storage_;
};

using ELAttention = HiddenStateAttention<true>;
using InputAttention = HiddenStateAttention<false>;

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_HIDDEN_STATE_ATTENTION_H_
