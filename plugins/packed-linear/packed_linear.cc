// PackedLinear: y = x W + b with a constant W, and PackPanels, which lays W out for it, as
// operators.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "graft.h"
#include "linear.h"
#include "quantized.h"

namespace {

namespace linear = graft::linear;

int64_t Threads(int32_t concurrency) { return std::max<int32_t>(1, concurrency); }

// The threads of a run.
linear::Runner RunnerOf(const graft::RunContext& context) {
  linear::Runner runner;
  runner.threads = Threads(context.concurrency());
  runner.context = const_cast<graft::RunContext*>(&context);
  runner.parallel_for = [](void* host, int64_t count, void (*task)(void*, int64_t),
                           void* argument) {
    static_cast<const graft::RunContext*>(host)->ParallelFor(
        static_cast<uint64_t>(count), [&](uint64_t i) { task(argument, static_cast<int64_t>(i)); });
  };
  return runner;
}

// What weights in panels may be, in the order of linear::WeightType.
constexpr graft::DataType kPanelTypes[] = {graft::kFloat32, graft::kInt8, graft::kUInt8,
                                           graft::kBFloat16};

linear::WeightType WeightTypeOf(graft::DataType type) {
  const auto* found = std::find(std::begin(kPanelTypes), std::end(kPanelTypes), type);
  return static_cast<linear::WeightType>(found - std::begin(kPanelTypes));
}

constexpr int64_t kGroups[] = {32, 64, 128};

class PackedLinear {
 public:
  static graft::Operator Describe() {
    return graft::Operator("PackedLinear", "a matmul of few rows with a constant matrix")
        .Input("x", graft::kFloat32)  // [..., K]
        // [K, N], [N, K] when transposed, or panels of PackPanels
        .Input("weight", {graft::kFloat32, graft::kInt8, graft::kUInt8, graft::kBFloat16})
        .OptionalInput("bias", graft::kFloat32)         // [N] or [1]
        .OptionalInput("residual", graft::kFloat32)     // [..., N], added after the activation
        .OptionalInput("norm_scale", graft::kFloat32)   // [K]: rows of x are normalized first
        .OptionalInput("norm_bias", graft::kFloat32)    // [K]
        .OptionalInput("after_scale", graft::kFloat32)  // [N]: y is normalized
        .OptionalInput("after_bias", graft::kFloat32)   // [N]
        // Scales of PackPanels, where panels are integers, or of whoever made these
        .OptionalInput("weight_scale", {graft::kBFloat16, graft::kFloat32})
        // What stands for zero among integers, laid out as their scales are, of either
        .OptionalInput("weight_zero_point", graft::kInt8)
        .Output("y", graft::kFloat32)           // [..., N / parts]
        .OptionalOutput("y1", graft::kFloat32)  // the second of the parts
        .OptionalOutput("y2", graft::kFloat32)  // the third
        // none, gelu, gelu_tanh, gelu_quick, relu, silu; needs panels
        .String("activation", "none")
        .Float("norm_epsilon", 1e-5)
        .Int("norm_centred", 1)  // 0: by the root mean square, no mean is taken off x
        .Float("after_epsilon", 1e-5)
        .Int("transposed", 0)
        .Int("columns", 0)  // N, where weight is [N / 16, rounded up][K][16], of PackPanels
        // What x is multiplied as where panels are integers: int8 or int16, rounded by row and
        // group, or float32
        .String("activations", "int8")
        .Int("parts", 1)   // outputs that N is cut into, each of whole panels
        .Int("gated", 0);  // y is activation(first half of N) times the second
  }

