// QuantizedLinear: what MatMulInteger and the nodes around it compute, with their bits, as an
// operator.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graft.h"
#include "linear.h"
#include "nodewise_attention.h"
#include "runner.h"
#include "weights.h"

namespace {

namespace quantized = graft::quantized;

using quantized::RunnerOf;
using quantized::Threads;

class QuantizedLinear {
 public:
  static graft::Operator Describe() {
    graft::Operator op(
        "QuantizedLinear",
        "matmuls of integers of eight bits with constant matrices, with ONNX Runtime's bits");
    op.Input("x",
             {graft::kFloat32, graft::kUInt8})  // [..., K], or [B, H, S, K / H] as x_layout says
        .OptionalInput("x_scale", graft::kFloat32)  // one number, of integers; or range of floats
        .OptionalInput("x_zero_point", graft::kUInt8);  // one number, of integers
    for (const char* of : {"", "2", "3"}) {
      const std::string n = of;
      const graft::Types integers{graft::kInt8, graft::kUInt8};
      if (n.empty()) {
        op.Input("weight", integers)
            .Input("weight_scale", graft::kFloat32);  // [K, N]; [N] or one number
      } else {
        op.OptionalInput("weight" + n, integers).OptionalInput("weight_scale" + n, graft::kFloat32);
      }
      op.OptionalInput("weight_zero_point" + n, integers)  // [N] or one number
          .OptionalInput("bias" + n, graft::kFloat32);     // [N] or [1]
    }
    op.OptionalInput("residual", graft::kFloat32)      // as y, which is normalised with it
        .OptionalInput("norm_scale", graft::kFloat32)  // [N]
        .OptionalInput("norm_bias", graft::kFloat32);  // [N]
    op.Output("y", graft::kFloat32)                    // [..., N], or as layouts says
        .OptionalOutput("y2", graft::kFloat32)
        .OptionalOutput("y3", graft::kFloat32)
        .OptionalOutput("range", graft::kFloat32)  // [3] of a single y: least, greatest, no NaN
        .Int("heads", 0)                           // H, where a layout is not 0
        .Int("x_layout", 0)                        // 0: [..., K], 1: [B, H, S, K / H]
        .Ints("layouts",
              {0, 0, 0})  // of the outputs. 0: [..., N], 1: [B, H, S, N / H], 2: [B, H, N / H, S]
        .Float("epsilon", 0.0)            // of the normalisation
        .Ints("activations", {0, 0, 0});  // of the outputs. 0: none, 1: GELU by the error function
    return op;
  }

  explicit QuantizedLinear(const graft::CreateContext& context) : heads_(context.Int("heads")) {
    const int64_t x_layout = context.Int("x_layout");
    const std::vector<int64_t> layouts = context.Ints("layouts");
    graft::Require(x_layout == 0 || x_layout == 1, "QuantizedLinear: x_layout is ", x_layout,
                   ", needed is 0 or 1");
    graft::Require(layouts.size() == quantized::kMaxWeights, "QuantizedLinear: layouts has ",
                   layouts.size(), " numbers, needed are ", quantized::kMaxWeights);
    const std::vector<int64_t> activations = context.Ints("activations");
    graft::Require(activations.size() == quantized::kMaxWeights,
                   "QuantizedLinear: activations has ", activations.size(), " numbers, needed are ",
                   quantized::kMaxWeights);
    bool heads = x_layout != 0;
    for (size_t i = 0; i < layouts.size(); ++i) {
      graft::Require(layouts[i] >= 0 && layouts[i] <= 2, "QuantizedLinear: a layout is ",
                     layouts[i], ", needed is 0, 1 or 2");
      layouts_[i] = static_cast<quantized::Layout>(layouts[i]);
      heads |= layouts[i] != 0;
      graft::Require(activations[i] == 0 || activations[i] == 1,
                     "QuantizedLinear: an activation is ", activations[i], ", needed is 0 or 1");
      gelus_[i] = activations[i] == 1;
    }
    x_layout_ = static_cast<quantized::Layout>(x_layout);
    epsilon_ = static_cast<float>(context.Float("epsilon"));
    graft::Require(heads ? heads_ > 0 : heads_ >= 0, "QuantizedLinear: heads is ", heads_,
                   ", needed is a number of them");
    for (int i = 0; i < quantized::kMaxWeights; ++i) {
      weights_[i].Set([&](Part part) { return context.Constant(Of(i, part)); });
    }
  }

