// The operator that stands for a block of kind attention: its signature, made of what it can do,
// and tensors and attributes of a node as one problem.
//
//   static constexpr uint32_t kCan = graft::Attention::kPast | graft::Attention::kCausal;
//   static graft::Operator Describe() {
//     return graft::Attention::Describe("MyAttention", "...", {graft::kFloat32}, kCan);
//   }
//   explicit MyAttention(const graft::CreateContext& context) : attention_(context, kCan) {}
//   void Infer(graft::InferContext& context) const { attention_.Infer(context); }
//   void Run(const graft::RunContext& context) const { ... attention_.Bind(context) ... }
//
// A host gives the operator no block that needs more than it can do: without kPast none with a
// past, without kCausal none that hides later keys. Every operator does softmax(scale query key^T)
// value over any sizes, with queries, keys and values [batch, heads, positions, size].
#ifndef GRAFT_KIT_ATTENTION_H_
#define GRAFT_KIT_ATTENTION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "graft/checked.h"
#include "graft/operator.h"

namespace graft {

// A tensor by its axes, whatever its layout: element strides, 0 where one element stands for all.
struct AttentionTensor {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, position = 0, feature = 0;

  explicit operator bool() const { return data != nullptr; }
  // Element 0 of a row: the feature stride says where the others are.
  template <typename T>
  const T* Row(int64_t b, int64_t h, int64_t p) const {
    return static_cast<const T*>(data) + b * batch + h * head + p * position;
  }
};

// What one run computes. Query head h reads key head h * kv_heads / heads. Key j stands at position
// j, the past first; query i at past + i. Score = scale query . key, then softcap * tanh(score /
// softcap), then the bias; keys that are hidden count as minus infinity.
struct AttentionProblem {
  int64_t batch, heads, kv_heads, queries, past, fresh, head_size, value_size;
  float scale, softcap;  // softcap 0: none
  bool causal;           // query i sees keys up to its own position
  int64_t window;        // above 0: and no more than that many
  AttentionTensor query, key, value, past_key, past_value;
  AttentionTensor bias, mask;  // [batch, heads, queries, keys] by strides; mask: bool, 0 hides
  AttentionTensor output;      // written through Mutable
  AttentionTensor present_key, present_value;  // null where the node has none

  int64_t keys() const { return past + fresh; }
  // The first and one past the last key that a query sees by causal and window.
  int64_t First(int64_t query_index) const {
    return window > 0 ? std::max<int64_t>(0, past + query_index + 1 - window) : 0;
  }
  int64_t End(int64_t query_index) const {
    return causal ? std::min(keys(), past + query_index + 1) : keys();
  }
  const float* Key(int64_t b, int64_t h, int64_t j) const {
    return j < past ? past_key.Row<float>(b, h, j) : key.Row<float>(b, h, j - past);
  }
  const float* Value(int64_t b, int64_t h, int64_t j) const {
    return j < past ? past_value.Row<float>(b, h, j) : value.Row<float>(b, h, j - past);
  }
  template <typename T>
  static T* Mutable(const AttentionTensor& t, int64_t b, int64_t h, int64_t p) {
    return const_cast<T*>(t.Row<T>(b, h, p));
  }
};

class Attention {
 public:
  // What an operator can do beside plain attention.
  enum Capability : uint32_t {
    kGroupedHeads = 1,  // fewer key heads than query heads; also kv_num_heads
    kPast = 2,       // past_key and past_value, and present_key and present_value beside the output
    kBias = 4,       // attn_bias, added to scores
    kMask = 8,       // attn_mask, bool: false hides a key
    kCausal = 16,    // is_causal
    kWindow = 32,    // window
    kSoftcap = 64,   // softcap
    kLayouts = 128,  // positions before heads, and heads folded into features: *_layout,
                     // output_rank, num_heads
    // Rarer, which AttentionNode does not bind: an operator with them reads inputs and attributes
    // itself.
    kLengths = 256,       // key_lengths: how many keys of each batch row count; causal_from_lengths
    kPacked = 512,        // packed_qkv
    kScores = 1024,       // the output scores, scores_mode
    kMaskDetails = 2048,  // mask_fill, mask_after_bias, zero_masked_rows, clear_nan
    kAll = 4095,
  };

