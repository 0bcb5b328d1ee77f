// One node of an ONNX Runtime session: attributes and constants read once, each run without
// allocating.
#ifndef GRAFT_KIT_ORT_KERNEL_H_
#define GRAFT_KIT_ORT_KERNEL_H_

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "graft/kernel.h"
#include "graft/ort_api.h"
#include "graft/ort_types.h"

namespace graft::ort {

// Attribute values of a node, in the C form, with the storage they point to.
struct Attributes {
  struct Entry {
    graft_attribute c;
    std::string text;
    std::vector<int64_t> ints;
    std::vector<float> floats;
  };
  std::deque<Entry> entries;
  std::vector<const graft_attribute*> pointers;

  Entry& Add(const graft_attribute& stated) {
    entries.emplace_back();
    entries.back().c = graft_attribute{};
    entries.back().c.size = sizeof(graft_attribute);
    entries.back().c.name = stated.name;
    entries.back().c.kind = stated.kind;
    return entries.back();
  }
  void Finish() {
    for (Entry& entry : entries) {
      if (entry.c.kind == GRAFT_ATTRIBUTE_STRING)
        Point(&entry.c, entry.text.c_str(), entry.text.size());
      if (entry.c.kind == GRAFT_ATTRIBUTE_INTS)
        Point(&entry.c, entry.ints.data(), entry.ints.size());
      if (entry.c.kind == GRAFT_ATTRIBUTE_FLOATS) {
        Point(&entry.c, entry.floats.data(), entry.floats.size());
      }
      pointers.push_back(&entry.c);
    }
  }

 private:
  static void Point(graft_attribute* attribute, const void* data, size_t count) {
    attribute->data = data;
    attribute->count = count;
  }
};

// Reads from a node those attributes that the operator states and the node has.
inline void ReadAttributes(const OrtApi* api, const OrtKernelInfo* info,
                           const graft_operator* description, Attributes* out) {
  for (uint32_t i = 0; i < description->num_attributes; ++i) {
    const graft_attribute& stated = *description->attributes[i];
    Attributes::Entry value;
    size_t count = 0;
    bool given = false;
    float number = 0;
    value.c = graft_attribute{};
    switch (stated.kind) {
      case GRAFT_ATTRIBUTE_INT:
        given =
            Succeeds(api, api->KernelInfoGetAttribute_int64(info, stated.name, &value.c.int_value));
        break;
      case GRAFT_ATTRIBUTE_FLOAT:
        given = Succeeds(api, api->KernelInfoGetAttribute_float(info, stated.name, &number));
        value.c.float_value = number;
        break;
      case GRAFT_ATTRIBUTE_STRING:
        given =
            Succeeds(api, api->KernelInfoGetAttribute_string(info, stated.name, nullptr, &count));
        if (!given) break;
        value.text.resize(count);
        Check(api,
              api->KernelInfoGetAttribute_string(info, stated.name, value.text.data(), &count));
        value.text.resize(count - 1);  // the runtime counts the closing zero
        break;
      case GRAFT_ATTRIBUTE_INTS:
        given = Succeeds(
            api, api->KernelInfoGetAttributeArray_int64(info, stated.name, nullptr, &count));
        if (!given || count == 0) break;
        value.ints.resize(count);
        Check(api,
              api->KernelInfoGetAttributeArray_int64(info, stated.name, value.ints.data(), &count));
        break;
      default:
        given = Succeeds(
            api, api->KernelInfoGetAttributeArray_float(info, stated.name, nullptr, &count));
        if (!given || count == 0) break;
        value.floats.resize(count);
        Check(api, api->KernelInfoGetAttributeArray_float(info, stated.name, value.floats.data(),
                                                          &count));
    }
    if (!given) continue;
    Attributes::Entry& entry = out->Add(stated);
    entry.c.int_value = value.c.int_value;
    entry.c.float_value = value.c.float_value;
    entry.text = std::move(value.text);
    entry.ints = std::move(value.ints);
    entry.floats = std::move(value.floats);
  }
  out->Finish();
}

// A graft_tensor with room for its shape.
struct Slot {
  graft_tensor tensor;
  int64_t shape[GRAFT_MAX_RANK];
};

// Makes a slot show a value of the runtime.
inline void View(const OrtApi* api, const OrtValue* value, graft_device device, Slot* slot) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Check(api, api->GetTensorTypeAndShape(value, &info));
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  OrtStatus* status = api->GetTensorElementType(info, &type);
  if (status == nullptr) status = api->GetDimensionsCount(info, &rank);
  if (status == nullptr && rank <= GRAFT_MAX_RANK)
    status = api->GetDimensions(info, slot->shape, rank);
  api->ReleaseTensorTypeAndShapeInfo(info);
  Check(api, status);
  Require(rank <= GRAFT_MAX_RANK, "a tensor has rank ", rank, ", above ", GRAFT_MAX_RANK);
  void* data = nullptr;
  Check(api, api->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  slot->tensor = {data,    device, static_cast<int32_t>(rank), TypeFromOnnx(type), slot->shape,
                  nullptr, 0};
}

// Threads a session is likely to have: the runtime does not tell, its default is one a CPU it may
// use.
inline int32_t LikelyConcurrency() {
  static const int32_t count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    return CPU_COUNT(&set);
  }();
  return count;
}