  void Infer(graft::InferContext& context) const {
    const int32_t rank = context.InputRank(kX);
    const bool integers = context.InputType(kX) == graft::kUInt8;
    graft::Require(
        (!integers || context.HasInput(kXScale)) && integers == context.HasInput(kXZero),
        "QuantizedLinear: x_scale and x_zero_point are those of an x of uint8, and it needs them");
    graft::Require(!integers || x_layout_ == quantized::Layout::kRows,
                   "QuantizedLinear: an x of uint8 has no heads");
    const bool split = x_layout_ != quantized::Layout::kRows;
    graft::Require(split ? rank == 4 : rank >= 1, "QuantizedLinear: x has rank ", rank,
                   ", needed is ", split ? "4" : "1 or more");
    if (context.HasOutput(kRange)) {
      graft::Require(!context.HasInput(Of(1, kWeight)) && !context.HasInput(Of(2, kWeight)) &&
                         layouts_[0] == quantized::Layout::kRows,
                     "QuantizedLinear: several matrices, or heads, have no range");
      context.SetOutput(kRange, graft::kFloat32, {graft::Dim(kRangeSize)});
    }
    const bool normalises = context.HasInput(kResidual);
    graft::Require(
        normalises == context.HasInput(kNormScale) && normalises == context.HasInput(kNormBias),
        "QuantizedLinear: residual, norm_scale and norm_bias need each other");
    graft::Require(
        !normalises || (!context.HasInput(Of(1, kWeight)) && !context.HasInput(Of(2, kWeight)) &&
                        layouts_[0] == quantized::Layout::kRows),
        "QuantizedLinear: of several matrices, or of heads, nothing is normalised");
    // Of rows, one after the other.
    graft::Dim dims[GRAFT_MAX_RANK];
    int32_t axes = rank;
    graft::Dim depth = context.InputDim(kX, -1);
    if (split) {
      graft::Require(Fits(context.InputDim(kX, 1), heads_), "QuantizedLinear: x has ",
                     context.InputDim(kX, 1).value(), " heads, needed are ", heads_);
      dims[0] = context.InputDim(kX, 0);
      dims[1] = context.InputDim(kX, 2);
      depth = depth * heads_;
      axes = 3;
    } else {
      for (int32_t i = 0; i + 1 < rank; ++i) dims[i] = context.InputDim(kX, i);
    }
    for (int i = 0; i < quantized::kMaxWeights; ++i) {
      if (!context.HasInput(Of(i, kWeight))) continue;
      graft::Require(context.HasInput(Of(i, kScale)), "QuantizedLinear: weight ", i,
                     " has no scale");
      graft::Require(context.InputRank(Of(i, kWeight)) == 2, "QuantizedLinear: a weight has rank ",
                     context.InputRank(Of(i, kWeight)), ", needed is 2");
      graft::Require(Fits(context.InputDim(Of(i, kWeight), 0), depth),
                     "QuantizedLinear: rows of x have ", depth.value(),
                     " elements, a weight takes ", context.InputDim(Of(i, kWeight), 0).value());
      const graft::Dim columns = context.InputDim(Of(i, kWeight), 1);
      dims[axes - 1] = columns;
      if (layouts_[i] == quantized::Layout::kRows) {
        context.SetOutput(i, graft::kFloat32, dims, axes);
        continue;
      }
      graft::Require(axes == 3, "QuantizedLinear: heads of an x of rank ", rank,
                     ", needed is batch, rows and elements");
      graft::Require(!columns.known() || columns.value() % heads_ == 0,
                     "QuantizedLinear: ", columns.value(), " columns are no ", heads_, " heads");
      const graft::Dim size = columns / heads_;
      if (layouts_[i] == quantized::Layout::kHeads) {
        context.SetOutput(i, graft::kFloat32, {dims[0], heads_, dims[1], size});
      } else {
        context.SetOutput(i, graft::kFloat32, {dims[0], heads_, size, dims[1]});
      }
    }
  }

  uint64_t Workspace(const graft::WorkspaceContext& context) const {
    const quantized::Problem problem = Bind(context.inputs, Wants(context.outputs));
    return graft::Size(quantized::WorkspaceSize(problem, Threads(context.concurrency)))
        .To<uint64_t>();
  }

