// NodewiseAttention: attention with the bits that ONNX Runtime's separate nodes give.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_NODEWISE_ATTENTION_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_NODEWISE_ATTENTION_H_

#include <cstdint>

#include "attention.h"
#include "graft.h"
#include "runner.h"

namespace graft {
namespace quantized {

class NodewiseAttention {
 public:
  static Operator Describe() {
    Operator op("NodewiseAttention",
                "softmax(scale q k + mask) v, with the bits of ONNX Runtime's separate nodes");
    op.Input("q", kFloat32)                // [B, H, S, D]
        .Input("k", kFloat32)              // [B, H, D, T]
        .Input("v", kFloat32)              // [B, H, T, V]
        .OptionalInput("mask", kFloat32);  // rank 4, each axis that of the scores or 1
    op.Output("y", kFloat32)               // [B, H, S, V]
        .Float("scale", 1.0f);
    return op;
  }

  explicit NodewiseAttention(const CreateContext& context)
      : scale_(static_cast<float>(context.Float("scale"))) {}

  void Infer(InferContext& context) const {
    for (const uint32_t input : {kQ, kK, kV, kMask}) {
      if (input == kMask && !context.HasInput(kMask)) continue;
      Require(context.InputRank(input) == 4, "NodewiseAttention: an input has rank ",
              context.InputRank(input), ", needed is 4");
    }
    for (const uint32_t axis : {0u, 1u}) {
      for (const uint32_t input : {kK, kV}) {
        Require(Fits(context.InputDim(input, axis), context.InputDim(kQ, axis)),
                "NodewiseAttention: q, k and v differ in batch or heads");
      }
    }
    Require(Fits(context.InputDim(kK, 2), context.InputDim(kQ, 3)),
            "NodewiseAttention: q and k differ in the size of a head");
    Require(Fits(context.InputDim(kV, 2), context.InputDim(kK, 3)),
            "NodewiseAttention: k and v differ in length");
    context.SetOutput(0, kFloat32,
                      {context.InputDim(kQ, 0), context.InputDim(kQ, 1), context.InputDim(kQ, 2),
                       context.InputDim(kV, 3)});
  }

  uint64_t Workspace(const WorkspaceContext& context) const {
    return Size(AttentionWorkspace(Bind(context.inputs), Threads(context.concurrency)))
        .To<uint64_t>();
  }

  void Run(const RunContext& context) const {
    Attention problem = Bind(context.inputs);
    problem.q = context.inputs[kQ].data<float>();
    problem.k = context.inputs[kK].data<float>();
    problem.v = context.inputs[kV].data<float>();
    if (context.inputs[kMask].present()) problem.mask = context.inputs[kMask].data<float>();
    problem.y = context.outputs[0].data<float>();
    Require(Attend(problem, context.workspace(), RunnerOf(context)),
            "NodewiseAttention: a row of scores has no softmax");
  }

 private:
  enum Input : uint32_t { kQ, kK, kV, kMask };

  Attention Bind(const Tensors& inputs) const {
    const Tensor q = inputs[kQ], k = inputs[kK], v = inputs[kV], mask = inputs[kMask];
    Require(q.compact() && k.compact() && v.compact(),
            "NodewiseAttention: q, k and v must be compact");
    Attention p;
    p.batch = q.dim(0);
    p.heads = q.dim(1);
    p.queries = q.dim(2);
    p.size = q.dim(3);
    p.keys = k.dim(3);
    p.values = v.dim(3);
    p.scale = scale_;
    Require(k.dim(0) == p.batch && k.dim(1) == p.heads && k.dim(2) == p.size &&
                v.dim(0) == p.batch && v.dim(1) == p.heads && v.dim(2) == p.keys,
            "NodewiseAttention: q, k and v do not fit");
    if (!mask.present()) return p;
    Require(mask.compact(), "NodewiseAttention: the mask must be compact");
    const int64_t scores[] = {p.batch, p.heads, p.queries, p.keys};
    Size stride = 1;
    for (int axis = 3; axis >= 0; --axis) {
      const int64_t dim = mask.dim(axis);
      Require(dim == scores[axis] || dim == 1, "NodewiseAttention: axis ", axis,
              " of the mask has length ", dim, ", needed is 1 or ", scores[axis]);
      p.mask_strides[axis] = dim == 1 ? 0 : int64_t{stride};
      stride *= dim;
    }
    return p;
  }

  float scale_;
};

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_NODEWISE_ATTENTION_H_
