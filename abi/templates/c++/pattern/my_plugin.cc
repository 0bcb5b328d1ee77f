// Mish in one pass over memory: y = x tanh(log(1 + exp(x))) (Misra, 2019).
//
// With e = exp(x) that is x n / (n + 2), n = e (e + 2): one exponential in place of three
// functions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graft.h"

namespace {

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

// exp(x) for x up to 40 or so, to float's precision: 2^k by the exponent's bits, times a
// polynomial.
inline float Exp(float x) {
  const float scaled = std::max(x, -80.0f) * 1.44269504f;
  const float shifted = scaled + 12582912.0f;  // 1.5 * 2^23: rounds to a whole number
  const float k = shifted - 12582912.0f;
  const float r = (scaled - k) * 0.693147181f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - 0x4b400000 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

FOR_EACH_CPU void Mish(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float e = Exp(std::min(x[i], 20.0f));  // from there on n / (n + 2) is 1
    const float n = e * (e + 2.0f);
    y[i] = x[i] * (n / (n + 2.0f));
  }
}

class MyPlugin {
 public:
  static graft::Operator Describe() {
    return graft::Operator("MyPlugin", "x tanh(softplus(x))")
        .Input("x", graft::kFloat32)
        .Output("y", graft::kFloat32);
  }
  explicit MyPlugin(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    const float* x = context.inputs[0].data<float>();
    float* y = context.outputs[0].data<float>();
    const int64_t count = context.inputs[0].elements(), chunk = 16384;
    context.ParallelFor(static_cast<uint64_t>((count + chunk - 1) / chunk), [&](uint64_t i) {
      const int64_t first = static_cast<int64_t>(i) * chunk;
      Mish(x + first, y + first, std::min(chunk, count - first));
    });
  }
};

}  // namespace

GRAFT_PLUGIN(MyPlugin);
