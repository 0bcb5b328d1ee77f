// Attention of all heads and beams over one matrix a request: BART's cross attention, as it is
// planned and as it might be, and the widths that the kernel is tuned for.
#include <cmath>
#include <string>

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

Case Attend(const Sizes& z, const cuda::DeviceLimits& limits,
            const std::string& variant = "el-attention", const el::Tuning& tuning = el::Tuning()) {
  Case one{variant,
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
    // Some keys stand out, as in a model: sums of all alike would be small beside what is allowed.
    p.scale = 3.0f / std::sqrt(static_cast<float>(z.width));
    BFloat16* output = in.Output<BFloat16>(rows * z.width);
    BFloat16* plain = in.Output<BFloat16>(rows * z.width);
    const auto launch = [&](BFloat16* to, const el::Tuning& how) -> Launch {
      el::Problem mine = p;
      mine.output = to;
      const el::Plan plan = el::MakePlan(mine, limits, how);
      void* workspace = in.Scratch<float>(plan.workspace / 4 + 1);
      return [=](cuda::Stream stream) { return el::Enqueue(mine, plan, workspace, stream); };
    };
    el::Tuning simple;
    simple.simple = true;
    in.Against(output, plain, rows * z.width, launch(plain, simple));
    return launch(output, tuning);
  };
  return one;
}

// The keys in two: within clusters of four, or through the workspace by clusters of the columns.
el::Tuning InTwo(bool in_cluster) {
  el::Tuning tuning;
  tuning.splits = in_cluster ? 2 : 1;
  tuning.parts = in_cluster ? 1 : 2;
  return tuning;
}

void Time(Bench& bench) {
  const cuda::DeviceLimits& limits = bench.limits();
  // The figure that is needed.
  const Sizes bart = bench.tiny() ? Sizes{2, 2, 3, 256, 70} : Sizes{32, 4, 16, 1024, 1024};
  const Case planned = Attend(bart, limits);
  bench.Compare(Attend(bart, limits, "two-by-splits", InTwo(false)), planned);
  bench.Compare(Attend(bart, limits, "splits-in-cluster", InTwo(true)), planned);
  if (bench.tiny()) return;
  bench.Time(Attend({32, 4, 12, 768, 1024}, limits));
  bench.Time(Attend({32, 4, 20, 1280, 1024}, limits));
  bench.Time(Attend({1, 4, 16, 1024, 16384}, limits));  // keys split over the device
}

GRAFT_TIMING("el-attention", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