class NodeKernel {
 public:
  NodeKernel(const OrtApi* api, const OrtKernelInfo* info, const OperatorEntry& entry,
             uint32_t operator_index, int32_t device_type)
      : api_(api),
        description_(entry.description),
        device_{device_type, 0},
        allocator_(nullptr, {api}) {
    OrtAllocator* allocator = nullptr;
    Check(api, api->KernelInfoGetAllocator(info, OrtMemTypeDefault, &allocator));
    allocator_.reset(allocator);
    if (device_type != GRAFT_DEVICE_CPU) {
      // The provider's memory lies on the device that the session computes on.
      int id = 0;
      Check(api, api->MemoryInfoGetId(allocator->Info(allocator), &id));
      device_.id = id;
    }
    Check(api, api->KernelInfo_GetInputCount(info, &num_inputs_));
    Check(api, api->KernelInfo_GetOutputCount(info, &num_outputs_));

    std::vector<const graft_tensor*> constants(num_inputs_, nullptr);
    for (size_t i = 0; i < num_inputs_; ++i) {
      int is_constant = 0;
      const OrtValue* value = nullptr;
      if (!Succeeds(api, api->KernelInfoGetConstantInput_tensor(info, i, &is_constant, &value)))
        continue;
      if (is_constant == 0 || value == nullptr) continue;
      constants_.emplace_back();
      View(api, value, PlaceOf(value), &constants_.back());
      constants[i] = &constants_.back().tensor;
    }

    Attributes attributes;
    ReadAttributes(api, info, description_, &attributes);
    graft_create_request request{};
    request.size = sizeof request;
    request.operator_index = operator_index;
    request.num_attributes = static_cast<uint32_t>(attributes.pointers.size());
    request.attributes = attributes.pointers.data();
    request.constants = constants.data();
    request.num_constants = static_cast<uint32_t>(constants.size());
    request.device = device_;
    kernel_ = entry.make(description_, CreateContext(description_, &request));
  }

  NodeKernel(const NodeKernel&) = delete;
  NodeKernel& operator=(const NodeKernel&) = delete;

  const OrtApi* api() const { return api_; }
  const char* name() const { return description_->name; }