  explicit PackedLinear(const graft::CreateContext& context) {
    const int64_t transposed = context.Int("transposed");
    graft::Require(transposed == 0 || transposed == 1, "PackedLinear: transposed is ", transposed,
                   ", needed is 0 or 1");
    transposed_ = transposed == 1;
    columns_ = context.Int("columns");
    norm_epsilon_ = static_cast<float>(context.Float("norm_epsilon"));
    after_epsilon_ = static_cast<float>(context.Float("after_epsilon"));
    const int64_t centred = context.Int("norm_centred");
    graft::Require(centred == 0 || centred == 1, "PackedLinear: norm_centred is ", centred,
                   ", needed is 0 or 1");
    norm_centred_ = centred == 1;
    parts_ = context.Int("parts");
    gated_ = context.Int("gated") != 0;
    graft::Require(
        !gated_ || (parts_ == 1 && columns_ > 0 && columns_ % (2 * linear::kPanelColumns) == 0),
        "PackedLinear: a gate needs a weight in panels, one part, and columns that are a "
        "multiple of ",
        2 * linear::kPanelColumns, "; columns is ", columns_);
    graft::Require(parts_ >= 1 && parts_ <= linear::kMaxParts, "PackedLinear: parts is ", parts_,
                   ", needed is 1 to ", linear::kMaxParts);
    graft::Require(
        parts_ == 1 || (columns_ > 0 && columns_ % (parts_ * linear::kPanelColumns) == 0),
        "PackedLinear: ", parts_,
        " parts need a weight in panels, and columns that are a "
        "multiple of ",
        parts_ * linear::kPanelColumns, "; columns is ", columns_);
    graft::Require(columns_ >= 0, "PackedLinear: columns is ", columns_, ", needed is 0 or more");
    graft::Require(columns_ == 0 || !transposed_, "PackedLinear: panels are never transposed");
    const std::string activation = context.String("activation");
    const char* const names[] = {"none", "gelu", "gelu_tanh", "gelu_quick", "relu", "silu"};
    const auto* found = std::find(std::begin(names), std::end(names), activation);
    graft::Require(found != std::end(names), "PackedLinear: activation is ", activation,
                   ", needed is none, gelu, gelu_tanh, gelu_quick, relu or silu");
    activation_ = static_cast<linear::Activation>(found - std::begin(names));
    graft::Require(columns_ > 0 || activation_ == linear::Activation::kNone,
                   "PackedLinear: an activation needs a weight in panels");
    const std::string activations = context.String("activations");
    const char* const types[] = {"int8", "int16", "float32"};
    const auto* type = std::find(std::begin(types), std::end(types), activations);
    graft::Require(type != std::end(types), "PackedLinear: activations is ", activations,
                   ", needed is int8, int16 or float32");
    row_type_ = static_cast<linear::RowType>(type - std::begin(types));
  }

