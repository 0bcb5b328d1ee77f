// The operator of the CPU's library on CUDA: the same name, inputs, outputs and attributes.
#include <algorithm>

#include "device/launch.cuh"
#include "device/number.cuh"
#include "graft/cuda.h"

namespace {

namespace cuda = graft::cuda;

template <typename T>
__global__ void Mish(const T* x, T* y, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float v = cuda::ToFloat(x[i]);
    const float e = expf(fminf(v, 20.0f));
    const float n = e * (e + 2.0f);
    y[i] = cuda::FromFloat<T>(v * (n / (n + 2.0f)));
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
    const graft::Tensor x = context.inputs[0];
    if (x.elements() == 0) return;
    cuda::LaunchShape shape;
    shape.threads = 256;
    shape.grid_x = std::min(cuda::CeilDivide(x.elements(), shape.threads),
                            int64_t{cuda::Limits().multiprocessors} * 8);
    cuda::Check(cuda::Launch(&Mish<float>, shape, cuda::StreamOf(context), x.data<float>(),
                             context.outputs[0].data<float>(), x.elements()),
                "MyPlugin");
  }
};

}  // namespace

GRAFT_PLUGIN_WITH(cuda::Hooks, MyPlugin);
