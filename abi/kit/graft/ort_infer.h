// Shape inference while ONNX Runtime loads a model, where most sizes are symbols.
#ifndef GRAFT_KIT_ORT_INFER_H_
#define GRAFT_KIT_ORT_INFER_H_

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "graft/ort_api.h"
#include "graft/ort_kernel.h"
#include "graft/ort_types.h"

namespace graft::ort {

// Reads one attribute as raw bytes; false when the node does not have it.
inline bool ReadRaw(const OrtApi* api, OrtShapeInferContext* context, const char* name,
                    OrtOpAttrType type, std::vector<char>* bytes) {
  const OrtOpAttr* attribute = nullptr;
  if (!Succeeds(api, api->ShapeInferContext_GetAttribute(context, name, &attribute))) return false;
  size_t size = 0;
  bytes->assign(64, 0);
  if (Succeeds(api, api->ReadOpAttr(attribute, type, bytes->data(), bytes->size(), &size))) {
    bytes->resize(size);
    return true;
  }
  if (size <= bytes->size()) return false;
  bytes->assign(size, 0);
  return Succeeds(api, api->ReadOpAttr(attribute, type, bytes->data(), bytes->size(), &size));
}

inline void ReadAttributes(const OrtApi* api, OrtShapeInferContext* context,
                           const graft_operator* description, Attributes* out) {
  constexpr OrtOpAttrType kKinds[] = {ORT_OP_ATTR_UNDEFINED, ORT_OP_ATTR_INT,  ORT_OP_ATTR_FLOAT,
                                      ORT_OP_ATTR_STRING,    ORT_OP_ATTR_INTS, ORT_OP_ATTR_FLOATS};
  std::vector<char> bytes;
  for (uint32_t i = 0; i < description->num_attributes; ++i) {
    const graft_attribute& stated = *description->attributes[i];
    if (!ReadRaw(api, context, stated.name, kKinds[stated.kind], &bytes)) continue;
    Attributes::Entry& entry = out->Add(stated);
    float number = 0;
    switch (stated.kind) {
      case GRAFT_ATTRIBUTE_INT:
        std::memcpy(&entry.c.int_value, bytes.data(), sizeof(int64_t));
        break;
      case GRAFT_ATTRIBUTE_FLOAT:
        std::memcpy(&number, bytes.data(), sizeof number);
        entry.c.float_value = number;
        break;
      case GRAFT_ATTRIBUTE_STRING:
        entry.text.assign(bytes.data(), strnlen(bytes.data(), bytes.size()));
        break;
      case GRAFT_ATTRIBUTE_INTS:
        entry.ints.resize(bytes.size() / sizeof(int64_t));
        if (!bytes.empty()) std::memcpy(entry.ints.data(), bytes.data(), bytes.size());
        break;
      default:
        entry.floats.resize(bytes.size() / sizeof(float));
        if (!bytes.empty()) std::memcpy(entry.floats.data(), bytes.data(), bytes.size());
    }
  }
  out->Finish();
}

// Names of unknown sizes by the negative numbers that stand for them in the C ABI: -2 is the first.
class Symbols {
 public:
  int64_t NumberOf(const std::string& name) {
    if (name.empty()) return GRAFT_UNKNOWN_DIM;
    size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) names_.push_back(name);
    return -2 - static_cast<int64_t>(i);
  }
  // A size without a name gets a new one, since the runtime takes equal names for equal sizes. No
  // other library gives it, nor did a process whose session wrote the model that is loaded now.
  std::string NameOf(int64_t number) const {
    static std::atomic<uint64_t> counter{0};
    static const std::string own = Own(&counter);
    const auto index = static_cast<size_t>(-2 - number);
    if (number <= -2 && index < names_.size()) return names_[index];
    return own + std::to_string(counter.fetch_add(1));
  }

