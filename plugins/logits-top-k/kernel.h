// The entries of the vector code, one set an instruction set.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_KERNEL_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_KERNEL_H_

#include <cstdint>
#include <limits>

#include "graft/isa.h"

namespace graft {
namespace top_k {

enum class Type { kFloat32, kFloat16, kBFloat16 };

// A score that may be among the best.
struct Found {
  float value;
  int32_t token;
};

// The state of a pass over one row, which may be taken in parts.
struct Pass {
  static constexpr int kLanes = 16;
  alignas(64) float maximum[kLanes];
  alignas(64) float sum[kLanes];  // of exp(score - reference); or of the scores themselves
  float reference = 0;            // near the maximum: exp must not overflow
  float threshold = -std::numeric_limits<float>::infinity();  // scores above it go to `found`
  Found* found = nullptr;
  int64_t count = 0, capacity = 0;  // of found; capacity is at least kStrip

  Pass() {
    for (int i = 0; i < kLanes; ++i) {
      maximum[i] = -std::numeric_limits<float>::infinity();
      sum[i] = 0;
    }
  }
};

// Scores that a pass takes at once, at most.
inline constexpr int64_t kStrip = 128;

struct Kernel {
  // Goes over x[0, n), whose first token is `base`, and stops early when `found` could overflow.
  // Gives how many scores it took. `pass_sum` adds exponentials; `pass` only finds, and its sum is
  // of the scores: NaN or plus infinity if one of them is (or if they are huge).
  int64_t (*pass_sum)(const float* x, int64_t n, int64_t base, Pass* pass);
  int64_t (*pass)(const float* x, int64_t n, int64_t base, Pass* pass);
  // The maxima of consecutive chunks of x[0, n), n / chunk of them; chunk is a multiple of 16.
  void (*chunk_maxima)(const float* x, int64_t n, int64_t chunk, float* maxima);
  // to[i] = exp(x[i] - shift), and the sum of all.
  double (*exponentials)(const float* x, int64_t n, float shift, float* to);
  // float16 or bfloat16 to float.
  void (*widen)(Type type, const void* from, int64_t n, float* to);
};

// The kernel for `isa`, or nullptr when this CPU or this build has none. Never null for kBest and
// kBaseline.
const Kernel* FindKernel(Isa isa);

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_KERNEL_H_
