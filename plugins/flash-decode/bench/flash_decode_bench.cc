// How far the kernel is from the machine's limits.
//
//   flash_decode_bench [threads] [isa: best|baseline|sse4|avx2|avx512] [filter]
//
// Decode: bytes that must cross the memory bus, read past and write present, against a plain
// streaming copy (or read, where nothing is written) of the same bytes in the same layers,
// interleaved with it. Each repetition walks through enough layers that nothing is left in a cache
// from the last. Prefill: arithmetic a second, softmax not counted, against
// multiplications and sums on registers alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "attention.h"
#include "machine.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace bench {
namespace {

struct Shape {
  const char* name;
  int64_t batch, heads, kv_heads, queries, past, fresh, head_size;
  bool causal, present;
  Type type;
};

// 64-byte aligned memory, touched once.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes + 4096) {
    memory_.reset(static_cast<char*>(std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096)));
    float* values = reinterpret_cast<float*>(memory_.get());
    for (size_t i = 0; i < bytes_ / 4; ++i) values[i] = static_cast<float>(i % 997) * 1e-3f - 0.5f;
  }
  char* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<char, Free> memory_;
};

// Tensors of one layer.
struct Layer {
  std::unique_ptr<Block> query, key, value, past_key, past_value, present_key, present_value,
      output;
  Problem problem;
};

Strides Compact(int64_t heads, int64_t positions, int64_t features) {
  return {heads * positions * features, positions * features, features, 1};
}

Layer MakeLayer(const Shape& s) {
  Layer layer;
  Problem& p = layer.problem;
  p.type = s.type;
  p.batch = s.batch;
  p.heads = s.heads;
  p.kv_heads = s.kv_heads;
  p.queries = s.queries;
  p.past = s.past;
  p.fresh = s.fresh;
  p.head_size = p.value_size = s.head_size;
  p.causal = s.causal;
  const int64_t element = s.type == Type::kFloat32 ? 4 : 2;
  const auto make = [&](int64_t heads, int64_t positions) {
    return std::make_unique<Block>(
        static_cast<size_t>(s.batch * heads * positions * s.head_size * element));
  };
  const auto input = [&](std::unique_ptr<Block>& block, int64_t heads, int64_t positions) {
    block = make(heads, positions);
    Input in;
    in.data = block->data();
    in.strides = Compact(heads, positions, s.head_size);
    return in;
  };
  const auto output = [&](std::unique_ptr<Block>& block, int64_t heads, int64_t positions) {
    block = make(heads, positions);
    Output out;
    out.data = block->data();
    out.strides = Compact(heads, positions, s.head_size);
    return out;
  };
  p.query = input(layer.query, s.heads, s.queries);
  p.key = input(layer.key, s.kv_heads, s.fresh);
  p.value = input(layer.value, s.kv_heads, s.fresh);
  p.past_key = input(layer.past_key, s.kv_heads, s.past);
  p.past_value = input(layer.past_value, s.kv_heads, s.past);
  p.output = output(layer.output, s.heads, s.queries);
  if (s.present) {
    p.present_key = output(layer.present_key, s.kv_heads, s.past + s.fresh);
    p.present_value = output(layer.present_value, s.kv_heads, s.past + s.fresh);
  }
  return layer;
}

volatile int64_t g_sink;

class Bench {
 public:
  Bench(int threads, Isa isa, std::string filter)
      : pool_(threads, 20000), filter_(std::move(filter)) {
    tuning_.isa = isa;
    runner_ = pool_.runner();
    own_time_ = threads == 1;
  }

  // Time of walking once through all layers, interleaved with the plain copy or read.
  void Decode(const Shape& shape) {
    if (std::string(shape.name).find(filter_) == std::string::npos) return;
    const int64_t element = shape.type == Type::kFloat32 ? 4 : 2;
    const int64_t slab = shape.batch * shape.kv_heads * shape.past * shape.head_size * element;
    const double bytes = 2.0 * static_cast<double>(slab) * (shape.present ? 2.0 : 1.0);
    const int64_t wanted = static_cast<int64_t>(300e6 / bytes) + 1;
    const int64_t layers = wanted < 2 ? 2 : (wanted > 48 ? 48 : wanted);
    std::vector<Layer> all;
    for (int64_t i = 0; i < layers; ++i) all.push_back(MakeLayer(shape));
    std::vector<char> workspace(WorkspaceSize(all[0].problem, runner_.threads, tuning_));
    std::vector<double> kernel, plain;
    for (int repetition = 0; repetition < 15; ++repetition) {
      double start = Now(own_time_);
      for (Layer& layer : all) Run(layer.problem, workspace.data(), runner_, tuning_);
      kernel.push_back((Now(own_time_) - start) / static_cast<double>(layers));
      start = Now(own_time_);
      for (Layer& layer : all) Plain(layer, slab, shape.present);
      plain.push_back((Now(own_time_) - start) / static_cast<double>(layers));
    }
    kernel.erase(kernel.begin());
    plain.erase(plain.begin());
    std::printf("%-34s %9.1f us  %6.1f GB/s   plain %s %6.1f GB/s   best %6.1f of %6.1f   %.2fx\n",
                shape.name, Median(kernel) * 1e6, bytes / Median(kernel) / 1e9,
                shape.present ? "copy" : "read", bytes / Median(plain) / 1e9,
                bytes / Least(kernel) / 1e9, bytes / Least(plain) / 1e9,
                Least(plain) / Least(kernel));
    std::fflush(stdout);
  }

