// Arithmetic on sizes that a model chose: nothing wraps.
//
// Shapes, attributes and lists come from strangers. Whatever follows from them (sizes, offsets,
// counts, bytes) is a Size, whose operators throw graft::Error where the result does not fit, so
// that code which plans and checks reads like mathematics:
//
//   const Size bytes = Size(rows) * columns * sizeof(float);
//
// One Size makes a chain of products or sums checked from there on: it stands first or second.
// Kernels compute with plain integers, after what they are given has been checked here. The
// functions at the top throw nothing. Host code, also as nvcc compiles it; not for device code.
#ifndef GRAFT_KIT_CHECKED_H_
#define GRAFT_KIT_CHECKED_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "graft/error.h"

namespace graft {

// *out = a op b. False, and *out is of no use, where the result is no number of T.
template <typename T>
[[nodiscard]] constexpr bool Add(T a, T b, T* out) noexcept {
  return !__builtin_add_overflow(a, b, out);
}
template <typename T>
[[nodiscard]] constexpr bool Subtract(T a, T b, T* out) noexcept {
  return !__builtin_sub_overflow(a, b, out);
}
template <typename T>
[[nodiscard]] constexpr bool Multiply(T a, T b, T* out) noexcept {
  return !__builtin_mul_overflow(a, b, out);
}

// *out = value as another type of integer. False where that has no such number.
template <typename To, typename From>
[[nodiscard]] constexpr bool Narrow(From value, To* out) noexcept {
  static_assert(std::is_integral_v<From> && std::is_integral_v<To>, "integers only");
  return !__builtin_add_overflow(value, From{0}, out);
}

// Whether `size` elements have one at `index`; and all of [offset, offset + count). A negative
// number is never within.
[[nodiscard]] constexpr bool HoldsIndex(int64_t size, int64_t index) noexcept {
  return index >= 0 && index < size;
}
[[nodiscard]] constexpr bool HoldsRange(int64_t size, int64_t offset, int64_t count) noexcept {
  return offset >= 0 && count >= 0 && offset <= size && count <= size - offset;
}

// A 64-bit number whose arithmetic throws Error, naming both operands, where it would wrap, or
// divide by zero.
class Size {
 public:
  constexpr Size() = default;
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  constexpr Size(T value) {
    if (!Narrow(value, &value_)) Fail("a size of ", value, " has more than 63 bits");
  }

  constexpr operator int64_t() const { return value_; }

  // The number as another type of integer. Throws Error where that has no such number.
  template <typename T>
  constexpr T To() const {
    T value{};
    if (!Narrow(value_, &value)) {
      Fail("a size is ", value_, ", needed is ", int64_t{std::numeric_limits<T>::min()}, " to ",
           std::numeric_limits<T>::max());
    }
    return value;
  }

  static constexpr Size Sum(Size a, Size b) {
    int64_t sum = 0;
    if (!Add(a.value_, b.value_, &sum)) Overflow(a, "+", b);
    return sum;
  }
  static constexpr Size Difference(Size a, Size b) {
    int64_t difference = 0;
    if (!Subtract(a.value_, b.value_, &difference)) Overflow(a, "-", b);
    return difference;
  }
  static constexpr Size Product(Size a, Size b) {
    int64_t product = 0;
    if (!Multiply(a.value_, b.value_, &product)) Overflow(a, "*", b);
    return product;
  }
  static constexpr Size Quotient(Size a, Size b) {
    CheckDivision(a, b);
    return a.value_ / b.value_;
  }
  static constexpr Size Remainder(Size a, Size b) {
    CheckDivision(a, b);
    return a.value_ % b.value_;
  }

  Size& operator+=(Size b) { return *this = Sum(*this, b); }
  Size& operator-=(Size b) { return *this = Difference(*this, b); }
  Size& operator*=(Size b) { return *this = Product(*this, b); }

 private:
  template <typename... Parts>
  [[noreturn]] static void Fail(const Parts&... parts) {
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text(parts...));
  }
  [[noreturn]] static void Overflow(Size a, const char* sign, Size b) {
    Fail("a size has more than 63 bits: ", a.value_, " ", sign, " ", b.value_);
  }
  static constexpr void CheckDivision(Size a, Size b) {
    if (b.value_ == 0 || (b.value_ == -1 && a.value_ == std::numeric_limits<int64_t>::min())) {
      Overflow(a, "/", b);
    }
  }

  int64_t value_ = 0;
};

// Size, for arithmetic of a Size with a Size or an integer; nothing for other types.
template <typename T>
using IsNumber = std::disjunction<std::is_same<T, Size>, std::is_integral<T>>;
template <typename A, typename B>
using MakesSize = std::conjunction<std::disjunction<std::is_same<A, Size>, std::is_same<B, Size>>,
                                   IsNumber<A>, IsNumber<B>>;
template <typename A, typename B>
using SizeOf = std::enable_if_t<MakesSize<A, B>::value, Size>;

template <typename A, typename B>
constexpr SizeOf<A, B> operator+(A a, B b) {
  return Size::Sum(a, b);
}
template <typename A, typename B>
constexpr SizeOf<A, B> operator-(A a, B b) {
  return Size::Difference(a, b);
}
template <typename A, typename B>
constexpr SizeOf<A, B> operator*(A a, B b) {
  return Size::Product(a, b);
}
template <typename A, typename B>
constexpr SizeOf<A, B> operator/(A a, B b) {
  return Size::Quotient(a, b);
}
template <typename A, typename B>
constexpr SizeOf<A, B> operator%(A a, B b) {
  return Size::Remainder(a, b);
}

// How many of b make a, the last one perhaps not full; and as many times b. b is positive.
template <typename A, typename B>
constexpr SizeOf<A, B> DivideUp(A a, B b) {
  const Size rest = Size(a) % b;
  return Size(a) / b + (rest > 0 ? 1 : 0);
}
template <typename A, typename B>
constexpr SizeOf<A, B> RoundUp(A a, B b) {
  return DivideUp(a, b) * b;
}

// Elements of a tensor; 0 where one size is, whatever the others are.
inline Size ElementsOf(const int64_t* shape, int32_t rank) {
  for (int32_t i = 0; i < rank; ++i) {
    if (shape[i] == 0) return 0;
  }
  Size count = 1;
  for (int32_t i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

// Where the parts of a workspace stand: one after the other, each on cache lines of its own.
class Scratch {
 public:
  static constexpr int64_t kLine = 64;

  // Where `count` things of `size` bytes begin, in bytes. Throws Error where there is no such room.
  size_t Take(Size count, size_t size) {
    Require(count >= 0, "a workspace for ", int64_t{count}, " things");
    const size_t at = bytes();
    end_ = RoundUp(end_ + count * size, kLine);
    return at;
  }
  // Of all that was taken; a multiple of kLine.
  size_t bytes() const { return end_.To<size_t>(); }

 private:
  Size end_;
};

}  // namespace graft

#endif  // GRAFT_KIT_CHECKED_H_
