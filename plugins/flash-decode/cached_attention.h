// The operators CachedAttention and StoreCache: tensors and attributes of a node bound to the
// kernel in cached.h.
//
// Both write to `cache` although it is an input: the host owns the pool, gives the same memory to
// every layer, and must order a node that reads a slot after the one that writes it. Within a graph
// each layer has slots of its own, so the order that the graph has anyway is enough.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_CACHED_ATTENTION_H_
#define GRAFT_PLUGINS_FLASH_DECODE_CACHED_ATTENTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cached.h"
#include "graft.h"

namespace graft {
namespace attention {

inline int64_t ThreadsOf(int32_t concurrency) { return concurrency > 0 ? concurrency : 1; }

// The session's threads as a runner, valid as long as the context.
inline Runner RunnerOf(const RunContext& context) {
  Runner runner;
  runner.threads = ThreadsOf(context.concurrency());
  runner.context = const_cast<RunContext*>(&context);
  runner.parallel_for = [](void* host, int64_t count, void (*task)(void*, int64_t),
                           void* argument) {
    static_cast<const RunContext*>(host)->ParallelFor(
        static_cast<uint64_t>(count),
        [&](uint64_t index) { task(argument, static_cast<int64_t>(index)); });
  };
  return runner;
}

// What an attribute says that a pool stores. `name` is the operator's.
inline Storage StorageOf(const char* name, const char* attribute, const std::string& storage) {
  if (storage == "float16") return Storage::kFloat16;
  if (storage == "bfloat16") return Storage::kBfloat16;
  if (storage == "int8") return Storage::kInt8;
  Require(storage == "float32", name, ": ", attribute, " is ", storage,
          ", needed is float32, float16, bfloat16 or int8");
  return Storage::kFloat32;
}

// Refuses storages that a variant for CUDA does not read.
inline void RequireOnDevice(const char* name, const char* attribute, Storage storage,
                            bool sixteen_bits) {
  const bool read = storage == Storage::kFloat32 || (sixteen_bits && storage != Storage::kInt8);
  Require(read, name, ": ", attribute, " is a type that this operator reads on the CPU alone, ",
          sixteen_bits ? "needed is float32, float16 or bfloat16" : "needed is float32");
}

// The pool that an input holds. `name` is the operator's.
inline Pool PoolOf(const char* name, const Tensor& cache, int64_t offset, int64_t kv_heads,
                   int64_t head_size, int64_t value_size, Storage storage) {
  Require(cache.rank() == 2, name, ": cache has rank ", cache.rank(),
          ", needed is 2: blocks, and the floats of one");
  Pool pool;
  pool.data = static_cast<float*>(const_cast<void*>(cache.raw()));
  pool.blocks = cache.dim(0);
  pool.block_floats = cache.dim(1);
  pool.offset = offset;
  pool.kv_heads = kv_heads;
  pool.head_size = head_size;
  pool.value_size = value_size;
  pool.storage = storage;
  const std::string fault = ValidatePool(pool);
  Require(fault.empty(), name, ": ", fault);
  return pool;
}

// Attention of T tokens over a pool. Inputs:
//
//   query  [T, ...], heads * head_size floats a token; with slot_mapping, and without key and
//          value: query, key and value of a token side by side
//   key    [T, ...], kv_heads * head_size; absent with value and slot_mapping: nothing is written
//   value  [T, ...], kv_heads * value_size
//   cache  [blocks, floats], written in place: each block holds an area a layer, this one's at
//          offset, of numbers as `storage` says: float32, float16, bfloat16, or int8 with a scale a
//          head and token
//   sequences [G, 8], shared_slots [*], private_slots [*]: see cached.h; private_slots may be
//          absent where no sequence has any
//   slot_mapping [T], the slot of each token's key and value, or -1
//   bias   [heads, D], added to the score of a key that is d positions before the query; D - 1
//          stands for all that are further; or [T, heads, D], for each token its own
//   sinks  [heads], scores that weigh no value, one a query head
//
// Output: [T, heads, 1, value_size], or as output_layout and output_rank say.
//
// The signature and what follows from it; a variant adds Workspace and Run.
class CachedAttentionBase {
 public:
  // `number` is the type of queries, keys, values and pool; with "T" it is one of `types`.
  static Operator Describe(const Types& number, std::vector<DataType> types = {}) {
    Operator description(
        "CachedAttention",
        "attention of tokens over a pool of keys and values, which it writes in place");
    if (!types.empty()) description.TypeVariable("T", std::move(types));
    return description.Input("query", number)
        .OptionalInput("key", number)
        .OptionalInput("value", number)
        .Input("cache", number)
        .Input("sequences", kInt32)
        .Input("shared_slots", kInt32)
        .OptionalInput("private_slots", kInt32)
        .OptionalInput("slot_mapping", kInt32)
        .OptionalInput("bias", kFloat32)
        .OptionalInput("sinks", kFloat32)
        .Output("output", number)
        .Int("num_heads", 0)
        .Required()
        .Int("kv_num_heads", 0)
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

  explicit CachedAttentionBase(const CreateContext& context)
      : heads_(context.Int("num_heads")),
        kv_heads_(context.Int("kv_num_heads")),
        head_size_(context.Int("head_size")),
        value_size_(context.Int("value_size")),
        offset_(context.Int("offset")),
        storage_(StorageOf("CachedAttention", "storage", context.String("storage"))),
        scale_(static_cast<float>(context.Float("scale"))),
        softcap_(static_cast<float>(context.Float("softcap"))),
        window_(context.Int("window")),
        output_rank_(context.Int("output_rank")) {
    if (kv_heads_ == 0) kv_heads_ = heads_;
    if (value_size_ == 0) value_size_ = head_size_;
    Require(heads_ > 0 && kv_heads_ > 0 && heads_ % kv_heads_ == 0,
            "CachedAttention: num_heads is ", heads_, ", needed is a multiple of kv_num_heads ",
            kv_heads_);
    Require(head_size_ > 0 && value_size_ > 0, "CachedAttention: head_size is ", head_size_,
            " and value_size ", value_size_, ", needed are positive numbers");
    Require(offset_ >= 0, "CachedAttention: offset is ", offset_, ", needed is 0 or more");
    Require(window_ >= 0, "CachedAttention: window is ", window_, ", needed is 0 or more");
    Require(output_rank_ >= 2 && output_rank_ <= 4, "CachedAttention: output_rank is ",
            output_rank_, ", needed is 2, 3 or 4");
    const std::string layout = context.String("output_layout");
    Require(layout == "bhsd" || layout == "bshd", "CachedAttention: output_layout is ", layout,
            ", needed is bhsd or bshd");
    heads_first_ = layout == "bhsd";
  }

  void Infer(InferContext& context) const {
    const Dim rows = context.InputDim(kQuery, 0);
    const DataType type = context.InputType(kQuery);
    switch (output_rank_) {
      case 2:
        return context.SetOutput(0, type, {rows, Size(heads_) * value_size_});
      case 3:
        return context.SetOutput(0, type, {rows, 1, Size(heads_) * value_size_});
      default:
        if (heads_first_) return context.SetOutput(0, type, {rows, heads_, 1, value_size_});
        return context.SetOutput(0, type, {rows, 1, heads_, value_size_});
    }
  }

 protected:
  enum Input : uint64_t {
    kQuery,
    kKey,
    kValue,
    kCache,
    kSequences,
    kSharedSlots,
    kPrivateSlots,
    kSlotMapping,
    kBias,
    kSinks
  };

  // Shapes, and pointers where there is memory already: addresses, whatever the type of numbers.
  CachedProblem Bind(const Tensors& inputs) const {
    CachedProblem p;
    p.pool = PoolOf("CachedAttention", inputs[kCache], offset_, kv_heads_, head_size_, value_size_,
                    storage_);
    p.heads = heads_;
    p.scale = scale_;
    p.softcap = softcap_;
    p.window = window_;
    p.rows = inputs[kQuery].rank() > 0 ? inputs[kQuery].dim(0) : 0;
    const Size query = Size(heads_) * head_size_, key = Size(kv_heads_) * head_size_;
    const Size value = Size(kv_heads_) * value_size_;
    const bool packed = inputs[kSlotMapping].present() && !inputs[kKey].present();
    p.query_stride = packed ? query + key + value : query;
    p.query = RowsOf(inputs[kQuery], "query", p.rows, p.query_stride);
    Require(inputs[kKey].present() == inputs[kValue].present() &&
                (inputs[kSlotMapping].present() || !inputs[kKey].present()),
            "CachedAttention: key, value and slot_mapping must be given together");
    if (inputs[kSlotMapping].present()) {
      p.slot_mapping = static_cast<const int32_t*>(inputs[kSlotMapping].raw());
      Require(inputs[kSlotMapping].elements() == p.rows, "CachedAttention: slot_mapping has ",
              inputs[kSlotMapping].elements(), " elements, needed is one a token, ", p.rows);
      p.key_stride = key;
      p.value_stride = value;
      if (!packed) {
        p.key = RowsOf(inputs[kKey], "key", p.rows, p.key_stride);
        p.value = RowsOf(inputs[kValue], "value", p.rows, p.value_stride);
      } else {
        const auto after = [&](const float* from, Size numbers) {
          const Size bytes = numbers * BytesOf(inputs[kQuery].type());
          return reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + bytes);
        };
        p.key = after(p.query, query);
        p.value = after(p.key, key);
        p.key_stride = p.value_stride = p.query_stride;
      }
    }
    const Tensor sequences = inputs[kSequences];
    Require(sequences.rank() == 2 && sequences.dim(1) == kSequenceColumns,
            "CachedAttention: sequences has rank ", sequences.rank(), " and ",
            sequences.rank() > 0 ? sequences.dim(-1) : 0, " columns, needed are 2 and ",
            static_cast<int>(kSequenceColumns));
    p.sequences = static_cast<const int32_t*>(sequences.raw());
    p.groups = sequences.dim(0);
    p.shared_slots = static_cast<const int32_t*>(inputs[kSharedSlots].raw());
    p.shared_length = inputs[kSharedSlots].elements();
    if (inputs[kPrivateSlots].present()) {
      p.private_slots = static_cast<const int32_t*>(inputs[kPrivateSlots].raw());
      p.private_length = inputs[kPrivateSlots].elements();
    }
    if (const Tensor bias = inputs[kBias]; bias.present()) {
      const int rank = static_cast<int>(bias.rank());
      Require((rank == 2 || rank == 3) && bias.dim(-2) == heads_, "CachedAttention: bias has rank ",
              rank, " and ", rank > 1 ? bias.dim(-2) : 0, " rows, needed are 2, or 3, and ",
              heads_);
      Require(rank == 2 || bias.dim(0) == p.rows, "CachedAttention: bias is of ", bias.dim(0),
              " tokens, there are ", p.rows);
      p.bias = static_cast<const float*>(bias.raw());
      p.distances = bias.dim(-1);
      if (rank == 3) p.bias_stride = (Size(heads_) * p.distances).To<int64_t>();
    }
    if (const Tensor sinks = inputs[kSinks]; sinks.present()) {
      Require(sinks.elements() == heads_, "CachedAttention: sinks has ", sinks.elements(),
              " elements, needed is one a query head, ", heads_);
      p.sinks = static_cast<const float*>(sinks.raw());
    }
    return p;
  }