  // The signature. Inputs are in the order query, key, value, past_key, past_value, attn_bias,
  // attn_mask, key_lengths, outputs in the order output, present_key, present_value, scores: those
  // that the operator can use. All may be strided.
  static Operator Describe(std::string name, std::string summary, std::vector<DataType> types,
                           uint32_t can) {
    Operator op(std::move(name), std::move(summary));
    op.TypeVariable("T", std::move(types)).Input("query", "T", GRAFT_PARAMETER_STRIDED);
    const auto optional = [&](bool given, const char* input, Types type) {
      if (given) op.OptionalInput(input, type, GRAFT_PARAMETER_STRIDED);
    };
    if ((can & (kPast | kPacked)) == 0) {
      op.Input("key", "T", GRAFT_PARAMETER_STRIDED).Input("value", "T", GRAFT_PARAMETER_STRIDED);
    } else {
      optional(true, "key", "T");
      optional(true, "value", "T");
    }
    optional((can & kPast) != 0, "past_key", "T");
    optional((can & kPast) != 0, "past_value", "T");
    optional((can & kBias) != 0, "attn_bias", "T");
    optional((can & kMask) != 0, "attn_mask", kBool);
    if ((can & kLengths) != 0) {
      op.TypeVariable("L", {kInt32, kInt64}).OptionalInput("key_lengths", "L");
    }
    op.Output("output", "T");
    if ((can & kPast) != 0)
      op.OptionalOutput("present_key", "T").OptionalOutput("present_value", "T");
    if ((can & kScores) != 0) op.OptionalOutput("scores", "T");
    op.Float("scale", 0.0);
    if ((can & (kLayouts | kPacked)) != 0) op.Int("num_heads", 0);
    if ((can & (kLayouts | kPacked | kGroupedHeads)) != 0) op.Int("kv_num_heads", 0);
    if ((can & kSoftcap) != 0) op.Float("softcap", 0.0);
    if ((can & kCausal) != 0) op.Int("is_causal", 0);
    if ((can & kWindow) != 0) op.Int("window", 0);
    if ((can & kLengths) != 0) op.Int("causal_from_lengths", 0);
    if ((can & kMaskDetails) != 0) {
      op.Float("mask_fill", -std::numeric_limits<double>::infinity())
          .Int("mask_after_bias", 0)
          .Int("zero_masked_rows", 0)
          .Int("clear_nan", 0);
    }
    if ((can & kLayouts) != 0) {
      op.String("query_layout", "bhsd").String("key_layout", "bhsd").String("value_layout", "bhsd");
      op.String("output_layout", "bhsd").Int("output_rank", 4);
    }
    if ((can & kPacked) != 0) op.Int("packed_qkv", 0);
    if ((can & kScores) != 0) op.Int("scores_mode", 3);
    return op;
  }
};

// A node of an operator that Attention::Describe describes, with any capabilities down to kLayouts.
class AttentionNode {
 public:
  AttentionNode(const CreateContext& c, uint32_t can) : can_(can) {
    scale_ = static_cast<float>(c.Float("scale"));
    if (Can(Attention::kLayouts)) {
      heads_ = c.Int("num_heads");
      rank_ = c.Int("output_rank");
      query_ = LayoutNamed(c, "query_layout");
      key_ = LayoutNamed(c, "key_layout");
      value_ = LayoutNamed(c, "value_layout");
      output_ = LayoutNamed(c, "output_layout");
      Require(heads_ >= 0 && (rank_ == 3 || rank_ == 4) && output_ != Layout::kBhds,
              "attention: num_heads is ", heads_, ", output_rank ", rank_);
    }
    if (Can(Attention::kLayouts | Attention::kGroupedHeads)) kv_heads_ = c.Int("kv_num_heads");
    if (kv_heads_ == 0) kv_heads_ = heads_;
    if (Can(Attention::kSoftcap)) softcap_ = static_cast<float>(c.Float("softcap"));
    if (Can(Attention::kCausal)) causal_ = c.Int("is_causal") != 0;
    if (Can(Attention::kWindow)) window_ = c.Int("window");
    Require(window_ >= 0 && kv_heads_ >= 0, "attention: window is ", window_, ", kv_num_heads ",
            kv_heads_);
    uint64_t next = 3;
    if (Can(Attention::kPast)) past_ = next, next += 2;
    if (Can(Attention::kBias)) bias_ = next++;
    if (Can(Attention::kMask)) mask_ = next++;
  }

