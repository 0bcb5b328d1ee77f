// The CUDA variant of FusedGelu: the smallest complete one, for authors to begin with.
#include "gelu/gelu.cuh"
#include "graft/cuda.h"

namespace {

namespace cuda = graft::cuda;

class FusedGelu {
 public:
  static graft::Operator Describe() {
    return graft::Operator("FusedGelu", "Gaussian error linear unit")
        .TypeVariable("T", {graft::kFloat32, graft::kFloat16})
        .Input("x", "T")
        .Output("y", "T")
        .String("approximate", "none");
  }

  explicit FusedGelu(const graft::CreateContext& context) {
    const std::string approximate = context.String("approximate");
    graft::Require(approximate == "none" || approximate == "tanh", "approximate is ", approximate,
                   ", needed is none or tanh");
    tanh_ = approximate == "tanh";
  }

  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }

  void Run(const graft::RunContext& context) const {
    if (context.inputs[0].type() == graft::kFloat16) return Enqueue<cuda::Half>(context);
    Enqueue<float>(context);
  }

 private:
  template <typename T>
  void Enqueue(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    cuda::Check(cuda::gelu::Gelu(x.data<T>(), context.outputs[0].data<T>(), x.elements(), tanh_,
                                 cuda::Limits(), cuda::StreamOf(context)),
                "FusedGelu");
  }

  bool tanh_;
};

}  // namespace

GRAFT_PLUGIN_WITH(graft::cuda::Hooks, FusedGelu);
