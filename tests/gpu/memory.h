// Arrays on the device under test, with guard bands and poison.
#ifndef GRAFT_TESTS_GPU_MEMORY_H_
#define GRAFT_TESTS_GPU_MEMORY_H_

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "check.h"

namespace graft {
namespace gpu {

// Memory of the device: the GPU's, or the program's own where kernels run on the emulator.
void* Allocate(int64_t bytes);
void Free(void* memory);
void CopyToDevice(void* to, const void* from, int64_t bytes);
// Waits for all work first; a failure of that work is the trial's.
void CopyFromDevice(Trial& trial, void* to, const void* from, int64_t bytes);

// `count` elements on the device, between two guard bands of NaN. Read, or the end of the array's
// life, fails the trial if anything outside was written.
template <typename T>
class Array {
 public:
  // Full of NaN (of -1 in integers): what a kernel leaves out is seen. `shift` moves the first
  // element that many elements behind a multiple of 256 bytes.
  Array(Trial& trial, int64_t count, int64_t shift = 0)
      : trial_(&trial), count_(count), shift_(shift) {
    bytes_ = kGuard + (shift + count) * static_cast<int64_t>(sizeof(T)) + kGuard;
    memory_ = static_cast<unsigned char*>(Allocate(bytes_));
    const std::vector<unsigned char> poison(static_cast<size_t>(bytes_), kPoison);
    CopyToDevice(memory_, poison.data(), bytes_);
  }
  Array(Trial& trial, const std::vector<T>& values, int64_t shift = 0)
      : Array(trial, static_cast<int64_t>(values.size()), shift) {
    Write(values);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    Read();
    Free(memory_);
  }

  T* data() const {
    return reinterpret_cast<T*>(memory_ + kGuard + shift_ * static_cast<int64_t>(sizeof(T)));
  }
  int64_t size() const { return count_; }

  void Write(const std::vector<T>& values) {
    CopyToDevice(data(), values.data(), count_ * static_cast<int64_t>(sizeof(T)));
  }
  std::vector<T> Read() const {
    std::vector<unsigned char> all(static_cast<size_t>(bytes_));
    CopyFromDevice(*trial_, all.data(), memory_, bytes_);
    const auto* first = all.data() + (reinterpret_cast<unsigned char*>(data()) - memory_);
    const auto* last = first + count_ * static_cast<int64_t>(sizeof(T));
    for (const unsigned char* at = all.data(); at < all.data() + all.size(); ++at) {
      if ((at < first || at >= last) && *at != kPoison) {
        trial_->Fail("a byte " + std::to_string(at < first ? first - at : at - last + 1) +
                     (at < first ? " before" : " behind") + " an array was written");
        break;
      }
    }
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ > 0)
      std::memcpy(static_cast<void*>(values.data()), first, static_cast<size_t>(last - first));
    return values;
  }

 private:
  static constexpr int64_t kGuard = 512;
  static constexpr unsigned char kPoison = 0xff;

  Trial* trial_;
  int64_t count_, shift_, bytes_ = 0;
  unsigned char* memory_ = nullptr;
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_MEMORY_H_
