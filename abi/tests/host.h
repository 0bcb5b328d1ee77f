// A small host for tests: loads a plugin, and calls its table with tensors whose surroundings are
// guarded.
#ifndef GRAFT_TESTS_HOST_H_
#define GRAFT_TESTS_HOST_H_

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "graft/type.h"
#include "graft_plugin.h"

namespace graft::test {

// A library's table. Plugins are never unloaded, so neither is this.
inline const graft_plugin* Load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto symbol =
      reinterpret_cast<const graft_plugin* (*)()>(dlsym(library, GRAFT_PLUGIN_SYMBOL));
  if (symbol == nullptr) throw std::runtime_error(path + " lacks " GRAFT_PLUGIN_SYMBOL);
  return symbol();
}

// Where functions of the table write why they fail.
struct Message {
  char text[256] = "";
  graft_message c{sizeof(graft_message), nullptr, text, sizeof text};
};

// A tensor in memory with guard bands; the elements begin `offset` elements after a 64-byte
// boundary.
class Buffer {
 public:
  Buffer(DataType type, std::vector<int64_t> shape, uint64_t offset = 0)
      : shape_(std::move(shape)), bytes_(BytesOf(type)) {
    for (const int64_t size : shape_) bytes_ *= static_cast<uint64_t>(size);
    memory_.assign(bytes_ + 4 * kBand, kPoison);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    first_ = 2 * kBand - address % kBand + offset * BytesOf(type);
    tensor_ = {memory_.data() + first_,
               {GRAFT_DEVICE_CPU, 0},
               static_cast<int32_t>(shape_.size()),
               type,
               shape_.data(),
               nullptr,
               0};
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  graft_tensor* tensor() { return &tensor_; }
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(memory_.data() + first_);
  }
  template <typename T>
  void Set(const std::vector<T>& values) {
    if (values.size() * sizeof(T) != bytes_) throw std::logic_error("wrong number of values");
    if (bytes_ > 0) std::memcpy(data<T>(), values.data(), bytes_);  // from null it is undefined
  }
  template <typename T>
  std::vector<T> Get() {
    return std::vector<T>(data<T>(), data<T>() + bytes_ / sizeof(T));
  }
  void SetStrides(std::vector<int64_t> strides) {
    strides_ = std::move(strides);
    tensor_.strides = strides_.data();
  }
  // Whether nothing around the elements was written.
  bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < first_ || i >= first_ + bytes_) && memory_[i] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kBand = 64;
  static constexpr unsigned char kPoison = 0xff;  // NaN in every floating-point type

  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  uint64_t bytes_;
  uint64_t first_ = 0;
  std::vector<unsigned char> memory_;
  graft_tensor tensor_{};
};

// Attributes of one kernel.
class Attributes {
 public:
  Attributes& Int(const char* name, int64_t value) {
    New(name, GRAFT_ATTRIBUTE_INT)->int_value = value;
    return *this;
  }
  Attributes& Float(const char* name, double value) {
    New(name, GRAFT_ATTRIBUTE_FLOAT)->float_value = value;
    return *this;
  }
  Attributes& String(const char* name, const char* value) {
    graft_attribute* attribute = New(name, GRAFT_ATTRIBUTE_STRING);
    attribute->data = value;
    attribute->count = std::strlen(value);
    return *this;
  }
  Attributes& Ints(const char* name, const std::vector<int64_t>& value) {
    graft_attribute* attribute = New(name, GRAFT_ATTRIBUTE_INTS);
    attribute->data = value.data();
    attribute->count = value.size();
    return *this;
  }
  std::vector<const graft_attribute*> pointers() const {
    std::vector<const graft_attribute*> all;
    for (const auto& attribute : attributes_) all.push_back(attribute.get());
    return all;
  }

 private:
  graft_attribute* New(const char* name, int32_t kind) {
    attributes_.push_back(std::make_unique<graft_attribute>());
    graft_attribute* attribute = attributes_.back().get();
    attribute->size = sizeof *attribute;
    attribute->name = name;
    attribute->kind = kind;
    return attribute;
  }
  std::vector<std::unique_ptr<graft_attribute>> attributes_;
};

