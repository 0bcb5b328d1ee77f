// What timing.cu must report of a case: answers that are wrong, not written or not numbers, and a
// launch that fails.
#include "../../kernels-cuda/device/launch.cuh"
#include "timing.h"

namespace graft {
namespace timing {
namespace {

constexpr int64_t kCount = 64;

__global__ void Scale(const float* from, float* to, float by) {
  to[threadIdx.x] = by * from[threadIdx.x];
}

Launch Scaled(const float* from, float* to, float by, int32_t threads = kCount) {
  cuda::LaunchShape shape;
  shape.threads = threads;
  return [=](cuda::Stream stream) { return cuda::Launch(Scale, shape, stream, from, to, by); };
}

Case Named(const char* name) { return {name, cuda::Type::kFloat32, {{"numbers", kCount}}}; }

void Time(Bench& bench) {
  for (const float by : {2.0f, 2.001f}) {
    Case one = Named(by == 2.0f ? "right" : "wrong");
    one.make = [=](Inputs& in) {
      const float* from = in.Normal<float>(kCount);
      float *to = in.Output<float>(kCount), *want = in.Output<float>(kCount);
      in.Against(to, want, kCount, Scaled(from, want, 2));
      return Scaled(from, to, by);
    };
    bench.Time(one);
  }
  Case tail = Named("tail");
  tail.make = [=](Inputs& in) {
    const float* from = in.Normal<float>(kCount);
    return Scaled(from, in.Output<float>(kCount), 1, kCount - 1);
  };
  bench.Time(tail);
  Case integers = Named("integers");
  integers.make = [=](Inputs& in) {
    in.Output<int32_t>(kCount);
    return Scaled(in.Normal<float>(kCount), in.Output<float>(kCount), 1);
  };
  bench.Time(integers);
  Case infinite = Named("infinite"), allowed = Named("allowed");
  infinite.make = [=](Inputs& in) {
    return Scaled(in.Normal<float>(kCount), in.Output<float>(kCount), INFINITY);
  };
  bench.Time(infinite);
  allowed.make = [=](Inputs& in) {
    return Scaled(in.Normal<float>(kCount), in.Output<float>(kCount, true), INFINITY);
  };
  bench.Time(allowed);
  Case refused = Named("refused");
  refused.make = [=](Inputs& in) {
    return Scaled(in.Normal<float>(kCount), in.Output<float>(kCount), 1, 2048);
  };
  bench.Compare(allowed, refused);
}

GRAFT_TIMING("faults", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
