// Random calls over a pool, and their answer in float64.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_TESTS_CACHED_PROBLEM_H_
#define GRAFT_PLUGINS_FLASH_DECODE_TESTS_CACHED_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cached.h"
#include "dice.h"

namespace graft {
namespace attention {
namespace testing {

using graft::testing::Dice;

// A pool between two bands. Every float of its memory is NaN but where slots were filled.
class GuardedPool {
 public:
  GuardedPool(const Pool& sizes, int64_t misalign);
  Pool pool() const;
  // Makes key and value at random of a slot in the pool's layer.
  void Fill(int64_t slot, Dice& random);
  // What memory must look like after the problem's keys and values are written.
  std::vector<float> Expected(const CachedProblem& problem) const;
  const std::vector<float>& memory() const { return memory_; }
  int64_t start() const { return start_; }

 private:
  Pool sizes_;
  int64_t start_;
  std::vector<float> memory_;
};

struct RandomCachedProblem {
  CachedProblem problem;
  CachedTuning tuning;
  int threads = 1;
  std::vector<GuardedPool> pool;  // one
  std::vector<float> query, key, value, bias, sinks;
  std::vector<float> output;  // NaN, between two bands
  std::vector<int32_t> sequences, shared_slots, private_slots, slot_mapping;
  std::string description;
};
constexpr int64_t kOutputBand = 64;

// Makes problem number `index` of a fixed sequence, over a pool of a storage.
void Make(uint32_t index, RandomCachedProblem& made, Storage storage = Storage::kFloat32);

// The output [rows, heads, value_size], given the pool after all writes.
std::vector<double> Compute(const CachedProblem& problem, const float* pool);

}  // namespace testing
}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_TESTS_CACHED_PROBLEM_H_