  void Compute(OrtKernelContext* context) const {
    // Slots on the stack for any usual node; a variadic one with more tensors allocates.
    Slot few[kFew];
    const graft_tensor* few_inputs[kFew];
    graft_tensor* few_outputs[kFew];
    const size_t count = num_inputs_ + num_outputs_;
    if (count <= kFew) return Compute(context, few, few_inputs, few_outputs);
    std::vector<Slot> slots(count);
    std::vector<const graft_tensor*> inputs(num_inputs_);
    std::vector<graft_tensor*> outputs(num_outputs_);
    Compute(context, slots.data(), inputs.data(), outputs.data());
  }

 private:
  static constexpr size_t kFew = 24;
  static constexpr uint64_t kAlignment = 64;

  // What the C callbacks of a run context need.
  struct Host {
    const OrtApi* api;
    OrtKernelContext* context;
  };

  struct ReleaseAllocator {
    const OrtApi* api;
    void operator()(OrtAllocator* allocator) const { api->ReleaseAllocator(allocator); }
  };

  // Scratch memory of one run, from the session's arena.
  //
  // On a device the run has only been enqueued when the memory goes back to the arena, so what may
  // have it next matters. Memory allocated in the name of the run's stream carries the stream's
  // mark: the arena gives it to that stream again, whose order separates the two uses, and to
  // another (of a run at the same time) only once that one has waited. Memory from the allocator's
  // own Alloc has no mark, and would go to any stream at once. Without a stream all work of the
  // device is in one order, and nothing needs a mark.
  class Workspace {
   public:
    Workspace(const OrtApi* api, OrtKernelContext* context, OrtAllocator* allocator,
              const void* stream, uint64_t bytes)
        : allocator_(allocator) {
      if (bytes == 0) return;
      const auto size = (Size(bytes) + (kAlignment - 1)).To<size_t>();
      if (stream != nullptr) {
        Check(api, api->KernelContext_GetScratchBuffer(context, allocator->Info(allocator), size,
                                                       &block_));
      } else {
        block_ = allocator->Alloc(allocator, size);
      }
      if (block_ == nullptr) throw std::bad_alloc();
    }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() {
      if (block_ != nullptr) allocator_->Free(allocator_, block_);
    }
    void* data() const {
      const auto address = reinterpret_cast<uintptr_t>(block_);
      return reinterpret_cast<void*>((address + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
    }

   private:
    OrtAllocator* allocator_;
    void* block_ = nullptr;
  };

  // Where a constant lies, which the runtime has placed already.
  graft_device PlaceOf(const OrtValue* value) const {
    if (device_.type == GRAFT_DEVICE_CPU) return device_;
    const OrtMemoryInfo* info = nullptr;
    Check(api_, api_->GetTensorMemoryInfo(value, &info));
    OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
    api_->MemoryInfoGetDeviceType(info, &type);
    return type == OrtMemoryInfoDeviceType_GPU ? device_ : graft_device{GRAFT_DEVICE_CPU, 0};
  }

  graft_device Device(const graft_parameter* parameter) const {
    const bool host = parameter != nullptr && (parameter->flags & GRAFT_PARAMETER_HOST_MEMORY) != 0;
    return host ? graft_device{GRAFT_DEVICE_CPU, 0} : device_;
  }
  graft_device InputDevice(size_t index) const {
    return Device(ParameterAt(description_->inputs, description_->num_inputs, index));
  }
  graft_device OutputDevice(size_t index) const {
    return Device(ParameterAt(description_->outputs, description_->num_outputs, index));
  }

  void Compute(OrtKernelContext* context, Slot* slots, const graft_tensor** inputs,
               graft_tensor** outputs) const {
    for (size_t i = 0; i < num_inputs_; ++i) {
      const OrtValue* value = nullptr;
      Check(api_, api_->KernelContext_GetInput(context, i, &value));
      inputs[i] = nullptr;
      if (value == nullptr) continue;
      View(api_, value, InputDevice(i), &slots[i]);
      inputs[i] = &slots[i].tensor;
    }
    CheckTensors("input", description_->inputs, description_->num_inputs, inputs, num_inputs_);

    Slot* output_slots = slots + num_inputs_;
    for (size_t i = 0; i < num_outputs_; ++i) {
      output_slots[i].tensor = {nullptr, OutputDevice(i), 0, {}, output_slots[i].shape, nullptr, 0};
      outputs[i] = &output_slots[i].tensor;
    }
    InferContext infer(inputs, num_inputs_, outputs, num_outputs_);
    kernel_->Infer(infer);
    for (size_t i = 0; i < num_outputs_; ++i) {
      const graft_tensor& tensor = output_slots[i].tensor;
      for (int32_t axis = 0; axis < tensor.ndim; ++axis) {
        Require(tensor.shape[axis] >= 0, "output ", i, " has no size along axis ", axis);
      }
      OrtValue* value = nullptr;
      const auto rank = static_cast<size_t>(std::max(tensor.ndim, 0));
      Check(api_, api_->KernelContext_GetOutput(context, i, tensor.shape, rank, &value));
      if (value == nullptr) {  // an optional output that the node leaves out
        outputs[i] = nullptr;
        continue;
      }
      RequireMade(*description_, i, tensor);
      Check(api_, api_->GetTensorMutableData(value, &outputs[i]->data));
    }

    graft_run_context run{};
    Host host{api_, context};
    run.size = sizeof run;
    run.concurrency = LikelyConcurrency();
    run.parallel_for = &ParallelFor;
    run.parallel_context = &host;
    run.log = &Log;
    run.log_context = &host;
    if (device_.type == GRAFT_DEVICE_CUDA) {
      Check(api_, api_->KernelContext_GetGPUComputeStream(context, &run.stream));
    }
    run.workspace_size = kernel_->Workspace(
        {Tensors(inputs, num_inputs_), Tensors(outputs, num_outputs_), run.concurrency});
    const Workspace workspace(api_, context, allocator_.get(), run.stream, run.workspace_size);
    if (run.workspace_size != 0) run.workspace = workspace.data();
    kernel_->Run(RunContext(&run, inputs, num_inputs_, outputs, num_outputs_));
  }

  static int32_t ParallelFor(void* parallel_context, uint64_t count, void (*task)(void*, uint64_t),
                             void* task_context) {
    const auto* host = static_cast<const Host*>(parallel_context);
    static_assert(sizeof(size_t) == sizeof(uint64_t), "tasks count in 64 bits");
    OrtStatus* status =
        host->api->KernelContext_ParallelFor(host->context, task, count, 0, task_context);
    return Succeeds(host->api, status) ? GRAFT_OK : GRAFT_ERROR_INTERNAL;
  }

  static void Log(void* log_context, int32_t level, const char* text) {
    const auto* host = static_cast<const Host*>(log_context);
    const OrtLogger* logger = nullptr;
    if (!Succeeds(host->api, host->api->KernelContext_GetLogger(host->context, &logger))) return;
    const OrtLoggingLevel levels[] = {ORT_LOGGING_LEVEL_VERBOSE, ORT_LOGGING_LEVEL_INFO,
                                      ORT_LOGGING_LEVEL_WARNING, ORT_LOGGING_LEVEL_ERROR};
    const int32_t known = level < 0 ? 0 : level > GRAFT_LOG_ERROR ? GRAFT_LOG_ERROR : level;
    Succeeds(host->api, host->api->Logger_LogMessage(logger, levels[known], text, GRAFT_PLUGIN_NAME,
                                                     0, "run"));
  }

  const OrtApi* api_;
  const graft_operator* description_;
  graft_device device_;
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  std::deque<Slot> constants_;  // a deque: the kernel holds pointers into it
  std::unique_ptr<KernelBase> kernel_;
  std::unique_ptr<OrtAllocator, ReleaseAllocator> allocator_;
};

}  // namespace graft::ort

#endif  // GRAFT_KIT_ORT_KERNEL_H_
