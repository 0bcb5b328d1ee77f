// GELU in one pass: y = x/2 (1 + erf(x / sqrt 2)), or its tanh form (Hendrycks and Gimpel, 2016).
#include <algorithm>

#include "graft.h"

namespace {

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

// x P(x^2) / Q(x^2): minimax fits of erf (relative error 2e-8) and tanh (1e-8) up to `limit`, 1
// beyond.
struct Odd {
  float limit, p[6], q[6];
};
constexpr Odd kErf{
    3.92f,
    {1.12837915f, 0.190405276f, 0.0527485445f, 3.76556054e-3f, 2.84880613e-4f, 2.05008526e-6f},
    {1.0f, 0.502075024f, 0.114108601f, 0.0149691036f, 1.16252029e-3f, 3.80915837e-5f}};
constexpr Odd kTanh{9.1f,
                    {1.0f, 0.133744631f, 3.4877966e-3f, 2.04809515e-5f, 1.31772081e-8f, 0.0f},
                    {1.0f, 0.467077768f, 0.0258473337f, 3.27289662e-4f, 7.70391469e-7f, 0.0f}};

// y[i] = x[i]/2 (1 + odd(scale (x[i] + cubic x[i]^3))).
FOR_EACH_CPU void Gelu(const float* x, float* y, int64_t count, const Odd& odd, float scale,
                       float cubic) {
  const Odd o = odd;
  for (int64_t i = 0; i < count; ++i) {
    const float near =
        std::min(std::max(x[i], -20.0f), 20.0f);  // far beyond the limit, no infinities
    const float z = scale * near * (1.0f + cubic * near * near);
    const float u = z * z;
    const float p = o.p[0] + u * (o.p[1] + u * (o.p[2] + u * (o.p[3] + u * (o.p[4] + u * o.p[5]))));
    const float q = o.q[0] + u * (o.q[1] + u * (o.q[2] + u * (o.q[3] + u * (o.q[4] + u * o.q[5]))));
    const float odd_z = z > o.limit ? 1.0f : z < -o.limit ? -1.0f : z * p / q;
    y[i] = 0.5f * x[i] * (1.0f + odd_z);
  }
}

class FusedGelu {
 public:
  static graft::Operator Describe() {
    return graft::Operator("FusedGelu", "Gaussian error linear unit")
        .TypeVariable("T", {graft::kFloat32, graft::kFloat16})
        .Input("x", "T")
        .Output("y", "T")
        .String("approximate", "none");
  }

  explicit FusedGelu(const graft::CreateContext& context) {
    const std::string approximate = context.String("approximate");
    graft::Require(approximate == "none" || approximate == "tanh", "approximate is ", approximate,
                   ", needed is none or tanh");
    tanh_ = approximate == "tanh";
  }

  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }

  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    const graft::MutableTensor y = context.outputs[0];
    const int64_t count = x.elements();
    const auto chunks = static_cast<uint64_t>((count + kChunk - 1) / kChunk);
    const bool half = x.type() == graft::kFloat16;
    context.ParallelFor(chunks, [&](uint64_t chunk) {
      const int64_t first = static_cast<int64_t>(chunk) * kChunk;
      const int64_t n = std::min(kChunk, count - first);
      if (!half) return Apply(x.data<float>() + first, y.data<float>() + first, n);
      float wide[kChunk];
      const graft::Float16* from = x.data<graft::Float16>() + first;
      graft::Float16* to = y.data<graft::Float16>() + first;
      for (int64_t i = 0; i < n; ++i) wide[i] = from[i].ToFloat();
      Apply(wide, wide, n);
      for (int64_t i = 0; i < n; ++i) to[i] = graft::Float16::From(wide[i]);
    });
  }

 private:
  static constexpr int64_t kChunk = 8192;  // about 4 microseconds: above the cost of handing it out

  void Apply(const float* x, float* y, int64_t count) const {
    if (tanh_) return Gelu(x, y, count, kTanh, 0.7978845608f, 0.044715f);
    Gelu(x, y, count, kErf, 0.7071067812f, 0.0f);
  }

  bool tanh_;
};

}  // namespace

GRAFT_PLUGIN(FusedGelu);