  void Infer(InferContext& context) const {
    const Sizes s = Measure(context);
    const DataType type = context.InputType(0);
    const Dim keys = s.past.known() && s.past.value() == 0 ? s.fresh : Dim(s.past) + s.fresh;
    if (rank_ == 3) {
      context.SetOutput(0, type, {s.batch, s.queries, Dim(s.heads) * s.value_size});
    } else if (output_ == Layout::kBshd) {
      context.SetOutput(0, type, {s.batch, s.queries, s.heads, s.value_size});
    } else {
      context.SetOutput(0, type, {s.batch, s.heads, s.queries, s.value_size});
    }
    if (!Can(Attention::kPast)) return;
    context.SetOutput(1, type, {s.batch, s.kv_heads, keys, s.head_size});
    context.SetOutput(2, type, {s.batch, s.kv_heads, keys, s.value_size});
  }

  // The problem of one run. Throws where sizes contradict each other.
  AttentionProblem Bind(const RunContext& context) const {
    const Tensors& in = context.inputs;
    const Sizes s = Measure(Shapes{in});
    AttentionProblem p{};
    p.batch = s.batch.value();
    p.heads = s.heads.value();
    p.kv_heads = s.kv_heads.value();
    p.queries = s.queries.value();
    p.past = s.past.value();
    p.fresh = s.fresh.value();
    p.head_size = s.head_size.value();
    p.value_size = s.value_size.value();
    Require(p.kv_heads > 0 ? p.heads % p.kv_heads == 0 : p.heads == 0, "attention: ", p.heads,
            " heads over ", p.kv_heads, ", needed is a multiple");
    p.scale =
        scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<float>(std::max<int64_t>(p.head_size, 1)));
    p.softcap = softcap_;
    p.causal = causal_;
    p.window = window_;
    p.query = View(in[0], query_, p.head_size);
    if (in[1].present()) {
      p.key = View(in[1], key_, p.head_size);
      p.value = View(in[2], value_, p.value_size);
    }
    if (past_ != 0 && in[past_].present()) {
      p.past_key = View(in[past_], Layout::kBhsd, p.head_size);
      p.past_value = View(in[past_ + 1], Layout::kBhsd, p.value_size);
    }
    if (bias_ != 0) p.bias = Broadcast(in[bias_], p, "attn_bias");
    if (mask_ != 0) p.mask = Broadcast(in[mask_], p, "attn_mask");
    p.output = View(context.outputs[0], output_, p.value_size);
    if (Can(Attention::kPast)) {
      p.present_key = View(context.outputs[1], Layout::kBhsd, p.head_size);
      p.present_value = View(context.outputs[2], Layout::kBhsd, p.value_size);
    }
    return p;
  }

 private:
  enum class Layout { kBhsd, kBshd, kBhds };

  struct Sizes {
    Dim batch, heads, kv_heads, queries, past, fresh, head_size, value_size;
  };
  struct One {
    Dim batch, heads, positions, features;
  };

  // Shapes of a run seen like those of a model being loaded.
  struct Shapes {
    const Tensors& inputs;
    bool HasInput(uint64_t i) const { return inputs[i].present(); }
    int32_t InputRank(uint64_t i) const { return inputs[i].rank(); }
    Dim InputDim(uint64_t i, int32_t axis) const { return Dim(inputs[i].dim(axis)); }
  };

  bool Can(uint32_t what) const { return (can_ & what) != 0; }

  static Layout LayoutNamed(const CreateContext& c, const char* attribute) {
    const std::string name = c.String(attribute);
    if (name == "bhsd") return Layout::kBhsd;
    if (name == "bshd") return Layout::kBshd;
    Require(name == "bhds", "attention: ", attribute, " is ", name,
            ", needed is bhsd, bshd or bhds");
    return Layout::kBhds;
  }

  template <typename Context>
  static One Measure(const Context& c, uint64_t input, Layout layout, int64_t heads) {
    const int32_t rank = c.InputRank(input);
    Require(rank == 4 || (rank == 3 && heads > 0), "attention: input ", input, " has rank ", rank,
            ", needed is 4, or 3 with a number of heads");
    if (rank == 3) {
      const Dim width = c.InputDim(input, 2);
      Require(!width.known() || width.value() % heads == 0, "attention: input ", input, " is ",
              width.value(), " wide, which is no multiple of ", heads, " heads");
      return {c.InputDim(input, 0), Dim(heads), c.InputDim(input, 1), width / Dim(heads)};
    }
    const int head = layout == Layout::kBshd ? 2 : 1;
    const int position = layout == Layout::kBhsd ? 2 : layout == Layout::kBshd ? 1 : 3;
    return {c.InputDim(input, 0), c.InputDim(input, head), c.InputDim(input, position),
            c.InputDim(input, layout == Layout::kBhds ? 2 : 3)};
  }

