// Attention of all heads and beams over one matrix a sample: BART's cross attention, and the widths
// that the kernel is tuned for.
#include <cmath>

#include "../../../kernels-cuda/el-attention/attention.cuh"
#include "../timing.h"

namespace graft {
namespace timing {
namespace {

using cuda::BFloat16;
using cuda::Type;
namespace el = cuda::el_attention;

struct Sizes {
  int32_t batch, beam, heads, width, keys;
};

Case Attend(const Sizes& z, const cuda::DeviceLimits& limits) {
  Case one{"el-attention",
           Type::kBFloat16,
           {{"batch", z.batch},
            {"beam", z.beam},
            {"heads", z.heads},
            {"width", z.width},
            {"keys", z.keys}}};
  const int64_t rows = int64_t{z.batch} * z.beam * z.heads, numbers = int64_t{z.batch} * z.keys;
  one.bytes = 2.0 * static_cast<double>((numbers + 2 * rows) * z.width);
  one.flops = 4.0 * static_cast<double>(rows) * z.keys * z.width;
  one.make = [=](Inputs& in) -> Launch {
    el::Problem p;
    p.rows.type = p.output_type = Type::kBFloat16;
    p.rows.data = in.Normal<BFloat16>(numbers * z.width);
    p.rows.slots = static_cast<int32_t>(numbers);
    p.rows.width = z.width;
    p.rows.block_slots = z.keys;
    p.rows.row_bytes = int64_t{z.width} * 2;
    p.rows.block_bytes = z.keys * p.rows.row_bytes;
    p.lists.groups = z.batch;
    p.lists.group_tokens = z.beam;
    p.lists.group_keys = z.keys;
    p.tokens = z.batch * z.beam;
    p.heads = z.heads;
    p.query = in.Normal<BFloat16>(rows * z.width);
    p.query_stride = p.output_stride = z.width;
    p.scale = 1.0f / std::sqrt(static_cast<float>(z.width));
    p.output = in.Output<BFloat16>(rows * z.width);
    const el::Plan plan = el::MakePlan(p, limits);
    void* workspace = in.Scratch<float>(plan.workspace / 4 + 1);
    return [=](cuda::Stream stream) { return el::Enqueue(p, plan, workspace, stream); };
  };
  return one;
}

void Time(Bench& bench) {
  if (bench.tiny()) {
    bench.Time(Attend({2, 2, 3, 256, 70}, bench.limits()));
    return;
  }
  bench.Time(Attend({32, 4, 16, 1024, 1024}, bench.limits()));  // the figure that is needed
  bench.Time(Attend({32, 4, 12, 768, 1024}, bench.limits()));
  bench.Time(Attend({32, 4, 20, 1280, 1024}, bench.limits()));
  bench.Time(Attend({1, 4, 16, 1024, 16384}, bench.limits()));  // keys split over the device
}

GRAFT_TIMING("el-attention", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