  void Prefill(const Shape& shape) {
    if (std::string(shape.name).find(filter_) == std::string::npos) return;
    Layer layer = MakeLayer(shape);
    const double keys = static_cast<double>(shape.past + shape.fresh);
    double pairs = static_cast<double>(shape.queries) * keys;
    if (shape.causal) {
      pairs -= static_cast<double>(shape.queries) * static_cast<double>(shape.queries - 1) / 2.0;
    }
    const double flops = 4.0 * pairs * static_cast<double>(shape.head_size) *
                         static_cast<double>(shape.batch * shape.heads);
    std::vector<char> workspace(WorkspaceSize(layer.problem, runner_.threads, tuning_));
    std::vector<double> times;
    const double peak = PeakRate(own_time_) * static_cast<double>(runner_.threads);
    const double begin = Now(own_time_);
    while (times.size() < 9 || (Now(own_time_) - begin < 0.7 && times.size() < 200)) {
      const double start = Now(own_time_);
      Run(layer.problem, workspace.data(), runner_, tuning_);
      times.push_back(Now(own_time_) - start);
    }
    std::printf("%-34s %9.1f us  %6.1f GFLOP/s   best %9.1f us %6.1f GFLOP/s of %6.1f   %.2fx\n",
                shape.name, Median(times) * 1e6, flops / Median(times) / 1e9, Least(times) * 1e6,
                flops / Least(times) / 1e9, peak / 1e9, flops / Least(times) / peak);
    std::fflush(stdout);
  }

 private:
  // The same bytes moved by nothing but loads and stores.
  void Plain(Layer& layer, int64_t slab, bool present) {
    const int64_t parts = 16;
    const size_t part = static_cast<size_t>(slab / parts) / 64 * 64;
    auto body = [&](int64_t index) {
      Block* from = index % 2 == 0 ? layer.past_key.get() : layer.past_value.get();
      const size_t offset = static_cast<size_t>(index / 2) * part;
      if (present) {
        Block* to = index % 2 == 0 ? layer.present_key.get() : layer.present_value.get();
        StreamCopy(from->data() + offset, to->data() + offset, part);
      } else {
        g_sink = g_sink ^ ReadAll(from->data() + offset, part);
      }
    };
    ParallelFor(runner_, 2 * parts, body);
  }

  test::ThreadPool<Runner> pool_;
  Runner runner_;
  Tuning tuning_;
  std::string filter_;
  bool own_time_;
};

int Main(int argc, char** argv) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  Bench bench(threads, IsaNamed(argc > 2 ? argv[2] : "best"), argc > 3 ? argv[3] : "");
  std::printf("threads %d\n", threads);
  const Type f32 = Type::kFloat32;
  const Type f16 = Type::kFloat16;
  const Shape decode[] = {
      {"decode b4 h12 past 960 d64", 4, 12, 12, 1, 960, 1, 64, false, true, f32},
      {"decode b1 h12 past 1000 d64", 1, 12, 12, 1, 1000, 1, 64, false, true, f32},
      {"decode b4 h12 past 704 d64 fp16", 4, 12, 12, 1, 704, 1, 64, false, true, f16},
      {"cross b16 h16 keys 1024 d64", 16, 16, 16, 1, 1024, 0, 64, false, false, f32},
      {"decode b2 h32/8 past 2048 d128", 2, 32, 8, 1, 2048, 1, 128, false, true, f32},
      {"decode b1 h9/3 past 2000 d64", 1, 9, 3, 1, 2000, 1, 64, false, true, f32},
      {"verify b1 h12 s8 past 1000 d64", 1, 12, 12, 8, 1000, 8, 64, true, true, f32},
      {"small b1 h12 past 16 d64", 1, 12, 12, 1, 16, 1, 64, false, true, f32},
      {"small b4 h12 past 64 d64", 4, 12, 12, 1, 64, 1, 64, false, true, f32},
  };
  for (const Shape& shape : decode) bench.Decode(shape);
  const Shape prefill[] = {
      {"prefill h12 128 d64", 1, 12, 12, 128, 0, 128, 64, false, true, f32},
      {"prefill h12 512 d64", 1, 12, 12, 512, 0, 512, 64, false, true, f32},
      {"prefill h12 1024 d64 causal", 1, 12, 12, 1024, 0, 1024, 64, true, true, f32},
      {"encoder h12 64 d64", 1, 12, 12, 64, 0, 64, 64, false, false, f32},
      {"encoder h12 128 d64", 1, 12, 12, 128, 0, 128, 64, false, false, f32},
      {"encoder h12 256 d64", 1, 12, 12, 256, 0, 256, 64, false, false, f32},
      {"encoder h8 128 d128", 1, 8, 8, 128, 0, 128, 128, false, false, f32},
      {"encoder h16 1024 d64", 1, 16, 16, 1024, 0, 1024, 64, false, false, f32},
      {"encoder h12 1500 d64", 1, 12, 12, 1500, 0, 1500, 64, false, false, f32},
      {"encoder h12 512 d64 fp16", 1, 12, 12, 512, 0, 512, 64, false, false, f16},
      {"encoder h8 1024 d128", 1, 8, 8, 1024, 0, 1024, 128, false, false, f32},
      {"prefill h32/8 512 d128 causal", 1, 32, 8, 512, 0, 512, 128, true, true, f32},
  };
  for (const Shape& shape : prefill) bench.Prefill(shape);
  return 0;
}

}  // namespace
}  // namespace bench
}  // namespace attention
}  // namespace graft

int main(int argc, char** argv) { return graft::attention::bench::Main(argc, argv); }
