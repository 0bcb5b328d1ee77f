// Arrays on the device under test, with guard bands and poison.
#ifndef GRAFT_TESTS_GPU_MEMORY_H_
#define GRAFT_TESTS_GPU_MEMORY_H_

#include <cstdint>
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

// Where arrays come from. Pooled: all arrays of a problem lie in one allocation, which the next
// problem takes again; they are filled through pinned memory without waiting, and the guard bands
// of all are read back at once when the last array dies. Otherwise each is an allocation of its
// own, which a tool that watches memory sees. By default pooled on a GPU and not on the emulator.
void PoolArrays(bool pooled);
// Calls of the device for arrays so far that may wait for it: allocations, frees, reads.
int64_t DeviceCalls();

// Bytes on the device between two guard bands, all of it poison (0xff).
class Memory {
 public:
  // `shift` bytes lie between the first guard band and the first byte.
  Memory(Trial& trial, int64_t bytes, int64_t shift);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  unsigned char* data() const { return memory_ + first_; }
  int64_t size() const { return bytes_; }
  void Write(const void* from);
  // Waits for all work; fails the trial if anything outside was written.
  void Read(void* to) const;

 private:
  Trial* trial_;
  int64_t bytes_, first_;            // first_: of the bytes, counted from memory_
  int64_t whole_;                    // with both guard bands
  unsigned char* memory_ = nullptr;  // on the device
  unsigned char* mirror_ = nullptr;  // on the host, of pooled ones
  bool written_ = false;
};

// `count` elements. Full of NaN (of -1 in integers) until written: what a kernel leaves out is
// seen. `shift` moves the first element that many elements after a multiple of 256 bytes.
template <typename T>
class Array {
 public:
  Array(Trial& trial, int64_t count, int64_t shift = 0)
      : count_(count), memory_(trial, count * kBytes, shift * kBytes) {}
  Array(Trial& trial, const std::vector<T>& values, int64_t shift = 0)
      : Array(trial, static_cast<int64_t>(values.size()), shift) {
    Write(values);
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  int64_t size() const { return count_; }

  void Write(const std::vector<T>& values) { memory_.Write(values.data()); }
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(count_));
    memory_.Read(values.data());
    return values;
  }

 private:
  static constexpr auto kBytes = static_cast<int64_t>(sizeof(T));

  int64_t count_;
  Memory memory_;
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_MEMORY_H_
