// Conformance of kernels: random problems against float64, on a GPU or on the emulator.
//
//   void Conform(gpu::Trial& trial) { ... }
//   GRAFT_CONFORM("flash-decode", Conform);
//
// A trial is one random problem. It makes its arrays with gpu::Array (memory.h), launches, and says
// what came out wrong.
#ifndef GRAFT_TESTS_GPU_CHECK_H_
#define GRAFT_TESTS_GPU_CHECK_H_

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "../../kernels-cuda/device/launch.h"
#include "../../kernels-cuda/device/number.h"
#include "random.h"

namespace graft {
namespace gpu {

// Error allowed: absolute + relative * |wanted|.
struct Tolerance {
  double absolute, relative;
};

// What the project promises of answers in a type.
inline Tolerance ToleranceOf(cuda::Type type) {
  switch (type) {
    case cuda::Type::kFloat32:
      return {1e-5, 1e-4};
    case cuda::Type::kFloat16:
      return {2.5e-3, 1e-3};
    default:
      return {2e-2, 1e-2};
  }
}

inline double Wide(float x) { return x; }
inline double Wide(cuda::Half x) { return cuda::WidenHalf(x.bits); }
inline double Wide(cuda::BFloat16 x) { return cuda::WidenBFloat16(x.bits); }

// Numbers in a type, rounded: what a problem is sampled in, and what its reference reads.
template <typename T>
T Narrow(double x);
template <>
inline float Narrow<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline cuda::Half Narrow<cuda::Half>(double x) {
  return {cuda::NarrowToHalf(static_cast<float>(x))};
}
template <>
inline cuda::BFloat16 Narrow<cuda::BFloat16>(double x) {
  return {cuda::NarrowToBFloat16(static_cast<float>(x))};
}
template <typename T>
std::vector<T> Numbers(Random& random, int64_t count, double low, double high) {
  std::vector<T> list(static_cast<size_t>(count));
  for (T& x : list) x = Narrow<T>(random.Uniform(low, high));
  return list;
}

class Trial {
 public:
  explicit Trial(uint64_t seed) : random(seed) {}

  Random random;
  // What the problem is, for the message of its failure: append to it.
  std::ostringstream about;

  void Fail(const std::string& what) {
    if (faults_++ == 0) fault_ = what;
  }
  // A launch's answer.
  void Expect(cuda::Status status) {
    if (status != cuda::kOk) Fail("launch failed with " + std::to_string(status));
  }
  // Numbers against float64. NaN is equal to nothing but a NaN that is wanted; infinities must be
  // the same. The largest error, as a share of what is allowed, is remembered.
  template <typename T>
  void Expect(const std::string& name, const std::vector<T>& got, const std::vector<double>& want,
              Tolerance tolerance) {
    if (got.size() != want.size()) return Fail(name + " has another size than its reference");
    for (size_t i = 0; i < got.size(); ++i) {
      const double g = Wide(got[i]), w = want[i];
      if (std::isnan(w) ? std::isnan(g) : g == w) continue;
      const double error =
          std::abs(g - w) / (tolerance.absolute + tolerance.relative * std::abs(w));
      if (error <= 1) {
        worst_ = std::max(worst_, error);
        continue;
      }
      std::ostringstream text;
      text.precision(9);
      text << name << '[' << i << "] is " << g << ", float64 gives " << w;
      return Fail(text.str());
    }
  }
  // Integers, bit for bit.
  template <typename T>
  void ExpectSame(const std::string& name, const std::vector<T>& got, const std::vector<T>& want) {
    if (got.size() != want.size()) return Fail(name + " has another size than its reference");
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == want[i]) continue;
      return Fail(name + '[' + std::to_string(i) + "] is " + std::to_string(got[i]) +
                  ", needed is " + std::to_string(want[i]));
    }
  }

  bool failed() const { return faults_ > 0; }
  const std::string& fault() const { return fault_; }
  double worst() const { return worst_; }

 private:
  int64_t faults_ = 0;
  std::string fault_;
  double worst_ = 0;
};

// Ends the program with 3: no call of the device gives anything any more. The problem in flight
// counts as failed.
[[noreturn]] void DeviceLost(const std::string& what);

// One kernel's conformance. `seed` turns a seeded fault of it on (device.cuh).
struct Conformance {
  const char* kernel;
  void (*conform)(Trial&);
  cuda::Status (*seed)(int32_t fault);
};
std::vector<Conformance>& Conformances();

struct AddConformance {
  explicit AddConformance(const Conformance& conformance) { Conformances().push_back(conformance); }
};

}  // namespace gpu
}  // namespace graft

#define GRAFT_CONFORM(kernel, function)                           \
  static const ::graft::gpu::AddConformance graft_add_##function( \
      {kernel, function, &::graft::cuda::SeedFault})

#endif  // GRAFT_TESTS_GPU_CHECK_H_