  void Infer(graft::InferContext& context) const {
    const int32_t rank = context.InputRank(kX);
    graft::Require(rank >= 1, "PackedLinear: x is a number, needed is [..., K]");
    const int32_t needed = columns_ > 0 ? 3 : 2;
    graft::Require(context.InputRank(kWeight) == needed, "PackedLinear: weight has rank ",
                   context.InputRank(kWeight), ", needed is ", needed);
    const linear::WeightType type = WeightTypeOf(context.InputType(kWeight));
    const bool integers = linear::IsInteger(type);
    graft::Require(type == linear::WeightType::kFloat32 || columns_ > 0, "PackedLinear: weight is ",
                   context.InputType(kWeight), ", needed is float where it does not lie in panels");
    graft::Require(context.HasInput(kWeightScale) == integers, "PackedLinear: a weight of ",
                   context.InputType(kWeight),
                   integers ? " needs weight_scale" : " takes no weight_scale");
    graft::Require(integers || !context.HasInput(kWeightZero), "PackedLinear: a weight of ",
                   context.InputType(kWeight), " takes no weight_zero_point");
    const graft::Dim depth = context.InputDim(
        integers ? kX : kWeight, integers ? -1 : (transposed_ || columns_ > 0 ? 1 : 0));
    graft::Dim columns = context.InputDim(kWeight, transposed_ ? 0 : 1);
    if (columns_ > 0) {
      const graft::Dim panels = context.InputDim(kWeight, 0), width = context.InputDim(kWeight, 2);
      const graft::Dim needed = graft::DivideUp(graft::Size(columns_), linear::kPanelColumns);
      graft::Require(Fits(panels, needed) && Fits(width, graft::Dim(linear::kPanelColumns)),
                     "PackedLinear: weight is ", panels.value(), " panels of ", width.value(),
                     " columns, needed are ", needed.value(), " of ", linear::kPanelColumns,
                     " for ", columns_, " columns");
      columns = graft::Dim(columns_);
    }
    if (integers) InferIntegers(context, type, depth);
    graft::Require(Fits(context.InputDim(kX, -1), depth), "PackedLinear: rows of x have ",
                   context.InputDim(kX, -1).value(), " elements, weight takes ", depth.value());
    if (context.HasInput(kBias)) {
      const graft::Dim bias = context.InputDim(kBias, 0);
      graft::Require(context.InputRank(kBias) == 1 && (Fits(bias, columns) || Fits(bias, 1)),
                     "PackedLinear: bias has ", bias.value(), " elements in rank ",
                     context.InputRank(kBias), ", needed is ", columns.value(), " in rank 1");
    }
    if (context.HasInput(kResidual)) {
      graft::Require(columns_ > 0 && parts_ == 1 && !gated_,
                     "PackedLinear: a residual needs a weight in panels, one part and no gate");
      graft::Require(context.InputRank(kResidual) == rank, "PackedLinear: residual has rank ",
                     context.InputRank(kResidual), ", x has ", rank);
      for (int32_t i = 0; i < rank; ++i) {
        const graft::Dim needed = i + 1 < rank ? context.InputDim(kX, i) : columns;
        graft::Require(Fits(context.InputDim(kResidual, i), needed), "PackedLinear: residual has ",
                       context.InputDim(kResidual, i).value(), " elements on axis ", i,
                       ", needed are ", needed.value());
      }
    }
    for (const Input norm : {kNormScale, kNormBias, kAfterScale, kAfterBias}) {
      if (!context.HasInput(norm)) continue;
      const bool after = norm == kAfterScale || norm == kAfterBias;
      graft::Require(columns_ > 0, "PackedLinear: a normalization needs a weight in panels");
      graft::Require(context.HasInput(after ? kAfterScale : kNormScale), "PackedLinear: ",
                     after ? "after_bias needs after_scale" : "norm_bias needs norm_scale");
      graft::Require(!after || (parts_ == 1 && !gated_),
                     "PackedLinear: parts and what is gated are not normalized");
      const graft::Dim length = after ? columns : depth;
      graft::Require(context.InputRank(norm) == 1 && Fits(context.InputDim(norm, 0), length),
                     "PackedLinear: a normalization takes ", context.InputDim(norm, 0).value(),
                     " elements, rows have ", length.value());
    }
    graft::Dim dims[GRAFT_MAX_RANK];
    for (int32_t i = 0; i + 1 < rank; ++i) dims[i] = context.InputDim(kX, i);
    dims[rank - 1] =
        parts_ == 1 && !gated_ ? columns : graft::Dim(columns_ / (gated_ ? 2 : parts_));
    for (int32_t i = 0; i < parts_; ++i) context.SetOutput(i, graft::kFloat32, dims, rank);
  }

  uint64_t Workspace(const graft::WorkspaceContext& context) const {
    const linear::Problem problem = Bind(context.inputs);
    const graft::Size bytes = linear::WorkspaceSize(problem, Threads(context.concurrency));
    return (bytes + SpreadBytes(context.inputs, problem)).To<uint64_t>();
  }

