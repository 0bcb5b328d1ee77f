// A plugin that uses every part of the kit once, for the tests: it computes nothing of interest.
#include <cmath>
#include <stdexcept>

#include "graft.h"

namespace {

// y = x + bias + (sum of the attributes) in row-major order, through the workspace; count =
// elements of x, doubled = 2 y; rows at and beyond lengths[0] are zero.
class Everything {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Everything", "uses each kind of parameter and attribute")
        .TypeVariable("T", {graft::kFloat32, graft::kFloat16})
        .Input("x", "T")
        .OptionalInput("bias", "T")
        .OptionalInput("unused", "T")
        .OptionalInput("lengths", {graft::kInt32, graft::kInt64})
        .Output("y", "T")
        .OptionalOutput("count", graft::kInt64)
        .OptionalOutput("doubled", "T")
        .Int("int", 0)
        .Float("float", 0)
        .String("string", "")
        .Ints("ints", {})
        .Floats("floats", {});
  }

  explicit Everything(const graft::CreateContext& context) {
    sum_ = static_cast<double>(context.Int("int")) + context.Float("float") +
           static_cast<double>(context.String("string").size());
    for (const int64_t value : context.Ints("ints")) sum_ += static_cast<double>(value);
    for (const float value : context.Floats("floats")) sum_ += value;
    const graft::Tensor bias = context.Constant(1);
    if (bias && bias.elements() == 1 && bias.type() == graft::kFloat32) {
      constant_ = bias.data<float>()[0];
    }
  }

  void Infer(graft::InferContext& context) const {
    context.SetOutputLike(0, 0);
    context.SetOutput(1, graft::kInt64, {1});
    context.SetOutputLike(2, 0);
  }

  uint64_t Workspace(const graft::WorkspaceContext& context) const {
    return static_cast<uint64_t>(context.inputs[0].elements()) * sizeof(double);
  }

  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    const int64_t count = x.elements();
    const int64_t rows = x.rank() > 0 ? x.dim(0) : 1;
    auto* wide = static_cast<double*>(context.workspace());
    graft::Require(count == 0 || reinterpret_cast<uintptr_t>(wide) % 64 == 0,
                   "workspace is unaligned");
    const int64_t valid = Length(context.inputs[3], rows);
    context.ParallelFor(static_cast<uint64_t>(rows), [&](uint64_t row) {
      const int64_t width = count / rows;
      for (int64_t i = 0; i < width; ++i) {
        const int64_t at = static_cast<int64_t>(row) * width + i;
        wide[at] =
            static_cast<int64_t>(row) < valid ? Get(x, at) + Bias(context.inputs[1], at) + sum_ : 0;
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      Set(context.outputs[0], i, wide[i]);
      if (context.outputs[2]) Set(context.outputs[2], i, 2 * wide[i]);
    }
    if (context.outputs[1]) context.outputs[1].data<int64_t>()[0] = count;
    context.Log(GRAFT_LOG_DEBUG, "ran");
  }

 private:
  double Bias(const graft::Tensor& bias, int64_t at) const {
    if (!std::isnan(constant_)) return constant_;
    return bias ? Get(bias, at % bias.elements()) : 0;
  }
  static int64_t Length(const graft::Tensor& lengths, int64_t otherwise) {
    if (!lengths) return otherwise;
    if (lengths.type() == graft::kInt32) return lengths.data<int32_t>()[0];
    return lengths.data<int64_t>()[0];
  }
  static double Get(const graft::Tensor& tensor, int64_t at) {
    if (tensor.type() == graft::kFloat16) return tensor.data<graft::Float16>()[at].ToFloat();
    return tensor.data<float>()[at];
  }
  static void Set(const graft::MutableTensor& tensor, int64_t at, double value) {
    if (tensor.type() == graft::kFloat16) {
      tensor.data<graft::Float16>()[at] = graft::Float16::From(static_cast<float>(value));
    } else {
      tensor.data<float>()[at] = static_cast<float>(value);
    }
  }

  double sum_ = 0;
  double constant_ = std::nan("");
};

// y = sum of all inputs, two at least.
class Total {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Total", "adds any number of tensors of one shape")
        .TypeVariable("T", {graft::kFloat32, graft::kInt64})
        .VariadicInput("terms", "T", 2)
        .Output("y", "T");
  }
  explicit Total(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    if (context.inputs[0].type() == graft::kFloat32) return Add<float>(context);
    Add<int64_t>(context);
  }

