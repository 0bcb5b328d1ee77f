// Texts and memory without the C++ library.
#ifndef GRAFT_C_TEXT_H_
#define GRAFT_C_TEXT_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace graft {

// A text that grows. Where memory ends it is bad from then on, and stays a text.
class Text {
 public:
  Text() = default;
  explicit Text(const char* s) { Add(s); }
  ~Text() { free(at_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  Text& Add(const void* bytes, size_t n) {
    if (bad_) return *this;
    if (n > capacity_ - size_ || capacity_ == 0) {
      size_t wanted = 64;
      if (n > SIZE_MAX / 4 || size_ > SIZE_MAX / 4) return Fail();
      while (wanted < size_ + n + 1) wanted *= 2;
      char* grown = static_cast<char*>(realloc(at_, wanted));
      if (grown == nullptr) return Fail();
      at_ = grown;
      capacity_ = wanted - 1;
    }
    memcpy(at_ + size_, bytes, n);
    size_ += n;
    at_[size_] = 0;
    return *this;
  }
  Text& Add(const char* s) { return Add(s, strlen(s)); }
  Text& Add(const Text& t) { return t.bad_ ? Fail() : Add(t.c(), t.size()); }
  Text& Number(long long n) {
    char digits[24];
    char* p = digits + sizeof digits;
    unsigned long long left =
        n < 0 ? 0ULL - static_cast<unsigned long long>(n) : static_cast<unsigned long long>(n);
    do {
      *--p = static_cast<char>('0' + left % 10);
      left /= 10;
    } while (left != 0);
    if (n < 0) *--p = '-';
    return Add(p, static_cast<size_t>(digits + sizeof digits - p));
  }
  // Adds the words of a text, with one space between them, up to some hundred characters.
  Text& AddWords(const char* s) {
    const size_t most = size_ + 600;
    for (const char* blank = ""; *(s += strspn(s, " \t\r\n")) != 0 && size_ < most; blank = " ") {
      const size_t n = strcspn(s, " \t\r\n");
      Add(blank).Add(s, n);
      if (bad_) break;
      s += n;
    }
    return *this;
  }
  void Clear() {
    size_ = 0;
    if (at_ != nullptr) at_[0] = 0;
  }
  void Cut(size_t n) {
    if (n < size_) {
      size_ = n;
      at_[n] = 0;
    }
  }
  const char* c() const { return at_ == nullptr ? "" : at_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool bad() const { return bad_; }
  bool Is(const char* s) const { return strcmp(c(), s) == 0; }

 private:
  Text& Fail() {
    bad_ = true;
    return *this;
  }

  char* at_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
  bool bad_ = false;
};

// Whether s begins with a text; the rest of it then.
inline const char* After(const char* s, const char* begin) {
  const size_t n = strlen(begin);
  return strncmp(s, begin, n) == 0 ? s + n : nullptr;
}

// A list of things that can be copied byte for byte.
template <typename T>
class List {
 public:
  List() = default;
  ~List() { free(at_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  bool Add(const T& x) {
    if (size_ == capacity_) {
      const size_t wanted = capacity_ == 0 ? 8 : 2 * capacity_;
      if (wanted > SIZE_MAX / sizeof(T)) return false;
      T* grown = static_cast<T*>(realloc(static_cast<void*>(at_), wanted * sizeof(T)));
      if (grown == nullptr) return false;
      at_ = grown;
      capacity_ = wanted;
    }
    at_[size_++] = x;
    return true;
  }
  void Clear() { size_ = 0; }
  // Takes one out; the last is in its place then.
  void Remove(size_t i) { at_[i] = at_[--size_]; }
  T& operator[](size_t i) { return at_[i]; }
  const T& operator[](size_t i) const { return at_[i]; }
  size_t size() const { return size_; }
  T* data() { return at_; }

 private:
  T* at_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace graft

#endif  // GRAFT_C_TEXT_H_
