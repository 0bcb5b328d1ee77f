// Bans by a scan of whole rows: the figure that is needed, few rows, long rows.
#include "../../../kernels-cuda/ngram-block/scan.cuh"
#include "../timing.h"

namespace graft {
namespace timing {
namespace {

namespace ngram = cuda::ngram_block;

constexpr int64_t kKinds = 64;  // of tokens: about every fourth row of 1,024 repeats a trigram

struct Sizes {
  int64_t rows, tokens, n, vocabulary;
};

// Tokens as exporters have them, int64, of few kinds, so that some rows repeat an n-gram. Bans are
// written in place into zeros, and later launches write them again.
Case Scan(const Sizes& z, const cuda::DeviceLimits& limits) {
  Case one{"ngram-block",
           cuda::Type::kFloat32,
           {{"rows", z.rows}, {"tokens", z.tokens}, {"n", z.n}, {"vocabulary", z.vocabulary}}};
  one.bytes = 8.0 * static_cast<double>(z.rows * z.tokens);
  one.make = [=](Inputs& in) -> Launch {
    ngram::Rows rows;
    rows.tokens = in.Integers<int64_t>(z.rows * z.tokens, 0, kKinds - 1);
    rows.wide_tokens = true;
    rows.stride = rows.columns = z.tokens;
    rows.rows = z.rows;
    const int64_t count = z.rows * z.vocabulary;
    const auto scores = [&] {
      return ngram::Scores{in.Zeros<float>(count), cuda::Type::kFloat32, z.vocabulary,
                           z.vocabulary};
    };
    const ngram::Scores banned = scores(), want = scores();
    const ngram::ScanPlan plan = ngram::PlanScan(z.rows, z.tokens, z.n, true, limits);
    const ngram::ScanPlan simple =
        ngram::PlanScanAs(false, 0, 1, 256, z.rows, z.rows, z.tokens, z.n, true);
    in.Against(
        static_cast<float*>(banned.data), static_cast<float*>(want.data), count,
        [=](cuda::Stream stream) { return ngram::BanByScan(want, rows, z.n, simple, stream); });
    return [=](cuda::Stream stream) { return ngram::BanByScan(banned, rows, z.n, plan, stream); };
  };
  return one;
}

void Time(Bench& bench) {
  if (bench.tiny()) {
    bench.Time(Scan({6, 40, 3, 70}, bench.limits()));
    return;
  }
  bench.Time(Scan({512, 1024, 3, 50257}, bench.limits()));  // the figure that is needed
  bench.Time(Scan({16, 1024, 3, 50257}, bench.limits()));
  bench.Time(Scan({16, 65536, 3, 50257}, bench.limits()));
}

GRAFT_TIMING("ngram-block", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
