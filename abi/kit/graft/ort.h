// A plugin's operators as ONNX Runtime custom operators, and their registration without a host.
#ifndef GRAFT_KIT_ORT_H_
#define GRAFT_KIT_ORT_H_

#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "graft/ort_api.h"
#include "graft/ort_infer.h"
#include "graft/ort_kernel.h"
#include "graft/ort_registrar.h"

namespace graft::ort {

// One overload of an operator: the runtime takes one element type a parameter, and merges operators
// of one name into one schema. Type variables are therefore multiplied out.
struct Op : OrtCustomOp {
  const OrtApi* api;
  OperatorEntry entry;
  uint32_t index;
  int32_t device_type;
  std::vector<ONNXTensorElementDataType> input_types;
  std::vector<ONNXTensorElementDataType> output_types;
};

struct OpSet {
  std::deque<Op> ops;
  std::vector<const void*> pointers;    // to all of them
  std::vector<const void*> for_models;  // but those for engines alone
};

// The session config entry by which a program that made its model itself registers operators for
// engines too.
inline constexpr const char* kEngineKey = "graft.engine_operators";

inline const Op* Self(const OrtCustomOp* op) { return static_cast<const Op*>(op); }

inline OrtCustomOpInputOutputCharacteristic Characteristic(const graft_parameter* parameter) {
  if ((parameter->flags & GRAFT_PARAMETER_VARIADIC) != 0) return INPUT_OUTPUT_VARIADIC;
  if ((parameter->flags & GRAFT_PARAMETER_OPTIONAL) != 0) return INPUT_OUTPUT_OPTIONAL;
  return INPUT_OUTPUT_REQUIRED;
}

inline int VariadicMinimum(const graft_parameter* const* parameters, uint32_t count) {
  return count == 0 ? 0 : static_cast<int>(parameters[count - 1]->min_count);
}

inline int VariadicOneType(const graft_parameter* const* parameters, uint32_t count) {
  if (count == 0) return 1;
  return parameters[count - 1]->type_variable >= 0 || parameters[count - 1]->num_types == 1;
}

// Whether the runtime may call shape inference while it loads. Up to 1.23 its inference context
// reads the type of every input of the node and ends the process when one is absent, so there
// operators with optional inputs infer nothing: their outputs have the shapes that the model
// states.
inline bool MayInfer(const OrtApiBase* base, const graft_operator* description) {
  bool has_optional = false;
  for (uint32_t i = 0; i < description->num_inputs; ++i) {
    has_optional |= (description->inputs[i]->flags & GRAFT_PARAMETER_OPTIONAL) != 0;
  }
  int major = 0, minor = 0;
  if (std::sscanf(base->GetVersionString(), "%d.%d", &major, &minor) != 2) return !has_optional;
  return !has_optional || major > 1 || minor >= 24;
}

inline void FillCallbacks(Op* op, bool may_infer) {
  op->version = kApiVersion;
  op->GetName = [](const OrtCustomOp* self) { return Self(self)->entry.description->name; };
  op->GetExecutionProviderType = [](const OrtCustomOp* self) -> const char* {
    return Self(self)->device_type == GRAFT_DEVICE_CUDA ? "CUDAExecutionProvider" : nullptr;
  };
  op->GetInputTypeCount = [](const OrtCustomOp* self) { return Self(self)->input_types.size(); };
  op->GetInputType = [](const OrtCustomOp* self, size_t i) { return Self(self)->input_types[i]; };
  op->GetOutputTypeCount = [](const OrtCustomOp* self) { return Self(self)->output_types.size(); };
  op->GetOutputType = [](const OrtCustomOp* self, size_t i) { return Self(self)->output_types[i]; };
  op->GetInputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return Characteristic(Self(self)->entry.description->inputs[i]);
  };
  op->GetOutputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return Characteristic(Self(self)->entry.description->outputs[i]);
  };
  op->GetInputMemoryType = [](const OrtCustomOp* self, size_t i) {
    const bool host =
        (Self(self)->entry.description->inputs[i]->flags & GRAFT_PARAMETER_HOST_MEMORY) != 0;
    return host ? OrtMemTypeCPUInput : OrtMemTypeDefault;
  };
  op->GetVariadicInputMinArity = [](const OrtCustomOp* self) {
    return VariadicMinimum(Self(self)->entry.description->inputs,
                           Self(self)->entry.description->num_inputs);
  };
  op->GetVariadicInputHomogeneity = [](const OrtCustomOp* self) {
    return VariadicOneType(Self(self)->entry.description->inputs,
                           Self(self)->entry.description->num_inputs);
  };
  op->GetVariadicOutputMinArity = [](const OrtCustomOp* self) {
    return VariadicMinimum(Self(self)->entry.description->outputs,
                           Self(self)->entry.description->num_outputs);
  };
  op->GetVariadicOutputHomogeneity = [](const OrtCustomOp* self) {
    return VariadicOneType(Self(self)->entry.description->outputs,
                           Self(self)->entry.description->num_outputs);
  };
  op->GetStartVersion = [](const OrtCustomOp* self) {
    return Self(self)->entry.description->since_version;
  };
  op->GetEndVersion = [](const OrtCustomOp*) { return INT32_MAX; };
  op->CreateKernelV2 = [](const OrtCustomOp* self, const OrtApi*, const OrtKernelInfo* info,
                          void** kernel) -> OrtStatusPtr {
    const Op* op = Self(self);
    return GuardOrt(op->api, op->entry.description->name, [&] {
      *kernel = new NodeKernel(op->api, info, op->entry, op->index, op->device_type);
    });
  };
  op->KernelComputeV2 = [](void* kernel, OrtKernelContext* context) -> OrtStatusPtr {
    const auto* node = static_cast<const NodeKernel*>(kernel);
    return GuardOrt(node->api(), node->name(), [&] { node->Compute(context); });
  };
  op->KernelDestroy = [](void* kernel) { delete static_cast<NodeKernel*>(kernel); };
  if (op->entry.in_place != nullptr) {
    op->GetMayInplace = op->entry.in_place;
    op->ReleaseMayInplace = [](int*, int*) {};  // static memory
  }
  if (may_infer) {
    op->InferOutputShapeFn = [](const OrtCustomOp* self,
                                OrtShapeInferContext* context) -> OrtStatusPtr {
      const Op* op = Self(self);
      InferAtLoad(op->api, context, op->entry, op->index, op->device_type);
      return nullptr;
    };
  }
}

