// Random problems, the same on every machine for a seed.
#ifndef GRAFT_TESTS_GPU_RANDOM_H_
#define GRAFT_TESTS_GPU_RANDOM_H_

#include <cstdint>
#include <initializer_list>

namespace graft {
namespace gpu {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // splitmix64
  uint64_t Bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // From first to last, both included.
  int64_t Between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(Bits() % static_cast<uint64_t>(last - first + 1));
  }
  // The same, small numbers as likely as large ones: even in the logarithm.
  int64_t Size(int64_t first, int64_t last) {
    int64_t range = last - first;
    int64_t bits = 0;
    while (range >> bits != 0) ++bits;
    const int64_t maximum = (int64_t{1} << Between(0, bits)) - 1;
    return first + Between(0, maximum < range ? maximum : range);
  }
  bool Chance(int64_t one_in) { return Between(1, one_in) == 1; }
  template <typename T>
  T Pick(std::initializer_list<T> list) {
    return list.begin()[Between(0, static_cast<int64_t>(list.size()) - 1)];
  }
  double Uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(Bits() >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_RANDOM_H_
