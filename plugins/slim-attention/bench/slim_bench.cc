// Attention over keys alone, and over a layer's inputs, against attention over keys and values.
//
//   slim_bench [threads]
//
// Each line is one step of a decoder's self attention: requests of some beams that share all
// positions, layers in turn, each with an area of its own in the pool, so that nothing is left in a
// cache from the last. The three are interleaved; ratios are medians of times taken side by side,
// above 1 where storing less is also faster.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
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

using attention::bench::Median;
using attention::bench::Now;
using attention::bench::PoolMemory;

struct Shape {
  const char* name;
  int64_t heads, size, width;
};

// The lists of a step: requests with `keys` shared positions each, in blocks of their own.
struct Step {
  Step(int64_t samples, int64_t beams, int64_t keys) : tokens(samples * beams) {
    const int64_t span = (keys + 15) / 16;
    blocks = span * samples;
    for (int64_t i = 0; i < samples; ++i) {
      for (int64_t value :
           {i * beams, beams, i * keys, keys, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{0}}) {
        sequences.push_back(static_cast<int32_t>(value));
      }
      for (int64_t j = 0; j < keys; ++j)
        shared_slots.push_back(static_cast<int32_t>(span * 16 * i + j));
    }
  }
  template <typename AnyProblem>
  void Bind(AnyProblem& p) const {
    p.sequences = sequences.data();
    p.groups = static_cast<int64_t>(sequences.size()) / 8;
    p.shared_slots = shared_slots.data();
    p.shared_length = static_cast<int64_t>(shared_slots.size());
  }
  int64_t tokens, blocks;
  std::vector<int32_t> sequences, shared_slots;
};

constexpr int64_t kLayers = 6, kRepetitions = 11;

class Rows {
 public:
  Rows(const Shape& s, const Step& step, RowKind kind, const float* query, float* output)
      : width_(kind == RowKind::kKeys ? s.heads * s.size : s.width),
        weight_(width_ * s.heads * s.size),
        weights_(2 * weight_ * kLayers),
        rows_(static_cast<size_t>(step.blocks * kLayers * 16 * width_)) {
    p_.kind = kind;
    p_.pool.data = rows_.data();
    p_.pool.blocks = step.blocks;
    p_.pool.width = width_;
    p_.pool.block_floats = kLayers * p_.pool.area_floats();
    p_.tokens = step.tokens;
    p_.heads = p_.kv_heads = s.heads;
    p_.head_size = p_.value_size = s.size;
    p_.query = query;
    p_.query_stride = s.heads * s.size;
    p_.output = output;
    step.Bind(p_);
  }

  double Seconds(const Runner& runner) {
    std::vector<char> workspace(WorkspaceSize(p_, runner.threads));
    const double start = Now(runner.threads == 1);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      p_.pool.offset = layer * p_.pool.area_floats();
      p_.value_weight = weights_.data() + 2 * weight_ * layer;
      if (p_.kind == RowKind::kHiddenStates) p_.key_weight = p_.value_weight + weight_;
      if (!Validate(p_).empty()) std::abort();
      Run(p_, workspace.data(), runner);
    }
    return (Now(runner.threads == 1) - start) / kLayers;
  }

 private:
  int64_t width_, weight_;
  PoolMemory weights_, rows_;
  Problem p_;
};

class KeysAndValues {
 public:
  KeysAndValues(const Shape& s, const Step& step, const float* query, float* output)
      : memory_(step.blocks * kLayers * 32 * s.heads * s.size) {
    p_.pool.data = memory_.data();
    p_.pool.blocks = step.blocks;
    p_.pool.kv_heads = s.heads;
    p_.pool.head_size = p_.pool.value_size = s.size;
    p_.pool.block_floats = kLayers * p_.pool.floats();
    p_.rows = step.tokens;
    p_.heads = s.heads;
    p_.query = query;
    p_.query_stride = s.heads * s.size;
    p_.output = output;
    step.Bind(p_);
  }

  double Seconds(const Runner& runner) {
    std::vector<char> workspace(attention::WorkspaceSize(p_, runner.threads));
    const double start = Now(runner.threads == 1);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      p_.pool.offset = layer * p_.pool.floats();
      if (!attention::Validate(p_).empty()) std::abort();
      attention::Run(p_, workspace.data(), runner);
    }
    return (Now(runner.threads == 1) - start) / kLayers;
  }

 private:
  PoolMemory memory_;
  attention::CachedProblem p_;
};

void Measure(const Shape& s, int64_t samples, int64_t beams, int64_t keys, const Runner& runner) {
  const Step step(samples, beams, keys);
  std::vector<float> query(static_cast<size_t>(step.tokens * s.heads * s.size), 0.01f);
  std::vector<float> output(query.size());
  KeysAndValues both(s, step, query.data(), output.data());
  Rows only_keys(s, step, RowKind::kKeys, query.data(), output.data());
  Rows inputs(s, step, RowKind::kHiddenStates, query.data(), output.data());
  std::vector<double> times, of_keys, of_inputs;
  for (int64_t i = 0; i <= kRepetitions; ++i) {
    const double a = both.Seconds(runner), b = only_keys.Seconds(runner);
    const double c = inputs.Seconds(runner);
    if (i == 0) continue;  // first touch
    times.push_back(a);
    of_keys.push_back(a / b);
    of_inputs.push_back(a / c);
  }
  std::printf("%-26s %3d x %d, %5d  keys and values %8.1f us   keys %.2f   inputs %.2f\n", s.name,
              static_cast<int>(samples), static_cast<int>(beams), static_cast<int>(keys),
              Median(times) * 1e6, Median(of_keys), Median(of_inputs));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  test::ThreadPool<Runner> pool(threads, 20000);
  const Shape shapes[] = {
      {"2 heads of 64, width 128", 2, 64, 128},
      {"6 heads of 64, width 384", 6, 64, 384},
      {"12 heads of 64, width 768", 12, 64, 768},
      {"8 heads of 128, width 256", 8, 128, 256},
  };
  std::printf("threads %d; samples x beams, positions\n", threads);
  for (const Shape& s : shapes) {
    for (int64_t beams : {1, 4}) {
      for (int64_t keys : {128, 512, 2048}) Measure(s, 4, beams, keys, pool.runner());
    }
  }
  return 0;
}

}  // namespace
}  // namespace bench
}  // namespace row_attention
}  // namespace graft

int main(int argc, char** argv) { return graft::row_attention::bench::Main(argc, argv); }
