// An array of a type that is known at run time only, on the device and as a reference reads it.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_TYPED_ARRAY_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_TYPED_ARRAY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "../../check.h"
#include "../../memory.h"

namespace graft {
namespace gpu {

using cuda::Type;

// Numbers rounded to a type, here and on the device.
class TypedArray {
 public:
  TypedArray() = default;
  TypedArray(Trial& trial, Type type, std::vector<double> values, int64_t shift = 0) : type_(type) {
    if (type == Type::kFloat32) Make<float>(trial, values, shift, &floats_);
    if (type == Type::kFloat16) Make<cuda::Half>(trial, values, shift, &halves_);
    if (type == Type::kBFloat16) Make<cuda::BFloat16>(trial, values, shift, &bfloats_);
  }
  void* data() const {
    if (type_ == Type::kFloat32) return floats_ ? floats_->data() : nullptr;
    if (type_ == Type::kFloat16) return halves_->data();
    return bfloats_->data();
  }
  const float* floats() const { return static_cast<const float*>(data()); }
  // What was written to the array since.
  std::vector<double> Read() const {
    std::vector<double> all;
    const auto widen = [&](const auto& list) {
      for (const auto x : list) all.push_back(Wide(x));
    };
    if (type_ == Type::kFloat32) widen(floats_->Read());
    if (type_ == Type::kFloat16) widen(halves_->Read());
    if (type_ == Type::kBFloat16) widen(bfloats_->Read());
    return all;
  }
  double operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }

 private:
  template <typename T>
  void Make(Trial& trial, const std::vector<double>& values, int64_t shift,
            std::unique_ptr<Array<T>>* array) {
    std::vector<T> narrow;
    for (const double x : values) {
      narrow.push_back(Narrow<T>(x));
      values_.push_back(Wide(narrow.back()));
    }
    *array = std::make_unique<Array<T>>(trial, narrow, shift);
  }

  Type type_ = Type::kFloat32;
  std::vector<double> values_;
  std::unique_ptr<Array<float>> floats_;
  std::unique_ptr<Array<cuda::Half>> halves_;
  std::unique_ptr<Array<cuda::BFloat16>> bfloats_;
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_TYPED_ARRAY_H_
