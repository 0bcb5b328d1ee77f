// Logits processing and top-k selection against reading the logits alone.
//
//   logits_top_k_bench [threads]
//
// Each figure is interleaved with a plain read of the same bytes, so that both see the same
// machine.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "machine.h"
#include "thread_pool.h"
#include "top_k.h"

namespace graft {
namespace top_k {
namespace {

namespace machine = attention::bench;
using ThreadPool = test::ThreadPool<attention::Runner>;

struct Shape {
  const char* name;
  int64_t rows, vocab, k;
  Mode mode;
  int64_t edits;    // a row
  int64_t buffers;  // that take turns: 1 stays in the caches, many come from memory
  Isa isa;
};

volatile int64_t sink;

void Measure(const Shape& shape, int threads, ThreadPool& pool) {
  if (FindKernel(shape.isa) == nullptr) return;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(-3, 2.5);
  const size_t size = static_cast<size_t>(shape.rows * shape.vocab);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(shape.buffers));
  for (auto& scores : buffers) {
    scores.resize(size);
    for (float& x : scores) x = normal(random);
  }
  std::vector<int32_t> offsets{0}, tokens, ops;
  std::vector<float> values;
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t e = 0; e < shape.edits; ++e) {
      tokens.push_back(
          std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(shape.vocab) - 1)(random));
      ops.push_back(1);
      values.push_back(1.2f);
    }
    offsets.push_back(static_cast<int32_t>(tokens.size()));
  }
  Problem problem;
  problem.rows = shape.rows;
  problem.vocab = shape.vocab;
  problem.isa = shape.isa;
  std::vector<float> bias(static_cast<size_t>(shape.rows), -1.5f), random_numbers{0.37f};
  problem.bias = bias.data();
  problem.edit_offsets = offsets.data();
  problem.edit_tokens = tokens.data();
  problem.edit_ops = ops.data();
  problem.edit_values = values.data();
  const int64_t in_group = shape.mode == Mode::kLogProbs ? 4 : 1;
  for (int64_t r = 0; r < shape.rows; r += in_group) {
    Group group;
    group.first = r;
    group.count = in_group;
    group.k = shape.mode == Mode::kSample ? 1 : shape.k;
    group.mode = shape.mode;
    if (shape.mode == Mode::kSample) {
      group.top_k = shape.k;
      group.top_p = 0.95f;
      group.temperature = 0.8f;
      group.random_numbers = random_numbers.data();
    }
    problem.groups.push_back(group);
  }
  int64_t sum = 0;
  problem.take = [&](int64_t, const std::vector<Candidate>& best) { sum += best[0].token; };
  const attention::Runner runner = pool.runner();
  const Runner run = [&](int64_t count, const std::function<void(int64_t)>& task) {
    auto call = [&](int64_t i) { task(i); };
    machine::ParallelFor(threads > 1 ? runner : attention::Runner(), count, call);
  };
  std::vector<double> select, read;
  for (int round = 0; round < 60; ++round) {
    const auto& scores = buffers[static_cast<size_t>(round) % buffers.size()];
    problem.scores = scores.data();
    double start = machine::Now(threads == 1);
    Solve(problem, run);
    select.push_back(machine::Now(threads == 1) - start);
    const auto& other = buffers[(static_cast<size_t>(round) + buffers.size() / 2) % buffers.size()];
    start = machine::Now(threads == 1);
    std::vector<int64_t> sums(static_cast<size_t>(shape.rows));
    std::function<void(int64_t)> body = [&](int64_t r) {
      sums[static_cast<size_t>(r)] =
          machine::ReadAll(reinterpret_cast<const char*>(other.data() + r * shape.vocab),
                           static_cast<size_t>(shape.vocab) * sizeof(float));
    };
    run(shape.rows, body);
    for (const int64_t s : sums) sum += s;
    read.push_back(machine::Now(threads == 1) - start);
  }
  sink = sum;
  const double bytes = static_cast<double>(size) * sizeof(float);
  std::printf(
      "%-40s %8.1f us %6.1f GB/s   plain read %8.1f us %6.1f GB/s   best %7.1f of %7.1f  %.2fx\n",
      shape.name, machine::Median(select) * 1e6, bytes / machine::Median(select) / 1e9,
      machine::Median(read) * 1e6, bytes / machine::Median(read) / 1e9,
      machine::Least(select) * 1e6, machine::Least(read) * 1e6,
      machine::Least(read) / machine::Least(select));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  ThreadPool pool(threads, 2000);
  std::printf("threads %d\n", threads);
  const Isa best = Isa::kBest;
  const Mode beams = Mode::kLogProbs, greedy = Mode::kRaw, sample = Mode::kSample;
  const Shape shapes[] = {
      {"beam 4, V 50257, K 8, in cache", 4, 50257, 8, beams, 0, 1, best},
      {"the same, AVX2", 4, 50257, 8, beams, 0, 1, Isa::kAvx2},
      {"the same, SSE4", 4, 50257, 8, beams, 0, 1, Isa::kSse4},
      {"the same, from memory", 4, 50257, 8, beams, 0, 100, best},
      {"4 x beam 4, V 50257, K 8, in cache", 16, 50257, 8, beams, 0, 1, best},
      {"the same, from memory", 16, 50257, 8, beams, 0, 30, best},
      {"beam 4, 20 edits a row", 4, 50257, 8, beams, 20, 1, best},
      {"beam 4, 1000 edits a row", 4, 50257, 8, beams, 1000, 1, best},
      {"greedy, 1 row, V 50257, in cache", 1, 50257, 1, greedy, 0, 1, best},
      {"the same, AVX2", 1, 50257, 1, greedy, 0, 1, Isa::kAvx2},
      {"greedy, 16 rows, from memory", 16, 50257, 1, greedy, 0, 30, best},
      {"sample, top-k 50, top-p 0.95, 4 rows", 4, 50257, 50, sample, 0, 1, best},
      {"sample, top-p 0.95, 4 rows", 4, 50257, 0, sample, 0, 1, best},
      {"beam 4, V 128256, K 8, in cache", 4, 128256, 8, beams, 0, 1, best},
  };
  for (const Shape& shape : shapes) Measure(shape, threads, pool);
  return 0;
}

}  // namespace
}  // namespace top_k
}  // namespace graft

int main(int argc, char** argv) { return graft::top_k::Main(argc, argv); }
