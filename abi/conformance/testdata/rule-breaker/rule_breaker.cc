// Operators that copy their input and break one rule each, to prove that the harness notices.
#include <atomic>
#include <chrono>
#include <thread>

#include "graft.h"

namespace {

graft::Operator Signature(const char* name, uint32_t flags = 0) {
  return graft::Operator(name, "a copy that breaks a rule")
      .Input("x", graft::kFloat32, flags)
      .Output("y", graft::kFloat32);
}

void Copy(const graft::RunContext& context) {
  const graft::Tensor x = context.inputs[0];
  std::memcpy(context.outputs[0].data<float>(), x.data<float>(),
              static_cast<size_t>(x.elements()) * sizeof(float));
}

// Counts on more alignment than is promised.
struct CountsOnAlignment {
  static graft::Operator Describe() { return Signature("CountsOnAlignment"); }
  explicit CountsOnAlignment(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    Copy(context);
    if (reinterpret_cast<uintptr_t>(context.inputs[0].raw()) % 64 != 0) {
      context.outputs[0].data<float>()[0] += 1;
    }
  }
};

// Says that it honours strides, and does not.
struct IgnoresStrides {
  static graft::Operator Describe() { return Signature("IgnoresStrides", GRAFT_PARAMETER_STRIDED); }
  explicit IgnoresStrides(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const { Copy(context); }
};

// Holds scratch in the kernel, which several runs share.
struct SharesScratch {
  static graft::Operator Describe() { return Signature("SharesScratch"); }
  explicit SharesScratch(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    Copy(context);
    const int mine = runs_.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (runs_.load() != mine + 1) context.outputs[0].data<float>()[0] = -1e9f;
  }
  mutable std::atomic<int> runs_{0};
};

// Computes with unknown sizes as if they were numbers.
struct ReckonsWithUnknown {
  static graft::Operator Describe() { return Signature("ReckonsWithUnknown"); }
  explicit ReckonsWithUnknown(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const {
    context.SetOutput(0, graft::kFloat32, {context.InputDim(0, 0).value() * 1 + 0 == 6 ? 6 : 7});
  }
  void Run(const graft::RunContext& context) const { Copy(context); }
};

// Writes one element too many.
struct WritesBeyond {
  static graft::Operator Describe() { return Signature("WritesBeyond"); }
  explicit WritesBeyond(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    Copy(context);
    context.outputs[0].data<float>()[context.inputs[0].elements()] = 0;
  }
};

// Leaves the last element as it was.
struct LeavesOut {
  static graft::Operator Describe() { return Signature("LeavesOut"); }
  explicit LeavesOut(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    for (int64_t i = 0; i + 1 < x.elements(); ++i) {
      context.outputs[0].data<float>()[i] = x.data<float>()[i];
    }
  }
};

// Gives one of its outputs no shape.
struct GivesNoShape {
  static graft::Operator Describe() {
    return Signature("GivesNoShape").OptionalOutput("more", graft::kFloat32);
  }
  explicit GivesNoShape(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const { Copy(context); }
};

}  // namespace

GRAFT_PLUGIN(CountsOnAlignment, IgnoresStrides, SharesScratch, ReckonsWithUnknown, WritesBeyond,
             LeavesOut, GivesNoShape);
