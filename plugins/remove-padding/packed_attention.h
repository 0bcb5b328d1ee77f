// The operator PackedAttention: tensors and attributes of a node bound to the kernel in
// sequences.h of flash-decode.
#ifndef GRAFT_PLUGINS_REMOVE_PADDING_PACKED_ATTENTION_H_
#define GRAFT_PLUGINS_REMOVE_PADDING_PACKED_ATTENTION_H_

#include <cstdint>
#include <limits>
#include <string>

#include "cached_attention.h"
#include "flash_decode.h"
#include "graft.h"
#include "sequences.h"

namespace graft {
namespace attention {

// Self attention of sequences that stand one after the other on the axis of positions. Inputs:
//
//   query, key, value  as FlashDecode's, in a batch of 1 with N positions; with packed_qkv query is
//                      all three, side by side in each position
//   offsets [B + 1]    sequence b is positions offsets[b] .. offsets[b + 1] - 1
//   first [B]          where in the bias the first position of each stands; absent: 0
//   hidden             N elements: keys that are hidden from every query; absent: none
//   attn_bias          [1 or B, 1 or H, 1 or S, 1 or S], or its last axes
//
// Output: [1, H, N, E], or as output_layout and output_rank say.
class PackedAttention {
 public:
  static Operator Describe() {
    return Operator("PackedAttention",
                    "self attention of sequences that stand one after the other, without padding")
        .TypeVariable("T", {kFloat32, kFloat16})
        .Input("query", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("key", "T", GRAFT_PARAMETER_STRIDED)
        .OptionalInput("value", "T", GRAFT_PARAMETER_STRIDED)
        .Input("offsets", kInt32)
        .OptionalInput("first", kInt32)
        .OptionalInput("hidden", kBool)
        .OptionalInput("attn_bias", "T", GRAFT_PARAMETER_STRIDED)
        .Output("output", "T")
        .Int("num_heads", 0)
        .Int("kv_num_heads", 0)
        .Float("scale", 0.0)
        .Float("softcap", 0.0)
        .Int("is_causal", 0)
        .Int("window", 0)
        .Int("window_left", -1)
        .Int("window_right", -1)
        .Float("hidden_fill", -std::numeric_limits<double>::infinity())
        .Int("hidden_adds", 0)
        .Int("bias_after_fill", 0)
        .Float("window_fill", -std::numeric_limits<double>::infinity())
        .Int("zero_masked_rows", 0)
        .Int("clear_nan", 0)
        .String("query_layout", "bhsd")
        .String("key_layout", "bhsd")
        .String("value_layout", "bhsd")
        .String("output_layout", "bhsd")
        .Int("output_rank", 4)
        .Int("packed_qkv", 0);
  }

  explicit PackedAttention(const CreateContext& context)
      : num_heads_(context.Int("num_heads")),
        kv_num_heads_(context.Int("kv_num_heads")),
        query_layout_(LayoutNamed(context.String("query_layout"), "query_layout", false, kName)),
        key_layout_(LayoutNamed(context.String("key_layout"), "key_layout", true, kName)),
        value_layout_(LayoutNamed(context.String("value_layout"), "value_layout", false, kName)),
        output_layout_(LayoutNamed(context.String("output_layout"), "output_layout", false, kName)),
        output_rank_(context.Int("output_rank")),
        packed_(context.Int("packed_qkv") != 0),
        window_fill_(static_cast<float>(context.Float("window_fill"))) {
    if (kv_num_heads_ == 0) kv_num_heads_ = num_heads_;
    Require(num_heads_ >= 0 && kv_num_heads_ >= 0, "PackedAttention: num_heads is ", num_heads_,
            " and kv_num_heads ", kv_num_heads_, ", needed are positive numbers");
    Require(kv_num_heads_ == 0 || num_heads_ % kv_num_heads_ == 0, "PackedAttention: num_heads is ",
            num_heads_, ", needed is a multiple of kv_num_heads ", kv_num_heads_);
    Require(output_rank_ == 3 || output_rank_ == 4, "PackedAttention: output_rank is ",
            output_rank_, ", needed is 3 or 4");
    Require(!packed_ || num_heads_ > 0, "PackedAttention: packed_qkv needs num_heads");
    problem_.scale = static_cast<float>(context.Float("scale"));
    problem_.softcap = static_cast<float>(context.Float("softcap"));
    problem_.causal = context.Int("is_causal") != 0;
    problem_.window = context.Int("window");
    Require(problem_.window >= 0, "PackedAttention: window is ", problem_.window,
            ", needed is 0 or more");
    problem_.window_left = context.Int("window_left");
    problem_.window_right = context.Int("window_right");
    Require(problem_.window_left >= -1 && problem_.window_right >= -1,
            "PackedAttention: window_left is ", problem_.window_left, " and window_right ",
            problem_.window_right, ", needed is -1 (no bound) or more");
    problem_.mask_fill = static_cast<float>(context.Float("hidden_fill"));
    problem_.mask_adds = context.Int("hidden_adds") != 0;
    problem_.mask_after_bias = context.Int("bias_after_fill") == 0;
    problem_.zero_masked_rows = context.Int("zero_masked_rows") != 0;
    problem_.clear_nan = context.Int("clear_nan") != 0;
  }

  void Infer(InferContext& context) const {
    const Measures m = Measure(context);
    const DataType type = context.InputType(kQuery);
    if (output_rank_ == 3) {
      context.SetOutput(0, type, {Dim(1), m.positions, Dim(m.heads) * m.value_size});
    } else if (output_layout_ == Layout::kBshd) {
      context.SetOutput(0, type, {Dim(1), m.positions, m.heads, m.value_size});
    } else {
      context.SetOutput(0, type, {Dim(1), m.heads, m.positions, m.value_size});
    }
  }

  uint64_t Workspace(const WorkspaceContext& context) const {
    return SequencesWorkspaceSize(Bind(context.inputs, context.outputs),
                                  ThreadsOf(context.concurrency));
  }

  void Run(const RunContext& context) const {
    const Sequences sequences = Bind(context.inputs, context.outputs);
    const std::string fault = ValidateSequences(sequences);
    Require(fault.empty(), "PackedAttention: ", fault);
    RunSequences(sequences, context.workspace(), RunnerOf(context));
  }

 private:
  static constexpr const char* kName = "PackedAttention";
  enum InputIndex : uint64_t { kQuery, kKey, kValue, kOffsets, kFirst, kHidden, kAttnBias };

  // All sizes of a node, each known from whichever input has it.
  struct Measures {
    Dim heads, kv_heads, positions, head_size, value_size, count;
  };

  template <typename Context>
  Measures Measure(const Context& context) const {
    Measures m;
    const int64_t folded = packed_ ? Size(kv_num_heads_) * 2 + num_heads_ : Size(num_heads_);
    const Sizes query = SizesOf(context, kQuery, query_layout_, num_heads_, folded, kName);
    Same(query.batch, Dim(1), "query", "batch");
    m.heads = query.heads;
    m.positions = query.positions;
    m.head_size = m.value_size = query.features;
    m.kv_heads = kv_num_heads_ > 0 ? Dim(kv_num_heads_) : Dim();
    if (packed_) {
      Require(context.InputRank(kQuery) == 3,
              "PackedAttention: packed_qkv needs a query of rank 3");
      Require(!context.HasInput(kKey) && !context.HasInput(kValue),
              "PackedAttention: packed_qkv leaves no place for key and value");
    } else {
      Require(context.HasInput(kKey) && context.HasInput(kValue),
              "PackedAttention: key and value are needed without packed_qkv");
      const Sizes key = SizesOf(context, kKey, key_layout_, kv_num_heads_, kv_num_heads_, kName);
      const Sizes value =
          SizesOf(context, kValue, value_layout_, kv_num_heads_, kv_num_heads_, kName);
      Same(key.batch, Dim(1), "key", "batch");
      Same(key.positions, m.positions, "key", "positions");
      Same(key.features, m.head_size, "key", "head size");
      Same(value.batch, Dim(1), "value", "batch");
      Same(value.heads, key.heads, "value", "heads");
      Same(value.positions, m.positions, "value", "positions");
      m.kv_heads = key.heads;
      m.value_size = value.features;
    }
    Require(context.InputRank(kOffsets) == 1, "PackedAttention: offsets has rank ",
            context.InputRank(kOffsets), ", needed is 1");
    const Dim bounds = context.InputDim(kOffsets, 0);
    Require(!bounds.known() || bounds.value() > 0,
            "PackedAttention: offsets is empty, needed is one a sequence, and one more");
    m.count = bounds - Dim(1);
    if (context.HasInput(kFirst)) {
      Require(context.InputRank(kFirst) == 1, "PackedAttention: first has rank ",
              context.InputRank(kFirst), ", needed is 1");
      Same(context.InputDim(kFirst, 0), m.count, "first", "length");
    }
    return m;
  }

  static void Same(Dim found, Dim needed, const char* tensor, const char* what) {
    Require(Fits(found, needed), "PackedAttention: ", what, " of ", tensor, " is ", found.value(),
            ", needed is ", needed.value());
  }

  template <typename Outputs>
  Sequences Bind(const Tensors& inputs, const Outputs& outputs) const {
    const RunShapes shapes{inputs};
    const Measures m = Measure(shapes);
    Sequences s;
    s.window_fill = window_fill_;
    Problem& p = s.problem;
    p = problem_;
    const Tensor query = inputs[kQuery];
    p.type = query.type() == kFloat16 ? Type::kFloat16 : Type::kFloat32;
    p.batch = 1;
    p.heads = m.heads.value();
    p.kv_heads = m.kv_heads.value();
    p.queries = p.fresh = m.positions.value();
    p.head_size = m.head_size.value();
    p.value_size = m.value_size.value();
    if (const char* fault = ValidateSizes(p)) {
      throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("PackedAttention: ", fault));
    }
    p.query = {query.raw(), StridesOf(query, query_layout_, p.head_size)};
    if (packed_) {
      // query, key and value stand side by side in each position.
      const char* start = static_cast<const char*>(query.raw());
      const Size head = Size(query.stride(2)) * BytesOf(query.type()) * p.head_size;
      p.key = p.value = p.query;
      p.key.data = start + head * p.heads;
      p.value.data = start + head * (Size(p.heads) + p.kv_heads);
    } else {
      p.key = {inputs[kKey].raw(), StridesOf(inputs[kKey], key_layout_, p.head_size)};
      p.value = {inputs[kValue].raw(), StridesOf(inputs[kValue], value_layout_, p.value_size)};
    }
    p.output.data = const_cast<void*>(outputs[0].raw());
    p.output.strides = StridesOf(outputs[0], output_layout_, p.value_size);
    s.count = m.count.value();
    s.offsets = inputs[kOffsets].template data<int32_t>();
    if (inputs[kFirst].present()) s.first = inputs[kFirst].template data<int32_t>();
    if (const Tensor hidden = inputs[kHidden]; hidden.present()) {
      Require(hidden.elements() == p.fresh, "PackedAttention: hidden has ", hidden.elements(),
              " elements, needed is one a position, ", p.fresh);
      s.hidden = static_cast<const uint8_t*>(hidden.raw());
    }
    if (inputs[kAttnBias].present()) BindBias(inputs[kAttnBias], s);
    return s;
  }

