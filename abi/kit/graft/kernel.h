// From an author's operator classes to kernels behind one interface, and the registry of them.
#ifndef GRAFT_KIT_KERNEL_H_
#define GRAFT_KIT_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "graft/operator.h"

namespace graft {

// One node's kernel, whatever its class.
class KernelBase {
 public:
  explicit KernelBase(const graft_operator* description) : description_(description) {}
  virtual ~KernelBase() = default;
  virtual void Infer(InferContext& context) const = 0;
  virtual uint64_t Workspace(const WorkspaceContext& context) const = 0;
  virtual void Run(const RunContext& context) const = 0;
  const graft_operator* description() const { return description_; }

 private:
  const graft_operator* description_;
};

template <typename Kernel, typename = void>
struct HasWorkspace : std::false_type {};
template <typename Kernel>
struct HasWorkspace<Kernel, std::void_t<decltype(&Kernel::Workspace)>> : std::true_type {};

// An output that may have the memory of an input of its size, where nobody else reads that input: a
// kernel class says so by
//   static constexpr graft::InPlace kInPlace{input, output};
// and its Run is right where both have one address and where they do not.
struct InPlace {
  int32_t input, output;
};
template <typename Kernel, typename = void>
struct HasInPlace : std::false_type {};
template <typename Kernel>
struct HasInPlace<Kernel, std::void_t<decltype(Kernel::kInPlace)>> : std::true_type {};

// In the list of GRAFT_PLUGIN: an operator that a host's engine places in models that it wrote
// itself. RegisterCustomOps, by which a program takes whatever models it has, leaves it out: lists
// of slots and offsets into a cache are no model's to choose.
template <typename Kernel>
struct ForEngine : Kernel {
  using Kernel::Kernel;
};
template <typename Kernel>
struct IsForEngine : std::false_type {};
template <typename Kernel>
struct IsForEngine<ForEngine<Kernel>> : std::true_type {};

// An empty tensor takes no memory, so nothing bounds its other sizes, and a kernel that goes over
// rows of nothing may never end. Throws where those of an input are more than 2^27 together.
inline void RequireCountable(const Tensors& inputs) {
  constexpr int64_t kMost = int64_t{1} << 27;
  for (uint64_t i = 0; i < inputs.size(); ++i) {
    const Tensor input = inputs[i];
    if (!input.present() || input.elements() > 0) continue;
    int64_t sizes = 1;
    for (int32_t axis = 0; axis < input.rank(); ++axis) {
      const int64_t size = std::max<int64_t>(1, input.dim(axis));
      Require(size <= kMost / sizes, "input ", i, " is empty and has an axis ", axis, " of ", size,
              ", needed are at most ", kMost, " places");
      sizes *= size;
    }
  }
}

template <typename Kernel>
class KernelBox final : public KernelBase {
 public:
  KernelBox(const graft_operator* description, const CreateContext& context)
      : KernelBase(description), kernel_(context) {}
  void Infer(InferContext& context) const override { kernel_.Infer(context); }
  uint64_t Workspace(const WorkspaceContext& context) const override {
    if constexpr (HasWorkspace<Kernel>::value) {
      RequireCountable(context.inputs);
      return kernel_.Workspace(context);
    } else {
      return 0;
    }
  }
  void Run(const RunContext& context) const override {
    RequireCountable(context.inputs);
    kernel_.Run(context);
  }

 private:
  const Kernel kernel_;
};

// One operator of the plugin: its signature and the maker of its kernels.
struct OperatorEntry {
  const graft_operator* description;
  std::unique_ptr<KernelBase> (*make)(const graft_operator* description,
                                      const CreateContext& context);
  // Points to the input and the output of kInPlace and gives 1; null where the class has none.
  size_t (*in_place)(int** input, int** output) = nullptr;
  bool for_engine = false;
};

template <typename Kernel>
OperatorEntry EntryOf() {
  static Operator description = Kernel::Describe();
  OperatorEntry entry{description.Freeze(),
                      [](const graft_operator* description,
                         const CreateContext& context) -> std::unique_ptr<KernelBase> {
                        return std::make_unique<KernelBox<Kernel>>(description, context);
                      }};
  entry.for_engine = IsForEngine<Kernel>::value;
  if constexpr (HasInPlace<Kernel>::value) {
    entry.in_place = [](int** input, int** output) -> size_t {
      static int places[2] = {Kernel::kInPlace.input, Kernel::kInPlace.output};
      *input = places, *output = places + 1;
      return 1;
    };
  }
  return entry;
}

// Flags of a parameter that a node may have no tensor for.
inline constexpr uint32_t kMayLack = GRAFT_PARAMETER_OPTIONAL | GRAFT_PARAMETER_VARIADIC;

inline const graft_parameter* ParameterAt(const graft_parameter* const* parameters, uint32_t count,
                                          uint64_t index) {
  if (index < count) return parameters[index];
  if (count > 0 && (parameters[count - 1]->flags & GRAFT_PARAMETER_VARIADIC) != 0) {
    return parameters[count - 1];
  }
  return nullptr;
}

// Throws unless the tensors fit the parameters: required ones present, none too many, types as
// stated.
inline void CheckTensors(const char* side, const graft_parameter* const* parameters,
                         uint32_t num_parameters, const graft_tensor* const* tensors,
                         uint64_t num_tensors) {
  DataType bound[8] = {};
  bool is_bound[8] = {};
  for (uint64_t i = 0; i < num_tensors; ++i) {
    const graft_parameter* parameter = ParameterAt(parameters, num_parameters, i);
    Require(parameter != nullptr, num_tensors, " ", side, "s given, at most ", num_parameters,
            " stated");
    if (tensors[i] == nullptr) {
      Require((parameter->flags & GRAFT_PARAMETER_OPTIONAL) != 0, side, " ", i, " (",
              parameter->name, ") is absent and not optional");
      continue;
    }
    const DataType type = tensors[i]->dtype;
    bool allowed = false;
    for (uint32_t t = 0; t < parameter->num_types; ++t) allowed |= parameter->types[t] == type;
    Require(allowed, side, " ", i, " (", parameter->name, ") holds ", type,
            ", which the operator does not take");
    const int32_t variable = parameter->type_variable;
    if (variable < 0 || variable >= 8) continue;
    Require(!is_bound[variable] || bound[variable] == type, side, " ", i, " (", parameter->name,
            ") holds ", type, ", its fellows hold ", bound[variable]);
    bound[variable] = type;
    is_bound[variable] = true;
  }
  uint64_t least = 0;
  if (num_parameters > 0 &&
      (parameters[num_parameters - 1]->flags & GRAFT_PARAMETER_VARIADIC) != 0) {
    least = num_parameters - 1 + parameters[num_parameters - 1]->min_count;
  }
  Require(num_tensors >= least, num_tensors, " ", side, "s given, at least ", least, " needed");
  for (uint64_t i = num_tensors; i < num_parameters; ++i) {
    Require((parameters[i]->flags & kMayLack) != 0, side, " ", i, " (", parameters[i]->name,
            ") is absent and not optional");
  }
}

// Throws where a kernel set no shape of an output that its node has.
inline void RequireMade(const graft_operator& description, uint64_t index,
                        const graft_tensor& output) {
  const graft_parameter* parameter =
      ParameterAt(description.outputs, description.num_outputs, index);
  Require(output.ndim >= 0, description.name, ": the node has output ", index, " (",
          parameter != nullptr ? parameter->name : "not stated",
          "), which its inputs and attributes do not make");
}

}  // namespace graft

#endif  // GRAFT_KIT_KERNEL_H_