 private:
  static const float* RowsOf(const Tensor& tensor, const char* name, Size rows, Size width) {
    Require(tensor.elements() == rows * width, "CachedAttention: ", name, " has ",
            tensor.elements(), " elements, ", rows, " tokens of ", width, " need ", rows * width);
    return static_cast<const float*>(tensor.raw());
  }

  int64_t heads_, kv_heads_, head_size_, value_size_, offset_;

 protected:
  Storage storage_;

 private:
  float scale_, softcap_;
  int64_t window_, output_rank_;
  bool heads_first_;
};

class CachedAttention : public CachedAttentionBase {
 public:
  static Operator Describe() { return CachedAttentionBase::Describe(kFloat32); }

  using CachedAttentionBase::CachedAttentionBase;

  uint64_t Workspace(const WorkspaceContext& context) const {
    return WorkspaceSize(Bind(context.inputs), ThreadsOf(context.concurrency));
  }

  void Run(const RunContext& context) const {
    CachedProblem problem = Bind(context.inputs);
    problem.output = context.outputs[0].data<float>();
    const std::string fault = Validate(problem);
    Require(fault.empty(), "CachedAttention: ", fault);
    attention::Run(problem, context.workspace(), RunnerOf(context));
  }
};

// Stores keys and values of whole sequences in a pool: what cross attention reads afterwards.
// Inputs:
//
//   key    [N, kv_heads, S, head_size], or as key_layout says (bhsd, bshd, bhds), or
//          [N, S, kv_heads * head_size]
//   value  likewise, with value_size
//   cache  as in CachedAttention, written in place
//   slot_mapping  N * S slots, or -1 for positions to leave out
//
// Output: int32 [1], the number of positions stored. Nodes that read the slots must come after it.
//
// The signature and what follows from it; a variant adds Run.
class StoreCacheBase {
 public:
  // As of CachedAttentionBase.
  static Operator Describe(const Types& number, std::vector<DataType> types = {}) {
    Operator description("StoreCache", "keys and values of whole sequences, written into a pool");
    if (!types.empty()) description.TypeVariable("T", std::move(types));
    return description.Input("key", number, GRAFT_PARAMETER_STRIDED)
        .Input("value", number, GRAFT_PARAMETER_STRIDED)
        .Input("cache", number)
        .Input("slot_mapping", kInt32)
        .Output("count", kInt32)
        .Int("kv_num_heads", 0)
        .Required()
        .Int("head_size", 0)
        .Required()
        .Int("value_size", 0)
        .Int("offset", 0)
        .String("storage", "float32")
        .String("key_layout", "bhsd")
        .String("value_layout", "bhsd");
  }