  void Run(const graft::RunContext& context) const {
    quantized::Problem problem = Bind(context.inputs, Wants(context.outputs));
    const graft::Tensor x = context.inputs[kX];
    if (x.type() == graft::kUInt8) {
      problem.integers = x.data<uint8_t>();
      problem.scale = *One<float>(context.inputs[kXScale], "x_scale");
      problem.zero = *One<uint8_t>(context.inputs[kXZero], "x_zero_point");
    }
    int count = 0;
    Weight made[quantized::kMaxWeights];  // of what is no constant, in each run
    for (int i = 0; i < quantized::kMaxWeights; ++i) {
      if (i >= static_cast<int>(context.outputs.size()) || !context.outputs[i].present()) continue;
      const bool known = weights_[i].Holds(context.inputs, i);
      if (!known) made[i].Set([&](Part part) { return context.inputs[Of(i, part)]; });
      const Weight& w = known ? weights_[i] : made[i];
      graft::Require(w.packed != nullptr, "QuantizedLinear: output ", i,
                     " has no weight and scale");
      quantized::Weight& to = problem.weights[count++];
      to.panels = w.packed->panels();
      to.sums = w.packed->sums();
      to.columns = w.packed->columns();
      to.zeros = w.zeros.empty() ? nullptr : w.zeros.data();
      to.scales = w.scales.data();
      to.bias = w.bias.empty() ? nullptr : w.bias.data();
      to.layout = layouts_[i];
      to.gelu = gelus_[i];
      to.y = context.outputs[i].data<float>();
    }
    problem.weight_count = count;
    quantized::Range x_range, y_range;
    if (problem.x_range_known) {
      const graft::Tensor range = context.inputs[kXScale];
      graft::Require(range.compact() && range.elements() == kRangeSize,
                     "QuantizedLinear: the range of x has ", range.elements(),
                     " elements, needed are ", kRangeSize);
      std::memcpy(&x_range, range.raw(), sizeof x_range);
      problem.x_range = &x_range;
    }
    problem.y_range = &y_range;
    if (context.inputs[kResidual].present()) SetNorm(context, &problem.norm);
    graft::Require(quantized::Run(problem, context.workspace(), RunnerOf(context)),
                   "QuantizedLinear: x has NaN, which has no integer");
    if (problem.y_range_wanted) {
      std::memcpy(context.outputs[kRange].data<float>(), &y_range, sizeof y_range);
    }
  }

 private:
  // What follows y, y2 and y3, as quantized::Range has it.
  static constexpr uint32_t kRange = quantized::kMaxWeights;
  static constexpr int64_t kRangeSize = 3;
  static_assert(sizeof(quantized::Range) == kRangeSize * sizeof(float), "three floats");
  enum Part { kWeight, kScale, kZero, kBias, kParts };
  enum Input : uint32_t {
    kX,
    kXScale,
    kXZero,
    kFirstWeight,
    kResidual = kFirstWeight + quantized::kMaxWeights * kParts,
    kNormScale,
    kNormBias
  };
  static uint32_t Of(int weight, Part part) {
    return static_cast<uint32_t>(kFirstWeight + weight * kParts + part);
  }

  template <typename T>
  static const T* One(const graft::Tensor& tensor, const char* name) {
    graft::Require(tensor.present() && tensor.elements() == 1, "QuantizedLinear: ", name,
                   " is no single number");
    return tensor.data<T>();
  }

  // A constant matrix as kernels read it: arrays reach to the end of the last panel.
  struct Weight {
    std::shared_ptr<const quantized::Packed> packed;  // none where it is not known yet
    std::vector<float> scales, bias;
    std::vector<int32_t> zeros;
    bool found[kParts] = {};

    // Whether this is all that a node has of a weight.
    bool Holds(const graft::Tensors& inputs, int i) const {
      for (int part = 0; part < kParts; ++part) {
        if (found[part] != inputs[Of(i, static_cast<Part>(part))].present()) return false;
      }
      return packed != nullptr;
    }

    // find(part) is the tensor of a part, absent where it is not known or there is none.
    template <typename Find>
    void Set(const Find& find) {
      const graft::Tensor weight = find(kWeight), scale = find(kScale), zero = find(kZero),
                          plus = find(kBias);
      for (int part = 0; part < kParts; ++part)
        found[part] = find(static_cast<Part>(part)).present();
      if (!weight.present() || !scale.present()) return;
      graft::Require(weight.rank() == 2 && weight.compact(), "QuantizedLinear: a weight has rank ",
                     weight.rank(), ", needed is 2");
      const bool is_signed = weight.type() == graft::kInt8;
      const int64_t columns = weight.dim(1);
      const auto whole = static_cast<size_t>(quantized::PackedColumns(columns));
      scales.assign(whole, 0.0f);
      Spread(scale, columns, "scale", [&](int64_t j, const void* data, int64_t at) {
        scales[j] = static_cast<const float*>(data)[at];
      });
      if (plus.present()) {
        bias.assign(whole, 0.0f);
        Spread(plus, columns, "bias", [&](int64_t j, const void* data, int64_t at) {
          bias[j] = static_cast<const float*>(data)[at];
        });
      }
      // Unsigned integers are packed as signed ones.
      zeros.assign(whole, is_signed ? 0 : -128);
      if (zero.present()) {
        graft::Require(
            zero.type() == weight.type(),
            "QuantizedLinear: a weight and the integer that stands for 0 differ in type");
        Spread(zero, columns, "zero point", [&](int64_t j, const void* data, int64_t at) {
          zeros[j] = is_signed ? int32_t{static_cast<const int8_t*>(data)[at]}
                               : int32_t{static_cast<const uint8_t*>(data)[at]} - 128;
        });
      }
      if (std::all_of(zeros.begin(), zeros.begin() + columns, [](int32_t z) { return z == 0; }))
        zeros.clear();
      packed = quantized::Share(quantized::Packed(static_cast<const uint8_t*>(weight.raw()),
                                                  is_signed, weight.dim(0), columns));
    }