 private:
  // What a library's names begin with: libraries lie at different addresses, and processes that
  // lay one at the same address started at different times.
  static std::string Own(const void* address) {
    char text[64];
    std::snprintf(
        text, sizeof text, "graft_dim_%" PRIxPTR "_%" PRIx64 "_",
        reinterpret_cast<uintptr_t>(address),
        static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
    return text;
  }

  std::vector<std::string> names_;
};

// Fills the slot from the runtime's type and shape; false when the rank is not known. The runtime
// shows an unknown rank as rank 0, so rank 0 counts as unknown here.
inline bool ReadShape(const OrtApi* api, const OrtTensorTypeAndShapeInfo* info,
                      ONNXTensorElementDataType type, Symbols* symbols, Slot* slot) {
  size_t rank = 0;
  Check(api, api->GetDimensionsCount(info, &rank));
  if (rank == 0 || rank > GRAFT_MAX_RANK) return false;
  Check(api, api->GetDimensions(info, slot->shape, rank));
  const char* names[GRAFT_MAX_RANK] = {};
  Check(api, api->GetSymbolicDimensions(info, names, rank));
  for (size_t i = 0; i < rank; ++i) {
    if (slot->shape[i] < 0) slot->shape[i] = symbols->NumberOf(names[i] != nullptr ? names[i] : "");
  }
  slot->tensor = {nullptr,
                  {GRAFT_DEVICE_CPU, 0},
                  static_cast<int32_t>(rank),
                  TypeFromOnnx(type),
                  slot->shape,
                  nullptr,
                  0};
  return true;
}

// Hands a shape to the runtime.
inline void WriteShape(const OrtApi* api, OrtShapeInferContext* context, size_t index,
                       const Symbols& symbols, const Slot& slot) {
  const auto rank = static_cast<size_t>(slot.tensor.ndim);
  int64_t sizes[GRAFT_MAX_RANK];
  std::string names[GRAFT_MAX_RANK];
  const char* pointers[GRAFT_MAX_RANK];
  for (size_t i = 0; i < rank; ++i) {
    sizes[i] = slot.shape[i] < 0 ? -1 : slot.shape[i];  // the runtime takes no other negative size
    if (slot.shape[i] < 0) names[i] = symbols.NameOf(slot.shape[i]);
    pointers[i] = names[i].c_str();
  }
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Check(api, api->CreateTensorTypeAndShapeInfo(&info));
  OrtStatus* status = api->SetTensorElementType(info, TypeToOnnx(slot.tensor.dtype));
  if (status == nullptr) status = api->SetDimensions(info, sizes, rank);
  if (status == nullptr) status = api->SetSymbolicDimensions(info, pointers, rank);
  if (status == nullptr) status = api->ShapeInferContext_SetOutputTypeShape(context, index, info);
  api->ReleaseTensorTypeAndShapeInfo(info);
  Check(api, status);
}

// Infers what can be inferred and stays silent about the rest: a model must never fail to load
// because a shape is not known yet. A real contradiction shows in the run.
inline void InferAtLoad(const OrtApi* api, OrtShapeInferContext* context,
                        const OperatorEntry& entry, uint32_t operator_index,
                        int32_t device_type) noexcept {
  Guard(nullptr, [&] {
    const graft_operator* description = entry.description;
    size_t num_inputs = 0;
    Check(api, api->ShapeInferContext_GetInputCount(context, &num_inputs));
    std::vector<Slot> slots(num_inputs + description->num_outputs);
    std::vector<const graft_tensor*> inputs;
    Symbols symbols;
    for (size_t i = 0; i < num_inputs; ++i) {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
      Check(api, api->ShapeInferContext_GetInputTypeShape(context, i, &info));
      Check(api, api->GetTensorElementType(info, &type));
      if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED) {  // an input that the node leaves out
        inputs.push_back(nullptr);
        continue;
      }
      if (!ReadShape(api, info, type, &symbols, &slots[i])) return GRAFT_OK;
      inputs.push_back(&slots[i].tensor);
    }
    std::vector<graft_tensor*> outputs;
    for (size_t i = 0; i < description->num_outputs; ++i) {
      if ((description->outputs[i]->flags & GRAFT_PARAMETER_VARIADIC) != 0) return GRAFT_OK;
      Slot& slot = slots[num_inputs + i];
      slot.tensor.shape = slot.shape;
      slot.tensor.ndim = -1;
      outputs.push_back(&slot.tensor);
    }
    Attributes attributes;
    ReadAttributes(api, context, description, &attributes);
    graft_create_request request{};
    request.size = sizeof request;
    request.operator_index = operator_index;
    request.num_attributes = static_cast<uint32_t>(attributes.pointers.size());
    request.attributes = attributes.pointers.data();
    request.device = {device_type, 0};
    const std::unique_ptr<KernelBase> kernel =
        entry.make(description, CreateContext(description, &request));
    InferContext infer(inputs.data(), inputs.size(), outputs.data(), outputs.size());
    kernel->Infer(infer);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Slot& slot = slots[num_inputs + i];
      // The runtime writes past its array when the node leaves the output out, and does not tell
      // how many it has: optional outputs stay as the model states them.
      if ((description->outputs[i]->flags & kMayLack) != 0) break;
      if (slot.tensor.ndim >= 0) WriteShape(api, context, i, symbols, slot);
    }
    return GRAFT_OK;
  });
}

}  // namespace graft::ort

#endif  // GRAFT_KIT_ORT_INFER_H_
