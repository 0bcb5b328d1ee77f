// What the variants of the operator FlashDecode share: its signature, and tensors and attributes of
// a node bound to a Problem of attention.h.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_FLASH_DECODE_H_
#define GRAFT_PLUGINS_FLASH_DECODE_FLASH_DECODE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention.h"
#include "graft.h"

namespace graft {
namespace attention {

enum class Layout { kBshd, kBhsd, kBhds };

inline Layout LayoutNamed(const std::string& name, const char* attribute, bool transposed,
                          const char* operator_name = "FlashDecode") {
  if (name == "bshd") return Layout::kBshd;
  if (name == "bhsd") return Layout::kBhsd;
  if (name == "bhds" && transposed) return Layout::kBhds;
  throw Error(GRAFT_ERROR_INVALID_ARGUMENT,
              Text(operator_name, ": ", attribute, " is ", name, ", needed is bshd or bhsd",
                   transposed ? " or bhds" : ""));
}

// Axes of a rank-4 tensor in a layout.
struct Axes {
  int head, position, feature;
};
inline Axes AxesOf(Layout layout) {
  switch (layout) {
    case Layout::kBshd:
      return {2, 1, 3};
    case Layout::kBhsd:
      return {1, 2, 3};
    case Layout::kBhds:
      break;
  }
  return {1, 3, 2};
}

// Sizes of a query, key or value: of rank 4 in a layout, or of rank 3 with the heads folded into
// the last axis.
struct Sizes {
  Dim batch, heads, positions, features;
};

// Context is anything with InputRank and InputDim.
template <typename Context>
Sizes SizesOf(const Context& context, uint64_t input, Layout layout, int64_t heads,
              int64_t folded_heads, const char* operator_name = "FlashDecode") {
  const int rank = context.InputRank(input);
  Require(rank == 3 || rank == 4, operator_name, ": input ", input, " has rank ", rank,
          ", needed is 3 or 4");
  if (rank == 3) {
    Require(heads > 0, operator_name, ": input ", input,
            " has rank 3, for which num_heads must be given");
    const Dim width = context.InputDim(input, 2);
    Require(!width.known() || width.value() % folded_heads == 0, operator_name, ": input ", input,
            " is ", width.value(), " wide, which is no multiple of ", folded_heads, " heads");
    return {context.InputDim(input, 0), Dim(heads), context.InputDim(input, 1),
            width / Dim(folded_heads)};
  }
  const Axes axes = AxesOf(layout);
  const Dim found = context.InputDim(input, axes.head);
  Require(heads == 0 || Fits(found, Dim(heads)), operator_name, ": input ", input, " has ",
          found.value(), " heads, needed are ", heads);
  return {context.InputDim(input, 0), found, context.InputDim(input, axes.position),
          context.InputDim(input, axes.feature)};
}

// Shapes of a run seen like those of a model being loaded.
struct RunShapes {
  const Tensors& inputs;
  bool HasInput(uint64_t index) const { return inputs[index].present(); }
  int32_t InputRank(uint64_t index) const { return inputs[index].rank(); }
  Dim InputDim(uint64_t index, int32_t axis) const { return Dim(inputs[index].dim(axis)); }
};

// All sizes of a node, each known from whichever input has it.
struct NodeSizes {
  Dim batch, heads, kv_heads, queries, past, fresh, head_size, value_size;
};

inline Strides StridesOf(const Tensor& tensor, Layout layout, int64_t features) {
  if (tensor.rank() == 3) {
    return {tensor.stride(0), Size(tensor.stride(2)) * features, tensor.stride(1),
            tensor.stride(2)};
  }
  const Axes axes = AxesOf(layout);
  return {tensor.stride(0), tensor.stride(axes.head), tensor.stride(axes.position),
          tensor.stride(axes.feature)};
}

// The signature and what follows from it; a variant adds Workspace and Run.
class FlashDecodeBase {
 public:
  // `types` are what the variant computes in.
  static Operator Describe(std::vector<DataType> types) {
    return Operator("FlashDecode",
                    "attention of new queries over past and new keys, which it appends")
        .TypeVariable("T", std::move(types))
        .TypeVariable("L", {kInt32, kInt64})
        .Input("query", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("key", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("value", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("past_key", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("past_value", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("attn_bias", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("attn_mask", kBool, GRAFT_PARAMETER_STRIDED)
        .OptionalInput("key_lengths", "L")
        .OptionalInput("sinks", "T")
        .Output("output", "T")
        .OptionalOutput("present_key", "T")
        .OptionalOutput("present_value", "T")
        .OptionalOutput("scores", "T")
        .Int("num_heads", 0)
        .Int("kv_num_heads", 0)
        .Float("scale", 0.0)
        .Float("softcap", 0.0)
        .Int("is_causal", 0)
        .Int("window", 0)
        .Int("causal_from_lengths", 0)
        .Float("mask_fill", -std::numeric_limits<double>::infinity())
        .Int("mask_after_bias", 0)
        .Int("zero_masked_rows", 0)
        .Int("clear_nan", 0)
        .String("query_layout", "bhsd")
        .String("key_layout", "bhsd")
        .String("value_layout", "bhsd")
        .String("output_layout", "bhsd")
        .Int("output_rank", 4)
        .Int("packed_qkv", 0)
        .Int("scores_mode", 3);
  }

  explicit FlashDecodeBase(const CreateContext& context)
      : num_heads_(context.Int("num_heads")),
        kv_num_heads_(context.Int("kv_num_heads")),
        query_layout_(LayoutNamed(context.String("query_layout"), "query_layout", false)),
        key_layout_(LayoutNamed(context.String("key_layout"), "key_layout", true)),
        value_layout_(LayoutNamed(context.String("value_layout"), "value_layout", false)),
        output_layout_(LayoutNamed(context.String("output_layout"), "output_layout", false)),
        output_rank_(context.Int("output_rank")),
        packed_(context.Int("packed_qkv") != 0) {
    if (kv_num_heads_ == 0) kv_num_heads_ = num_heads_;
    Require(num_heads_ >= 0 && kv_num_heads_ >= 0, "FlashDecode: num_heads is ", num_heads_,
            " and kv_num_heads ", kv_num_heads_, ", needed are positive numbers");
    Require(kv_num_heads_ == 0 || num_heads_ % kv_num_heads_ == 0, "FlashDecode: num_heads is ",
            num_heads_, ", needed is a multiple of kv_num_heads ", kv_num_heads_);
    Require(output_rank_ == 3 || output_rank_ == 4, "FlashDecode: output_rank is ", output_rank_,
            ", needed is 3 or 4");
    Require(!packed_ || num_heads_ > 0, "FlashDecode: packed_qkv needs num_heads");
    problem_.scale = static_cast<float>(context.Float("scale"));
    problem_.softcap = static_cast<float>(context.Float("softcap"));
    problem_.causal = context.Int("is_causal") != 0;
    problem_.window = context.Int("window");
    Require(problem_.window >= 0, "FlashDecode: window is ", problem_.window,
            ", needed is 0 or more");
    if (context.Int("causal_from_lengths") != 0) {
      problem_.diagonal = DiagonalFrom::kLengths;
    }
    problem_.mask_fill = static_cast<float>(context.Float("mask_fill"));
    problem_.mask_after_bias = context.Int("mask_after_bias") != 0;
    problem_.zero_masked_rows = context.Int("zero_masked_rows") != 0;
    problem_.clear_nan = context.Int("clear_nan") != 0;
    const int64_t mode = context.Int("scores_mode");
    Require(mode >= 0 && mode <= 3, "FlashDecode: scores_mode is ", mode, ", needed is 0 to 3");
    // The numbering of ONNX's Attention, where the softcap comes before mask and bias.
    static constexpr ScoresStage kStages[] = {ScoresStage::kProduct, ScoresStage::kSoftcapped,
                                              ScoresStage::kMasked, ScoresStage::kProbabilities};
    problem_.scores_stage = kStages[mode];
  }

  void Infer(InferContext& context) const {
    const NodeSizes s = Measure(context);
    const DataType type = context.InputType(kQuery);
    if (output_rank_ == 3) {
      context.SetOutput(kOutput, type, {s.batch, s.queries, Dim(s.heads) * s.value_size});
    } else if (output_layout_ == Layout::kBshd) {
      context.SetOutput(kOutput, type, {s.batch, s.queries, s.heads, s.value_size});
    } else {
      context.SetOutput(kOutput, type, {s.batch, s.heads, s.queries, s.value_size});
    }
    const Dim keys = Total(s);
    context.SetOutput(kPresentKey, type, {s.batch, s.kv_heads, keys, s.head_size});
    context.SetOutput(kPresentValue, type, {s.batch, s.kv_heads, keys, s.value_size});
    context.SetOutput(kScores, type, {s.batch, s.heads, s.queries, keys});
  }

 protected:
  // Positions of the operator's inputs and outputs.
  enum InputIndex : uint64_t {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kAttnBias,
    kAttnMask,
    kKeyLengths,
    kSinks
  };
  enum OutputIndex : uint64_t { kOutput, kPresentKey, kPresentValue, kScores };

  // Shapes, and pointers where there is memory already. Outputs is Tensors or MutableTensors. The
  // problem's type is float32 for a type that the CPU kernel has not.
  template <typename Outputs>
  Problem Bind(const Tensors& inputs, const Outputs& outputs) const {
    const RunShapes shapes{inputs};
    const NodeSizes s = Measure(shapes);
    Problem p = problem_;
    const Tensor query = inputs[kQuery];
    p.type = query.type() == kFloat16 ? Type::kFloat16 : Type::kFloat32;
    p.batch = s.batch.value();
    p.heads = s.heads.value();
    p.kv_heads = s.kv_heads.value();
    p.queries = s.queries.value();
    p.past = s.past.value();
    p.fresh = s.fresh.value();
    p.head_size = s.head_size.value();
    p.value_size = s.value_size.value();
    Require(p.kv_heads > 0, "FlashDecode: there is neither key nor past_key");

    p.query = Read(query, query_layout_, p.head_size);
    if (packed_) {
      // query, key and value stand side by side in each position.
      const char* start = static_cast<const char*>(query.raw());
      const Size head = Size(query.stride(2)) * BytesOf(query.type()) * p.head_size;
      p.key = p.value = p.query;
      p.key.data = start + head * p.heads;
      p.value.data = start + head * (Size(p.heads) + p.kv_heads);
    } else if (inputs[kKey].present()) {
      p.key = Read(inputs[kKey], key_layout_, p.head_size);
      p.value = Read(inputs[kValue], value_layout_, p.value_size);
    }
    if (inputs[kPastKey].present()) {
      p.past_key = Read(inputs[kPastKey], Layout::kBhsd, p.head_size);
      p.past_value = Read(inputs[kPastValue], Layout::kBhsd, p.value_size);
    }
    const Size keys = Size(p.past) + p.fresh;
    const int64_t sizes[4] = {p.batch, p.heads, p.queries, keys};
    p.bias = Broadcast(inputs[kAttnBias], sizes, "attn_bias", p.key_limit);
    p.mask = Broadcast(inputs[kAttnMask], sizes, "attn_mask", p.key_limit);
    if (const Tensor lengths = inputs[kKeyLengths]; lengths.present()) {
      Require(lengths.elements() == p.batch, "FlashDecode: key_lengths has ", lengths.elements(),
              " elements, needed is one a batch row, ", p.batch);
      if (lengths.type() == kInt32) {
        p.lengths32 = static_cast<const int32_t*>(lengths.raw());
      } else {
        p.lengths64 = static_cast<const int64_t*>(lengths.raw());
      }
    }
    if (const Tensor sinks = inputs[kSinks]; sinks.present()) {
      Require(sinks.elements() == p.heads, "FlashDecode: sinks has ", sinks.elements(),
              " elements, needed is one a query head, ", p.heads);
      p.sinks = sinks.raw();
    }
    p.output = Written(outputs[kOutput], output_layout_, p.value_size);
    p.present_key = Written(outputs[kPresentKey], Layout::kBhsd, p.head_size);
    p.present_value = Written(outputs[kPresentValue], Layout::kBhsd, p.value_size);
    p.scores = Written(outputs[kScores], Layout::kBhsd, keys);
    if (const char* fault = ValidateSizes(p)) {
      throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("FlashDecode: ", fault));
    }
    return p;
  }

 private:
  // An absent past counts as none, an unknown one makes the sum unknown.
  static Dim Total(const NodeSizes& s) {
    if (s.past.known() && s.past.value() == 0) return s.fresh;
    if (s.fresh.known() && s.fresh.value() == 0) return s.past;
    return Dim(s.past) + s.fresh;
  }

  template <typename Context>
  NodeSizes Measure(const Context& context) const {
    NodeSizes s;
    const int64_t folded = packed_ ? Size(kv_num_heads_) * 2 + num_heads_ : Size(num_heads_);
    const Sizes query = SizesOf(context, kQuery, query_layout_, num_heads_, folded);
    s.batch = query.batch;
    s.heads = query.heads;
    s.queries = query.positions;
    s.head_size = s.value_size = query.features;
    s.kv_heads = kv_num_heads_ > 0 ? Dim(kv_num_heads_) : Dim();
    s.past = Dim(0);
    s.fresh = Dim(0);
    if (packed_) {
      Require(context.InputRank(kQuery) == 3, "FlashDecode: packed_qkv needs a query of rank 3");
      Require(!context.HasInput(kKey) && !context.HasInput(kValue),
              "FlashDecode: packed_qkv leaves no place for key and value");
      s.fresh = query.positions;
    } else {
      Require(context.HasInput(kKey) == context.HasInput(kValue),
              "FlashDecode: key and value must be given together");
    }
    if (context.HasInput(kKey)) {
      const Sizes key = SizesOf(context, kKey, key_layout_, kv_num_heads_, kv_num_heads_);
      const Sizes value = SizesOf(context, kValue, value_layout_, kv_num_heads_, kv_num_heads_);
      Same(key.batch, s.batch, "key", "batch");
      Same(key.features, s.head_size, "key", "head size");
      Same(value.batch, s.batch, "value", "batch");
      Same(value.heads, key.heads, "value", "heads");
      Same(value.positions, key.positions, "value", "positions");
      s.kv_heads = key.heads;
      s.fresh = key.positions;
      s.value_size = value.features;
    }
    Require(context.HasInput(kPastKey) == context.HasInput(kPastValue),
            "FlashDecode: past_key and past_value must be given together");
    if (context.HasInput(kPastKey)) {
      const Sizes key = SizesOf(context, kPastKey, Layout::kBhsd, kv_num_heads_, kv_num_heads_);
      const Sizes value = SizesOf(context, kPastValue, Layout::kBhsd, kv_num_heads_, kv_num_heads_);
      Same(key.batch, s.batch, "past_key", "batch");
      Same(key.features, s.head_size, "past_key", "head size");
      Same(value.batch, s.batch, "past_value", "batch");
      Same(value.heads, key.heads, "past_value", "heads");
      Same(value.positions, key.positions, "past_value", "positions");
      Same(key.heads, s.kv_heads, "past_key", "heads");
      if (!s.kv_heads.known()) s.kv_heads = key.heads;
      s.past = key.positions;
      if (context.HasInput(kKey) || packed_) {
        Same(value.features, s.value_size, "past_value", "head size");
      } else {
        s.value_size = value.features;
      }
    }
    return s;
  }

  static void Same(Dim found, Dim needed, const char* tensor, const char* what) {
    Require(Fits(found, needed), "FlashDecode: ", what, " of ", tensor, " is ", found.value(),
            ", needed is ", needed.value());
  }

  // A tensor that is right-aligned with [B, H, S, T] and repeated where its size is 1. One of
  // several columns that has fewer than T hides the keys beyond, as ONNX's Attention says.
  static Input Broadcast(const Tensor& tensor, const int64_t (&sizes)[4], const char* name,
                         int64_t& key_limit) {
    Input input;
    if (!tensor.present()) return input;
    Require(tensor.rank() >= 1 && tensor.rank() <= 4, "FlashDecode: ", name, " has rank ",
            tensor.rank(), ", needed is 1 to 4");
    int64_t strides[4] = {0, 0, 0, 0};
    for (int axis = 4 - tensor.rank(); axis < 4; ++axis) {
      const int from = axis - (4 - tensor.rank());
      const int64_t size = tensor.dim(from);
      const bool shorter = axis == 3 && size > 1 && size < sizes[axis];
      Require(size == 1 || size == sizes[axis] || shorter, "FlashDecode: axis ", from, " of ", name,
              " is ", size, ", needed is 1 or ", sizes[axis]);
      if (shorter) key_limit = std::min(key_limit, size);
      if (size != 1) strides[axis] = tensor.stride(from);
    }
    input.data = tensor.raw();
    input.strides = {strides[0], strides[1], strides[2], strides[3]};
    return input;
  }

  static Input Read(const Tensor& tensor, Layout layout, int64_t features) {
    return {tensor.raw(), StridesOf(tensor, layout, features)};
  }
  static Output Written(const Tensor& tensor, Layout layout, int64_t features) {
    Output output;
    if (!tensor.present()) return output;
    output.data = const_cast<void*>(tensor.raw());
    output.strides = StridesOf(tensor, layout, features);
    return output;
  }

  int64_t num_heads_;
  int64_t kv_num_heads_;
  Layout query_layout_, key_layout_, value_layout_, output_layout_;
  int64_t output_rank_;
  bool packed_;
  Problem problem_;  // what the attributes say; sizes and pointers come with each run
};

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_FLASH_DECODE_H_
