// The CUDA variant of FusedGelu: the smallest complete one, for authors to begin with.
#include <algorithm>

#include "device/launch.cuh"
#include "device/number.cuh"
#include "graft/cuda.h"

namespace {

namespace cuda = graft::cuda;

constexpr int32_t kThreads = 256;

template <bool kTanh>
GRAFT_DEVICE float Gelu(float x) {
  const float inner =
      kTanh ? tanhf(0.7978845608f * (x + 0.044715f * x * x * x)) : erff(0.7071067812f * x);
  return 0.5f * x * (1.0f + inner);
}

// y[i] = gelu(x[i]): 16 bytes a thread and step where both addresses allow it, which `vectors`
// counts, and the rest one by one.
template <typename T, bool kTanh>
__global__ void __launch_bounds__(kThreads)
    GeluKernel(const T* x, T* y, int64_t count, int64_t vectors) {
  constexpr int32_t kLanes = cuda::kVector<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first; i < vectors; i += step) {
    float v[kLanes];
    cuda::LoadVector(x + i * kLanes, v);
#pragma unroll
    for (float& e : v) e = Gelu<kTanh>(e);
    cuda::StoreVector(y + i * kLanes, v);
  }
  for (int64_t i = vectors * kLanes + first; i < count; i += step) {
    y[i] = cuda::FromFloat<T>(Gelu<kTanh>(cuda::ToFloat(x[i])));
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
    if (context.inputs[0].type() == graft::kFloat16) return Enqueue<cuda::Half>(context);
    Enqueue<float>(context);
  }

 private:
  template <typename T>
  void Enqueue(const graft::RunContext& context) const {
    const graft::Tensor input = context.inputs[0];
    const T* x = input.data<T>();
    T* y = context.outputs[0].data<T>();
    const int64_t count = input.elements();
    if (count == 0) return;
    const bool aligned =
        (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
    const int64_t vectors = aligned ? count / cuda::kVector<T> : 0;
    cuda::LaunchShape shape;
    shape.threads = kThreads;
    // Eight blocks a multiprocessor hide the latency of memory; more would only queue.
    shape.grid_x = std::min(cuda::CeilDivide(aligned ? vectors + 1 : count, kThreads),
                            int64_t{cuda::Limits().multiprocessors} * 8);
    cuda::Check(cuda::Launch(tanh_ ? &GeluKernel<T, true> : &GeluKernel<T, false>, shape,
                             cuda::StreamOf(context), x, y, count, vectors),
                "FusedGelu");
  }

  bool tanh_;
};

}  // namespace

GRAFT_PLUGIN_WITH(graft::cuda::Hooks, FusedGelu);