    template <typename Put>
    static void Spread(const graft::Tensor& from, int64_t columns, const char* name,
                       const Put& put) {
      const int64_t count = from.elements();
      graft::Require(from.rank() <= 1 && (count == columns || count == 1), "QuantizedLinear: a ",
                     name, " has ", count, " elements in rank ", from.rank(),
                     ", needed is one a column, or one");
      for (int64_t j = 0; j < columns; ++j) put(j, from.raw(), count == 1 ? 0 : j);
    }
  };

  void SetNorm(const graft::RunContext& context, quantized::Norm* norm) const {
    const graft::Tensor residual = context.inputs[kResidual], y = context.outputs[0];
    const int64_t columns = y.dim(-1);
    graft::Require(residual.compact() && residual.elements() == y.elements(),
                   "QuantizedLinear: the residual has ", residual.elements(),
                   " elements, needed are those of y, ", y.elements());
    graft::Require(columns % quantized::kNormColumns == 0, "QuantizedLinear: ", columns,
                   " columns are normalised, needed is a multiple of ", quantized::kNormColumns);
    for (const uint32_t input : {kNormScale, kNormBias}) {
      const graft::Tensor of = context.inputs[input];
      graft::Require(of.compact() && of.elements() == columns,
                     "QuantizedLinear: the normalisation has ", of.elements(),
                     " factors or summands, needed are ", columns);
    }
    norm->residual = residual.data<float>();
    norm->scale = context.inputs[kNormScale].data<float>();
    norm->bias = context.inputs[kNormBias].data<float>();
    norm->epsilon = epsilon_;
  }

  template <typename Outputs>
  static bool Wants(const Outputs& outputs) {
    return outputs.size() > kRange && outputs[kRange].present();
  }

  // Sizes, and x.
  quantized::Problem Bind(const graft::Tensors& inputs, bool y_range_wanted) const {
    const graft::Tensor x = inputs[kX];
    graft::Require(x.compact(), "QuantizedLinear: x must be compact");
    quantized::Problem problem;
    problem.heads = heads_;
    problem.x_layout = x_layout_;
    if (x_layout_ == quantized::Layout::kRows) {
      problem.depth = x.dim(-1);
      problem.rows = graft::ElementsOf(x.shape(), x.rank() - 1);
      problem.positions = x.rank() > 1 ? x.dim(-2) : 1;
    } else {
      graft::Require(x.rank() == 4 && x.dim(1) == heads_, "QuantizedLinear: x has rank ", x.rank(),
                     " and no ", heads_, " heads");
      problem.depth = graft::Size(heads_) * x.dim(3);
      problem.rows = graft::Size(x.dim(0)) * x.dim(2);
      problem.positions = x.dim(2);
    }
    if (x.type() != graft::kUInt8) problem.x = x.data<float>();
    problem.x_range_known = problem.x != nullptr && inputs[kXScale].present();
    problem.y_range_wanted = y_range_wanted;
    problem.norm.wanted = inputs[kResidual].present();
    problem.weight_count = 0;
    for (int i = 0; i < quantized::kMaxWeights; ++i) {
      const graft::Tensor weight = inputs[Of(i, kWeight)];
      if (!weight.present()) continue;
      graft::Require(weight.rank() == 2 && weight.dim(0) == problem.depth,
                     "QuantizedLinear: a weight takes ", weight.dim(0),
                     " elements, rows of x have ", problem.depth);
      graft::Require(layouts_[i] == quantized::Layout::kRows || weight.dim(1) % heads_ == 0,
                     "QuantizedLinear: ", weight.dim(1), " columns are no ", heads_, " heads");
      problem.weights[problem.weight_count++].columns = weight.dim(1);
    }
    return problem;
  }

  int64_t heads_;
  quantized::Layout x_layout_;
  quantized::Layout layouts_[quantized::kMaxWeights];
  bool gelus_[quantized::kMaxWeights];
  float epsilon_;
  Weight weights_[quantized::kMaxWeights];
};

}  // namespace

GRAFT_PLUGIN(QuantizedLinear, quantized::NodewiseAttention);
