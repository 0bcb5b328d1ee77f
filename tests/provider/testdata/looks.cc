// A plugin that says what ONNX Runtime gives it. Built once for the CPU and once said to be for
// CUDA: the code is the CPU's both times, which the played CUDA runtime lets run.
#include <cstdio>
#include <cstring>

#include "graft.h"

namespace {

void Say(const char* what, graft_device device) {
  std::fprintf(stderr, GRAFT_PLUGIN_DEVICE " %s device %d:%d\n", what, device.type, device.id);
}

// y = a and b, side by side.
class Join {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Join", "concatenates along the last axis")
        .Input("a", graft::kFloat32)
        .Input("b", graft::kFloat32, GRAFT_PARAMETER_HOST_MEMORY)
        .Output("y", graft::kFloat32);
  }
  explicit Join(const graft::CreateContext& context) { Say("create", context.device()); }
  void Infer(graft::InferContext& context) const {
    context.SetOutput(0, graft::kFloat32,
                      {context.InputDim(0, 0), context.InputDim(0, 1) + context.InputDim(1, 1)});
  }
  uint64_t Workspace(const graft::WorkspaceContext&) const { return 4096; }
  void Run(const graft::RunContext& context) const {
    const graft::Tensor a = context.inputs[0], b = context.inputs[1];
    std::fprintf(stderr, GRAFT_PLUGIN_DEVICE " run stream %p\n", context.stream());
    Say("input a", a.device());
    Say("input b", b.device());
    Say("output", context.outputs[0].device());
    std::memset(context.workspace(), 1, context.workspace_size());
    float* y = context.outputs[0].data<float>();
    for (int64_t row = 0; row < a.dim(0); ++row) {
      for (const graft::Tensor& x : {a, b}) {
        for (int64_t i = 0; i < x.dim(1); ++i) *y++ = x.data<float>()[row * x.dim(1) + i];
      }
    }
  }
};

struct Hooks {
  static int32_t Probe(const graft_device&, std::string*) { return 1; }
};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, Join);