  // A bias that is right-aligned with [B, H, S, S] and repeated where its size is 1.
  static void BindBias(const Tensor& bias, Sequences& s) {
    Require(bias.rank() >= 1 && bias.rank() <= 4, "PackedAttention: attn_bias has rank ",
            bias.rank(), ", needed is 1 to 4");
    int64_t strides[4] = {0, 0, 0, 0};
    const int64_t sizes[2] = {s.count, s.problem.heads};
    for (int axis = 4 - bias.rank(); axis < 4; ++axis) {
      const int from = axis - (4 - bias.rank());
      const int64_t size = bias.dim(from);
      Require(axis >= 2 || size == 1 || size == sizes[axis], "PackedAttention: axis ", from,
              " of attn_bias is ", size, ", needed is 1 or ", sizes[axis < 2 ? axis : 0]);
      if (size == 1) continue;
      strides[axis] = bias.stride(from);
      if (axis == 2) s.bias_rows = size;
      if (axis == 3) s.bias_columns = size;
    }
    s.problem.bias.data = bias.raw();
    s.problem.bias.strides = {strides[0], strides[1], strides[2], strides[3]};
  }

  int64_t num_heads_;
  int64_t kv_num_heads_;
  Layout query_layout_, key_layout_, value_layout_, output_layout_;
  int64_t output_rank_;
  bool packed_;
  float window_fill_;
  Problem problem_;  // what the attributes say; sizes and pointers come with each run
};

}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_REMOVE_PADDING_PACKED_ATTENTION_H_
