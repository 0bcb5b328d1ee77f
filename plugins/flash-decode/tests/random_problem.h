// Random problems with hostile memory: gaps of NaN between rows, odd alignment, poisoned outputs.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_TESTS_RANDOM_PROBLEM_H_
#define GRAFT_PLUGINS_FLASH_DECODE_TESTS_RANDOM_PROBLEM_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attention.h"

namespace graft {
namespace attention {
namespace testing {

// Memory of one tensor with gaps. Every byte that is no element is 0xFF, which is NaN in every
// type, so reading it shows in the result and writing it shows in Damaged.
class Tensor {
 public:
  Tensor() = default;
  // Lays [d0, d1, d2, d3] out in the order of `order` (outermost first), rows padded by `gap`
  // elements.
  Tensor(int64_t element, const int64_t (&sizes)[4], const int (&order)[4], int64_t gap,
         int64_t misalign);

  char* data() { return bytes_.data() + start_; }
  const Strides& strides() const { return strides_; }
  bool empty() const { return bytes_.empty(); }

  // True when a byte outside the elements changed.
  bool Damaged() const;
  // Calls f(index, b, h, i, f) for each element; index is from data(), in elements.
  template <class F>
  void ForEach(F f) const {
    for (int64_t a = 0; a < sizes_[0]; ++a) {
      for (int64_t b = 0; b < sizes_[1]; ++b) {
        for (int64_t c = 0; c < sizes_[2]; ++c) {
          for (int64_t d = 0; d < sizes_[3]; ++d) f(Index(a, b, c, d), a, b, c, d);
        }
      }
    }
  }
  int64_t Index(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides_.batch + b * strides_.head + c * strides_.position + d * strides_.feature;
  }

 private:
  int64_t element_ = 0;
  int64_t sizes_[4] = {0, 0, 0, 0};
  int64_t start_ = 0;
  Strides strides_;
  std::vector<char> bytes_;
};

struct RandomProblem {
  Problem problem;
  Tuning tuning;
  int threads = 1;
  Tensor query, key, value, past_key, past_value, present_key, present_value, output, scores, bias;
  Tensor mask;
  std::vector<int32_t> lengths32;
  std::vector<int64_t> lengths64;
  std::vector<char> sinks;
  std::string description;
};

// Makes problem number `index` of a fixed sequence.
void Make(uint32_t index, RandomProblem& made);

}  // namespace testing
}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_TESTS_RANDOM_PROBLEM_H_