// A kernel of a plugin. Methods return GRAFT_* codes and leave the text in `message`.
class Kernel {
 public:
  Kernel(const graft_plugin* table, const std::string& name) : table_(table) {
    const graft_plugin_info* info = table->describe();
    for (uint32_t i = 0; i < info->num_operators; ++i) {
      if (name == info->operators[i]->name) index_ = i;
    }
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() { table_->destroy(kernel_); }

  int32_t Create(const Attributes& attributes = {},
                 std::vector<const graft_tensor*> constants = {}) {
    const std::vector<const graft_attribute*> pointers = attributes.pointers();
    graft_create_request request{};
    request.size = sizeof request;
    request.operator_index = index_;
    request.attributes = pointers.data();
    request.num_attributes = static_cast<uint32_t>(pointers.size());
    request.constants = constants.data();
    request.num_constants = static_cast<uint32_t>(constants.size());
    request.device = {GRAFT_DEVICE_CPU, 0};
    return table_->create(&request, &kernel_, &message.c);
  }

  int32_t Infer(const std::vector<const graft_tensor*>& inputs,
                const std::vector<graft_tensor*>& outputs) {
    return table_->infer_shapes(kernel_, inputs.data(), inputs.size(), outputs.data(),
                                outputs.size(), &message.c);
  }

  // Runs with a workspace of exactly the size asked for, on `threads` threads (1: no parallel_for).
  int32_t Run(const std::vector<const graft_tensor*>& inputs,
              const std::vector<graft_tensor*>& outputs, int32_t threads = 1) {
    uint64_t bytes = 0;
    const int32_t code =
        table_->workspace_size(kernel_, inputs.data(), inputs.size(),
                               const_cast<const graft_tensor* const*>(outputs.data()),
                               outputs.size(), threads, &bytes, &message.c);
    if (code != GRAFT_OK) return code;
    Buffer workspace(kUInt8, {static_cast<int64_t>(bytes)});
    graft_run_context context{};
    context.size = sizeof context;
    context.workspace = bytes == 0 ? nullptr : workspace.data<void>();
    context.workspace_size = bytes;
    context.concurrency = threads;
    context.parallel_for = threads == 1 ? nullptr : &ParallelFor;
    context.parallel_context = &threads;
    context.log = [](void* log, int32_t, const char* text) {
      static_cast<std::string*>(log)->append(text);
    };
    context.log_context = &log;
    const int32_t result = table_->run(kernel_, &context, inputs.data(), inputs.size(),
                                       outputs.data(), outputs.size(), &message.c);
    if (!workspace.intact()) throw std::runtime_error("written outside the workspace");
    return result;
  }

  Message message;
  std::string log;

 private:
  static int32_t ParallelFor(void* context, uint64_t count, void (*task)(void*, uint64_t),
                             void* task_context) {
    const auto threads = static_cast<uint64_t>(*static_cast<int32_t*>(context));
    std::vector<std::thread> workers;
    for (uint64_t t = 0; t < threads; ++t) {
      workers.emplace_back([=] {
        for (uint64_t i = t; i < count; i += threads) task(task_context, i);
      });
    }
    for (std::thread& worker : workers) worker.join();
    return GRAFT_OK;
  }

  const graft_plugin* table_;
  uint32_t index_ = UINT32_MAX;
  void* kernel_ = nullptr;
};

// What a fold emitted.
struct Folded {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Calls fold with one float64 constant a name.
inline int32_t Fold(const graft_plugin* table, const char* operator_name,
                    const std::map<std::string, graft_tensor*>& constants,
                    std::map<std::string, Folded>* results, Message* message) {
  std::vector<graft_named_tensor> named;
  for (const auto& [name, tensor] : constants) {
    named.push_back({sizeof(graft_named_tensor), nullptr, name.c_str(), tensor});
  }
  std::vector<const graft_named_tensor*> pointers;
  for (const graft_named_tensor& one : named) pointers.push_back(&one);
  graft_fold_request request{};
  request.size = sizeof request;
  request.operator_name = operator_name;
  request.constants = pointers.data();
  request.num_constants = static_cast<uint32_t>(pointers.size());
  request.emit = [](void* context, const char* name, const graft_tensor* tensor) -> int32_t {
    if (context == nullptr) return GRAFT_ERROR_OUT_OF_MEMORY;
    Folded& folded = (*static_cast<std::map<std::string, Folded>*>(context))[name];
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
    folded.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
    const auto* data = static_cast<const double*>(tensor->data);
    folded.values.assign(data, data + count);
    return GRAFT_OK;
  };
  request.emit_context = results;
  return table->fold(&request, &message->c);
}

}  // namespace graft::test

#endif  // GRAFT_TESTS_HOST_H_
