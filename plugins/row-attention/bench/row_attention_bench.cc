// How far attention over rows is from the machine's limits, and from attention over keys and
// values.
//
//   row_attention_bench [threads] [isa: best|baseline|sse4|avx2|avx512] [filter]
//
// Each shape is computed by this kernel and, interleaved with it, by flash-decode's over a pool of
// keys and values of the same problem: all layers in turn, so that nothing is left in a cache from
// the last. Hidden states are one area for all layers, as an encoder's output is; keys and values
// are an area a layer. Arithmetic is counted as it is done: expanding, scores, sums, contracting.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cached.h"
#include "machine.h"
#include "row_attention.h"
#include "thread_pool.h"

namespace graft {
namespace row_attention {
namespace bench {
namespace {

using attention::bench::Least;
using attention::bench::Median;
using attention::bench::Now;
using attention::bench::PoolMemory;

struct Shape {
  const char* name;
  int64_t samples, beams, keys, heads, size, width, layers;
  Storage storage;
};

class Bench {
 public:
  Bench(int threads, Isa isa, std::string filter)
      : pool_(threads, 20000), runner_(pool_.runner()), filter_(std::move(filter)) {
    tuning_.isa = isa;
    flash_tuning_.isa = isa;
    own_time_ = threads == 1;
  }

  void Measure(const Shape& s) {
    if (std::string(s.name).find(filter_) == std::string::npos) return;
    const int64_t blocks = (s.keys + 15) / 16 * s.samples, tokens = s.samples * s.beams;
    const size_t weight = static_cast<size_t>(s.width * s.heads * s.size);
    std::vector<int32_t> sequences, shared_slots;
    for (int64_t i = 0; i < s.samples; ++i) {
      for (int64_t value : {i * s.beams, s.beams, i * s.keys, s.keys, int64_t{0}, int64_t{0},
                            int64_t{0}, int64_t{0}}) {
        sequences.push_back(static_cast<int32_t>(value));
      }
      for (int64_t j = 0; j < s.keys; ++j) {
        shared_slots.push_back(static_cast<int32_t>((s.keys + 15) / 16 * 16 * i + j));
      }
    }
    std::vector<float> query(static_cast<size_t>(tokens * s.heads * s.size), 0.01f);
    std::vector<float> output(query.size());
    const PoolMemory weights(2 * weight * static_cast<size_t>(s.layers));

    Problem p;
    p.pool.blocks = blocks;
    p.pool.width = s.width;
    p.pool.storage = s.storage;
    p.pool.block_floats = p.pool.area_floats();
    const PoolMemory rows(static_cast<size_t>(blocks * p.pool.block_floats));
    p.pool.data = rows.data();
    p.tokens = tokens;
    p.heads = p.kv_heads = s.heads;
    p.head_size = p.value_size = s.size;
    p.query = query.data();
    p.query_stride = s.heads * s.size;
    p.output = output.data();
    p.sequences = sequences.data();
    p.groups = s.samples;
    p.shared_slots = shared_slots.data();
    p.shared_length = static_cast<int64_t>(shared_slots.size());
    p.key_weight = p.value_weight = weights.data();

    attention::CachedProblem f;
    f.pool.blocks = blocks;
    f.pool.kv_heads = s.heads;
    f.pool.head_size = f.pool.value_size = s.size;
    f.pool.block_floats = s.layers * f.pool.floats();
    const PoolMemory keys(static_cast<size_t>(blocks * f.pool.block_floats));
    f.pool.data = keys.data();
    f.rows = tokens;
    f.heads = s.heads;
    f.query = p.query;
    f.query_stride = p.query_stride;
    f.output = p.output;
    f.sequences = p.sequences;
    f.groups = p.groups;
    f.shared_slots = p.shared_slots;
    f.shared_length = p.shared_length;

    std::vector<char> workspace(WorkspaceSize(p, runner_.threads, tuning_));
    std::vector<char> flash_workspace(attention::WorkspaceSize(f, runner_.threads, flash_tuning_));
    const double layers = static_cast<double>(s.layers);
    std::vector<double> ours, theirs;
    for (int repetition = 0; repetition < 12; ++repetition) {
      double start = Now(own_time_);
      for (int64_t layer = 0; layer < s.layers; ++layer) {
        p.key_weight = weights.data() + 2 * weight * static_cast<size_t>(layer);
        p.value_weight = p.key_weight + weight;
        if (!Validate(p).empty()) std::abort();
        Run(p, workspace.data(), runner_, tuning_);
      }
      ours.push_back((Now(own_time_) - start) / layers);
      start = Now(own_time_);
      for (int64_t layer = 0; layer < s.layers; ++layer) {
        f.pool.offset = layer * f.pool.floats();
        if (!attention::Validate(f).empty()) std::abort();
        attention::Run(f, flash_workspace.data(), runner_, flash_tuning_);
      }
      theirs.push_back((Now(own_time_) - start) / layers);
    }
    ours.erase(ours.begin());
    theirs.erase(theirs.begin());
    const double queries = static_cast<double>(tokens * s.heads);
    const double flops = 4.0 * queries * static_cast<double>(s.width) *
                         (static_cast<double>(s.keys) + static_cast<double>(s.size));
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i] / ours[i]);
    std::printf(
        "%-44s rows %9.1f us (best %9.1f) %6.1f GFLOP/s (best %6.1f)   keys %9.1f us (best %9.1f)  "
        " ratio %.2f (best %.2f)\n",
        s.name, Median(ours) * 1e6, Least(ours) * 1e6, flops / Median(ours) / 1e9,
        flops / Least(ours) / 1e9, Median(theirs) * 1e6, Least(theirs) * 1e6, Median(ratios),
        Least(theirs) / Least(ours));
    std::fflush(stdout);
  }

