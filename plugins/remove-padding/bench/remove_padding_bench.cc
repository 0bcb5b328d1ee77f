// How far attention without padding is from the machine's arithmetic.
//
//   remove_padding_bench [threads] [isa: best|baseline|sse4|avx2|avx512] [filter]
//
// Multiplications and sums of the two matmuls a second, the softmax not counted, for sequences of
// one length, against multiplications and sums on registers alone. Query, key and value lie as
// linear layers leave them: heads side by side in each position.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "machine.h"
#include "sequences.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace bench {
namespace {

struct Shape {
  int64_t count, length, heads, head_size;
  int64_t window = -1;  // to each side
  bool hidden = false, bias = false;
};

// Query-key pairs that are visible.
double Pairs(const Shape& s) {
  double pairs = 0;
  for (int64_t i = 0; i < s.length; ++i) {
    const int64_t low = s.window < 0 ? 0 : std::max<int64_t>(0, i - s.window);
    const int64_t high = s.window < 0 ? s.length : std::min(s.length, i + s.window + 1);
    pairs += static_cast<double>(high - low);
  }
  return pairs * static_cast<double>(s.count * s.heads);
}

void Measure(const Shape& s, const Runner& runner, const Tuning& tuning, bool own_time, double peak,
             const std::string& filter) {
  char name[128];
  std::snprintf(name, sizeof name, "%ld x %ld, %ld heads of %ld%s%s%s", s.count, s.length, s.heads,
                s.head_size, s.window >= 0 ? ", window" : "", s.hidden ? ", hidden keys" : "",
                s.bias ? ", bias" : "");
  if (std::string(name).find(filter) == std::string::npos) return;
  const int64_t positions = s.count * s.length, width = s.heads * s.head_size;
  std::vector<float> data[4];
  for (std::vector<float>& one : data) {
    one.resize(static_cast<size_t>(positions * width + 16));
    for (size_t i = 0; i < one.size(); ++i) {
      one[i] = static_cast<float>((i * 7919) % 997) * 2e-3f - 1.0f;
    }
  }
  Sequences call;
  Problem& p = call.problem;
  p.batch = 1;
  p.heads = p.kv_heads = s.heads;
  p.queries = p.fresh = positions;
  p.head_size = p.value_size = s.head_size;
  p.window_left = p.window_right = s.window;
  const Strides strides = {positions * width, s.head_size, width, 1};
  p.query = {data[0].data(), strides};
  p.key = {data[1].data(), strides};
  p.value = {data[2].data(), strides};
  p.output.data = data[3].data();
  p.output.strides = strides;
  std::vector<int32_t> offsets;
  for (int64_t b = 0; b <= s.count; ++b) offsets.push_back(static_cast<int32_t>(b * s.length));
  std::vector<uint8_t> hidden(static_cast<size_t>(positions), 0);
  for (int64_t i = 3; i < positions; i += 7) hidden[static_cast<size_t>(i)] = 1;
  std::vector<float> bias(static_cast<size_t>(s.bias ? s.heads * s.length * s.length : 0), 0.5f);
  call.count = s.count;
  call.offsets = offsets.data();
  if (s.hidden) call.hidden = hidden.data();
  if (s.bias) {
    p.bias = {bias.data(), {0, s.length * s.length, s.length, 1}};
    call.bias_rows = call.bias_columns = s.length;
  }
  std::vector<char> workspace(SequencesWorkspaceSize(call, runner.threads, tuning));
  const double work = 2.0 * Pairs(s) * static_cast<double>(2 * s.head_size);
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(5e8 / work));
  std::vector<double> times;
  for (int repetition = 0; repetition < 12; ++repetition) {
    const double start = Now(own_time);
    for (int64_t i = 0; i < calls; ++i) RunSequences(call, workspace.data(), runner, tuning);
    times.push_back((Now(own_time) - start) / static_cast<double>(calls));
  }
  const double threads = static_cast<double>(runner.threads);
  std::printf("%-44s %10.1f us  %6.1f GFLOP/s  best %6.1f  %.2f of the peak\n", name,
              Median(times) * 1e6, work / Median(times) / 1e9, work / Least(times) / 1e9,
              work / Least(times) / peak / threads);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  Tuning tuning;
  tuning.isa = IsaNamed(argc > 2 ? argv[2] : "best");
  const std::string filter = argc > 3 ? argv[3] : "";
  const bool own_time = threads == 1;
  const double peak = PeakRate(true);
  std::printf("%d threads, peak of one %.1f GFLOP/s\n", threads, peak / 1e9);
  test::ThreadPool<Runner> pool(threads, 20000);
  Runner runner = pool.runner();
  if (threads == 1) runner = Runner();
  std::vector<Shape> shapes;
  for (const int64_t size : {32, 64}) {
    for (const int64_t length : {16, 32, 64, 128, 256, 512}) {
      for (const int64_t count : {1, 8, 32}) {
        if (length * count <= 4096) shapes.push_back({count, length, 12, size});
      }
    }
  }
  for (const int64_t size : {80, 96, 128}) shapes.push_back({8, 128, 12, size});
  for (const int64_t length : {2048, 8192}) {
    shapes.push_back({1, length, 12, 64});
    shapes.push_back({1, length, 12, 64, 64});
  }
  shapes.push_back({8, 128, 12, 64, -1, true});
  shapes.push_back({8, 128, 12, 64, -1, false, true});
  for (const int64_t length : {32, 128, 512}) shapes.push_back({8, length, 16, 64});
  shapes.push_back({8, 20, 12, 32});
  shapes.push_back({8, 50, 12, 32});
  shapes.push_back({8, 100, 12, 64});
  for (const Shape& shape : shapes) Measure(shape, runner, tuning, own_time, peak, filter);
  return 0;
}

}  // namespace
}  // namespace bench
}  // namespace attention
}  // namespace graft

int main(int argc, char** argv) { return graft::attention::bench::Main(argc, argv); }
