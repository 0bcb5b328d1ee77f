// What an author's Fold function sees: constants of the model in float64 or int64, and where to put
// results.
#ifndef GRAFT_KIT_FOLD_H_
#define GRAFT_KIT_FOLD_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "graft/error.h"
#include "graft/tensor.h"
#include "graft_plugin.h"

namespace graft {

class FoldContext {
 public:
  explicit FoldContext(const graft_fold_request* request) : request_(request) {}

  // `name` of the entry under `operators` in plugin.yaml that is being applied.
  std::string operator_name() const { return request_->operator_name; }

  // A captured constant: float64 or int64, compact.
  Tensor Constant(const char* name) const {
    for (uint32_t i = 0; i < request_->num_constants; ++i) {
      if (std::strcmp(request_->constants[i]->name, name) == 0) {
        return Tensor(request_->constants[i]->tensor);
      }
    }
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("fold: no constant ", name, " was captured"));
  }

  // Whether a constant of this name was given.
  bool Has(const char* name) const {
    for (uint32_t i = 0; i < request_->num_constants; ++i) {
      if (std::strcmp(request_->constants[i]->name, name) == 0) return true;
    }
    return false;
  }

  // An attribute that the host gives beside the constants, or the fallback.
  double Float(const char* name, double fallback) const {
    const graft_attribute* attribute = Attribute(name);
    if (attribute == nullptr) return fallback;
    return attribute->kind == GRAFT_ATTRIBUTE_INT ? static_cast<double>(attribute->int_value)
                                                  : attribute->float_value;
  }
  int64_t Int(const char* name, int64_t fallback) const {
    const graft_attribute* attribute = Attribute(name, GRAFT_ATTRIBUTE_INT);
    return attribute == nullptr ? fallback : attribute->int_value;
  }
  std::string String(const char* name, const std::string& fallback) const {
    const graft_attribute* attribute = Attribute(name, GRAFT_ATTRIBUTE_STRING);
    if (attribute == nullptr) return fallback;
    return std::string(static_cast<const char*>(attribute->data), attribute->count);
  }

  // Hands one result over; the host copies it. Data is compact, row-major.
  void Emit(const char* name, std::initializer_list<int64_t> shape, const double* data) const {
    Emit(name, shape, kFloat64, data);
  }
  void Emit(const char* name, std::initializer_list<int64_t> shape, const int64_t* data) const {
    Emit(name, shape, kInt64, data);
  }

  // Says that these constants do not qualify; the model is left unchanged.
  template <typename... Parts>
  [[noreturn]] void Refuse(const Parts&... parts) const {
    throw Error(GRAFT_REFUSED, Text(parts...));
  }

 private:
  // Null where there is none; `kind`, where not 0, is what it must be.
  const graft_attribute* Attribute(const char* name, int32_t kind = 0) const {
    for (uint32_t i = 0; i < request_->num_attributes; ++i) {
      const graft_attribute* attribute = request_->attributes[i];
      if (std::strcmp(attribute->name, name) != 0) continue;
      Require(kind == 0 || attribute->kind == kind, "fold: attribute ", name, " is of kind ",
              attribute->kind, ", needed is ", kind);
      return attribute;
    }
    return nullptr;
  }

  void Emit(const char* name, std::initializer_list<int64_t> shape, DataType type,
            const void* data) const {
    std::vector<int64_t> dims(shape);
    graft_tensor tensor{};
    tensor.data = const_cast<void*>(data);
    tensor.device = {GRAFT_DEVICE_CPU, 0};
    tensor.ndim = static_cast<int32_t>(dims.size());
    tensor.dtype = type;
    tensor.shape = dims.data();
    const int32_t code = request_->emit(request_->emit_context, name, &tensor);
    if (code != GRAFT_OK) throw Error(code, Text("fold: the host did not take ", name));
  }

  const graft_fold_request* request_;
};

}  // namespace graft

#endif  // GRAFT_KIT_FOLD_H_