 private:
  test::ThreadPool<Runner> pool_;
  Runner runner_;
  Tuning tuning_;
  attention::CachedTuning flash_tuning_;
  std::string filter_;
  bool own_time_;
};

int Main(int argc, char** argv) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  Bench bench(threads, IsaNamed(argc > 2 ? argv[2] : "best"), argc > 3 ? argv[3] : "");
  std::printf("threads %d, peak of one %.1f GFLOP/s\n", threads,
              attention::bench::PeakRate(threads == 1) / 1e9);
  const Shape shapes[] = {
      // name, samples, beams, keys, heads, size, width, layers, storage
      {"whisper tiny, 16 x 1, 1500, float32", 16, 1, 1500, 6, 64, 384, 4, Storage::kFloat32},
      {"whisper tiny, 1 x 1, 1500, float32", 1, 1, 1500, 6, 64, 384, 4, Storage::kFloat32},
      {"whisper tiny, 4 x 5, 1500, float32", 4, 5, 1500, 6, 64, 384, 4, Storage::kFloat32},
      {"whisper tiny, 16 x 1, 1500, float16", 16, 1, 1500, 6, 64, 384, 4, Storage::kFloat16},
      {"whisper tiny, 16 x 1, 1500, bfloat16", 16, 1, 1500, 6, 64, 384, 4, Storage::kBfloat16},
      {"bart large, 2 x 4, 1024, float32", 2, 4, 1024, 16, 64, 1024, 2, Storage::kFloat32},
      {"bart large, 2 x 4, 1024, float16", 2, 4, 1024, 16, 64, 1024, 2, Storage::kFloat16},
  };
  for (const Shape& shape : shapes) bench.Measure(shape);
  // The chart of the README: lengths and beams, 4 samples and 4 layers.
  for (const int64_t heads : {2, 6, 12, 16}) {
    for (const int64_t beams : {1, 2, 4, 8}) {
      for (const int64_t keys : {128, 512, 1500}) {
        const std::string name = "chart, " + std::to_string(heads) + " heads, 4 x " +
                                 std::to_string(beams) + ", " + std::to_string(keys);
        bench.Measure({name.c_str(), 4, beams, keys, heads, 64, 64 * heads, 4, Storage::kFloat32});
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace bench
}  // namespace row_attention
}  // namespace graft

int main(int argc, char** argv) { return graft::row_attention::bench::Main(argc, argv); }
