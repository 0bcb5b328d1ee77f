// Logits processing and top-k selection of beam search against reading the logits, and greedy
// search.
#include "../../../kernels-cuda/logits-top-k/launch.cuh"
#include "../timing.h"

namespace graft {
namespace timing {
namespace {

namespace top_k = cuda::logits_top_k;

struct Sizes {
  int64_t rows, vocabulary, beam;
};

Shape ShapeOf(const Sizes& z) {
  return {{"rows", z.rows}, {"vocabulary", z.vocabulary}, {"beam", z.beam}};
}

// Log-softmax, running scores, and the 2 x beams best of each sample.
template <typename T>
Case TopK(const Sizes& z, cuda::Type type, const cuda::DeviceLimits& limits) {
  Case one{"logits-top-k", type, ShapeOf(z)};
  one.bytes = static_cast<double>(z.rows * z.vocabulary * cuda::BytesOf(type));
  one.make = [=](Inputs& in) -> Launch {
    const int64_t groups = z.rows / z.beam, k = 2 * z.beam;
    top_k::Problem p;
    p.scores = in.Normal<T>(z.rows * z.vocabulary, 2);
    p.type = type;
    p.rows = z.rows;
    p.vocab = p.stride = z.vocabulary;
    p.count = groups;
    p.group_rows = z.beam;
    p.k = static_cast<int32_t>(k);
    p.bias = in.Normal<float>(z.rows);
    top_k::Shape shape;
    shape.rows = z.rows;
    shape.vocab = z.vocabulary;
    shape.groups = groups;
    shape.group_rows = z.beam;
    shape.width = k;
    shape.type = type;
    const auto outputs = [&](bool checked) {
      top_k::Outputs out;
      out.scores = checked ? in.Output<float>(groups * k) : in.Scratch<float>(groups * k);
      out.rows = checked ? in.Output<int32_t>(groups * k) : in.Scratch<int32_t>(groups * k);
      out.tokens = checked ? in.Output<int32_t>(groups * k) : in.Scratch<int32_t>(groups * k);
      out.width = k;
      out.faults = in.Scratch<int32_t>(groups * top_k::kFaultFields);
      return out;
    };
    const top_k::Outputs out = outputs(true), want = outputs(true);
    const top_k::TopKPlan plan = top_k::PlanTopK(shape, limits);
    const top_k::TopKPlan simple = top_k::PlanSimple(256, shape);
    void* workspace = in.Scratch<float>(simple.workspace / 4 + 1);
    in.Against(out.scores, want.scores, groups * k, [=](cuda::Stream stream) {
      return top_k::TakeTopK(p, want, simple, workspace, stream);
    });
    return [=](cuda::Stream stream) { return top_k::TakeTopK(p, out, plan, nullptr, stream); };
  };
  return one;
}

void Time(Bench& bench) {
  const auto compare = [&](const Sizes& z) {
    bench.Compare(TopK<float>(z, cuda::Type::kFloat32, bench.limits()),
                  Bench::Reading(cuda::Type::kFloat32, ShapeOf(z), z.rows * z.vocabulary * 4));
  };
  if (bench.tiny()) return compare({8, 300, 2});
  compare({128, 50257, 4});  // the figure that is needed
  compare({1024, 50257, 4});
  compare({4, 50257, 4});
  compare({64, 50257, 1});
  bench.Time(TopK<cuda::BFloat16>({128, 50257, 4}, cuda::Type::kBFloat16, bench.limits()));
}

GRAFT_TIMING("logits-top-k", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
