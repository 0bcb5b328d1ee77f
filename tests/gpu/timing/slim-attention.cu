// A decode step over keys alone against one over keys and values: Whisper-large's cross attention.
#include <string>

#include "../../../kernels-cuda/flash-decode/flash_decode.cuh"
#include "../../../kernels-cuda/flash-decode/plan.h"
#include "../../../kernels-cuda/slim-attention/slim_attention.cuh"
#include "../timing.h"

namespace graft {
namespace timing {
namespace {

using cuda::BFloat16;
using cuda::Type;

struct Sizes {
  int64_t batch, beam, heads, head_size, keys;
  int64_t width() const { return heads * head_size; }
  int64_t tokens() const { return batch * beam; }
  Shape shape() const {
    Shape s{{"batch", batch}, {"heads", heads}, {"head_size", head_size}, {"keys", keys}};
    if (beam > 1) s.insert(s.begin() + 1, {"beam", beam});
    return s;
  }
};

// Keys and values of each head in turn: [batch][heads][keys][head_size].
Case Cached(const Sizes& z, const cuda::DeviceLimits& limits) {
  Case one{"kv-cache", Type::kBFloat16, z.shape()};
  const int64_t cache = z.batch * z.keys * z.width();
  one.bytes = static_cast<double>(2 * cache + 2 * z.tokens() * z.width()) * 2;
  one.flops = 4.0 * static_cast<double>(z.tokens() * z.keys * z.width());
  one.make = [z, cache, limits](Inputs& in) -> Launch {
    namespace fd = cuda::flash_decode;
    const fd::Strides rows{z.beam * z.width(), z.head_size, z.width(), 1};
    const fd::Strides slots{z.keys * z.width(), z.keys * z.head_size, z.head_size, 1};
    fd::Problem p;
    p.type = Type::kBFloat16;
    p.groups = z.batch;
    p.rows = z.beam;
    p.heads = p.kv_heads = z.heads;
    p.head_size = p.value_size = z.head_size;
    p.keys = z.keys;
    p.query = {in.Normal<BFloat16>(z.tokens() * z.width()), rows};
    p.key = {in.Normal<BFloat16>(cache), slots};
    p.value = {in.Normal<BFloat16>(cache), slots};
    auto* output = in.Output<BFloat16>(z.tokens() * z.width());
    p.output = {output, rows};
    const fd::Plan plan = fd::MakePlan(p, limits);
    void* workspace = in.Scratch<float>(plan.workspace_bytes / 4 + 1);
    auto* plain = in.Output<BFloat16>(z.tokens() * z.width());
    fd::Problem simple = p;
    simple.output = {plain, rows};
    fd::Tuning plainly;
    plainly.path = fd::Path::kSimple;
    const fd::Plan reference = fd::MakePlan(simple, limits, plainly);
    in.Against(output, plain, z.tokens() * z.width(),
               [=](cuda::Stream stream) { return fd::Run(simple, reference, nullptr, stream); });
    return [=](cuda::Stream stream) { return fd::Run(p, plan, workspace, stream); };
  };
  return one;
}

// The keys of all heads side by side, [batch][keys][width], and W_KV [width][width].
Case Keys(const std::string& variant, const Sizes& z, const cuda::DeviceLimits& limits,
          const cuda::slim_attention::Tuning& tuning = cuda::slim_attention::Tuning()) {
  Case one{variant, Type::kBFloat16, z.shape()};
  const int64_t cache = z.batch * z.keys * z.width();
  const auto tokens = static_cast<double>(z.tokens()), width = static_cast<double>(z.width());
  const auto keys = static_cast<double>(z.keys);
  one.bytes = 2 * (static_cast<double>(cache) + 2 * tokens * width + width * width);
  one.flops = 2 * tokens * (keys * width * (1 + static_cast<double>(z.heads)) + width * width);
  one.make = [z, cache, limits, tuning](Inputs& in) -> Launch {
    namespace slim = cuda::slim_attention;
    slim::Problem p;
    p.tokens = z.tokens();
    p.groups = z.batch;
    p.heads = z.heads;
    p.head_size = p.value_size = z.head_size;
    p.rows = in.Normal<BFloat16>(cache);
    p.row_type = p.type = p.weight_type = Type::kBFloat16;
    p.row_stride = z.width();
    p.block_stride = z.keys * z.width();
    p.positions = z.keys;
    p.query = in.Normal<BFloat16>(z.tokens() * z.width());
    p.query_stride = p.output_stride = z.width();
    p.value_weight = in.Normal<BFloat16>(z.width() * z.width(), 0.03);
    p.weight_head = z.head_size;
    p.weight_panel = cuda::kPanel;
    p.weight_row = z.width();
    auto* output = in.Output<BFloat16>(z.tokens() * z.width());
    p.output = output;
    const slim::Plan plan = slim::MakePlan(p, limits, tuning);
    void* workspace = in.Scratch<float>(plan.workspace / 4 + 1);
    auto* plain = in.Output<BFloat16>(z.tokens() * z.width());
    slim::Problem simple = p;
    simple.output = plain;
    in.Against(output, plain, z.tokens() * z.width(),
               [=](cuda::Stream stream) { return slim::RunSimple(simple, nullptr, stream); });
    return [=](cuda::Stream stream) { return slim::Run(p, plan, workspace, stream); };
  };
  return one;
}

void Time(Bench& bench) {
  // The figure that is needed first; then five beams that share the encoder's keys, Whisper's
  // usual width of search.
  for (const int64_t beam : {1, 5}) {
    const Sizes sizes = bench.tiny() ? Sizes{2, beam, 3, 32, 70} : Sizes{64, beam, 20, 64, 1500};
    bench.Compare(Cached(sizes, bench.limits()), Keys("k-cache", sizes, bench.limits()));
  }
  // What the joining of splits inside a cluster brings.
  const Sizes sizes = bench.tiny() ? Sizes{2, 1, 3, 32, 140} : Sizes{64, 1, 20, 64, 1500};
  cuda::slim_attention::Tuning apart, joined;
  apart.splits = joined.splits = 2;
  apart.joined = 1;
  bench.Compare(Keys("k-cache-apart", sizes, bench.limits(), apart),
                Keys("k-cache-joined", sizes, bench.limits(), joined));
}

GRAFT_TIMING("slim-attention", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
