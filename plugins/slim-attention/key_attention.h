// The operator KeyAttention: attention over a pool that holds keys and no values.
#ifndef GRAFT_PLUGINS_SLIM_ATTENTION_KEY_ATTENTION_H_
#define GRAFT_PLUGINS_SLIM_ATTENTION_KEY_ATTENTION_H_

#include <cstdint>
#include <string>

#include "hidden_state_attention.h"

namespace graft {
namespace row_attention {

// Attention of T tokens over cached keys (Graef: Slim attention, 2025, equation 2.1): each key is a
// row of all heads side by side, from which values follow by W_KV. Inputs:
//
//   query         [T, ...], num_heads * head_size floats a token, turned already where there are
//                 rotary positions
//   cache         [blocks, floats], rows of num_heads * head_size at `offset`, written in place
//   sequences [G, 8], shared_slots [*], private_slots [*]: see flash-decode's cached.h;
//                 private_slots may be absent
//   value_weight  [num_heads, ceil(value_size / 16), num_heads * head_size, 16], from the fold
//   value_bias    [num_heads * value_size], from the fold
//   bias          [num_heads, D], added to the score of a key that is d positions before the query;
//                 D - 1 stands for all that are further
//   key [T, ...], slot_mapping [T]: keys written to the slots of cache (or -1) before anything is
//                 read
//   cos, sin      [positions, r / 2], rotary angles by position, r <= head_size
//
// Keys are stored as they are projected and turned when scores are computed (section 4, option 1),
// or with rotated = 1 as `key` brings them, turned already, and turned back for the weighted sum
// (option 2). rotary says which features turn together: half (j and j + r/2) or interleaved (2j and
// 2j + 1).
//
// Outputs: output [T, num_heads, 1, value_size], or as output_layout and output_rank say; skipped
// [T, num_heads], the probability of the keys that `skip` left out of the weighted sum: see
// row_attention.h.
class KeyAttention : public RowAttention {
 public:
  static Operator Describe() {
    Operator description("KeyAttention", "attention over keys, from which values are computed");
    description.Input("query", kFloat32)
        .Input("cache", kFloat32)
        .Input("sequences", kInt32)
        .Input("shared_slots", kInt32)
        .Input("value_weight", kFloat32)
        .OptionalInput("value_bias", kFloat32)
        .OptionalInput("bias", kFloat32)
        .OptionalInput("private_slots", kInt32)
        .OptionalInput("key", kFloat32)
        .OptionalInput("slot_mapping", kInt32)
        .OptionalInput("cos", kFloat32)
        .OptionalInput("sin", kFloat32)
        .Output("output", kFloat32)
        .OptionalOutput("skipped", kFloat32)
        .String("rotary", "none")
        .Int("rotated", 0)
        .Float("skip", 0.0);
    return RowAttention::Describe(description);
  }

  explicit KeyAttention(const CreateContext& context)
      : RowAttention("KeyAttention", context),
        rotary_(RotaryOf(context.String("rotary"))),
        rotated_(context.Int("rotated") != 0),
        skip_(static_cast<float>(context.Float("skip"))) {
    Require(rotary_ != Rotary::kNone || !rotated_,
            "KeyAttention: rotated is 1 and rotary none, needed is half or interleaved");
    Require(skip_ >= 0 && skip_ < 1, "KeyAttention: skip is ", skip_,
            ", needed is a probability below 1");
  }

  void Infer(InferContext& context) const {
    InferOutput(context);
    context.SetOutput(1, kFloat32, {context.InputDim(kQuery, 0), heads_});
  }

  uint64_t Workspace(const WorkspaceContext& context) const {
    Problem p = Bind(context.inputs);
    p.skipped = const_cast<float*>(DataOf<float>(context.outputs[1]));
    return WorkspaceSize(p, attention::ThreadsOf(context.concurrency));
  }

  void Run(const RunContext& context) const {
    Problem p = Bind(context.inputs);
    if (context.outputs[1].present()) p.skipped = context.outputs[1].data<float>();
    Compute(p, context);
  }

 private:
  enum Input : uint64_t {
    kQuery,
    kCache,
    kSequences,
    kSharedSlots,
    kValueWeight,
    kValueBias,
    kBias,
    kPrivateSlots,
    kKey,
    kSlotMapping,
    kCos,
    kSin
  };

  static Rotary RotaryOf(const std::string& rotary) {
    if (rotary == "half") return Rotary::kHalf;
    if (rotary == "interleaved") return Rotary::kInterleaved;
    Require(rotary == "none", "KeyAttention: rotary is ", rotary,
            ", needed is none, half or interleaved");
    return Rotary::kNone;
  }

 protected:
  // Shapes, and pointers where there is memory already.
  Problem Bind(const Tensors& inputs) const {
    const Size width = Size(heads_) * head_size_;
    Problem p;
    BindSizes(p);
    p.kind = RowKind::kKeys;
    p.kv_heads = heads_;
    p.skip = skip_;
    p.tokens = inputs[kQuery].rank() > 0 ? inputs[kQuery].dim(0) : 0;
    p.query = FloatsOf(inputs[kQuery], "query", p.tokens, width);
    p.query_stride = width;
    p.pool = RowsIn(name_, inputs[kCache], width, offset_, storage_);
    BindLists(inputs[kSequences], inputs[kSharedSlots], inputs[kPrivateSlots], p);
    BindBias(inputs[kBias], p);
    p.value_weight = PanelsOf(inputs[kValueWeight], "value_weight", heads_, value_size_, width);
    p.value_bias = FloatsOf(inputs[kValueBias], "value_bias", heads_, value_size_);
    p.input = FloatsOf(inputs[kKey], "key", p.tokens, width);
    p.input_stride = width;
    p.slot_mapping = SlotsOf(inputs[kSlotMapping], "slot_mapping", p.tokens);
    BindRotary(inputs[kCos], inputs[kSin], p);
    return p;
  }

 private:
  void BindRotary(const Tensor& cosine, const Tensor& sine, Problem& p) const {
    const bool turns = rotary_ != Rotary::kNone;
    Require(cosine.present() == turns && sine.present() == turns, name_,
            ": cos and sin go with rotary half or interleaved, and only with these");
    if (!turns) return;
    Require(cosine.rank() == 2 && sine.rank() == 2 && cosine.dim(0) == sine.dim(0) &&
                cosine.dim(1) == sine.dim(1),
            name_, ": cos has rank ", cosine.rank(), " and ", cosine.elements(), " elements, sin ",
            sine.rank(), " and ", sine.elements(),
            ", needed are two tables [positions, rotary size / 2]");
    p.rotary = rotary_;
    p.rotated = rotated_;
    p.cosine = DataOf<float>(cosine);
    p.sine = DataOf<float>(sine);
    p.positions = cosine.dim(0);
    p.pairs = cosine.dim(1);
  }

  Rotary rotary_;
  bool rotated_;
  float skip_;
};

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_SLIM_ATTENTION_KEY_ATTENTION_H_