 private:
  template <typename T>
  static void Add(const graft::RunContext& context) {
    for (int64_t i = 0; i < context.inputs[0].elements(); ++i) {
      T sum = 0;
      for (uint64_t k = 0; k < context.inputs.size(); ++k) sum += context.inputs[k].data<T>()[i];
      context.outputs[0].data<T>()[i] = sum;
    }
  }
};

// Joins two tensors along the last axis, and reads its input through strides.
class Join {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Join", "concatenates along the last axis")
        .Input("a", graft::kFloat32, GRAFT_PARAMETER_STRIDED)
        .Input("b", graft::kFloat32)
        .Output("y", graft::kFloat32);
  }
  explicit Join(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const {
    graft::Require(context.InputRank(0) == 2 && context.InputRank(1) == 2, "Join: rank 2 needed");
    graft::Require(Fits(context.InputDim(0, 0), context.InputDim(1, 0)), "Join: rows differ");
    context.SetOutput(0, graft::kFloat32,
                      {context.InputDim(0, 0), context.InputDim(0, 1) + context.InputDim(1, 1)});
  }
  void Run(const graft::RunContext& context) const {
    const graft::Tensor a = context.inputs[0], b = context.inputs[1];
    float* y = context.outputs[0].data<float>();
    for (int64_t row = 0; row < a.dim(0); ++row) {
      for (int64_t i = 0; i < a.dim(1); ++i) {
        *y++ = a.data<float>()[row * a.stride(0) + i * a.stride(1)];
      }
      for (int64_t i = 0; i < b.dim(1); ++i) *y++ = b.data<float>()[row * b.dim(1) + i];
    }
  }
};

// y = x + 1, which may take the place of x; shared: whether it did.
class Increment {
 public:
  static constexpr graft::InPlace kInPlace{0, 0};
  static graft::Operator Describe() {
    return graft::Operator("Increment", "adds one in place")
        .Input("x", graft::kFloat32)
        .Output("y", graft::kFloat32)
        .Output("shared", graft::kInt64);
  }
  explicit Increment(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const {
    context.SetOutputLike(0, 0);
    context.SetOutput(1, graft::kInt64, {1});
  }
  void Run(const graft::RunContext& context) const {
    const float* x = context.inputs[0].data<float>();
    float* y = context.outputs[0].data<float>();
    context.outputs[1].data<int64_t>()[0] = x == y;
    for (int64_t i = 0; i < context.inputs[0].elements(); ++i) y[i] = x[i] + 1;
  }
};

// Throws where `where` says: create, infer, run, task.
class Fails {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Fails", "throws")
        .Input("x", graft::kFloat32)
        .Output("y", graft::kFloat32)
        .String("where", "")
        .Required();
  }
  explicit Fails(const graft::CreateContext& context) : where_(context.String("where")) {
    if (where_ == "create") throw std::logic_error("create failed");
  }
  void Infer(graft::InferContext& context) const {
    if (where_ == "infer") throw std::logic_error("infer failed");
    context.SetOutputLike(0, 0);
  }
  void Run(const graft::RunContext& context) const {
    if (where_ == "run") throw 7;
    context.ParallelFor(64, [&](uint64_t i) {
      if (where_ == "task" && i % 8 == 5) throw std::runtime_error("task failed");
    });
    graft::Unsupported("nothing else");
  }

 private:
  std::string where_;
};

// Halves the constant w; refuses one that holds a negative number.
struct Hooks {
  static void Fold(const graft::FoldContext& context) {
    const graft::Tensor w = context.Constant("w");
    std::vector<double> half;
    for (int64_t i = 0; i < w.elements(); ++i) {
      if (w.data<double>()[i] < 0)
        context.Refuse("w holds ", w.data<double>()[i], ", which is negative");
      half.push_back(w.data<double>()[i] * context.Float("factor", 0.5));
    }
    context.Emit("half", {w.elements()}, half.data());
  }
  static int32_t Probe(const graft_device&, std::string* reason) {
    *reason = "made for tests";
    return 1;
  }
};

// What an engine calls.
class Step : public Increment {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Step", "adds one, for an engine")
        .Input("x", graft::kFloat32)
        .Output("y", graft::kFloat32)
        .Output("shared", graft::kInt64);
  }
  using Increment::Increment;
};

}  // namespace

GRAFT_PLUGIN_WITH(Hooks, Everything, Total, Join, Fails, Increment, graft::ForEngine<Step>);
