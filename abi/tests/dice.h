// Random numbers for tests of kernels: the same for a seed wherever the standard library is the
// same.
#ifndef GRAFT_TESTS_DICE_H_
#define GRAFT_TESTS_DICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace graft {
namespace testing {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t minimum, int64_t maximum) {
    return std::uniform_int_distribution<int64_t>(minimum, maximum)(random_);
  }
  bool Chance(int percent) { return Between(0, 99) < percent; }
  float Float(float maximum) {
    return std::uniform_real_distribution<float>(-maximum, maximum)(random_);
  }
  double Real(double minimum, double maximum) {
    return std::uniform_real_distribution<double>(minimum, maximum)(random_);
  }
  double Normal() { return normal_(random_); }

  template <size_t kCount>
  int64_t Pick(const int64_t (&from)[kCount]) {
    return from[Between(0, static_cast<int64_t>(kCount) - 1)];
  }
  template <typename T>
  void Shuffle(std::vector<T>& list) {
    std::shuffle(list.begin(), list.end(), random_);
  }
  // Appends `count` numbers of -most .. most.
  void Fill(std::vector<float>& to, int64_t count, float maximum) {
    for (int64_t i = 0; i < count; ++i) to.push_back(Float(maximum));
  }
  // Normal numbers.
  std::vector<double> Matrix(int64_t rows, int64_t columns, double deviation) {
    std::vector<double> m;
    for (int64_t i = 0; i < rows * columns; ++i) m.push_back(deviation * Normal());
    return m;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
};

}  // namespace testing
}  // namespace graft

#endif  // GRAFT_TESTS_DICE_H_
