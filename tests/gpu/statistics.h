// Times of a case: all of them, and the ranks that are reported.
#ifndef GRAFT_TESTS_GPU_STATISTICS_H_
#define GRAFT_TESTS_GPU_STATISTICS_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "json.h"

namespace graft {
namespace gpu {

class Sample {
 public:
  Sample() = default;
  explicit Sample(std::vector<double> raw) : raw_(std::move(raw)), sorted_(raw_) {
    std::sort(sorted_.begin(), sorted_.end());
  }

  // The value at a share of the ranks, 0 to 1, the nearest one; NaN of nothing.
  double At(double share) const {
    if (sorted_.empty()) return NAN;
    return sorted_[static_cast<size_t>(share * static_cast<double>(sorted_.size() - 1) + 0.5)];
  }
  double median() const { return At(0.5); }
  const std::vector<double>& raw() const { return raw_; }

  std::string Json() const {
    return "{\"median\": " + Number(median()) + ", \"p5\": " + Number(At(0.05)) +
           ", \"p25\": " + Number(At(0.25)) + ", \"p75\": " + Number(At(0.75)) +
           ", \"p95\": " + Number(At(0.95)) + ", \"raw\": " + Numbers(raw_) + "}";
  }

 private:
  std::vector<double> raw_, sorted_;  // as measured; in order
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_STATISTICS_H_
