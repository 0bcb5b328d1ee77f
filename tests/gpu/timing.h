// Times of kernels on a GPU; on the emulator, at tiny sizes, only proof that the same code runs.
//
//   void Time(timing::Bench& bench) {
//     const int64_t keys = bench.tiny() ? 40 : 16384;
//     timing::Case decode{"contiguous", cuda::Type::kBFloat16,
//                         {{"batch", 1}, {"heads", 32}, {"head_size", 128}, {"keys", keys}}};
//     decode.bytes = ...;   // of device memory that any answer must read or write, each once
//     decode.flops = ...;
//     decode.make = [=](timing::Inputs& in) -> timing::Launch {
//       const auto* query = in.Normal<cuda::BFloat16>(32 * 128);
//       ...
//       auto* out = in.Output<cuda::BFloat16>(32 * 128);
//       return [=](cuda::Stream stream) { return cuda::flash_decode::Launch(..., stream); };
//     };
//     bench.Time(decode);              // one case, or
//     bench.Compare(per_beam, shared); // two, in turns, and the first's time over the second's
//   }
//   GRAFT_TIMING("flash-decode", Time);
//
// A case's `make` is called once for each of several sets of inputs, which launches take in turns:
// together they exceed the L2 cache several times. A launch enqueues and neither waits nor
// allocates, is captured into a CUDA graph where it is short, and gives the same answer each time.
#ifndef GRAFT_TESTS_GPU_TIMING_H_
#define GRAFT_TESTS_GPU_TIMING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../kernels-cuda/device/launch.h"
#include "../../kernels-cuda/device/number.h"

namespace graft {
namespace timing {

// Enqueues the work that is timed.
using Launch = std::function<cuda::Status(cuda::Stream)>;

// Names and numbers that say what a case computes. A comparison with something else finds its
// counterpart by kernel, type and shape, so that names are those of README.md in this folder.
using Shape = std::vector<std::pair<std::string, int64_t>>;

// One set of a case's inputs and outputs: device memory that lives as long as the case is timed.
// All pointers are multiples of 256 bytes.
class Inputs {
 public:
  explicit Inputs(uint64_t seed) : seed_(seed) {}
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  ~Inputs();

  // Random numbers of mean 0 and this deviation, none above 3.5 of it.
  template <typename T>
  T* Normal(int64_t count, double deviation = 1) {
    static_assert(!std::is_integral<T>::value, "float, Half or BFloat16");
    void* memory = Add(count * static_cast<int64_t>(sizeof(T)), kInput);
    FillNormal(memory, TypeOf<T>(), count, deviation);
    return static_cast<T*>(memory);
  }
  // Random integers (int32_t or int64_t) from first to last, both included.
  template <typename T>
  T* Integers(int64_t count, int64_t first, int64_t last) {
    static_assert(std::is_integral<T>::value, "integers of 4 or 8 bytes");
    void* memory = Add(count * static_cast<int64_t>(sizeof(T)), kInput);
    FillIntegers(memory, sizeof(T), count, first, last);
    return static_cast<T*>(memory);
  }
  // What the host has: index lists, lengths.
  template <typename T>
  T* Copy(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* memory = Add(bytes, kInput);
    FillFrom(memory, values.data(), bytes);
    return static_cast<T*>(memory);
  }
  // Zeros: counters, workspace that must begin so.
  template <typename T>
  T* Zeros(int64_t count) {
    return static_cast<T*>(Add(count * static_cast<int64_t>(sizeof(T)), kZeros));
  }
  // Workspace, full of NaN (-1).
  template <typename T>
  T* Scratch(int64_t count) {
    return static_cast<T*>(Add(count * static_cast<int64_t>(sizeof(T)), kScratch));
  }
  // An answer, full of NaN (-1) before the first launch. After the last, a case fails if a NaN is
  // left in it, or an infinity unless they are `infinite`; of integers, a -1.
  template <typename T>
  T* Output(int64_t count, bool infinite = false) {
    const Kind kind = std::is_integral<T>::value ? kOutputIntegers
                      : infinite                 ? kOutputNumbers
                                                 : kOutputFinite;
    return static_cast<T*>(
        Add(count * static_cast<int64_t>(sizeof(T)), kind, TypeOf<T>(), sizeof(T)));
  }