  void Run(const graft::RunContext& context) const {
    linear::Problem problem = Bind(context.inputs);
    problem.x = context.inputs[kX].data<float>();
    if (problem.type == linear::WeightType::kFloat32) {
      problem.weight = context.inputs[kWeight].data<float>();
    } else {
      problem.quantized = context.inputs[kWeight].raw();
    }
    if (const graft::Tensor scale = context.inputs[kWeightScale]; scale.present()) {
      problem.weight_scale = scale.raw();
      problem.wide_scales = scale.type() == graft::kFloat32;
    }
    if (const graft::Tensor zero = context.inputs[kWeightZero]; zero.present()) {
      graft::Require(zero.compact(), "PackedLinear: weight_zero_point must be compact");
      problem.weight_zero = zero.data<int8_t>();
    }
    problem.y = context.outputs[0].data<float>();
    for (int64_t i = 1; i < parts_; ++i) {
      graft::Require(context.outputs[static_cast<size_t>(i)].present(), "PackedLinear: ", parts_,
                     " parts need as many outputs");
      problem.more[i - 1] = context.outputs[static_cast<size_t>(i)].data<float>();
    }
    if (const graft::Tensor residual = context.inputs[kResidual]; residual.present()) {
      graft::Require(residual.compact(), "PackedLinear: residual must be compact");
      const graft::Size needed = graft::Size(problem.rows) * problem.columns;
      graft::Require(residual.elements() == needed, "PackedLinear: residual has ",
                     residual.elements(), " elements, y has ", needed);
      problem.residual = residual.data<float>();
    }
    char* workspace = static_cast<char*>(context.workspace());
    if (const graft::Tensor bias = context.inputs[kBias]; bias.present()) {
      problem.bias = bias.data<float>();
      if (const uint64_t bytes = SpreadBytes(context.inputs, problem); bytes != 0) {
        float* spread = reinterpret_cast<float*>(workspace);
        std::fill_n(spread, problem.columns, *problem.bias);
        problem.bias = spread;
        workspace += bytes;
      }
    }
    linear::Run(problem, workspace, RunnerOf(context));
  }

 private:
  enum Input {
    kX,
    kWeight,
    kBias,
    kResidual,
    kNormScale,
    kNormBias,
    kAfterScale,
    kAfterBias,
    kWeightScale,
    kWeightZero
  };

  // Sizes of panels of integers and of their scales, for rows of so many numbers.
  void InferIntegers(const graft::InferContext& context, linear::WeightType type,
                     graft::Dim depth) const {
    const graft::Dim rows = context.InputDim(kWeight, 1);
    if (depth.known()) {
      const graft::Dim needed(linear::ShapeOf(type, depth.value(), columns_, kGroups[0]).rows);
      graft::Require(Fits(rows, needed), "PackedLinear: panels have ", rows.value(),
                     " rows, needed are ", needed.value(), " for rows of x with ", depth.value(),
                     " elements");
    }
    graft::Require(context.InputRank(kWeightScale) == 3, "PackedLinear: weight_scale has rank ",
                   context.InputRank(kWeightScale), ", needed is 3");
    const graft::Dim panels = context.InputDim(kWeightScale, 0);
    const graft::Dim groups = context.InputDim(kWeightScale, 1);
    const graft::Dim width = context.InputDim(kWeightScale, 2);
    graft::Require(Fits(panels, context.InputDim(kWeight, 0)) &&
                       Fits(width, graft::Dim(linear::kPanelColumns)),
                   "PackedLinear: weight_scale is ", panels.value(), " panels of ", width.value(),
                   " columns, weight is ", context.InputDim(kWeight, 0).value(), " of ",
                   linear::kPanelColumns);
    if (depth.known() && groups.known()) GroupOf(depth.value(), groups.value());
    if (!context.HasInput(kWeightZero)) return;
    graft::Require(context.InputRank(kWeightZero) == 3, "PackedLinear: weight_zero_point has rank ",
                   context.InputRank(kWeightZero), ", needed is 3");
    for (int32_t i = 0; i < 3; ++i) {
      graft::Require(Fits(context.InputDim(kWeightZero, i), context.InputDim(kWeightScale, i)),
                     "PackedLinear: weight_zero_point has ",
                     context.InputDim(kWeightZero, i).value(), " elements on axis ", i,
                     ", weight_scale has ", context.InputDim(kWeightScale, i).value());
    }
  }

