// Views of tensors: thin, copied freely, owning nothing.
#ifndef GRAFT_KIT_TENSOR_H_
#define GRAFT_KIT_TENSOR_H_

#include <cstdint>
#include <initializer_list>

#include "graft/checked.h"
#include "graft/error.h"
#include "graft/type.h"
#include "graft_plugin.h"

namespace graft {

// A size along an axis that may be unknown while a model is loaded. Unknown spreads through
// arithmetic, so that shape rules are written once, for load time and run time; what would wrap
// throws, as of a Size. A copied Dim retains its symbol.
class Dim {
 public:
  constexpr Dim(int64_t value = GRAFT_UNKNOWN_DIM) : value_(value) {}
  constexpr Dim(Size value) : value_(value) {}
  constexpr bool known() const { return value_ >= 0; }
  constexpr int64_t value() const { return value_; }  // negative when unknown

  friend constexpr Dim operator+(Dim a, Dim b) {
    return Both(a, b) ? Dim(Size(a.value_) + b.value_) : Dim();
  }
  friend constexpr Dim operator-(Dim a, Dim b) {
    return Both(a, b) ? Dim(Size(a.value_) - b.value_) : Dim();
  }
  friend constexpr Dim operator*(Dim a, Dim b) {
    return Both(a, b) ? Dim(Size(a.value_) * b.value_) : Dim();
  }
  friend constexpr Dim operator/(Dim a, Dim b) {
    return Both(a, b) && b.value_ != 0 ? Dim(a.value_ / b.value_) : Dim();
  }
  // Whether the two can be equal: an unknown size may be any.
  friend constexpr bool Fits(Dim a, Dim b) { return !Both(a, b) || a.value_ == b.value_; }

 private:
  static constexpr bool Both(Dim a, Dim b) { return a.known() && b.known(); }
  int64_t value_;
};

// A tensor given by the host, possibly absent. Asking an absent tensor for anything but present()
// and get(), or for an axis beyond its rank, throws: a model says which inputs a node has.
class Tensor {
 public:
  explicit Tensor(const graft_tensor* tensor = nullptr) : tensor_(tensor) {}

  bool present() const { return tensor_ != nullptr; }
  explicit operator bool() const { return present(); }

  int32_t rank() const { return given()->ndim; }
  // What a model chose: compute with it as a Size (graft/checked.h).
  int64_t dim(int32_t axis) const { return given()->shape[Axis(axis)]; }
  const int64_t* shape() const { return given()->shape; }
  DataType type() const { return given()->dtype; }
  graft_device device() const { return given()->device; }

  // Elements from one index of this axis to the next, for compact tensors as well.
  int64_t stride(int32_t axis) const {
    axis = Axis(axis);
    if (given()->strides != nullptr) return given()->strides[axis];
    return ElementsOf(given()->shape + axis + 1, given()->ndim - axis - 1);
  }

  bool compact() const {
    if (given()->strides == nullptr) return true;
    Size step = 1;
    for (int32_t i = given()->ndim - 1; i >= 0; --i) {
      if (given()->shape[i] != 1 && given()->strides[i] != step) return false;
      step *= given()->shape[i];
    }
    return true;
  }

  int64_t elements() const { return ElementsOf(given()->shape, given()->ndim); }

  // Never null: memory may be missing of a tensor without elements, and of any while a workspace is
  // sized; and no function of C takes null, not even for no bytes.
  const void* raw() const {
    alignas(64) static constexpr char kNothing[64] = {};
    if (given()->data == nullptr) return kNothing;
    return static_cast<const char*>(given()->data) + given()->byte_offset;
  }

  // The first element. Alignment is that of T, not more.
  template <typename T>
  const T* data() const {
    Require(given()->dtype == TypeOf<T>::value, "a tensor holds ", given()->dtype, ", not ",
            TypeOf<T>::value);
    return static_cast<const T*>(raw());
  }

  const graft_tensor* get() const { return tensor_; }

 private:
  const graft_tensor* given() const {
    Require(tensor_ != nullptr, "a tensor that the node does not have was asked for");
    return tensor_;
  }
  int32_t Axis(int32_t axis) const {
    const int32_t at = axis < 0 ? axis + rank() : axis;
    Require(at >= 0 && at < rank(), "axis ", axis, " of a tensor of rank ", rank(),
            " was asked for");
    return at;
  }

  const graft_tensor* tensor_;
};

// An output to write, possibly absent.
class MutableTensor : public Tensor {
 public:
  explicit MutableTensor(graft_tensor* tensor = nullptr) : Tensor(tensor) {}

  void* raw() const { return const_cast<void*>(Tensor::raw()); }

  template <typename T>
  T* data() const {
    return const_cast<T*>(Tensor::data<T>());
  }
};

// The tensors of one call, by position. Positions past the end are absent.
class Tensors {
 public:
  Tensors(const graft_tensor* const* tensors, uint64_t count) : tensors_(tensors), count_(count) {}
  uint64_t size() const { return count_; }
  Tensor operator[](uint64_t index) const {
    return Tensor(index < count_ ? tensors_[index] : nullptr);
  }

 private:
  const graft_tensor* const* tensors_;
  uint64_t count_;
};

class MutableTensors {
 public:
  MutableTensors(graft_tensor* const* tensors, uint64_t count) : tensors_(tensors), count_(count) {}
  uint64_t size() const { return count_; }
  MutableTensor operator[](uint64_t index) const {
    return MutableTensor(index < count_ ? tensors_[index] : nullptr);
  }

 private:
  graft_tensor* const* tensors_;
  uint64_t count_;
};

}  // namespace graft

#endif  // GRAFT_KIT_TENSOR_H_