// The type that is reported to the runtime: the variable's choice, the only one stated, or "any",
// which the kit checks.
inline ONNXTensorElementDataType ChosenType(const graft_parameter* parameter,
                                            const std::map<int32_t, DataType>& choice) {
  if (parameter->type_variable >= 0) return TypeToOnnx(choice.at(parameter->type_variable));
  if (parameter->num_types == 1) return TypeToOnnx(parameter->types[0]);
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

inline void AddOverloads(const OrtApiBase* base, const OrtApi* api, const OperatorEntry& entry,
                         uint32_t index, int32_t device_type, OpSet* set) {
  const graft_operator* description = entry.description;
  std::map<int32_t, const graft_parameter*> variables;
  for (uint32_t i = 0; i < description->num_inputs; ++i) {
    if (description->inputs[i]->type_variable >= 0) {
      variables[description->inputs[i]->type_variable] = description->inputs[i];
    }
  }
  for (uint32_t i = 0; i < description->num_outputs; ++i) {
    const graft_parameter* output = description->outputs[i];
    if (output->num_types != 1 && variables.count(output->type_variable) == 0) {
      // The runtime takes a type that follows from inputs. What a host alone calls has no need of
      // it.
      Require(entry.for_engine, description->name, ": output ", output->name,
              " needs one type, or a type variable of an input");
      return;
    }
    // The runtime asks custom operators where inputs lie, and puts every output on the device.
    Require(device_type == GRAFT_DEVICE_CPU || (output->flags & GRAFT_PARAMETER_HOST_MEMORY) == 0,
            description->name, ": output ", output->name,
            " is said to lie in host memory, which ONNX Runtime cannot give it on a device");
  }
  std::vector<std::map<int32_t, DataType>> choices{{}};
  for (const auto& [variable, parameter] : variables) {
    std::vector<std::map<int32_t, DataType>> longer;
    for (const auto& choice : choices) {
      for (uint32_t t = 0; t < parameter->num_types; ++t) {
        longer.push_back(choice);
        longer.back()[variable] = parameter->types[t];
      }
    }
    choices = std::move(longer);
  }
  for (const auto& choice : choices) {
    set->ops.emplace_back();
    Op& op = set->ops.back();
    op.api = api;
    op.entry = entry;
    op.index = index;
    op.device_type = device_type;
    for (uint32_t i = 0; i < description->num_inputs; ++i) {
      op.input_types.push_back(ChosenType(description->inputs[i], choice));
    }
    for (uint32_t i = 0; i < description->num_outputs; ++i) {
      op.output_types.push_back(description->outputs[i]->type_variable >= 0
                                    ? ChosenType(description->outputs[i], choice)
                                    : TypeToOnnx(description->outputs[i]->types[0]));
    }
    FillCallbacks(&op, MayInfer(base, description));
    set->pointers.push_back(static_cast<const OrtCustomOp*>(&op));
    if (!entry.for_engine) set->for_models.push_back(set->pointers.back());
  }
}

inline const OrtApi* ApiOf(const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(kApiVersion);
  Require(api != nullptr, "ONNX Runtime ", base->GetVersionString(), " is too old: API ",
          kApiVersion, " is needed, which 1.18 and later have");
  return api;
}

// The operators for one runtime, made at the first call for it. A process may hold several
// runtimes.
inline const OpSet& OpsFor(const OrtApiBase* base, const graft_plugin_info* info,
                           const std::vector<OperatorEntry>& entries) {
  static std::mutex mutex;
  // Nodes of a map stay in place. Never destroyed: sessions may outlive static objects.
  static auto* const all = new std::map<const OrtApi*, OpSet>;
  std::map<const OrtApi*, OpSet>& sets = *all;
  const OrtApi* api = ApiOf(base);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = sets.find(api);
  if (found != sets.end()) return found->second;
  OpSet& set = sets[api];
  for (uint32_t i = 0; i < entries.size(); ++i) {
    AddOverloads(base, api, entries[i], i, info->device_type, &set);
  }
  return set;
}

// What RegisterCustomOps does: adds the operators for models to the domain "graft" of these session
// options.
inline OrtStatus* Register(OrtSessionOptions* options, const OrtApiBase* base,
                           const graft_plugin_info* info,
                           const std::vector<OperatorEntry>& entries) {
  const OrtApi* any = base->GetApi(1);  // every runtime has it: enough to make a status
  return GuardOrt(any, info->name, [&] {
    const OrtApi* api = ApiOf(base);
    const OpSet& set = OpsFor(base, info, entries);
    int engine = 0;
    Check(api, api->HasSessionConfigEntry(options, kEngineKey, &engine));
    JoinDomain(api, options, info->name, engine != 0 ? set.pointers : set.for_models);
  });
}

}  // namespace graft::ort

#endif  // GRAFT_KIT_ORT_H_