  // Positions of the depth that share a scale.
  static int64_t GroupOf(int64_t depth, int64_t groups) {
    for (const int64_t group : kGroups) {
      if (graft::DivideUp(graft::Size(depth), group) == groups) return group;
    }
    throw graft::Error(GRAFT_ERROR_INVALID_ARGUMENT,
                       graft::Text("PackedLinear: weight_scale has ", groups, " groups for ", depth,
                                   " positions, needed is one for 32, 64 or 128"));
  }

  // Sizes and strides.
  linear::Problem Bind(const graft::Tensors& inputs) const {
    const graft::Tensor x = inputs[kX], weight = inputs[kWeight];
    graft::Require(x.compact() && weight.compact(), "PackedLinear: x and weight must be compact");
    linear::Problem problem;
    problem.transposed = transposed_;
    problem.panels = columns_ > 0;
    problem.depth = x.dim(-1);
    problem.columns = columns_ > 0 ? columns_ : weight.dim(transposed_ ? 0 : 1);
    problem.rows = graft::ElementsOf(x.shape(), x.rank() - 1);
    problem.x_stride = problem.depth;
    problem.type = WeightTypeOf(weight.type());
    problem.row_type = row_type_;
    if (linear::IsInteger(problem.type)) {
      const graft::Tensor scale = inputs[kWeightScale];
      graft::Require(scale.compact(), "PackedLinear: weight_scale must be compact");
      problem.group = GroupOf(problem.depth, scale.dim(1));
    }
    problem.parts = parts_;
    problem.gated = gated_;
    problem.y_stride = problem.columns / (gated_ ? 2 : parts_);
    problem.residual_stride = problem.columns;
    problem.activation = activation_;
    problem.before = NormOf(inputs[kNormScale], inputs[kNormBias], norm_epsilon_);
    problem.before.centred = norm_centred_;
    problem.after = NormOf(inputs[kAfterScale], inputs[kAfterBias], after_epsilon_);
    return problem;
  }

  static linear::Norm NormOf(const graft::Tensor& scale, const graft::Tensor& bias, float epsilon) {
    linear::Norm norm;
    norm.epsilon = epsilon;
    if (scale.present()) norm.scale = scale.data<float>();
    if (bias.present()) norm.bias = bias.data<float>();
    return norm;
  }

  // Bytes for a bias of one number spread over all columns; 0 where that is not needed.
  static uint64_t SpreadBytes(const graft::Tensors& inputs, const linear::Problem& problem) {
    const graft::Tensor bias = inputs[kBias];
    if (!bias.present() || bias.elements() == problem.columns) return 0;
    graft::Scratch scratch;
    scratch.Take(problem.columns, sizeof(float));
    return scratch.bytes();
  }

  bool transposed_;
  int64_t columns_;
  linear::Activation activation_;
  float norm_epsilon_, after_epsilon_;
  bool norm_centred_;
  int64_t parts_;
  bool gated_;
  linear::RowType row_type_;
};

// Panels are [N / 16, rounded up][K][16], zeros beyond N, of float32 or bfloat16. Those of int8 and
// int4 have K filled up to a multiple of 32, and int4, as uint8, has half as many rows
// (quantized.h). Scales of integers are [N / 16, rounded up][K / group, rounded up][16], and so are
// zero points where they are asked for.
class PackPanels {
 public:
  static graft::Operator Describe() {
    return graft::Operator("PackPanels", "a matrix in panels of sixteen columns, for PackedLinear")
        .Input("weight", graft::kFloat32)  // [K, N], or [N, K] when transposed
        .Output("panels", {graft::kFloat32, graft::kInt8, graft::kUInt8, graft::kBFloat16})
        .OptionalOutput("scales", graft::kBFloat16)
        .OptionalOutput("zero_points", graft::kInt8)
        .Int("transposed", 0)
        .String("type", "float32")  // or int8, int4, bfloat16
        .Int("group", 32)           // or 64, 128: positions along K that share a scale
        .Int("asymmetric", 0);      // 1: integers have zero points
  }