  explicit StoreCacheBase(const CreateContext& context)
      : kv_heads_(context.Int("kv_num_heads")),
        head_size_(context.Int("head_size")),
        value_size_(context.Int("value_size")),
        offset_(context.Int("offset")),
        storage_(StorageOf("StoreCache", "storage", context.String("storage"))),
        key_layout_(context.String("key_layout")),
        value_layout_(context.String("value_layout")) {
    if (value_size_ == 0) value_size_ = head_size_;
    Require(kv_heads_ > 0 && head_size_ > 0 && value_size_ > 0, "StoreCache: kv_num_heads is ",
            kv_heads_, ", head_size ", head_size_, ", value_size ", value_size_,
            ", needed are positive numbers");
    Require(offset_ >= 0, "StoreCache: offset is ", offset_, ", needed is 0 or more");
    for (const std::string& layout : {key_layout_, value_layout_}) {
      Require(layout == "bhsd" || layout == "bshd" || layout == "bhds", "StoreCache: layout is ",
              layout, ", needed is bhsd, bshd or bhds");
    }
  }

  void Infer(InferContext& context) const { context.SetOutput(0, kInt32, {1}); }

 protected:
  StoreProblem Bind(const Tensors& inputs) const {
    StoreProblem p;
    p.pool = PoolOf("StoreCache", inputs[2], offset_, kv_heads_, head_size_, value_size_, storage_);
    p.key = BindSide(inputs[0], "key", key_layout_, head_size_, p);
    const Size batch = p.batch, positions = p.positions;
    p.value = BindSide(inputs[1], "value", value_layout_, value_size_, p);
    Require(p.batch == batch && p.positions == positions, "StoreCache: value has ", p.batch,
            " sequences of ", p.positions, ", key has ", batch, " of ", positions);
    const Tensor slot_mapping = inputs[3];
    Require(slot_mapping.elements() == batch * positions, "StoreCache: slot_mapping has ",
            slot_mapping.elements(), " elements, needed is one a position, ", batch * positions);
    p.slot_mapping = static_cast<const int32_t*>(slot_mapping.raw());
    return p;
  }