  template <typename Context>
  Sizes Measure(const Context& c) const {
    const One q = Measure(c, 0, query_, heads_);
    Sizes s{q.batch, q.heads, q.heads, q.positions, Dim(0), Dim(0), q.features, q.features};
    Require(c.HasInput(1) == c.HasInput(2), "attention: key and value must be given together");
    if (c.HasInput(1)) {
      const One k = Measure(c, 1, key_, kv_heads_), v = Measure(c, 2, value_, kv_heads_);
      Same(k.batch, q.batch, "batch of key");
      Same(k.features, q.features, "size of key");
      Same(v.batch, q.batch, "batch of value");
      Same(v.heads, k.heads, "heads of value");
      Same(v.positions, k.positions, "positions of value");
      s.kv_heads = k.heads;
      s.fresh = k.positions;
      s.value_size = v.features;
    }
    if (past_ != 0 && c.HasInput(past_)) {
      Require(c.HasInput(past_ + 1), "attention: past_value is absent");
      const One k = Measure(c, past_, Layout::kBhsd, 0),
                v = Measure(c, past_ + 1, Layout::kBhsd, 0);
      if (!c.HasInput(1)) s.kv_heads = k.heads, s.value_size = v.features;
      Same(k.batch, q.batch, "batch of past_key");
      Same(k.heads, s.kv_heads, "heads of past_key");
      Same(k.features, q.features, "size of past_key");
      Same(v.batch, q.batch, "batch of past_value");
      Same(v.heads, s.kv_heads, "heads of past_value");
      Same(v.positions, k.positions, "positions of past_value");
      Same(v.features, s.value_size, "size of past_value");
      s.past = k.positions;
    }
    return s;
  }

  static void Same(Dim found, Dim needed, const char* what) {
    Require(!found.known() || !needed.known() || found.value() == needed.value(), "attention: the ",
            what, " is ", found.value(), ", needed is ", needed.value());
  }

  template <typename T>
  static AttentionTensor View(const T& t, Layout layout, int64_t features) {
    if (!t.present()) return {};
    if (t.rank() == 3) {
      return {t.raw(), t.stride(0), Size(t.stride(2)) * features, t.stride(1), t.stride(2)};
    }
    const int head = layout == Layout::kBshd ? 2 : 1;
    const int position = layout == Layout::kBhsd ? 2 : layout == Layout::kBshd ? 1 : 3;
    return {t.raw(), t.stride(0), t.stride(head), t.stride(position),
            t.stride(layout == Layout::kBhds ? 2 : 3)};
  }

  // A tensor of up to four axes as [batch, heads, queries, keys]; axes of 1 stand for all.
  static AttentionTensor Broadcast(const Tensor& t, const AttentionProblem& p, const char* name) {
    if (!t.present()) return {};
    const int64_t to[4] = {p.batch, p.heads, p.queries, p.keys()};
    int64_t strides[4] = {};
    Require(t.rank() <= 4, "attention: ", name, " has rank ", t.rank(), ", needed is at most 4");
    for (int32_t axis = 0; axis < t.rank(); ++axis) {
      const int32_t at = axis + 4 - t.rank();
      Require(t.dim(axis) == to[at] || t.dim(axis) == 1, "attention: axis ", axis, " of ", name,
              " is ", t.dim(axis), ", needed is ", to[at], " or 1");
      if (t.dim(axis) != 1) strides[at] = t.stride(axis);
    }
    return {t.raw(), strides[0], strides[1], strides[2], strides[3]};
  }

  uint32_t can_;
  int64_t heads_ = 0, kv_heads_ = 0, rank_ = 4, window_ = 0;
  float scale_ = 0, softcap_ = 0;
  bool causal_ = false;
  Layout query_ = Layout::kBhsd, key_ = Layout::kBhsd, value_ = Layout::kBhsd,
         output_ = Layout::kBhsd;
  uint64_t past_ = 0, bias_ = 0, mask_ = 0;  // places of inputs; 0: the operator has none
};

}  // namespace graft

#endif  // GRAFT_KIT_ATTENTION_H_