  explicit PackPanels(const graft::CreateContext& context)
      : transposed_(context.Int("transposed") != 0),
        group_(context.Int("group")),
        asymmetric_(context.Int("asymmetric") != 0) {
    const std::string type = context.String("type");
    const char* const names[] = {"float32", "int8", "int4", "bfloat16"};
    const auto* found = std::find(std::begin(names), std::end(names), type);
    graft::Require(found != std::end(names), "PackPanels: type is ", type,
                   ", needed is float32, int8, int4 or bfloat16");
    type_ = static_cast<linear::WeightType>(found - std::begin(names));
    graft::Require(std::count(std::begin(kGroups), std::end(kGroups), group_) == 1,
                   "PackPanels: group is ", group_, ", needed is 32, 64 or 128");
    const int64_t asymmetric = context.Int("asymmetric");
    graft::Require(asymmetric == 0 || asymmetric == 1, "PackPanels: asymmetric is ", asymmetric,
                   ", needed is 0 or 1");
    graft::Require(asymmetric == 0 || linear::IsInteger(type_), "PackPanels: a weight of ", type,
                   " has no zero points");
  }

  void Infer(graft::InferContext& context) const {
    graft::Require(context.InputRank(0) == 2, "PackPanels: weight has rank ", context.InputRank(0),
                   ", needed is 2");
    const graft::Dim depth = context.InputDim(0, transposed_ ? 1 : 0);
    const graft::Dim columns = context.InputDim(0, transposed_ ? 0 : 1);
    // Sizes follow each from one of the two.
    const linear::PackedShape shape = linear::ShapeOf(
        type_, depth.known() ? depth.value() : 0, columns.known() ? columns.value() : 0, group_);
    const graft::Dim panels = columns.known() ? graft::Dim(shape.panels) : graft::Dim();
    const graft::Dim width(linear::kPanelColumns);
    context.SetOutput(0, kPanelTypes[static_cast<int>(type_)],
                      {panels, depth.known() ? graft::Dim(shape.rows) : graft::Dim(), width});
    if (!linear::IsInteger(type_)) return;
    const graft::Dim groups = depth.known() ? graft::Dim(shape.groups) : graft::Dim();
    context.SetOutput(1, graft::kBFloat16, {panels, groups, width});
    if (asymmetric_) context.SetOutput(2, graft::kInt8, {panels, groups, width});
  }

  uint64_t Workspace(const graft::WorkspaceContext&) const { return 0; }

  void Run(const graft::RunContext& context) const {
    const graft::Tensor weight = context.inputs[0];
    graft::Require(weight.compact(), "PackPanels: weight must be compact");
    const auto* data = weight.data<float>();
    const int64_t depth = weight.dim(transposed_ ? 1 : 0);
    const int64_t columns = weight.dim(transposed_ ? 0 : 1);
    if (type_ == linear::WeightType::kFloat32) {
      return linear::Pack(data, depth, columns, transposed_, context.outputs[0].data<float>(),
                          RunnerOf(context));
    }
    const graft::MutableTensor scales = context.outputs[1];
    graft::Require(scales.present() || !linear::IsInteger(type_),
                   "PackPanels: panels of integers need the output scales");
    const graft::MutableTensor zeros = context.outputs[2];
    graft::Require(zeros.present() == asymmetric_, "PackPanels: the output zero_points is ",
                   asymmetric_ ? "needed where asymmetric is 1" : "there where asymmetric is 0");
    linear::Quantize(type_, data, depth, columns, transposed_, group_, context.outputs[0].raw(),
                     scales.present() ? static_cast<uint16_t*>(scales.raw()) : nullptr,
                     zeros.present() ? zeros.data<int8_t>() : nullptr, RunnerOf(context));
  }

 private:
  bool transposed_;
  int64_t group_;
  bool asymmetric_;
  linear::WeightType type_;
};

}  // namespace

GRAFT_PLUGIN(PackedLinear, graft::ForEngine<PackPanels>);