  // Another way to the same answer: `reference` writes `want` (also made by Output) from the same
  // inputs. It runs once, after the times are taken, and `out` must agree with it: at the sizes
  // that are timed, which random problems do not reach.
  template <typename T>
  void Against(const T* out, const T* want, int64_t count, Launch reference) {
    references_.push_back({out, want, count, TypeOf<T>(), std::move(reference)});
  }

  int64_t bytes() const { return bytes_; }
  // Runs the references. Throws when one cannot be launched.
  void Refer() const;
  // What is wrong with an output; empty when nothing is. Waits for all work.
  std::string Wrong() const;

 private:
  enum Kind { kInput, kZeros, kScratch, kOutputFinite, kOutputNumbers, kOutputIntegers };
  struct Block {
    void* memory;
    int64_t bytes;
    Kind kind;
    cuda::Type type;  // of an output's numbers
    int32_t element;  // bytes of an output's integer
  };

  struct Reference {
    const void *out, *want;
    int64_t count;
    cuda::Type type;
    Launch launch;
  };

  template <typename T>
  static cuda::Type TypeOf() {
    return std::is_same<T, cuda::Half>::value       ? cuda::Type::kFloat16
           : std::is_same<T, cuda::BFloat16>::value ? cuda::Type::kBFloat16
                                                    : cuda::Type::kFloat32;
  }
  void* Add(int64_t bytes, Kind kind, cuda::Type type = cuda::Type::kFloat32, int32_t element = 4);
  void FillNormal(void* memory, cuda::Type type, int64_t count, double deviation);
  void FillIntegers(void* memory, size_t element, int64_t count, int64_t first, int64_t last);
  void FillFrom(void* memory, const void* from, int64_t bytes);

  uint64_t seed_;
  int64_t bytes_ = 0;
  std::vector<Block> blocks_;
  std::vector<Reference> references_;
};

struct Case {
  Case(std::string variant_, cuda::Type type_, Shape shape_)
      : variant(std::move(variant_)), type(type_), shape(std::move(shape_)) {}

  std::string variant;  // what runs it: "contiguous", "shared-prefix", "kv-cache"
  cuda::Type type;
  Shape shape;
  double bytes = 0;  // of device memory that must be read or written, each once
  double flops = 0;  // additions and multiplications that must be done
  std::function<Launch(Inputs&)> make;
};

// What runs cases of one kernel.
class Bench {
 public:
  virtual ~Bench() = default;

  // True: shapes must be so small that an emulator runs a launch in well under a second, and no
  // time is reported.
  virtual bool tiny() const = 0;
  // Of the device under test; kernels are planned for it.
  virtual const cuda::DeviceLimits& limits() const = 0;

  virtual void Time(const Case& one) = 0;
  // Both in turns; prints and records time(slow) / time(fast).
  virtual void Compare(const Case& slow, const Case& fast) = 0;

  // A kernel that reads `bytes` of memory once and does nothing else: a floor to compare with.
  static Case Reading(cuda::Type type, const Shape& shape, int64_t bytes);
};

struct Timing {
  const char* kernel;
  void (*time)(Bench&);
};
std::vector<Timing>& Timings();

struct AddTiming {
  AddTiming(const char* kernel, void (*time)(Bench&)) { Timings().push_back({kernel, time}); }
};

}  // namespace timing
}  // namespace graft

#define GRAFT_TIMING(kernel, function) \
  static const ::graft::timing::AddTiming graft_time_##function(kernel, function)

#endif  // GRAFT_TESTS_GPU_TIMING_H_