 private:
  // Reads a tensor's shape into batch and positions of the problem.
  attention::Input BindSide(const Tensor& tensor, const char* name, const std::string& layout,
                            Size size, StoreProblem& p) const {
    const bool folded = tensor.rank() == 3;
    Require(folded || tensor.rank() == 4, "StoreCache: ", name, " has rank ", tensor.rank(),
            ", needed is 3 or 4");
    attention::Input input;
    input.data = tensor.raw();
    p.batch = tensor.dim(0);
    if (folded) {
      p.positions = tensor.dim(1);
      Require(tensor.dim(2) == kv_heads_ * size, "StoreCache: ", name, " is ", tensor.dim(2),
              " wide, ", kv_heads_, " heads of ", size, " need ", kv_heads_ * size);
      input.strides = {tensor.stride(0), size * tensor.stride(2), tensor.stride(1),
                       tensor.stride(2)};
      return input;
    }
    const int head = layout == "bshd" ? 2 : 1;
    const int position = layout == "bshd" ? 1 : layout == "bhds" ? 3 : 2;
    const int feature = layout == "bhds" ? 2 : 3;
    p.positions = tensor.dim(position);
    Require(tensor.dim(head) == kv_heads_ && tensor.dim(feature) == size, "StoreCache: ", name,
            " has ", tensor.dim(head), " heads of ", tensor.dim(feature), ", needed are ",
            kv_heads_, " of ", size);
    input.strides = {tensor.stride(0), tensor.stride(head), tensor.stride(position),
                     tensor.stride(feature)};
    return input;
  }

  int64_t kv_heads_, head_size_, value_size_, offset_;

 protected:
  Storage storage_;

 private:
  std::string key_layout_, value_layout_;
};

class StoreCache : public StoreCacheBase {
 public:
  static Operator Describe() { return StoreCacheBase::Describe(kFloat32); }

  using StoreCacheBase::StoreCacheBase;

  void Run(const RunContext& context) const {
    const StoreProblem problem = Bind(context.inputs);
    const std::string fault = Validate(problem);
    Require(fault.empty(), "StoreCache: ", fault);
    *context.outputs[0].data<int32_t>() =
        static_cast<int32_t>(attention::Run(problem, RunnerOf(context)));
  }
};

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_CACHED_ATTENTION_H_
