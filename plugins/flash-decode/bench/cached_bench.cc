// How far attention over a pool is from the machine's limits.
//
//   cached_bench [threads] [isa: best|baseline|sse4|avx2|avx512] [filter] [storage]
//
// The storage is float32, float16, bfloat16 or int8.
//
// Steps of generation: distinct bytes of keys and values, each of which must cross the memory bus
// once, against a plain read of as many bytes of the same pool, interleaved with it. Each
// repetition walks through all layers, so that nothing is left in a cache from the last. Prompts:
// arithmetic a second.
//
// The pool lies in huge pages unless the environment has SMALL_PAGES.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cached.h"
#include "machine.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace bench {
namespace {

struct Shape {
  const char* name;
  int64_t samples, rows;  // rows of each sample: beams, or tokens of a prompt
  int64_t shared, private_count;
  bool causal, random_lineage, sparse;  // sparse: of every 4 slots of shared, one is used
  int64_t heads, kv_heads, size, layers;
};

volatile int64_t g_sink;

struct Lists {
  std::vector<int32_t> sequences, shared_slots, private_slots, slot_mapping;
  int64_t slots = 0;     // the pool needs
  int64_t distinct = 0;  // that are read
};

Lists MakeLists(const Shape& s) {
  std::mt19937 random(1);
  Lists lists;
  std::set<int32_t> used;
  int32_t next = 0;
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    next = static_cast<int32_t>((next + kBlockSlots - 1) / kBlockSlots * kBlockSlots);
    const int32_t so = static_cast<int32_t>(lists.shared_slots.size());
    const int32_t oo = static_cast<int32_t>(lists.private_slots.size());
    lists.sequences.insert(lists.sequences.end(),
                           {static_cast<int32_t>(sample * s.rows), static_cast<int32_t>(s.rows), so,
                            static_cast<int32_t>(s.shared), oo,
                            static_cast<int32_t>(s.private_count), s.causal ? 1 : 0, 0});
    for (int64_t j = 0; j < s.shared; ++j) {
      lists.shared_slots.push_back(next);
      used.insert(next);
      next += s.sparse ? 4 : 1;
    }
    next = static_cast<int32_t>((next + kBlockSlots - 1) / kBlockSlots * kBlockSlots);
    // Rows that are born side by side; a random lineage holds each row's ancestor of every step
    // anywhere among them, all of them in use.
    std::vector<int32_t> rows(static_cast<size_t>(s.rows * s.private_count));
    for (int64_t j = 0; j < s.private_count; ++j) {
      std::vector<int32_t> born;
      for (int64_t i = 0; i < s.rows; ++i) born.push_back(next++);
      used.insert(born.begin(), born.end());
      if (s.random_lineage) std::shuffle(born.begin(), born.end(), random);
      for (int64_t i = 0; i < s.rows; ++i) {
        rows[static_cast<size_t>(i * s.private_count + j)] = born[static_cast<size_t>(i)];
      }
    }
    lists.private_slots.insert(lists.private_slots.end(), rows.begin(), rows.end());
    for (int64_t i = 0; i < s.rows; ++i) {
      if (s.private_count > 0) {
        lists.slot_mapping.push_back(
            rows[static_cast<size_t>(i * s.private_count + s.private_count - 1)]);
      } else if (s.causal) {
        lists.slot_mapping.push_back(
            lists.shared_slots[static_cast<size_t>(so + s.shared - s.rows + i)]);
      } else {
        lists.slot_mapping.push_back(-1);
      }
    }
  }
  lists.slots = (next / kBlockSlots + 1) * kBlockSlots;
  lists.distinct = static_cast<int64_t>(used.size());
  return lists;
}

class Bench {
 public:
  Bench(int threads, Isa isa, std::string filter, Storage storage)
      : pool_(threads, 20000), filter_(std::move(filter)), storage_(storage) {
    tuning_.isa = isa;
    runner_ = pool_.runner();
    own_time_ = threads == 1;
  }

  void Measure(const Shape& s) {
    if (std::string(s.name).find(filter_) == std::string::npos) return;
    const Lists lists = MakeLists(s);
    CachedProblem p;
    p.pool.blocks = lists.slots / kBlockSlots;
    p.pool.kv_heads = s.kv_heads;
    p.pool.head_size = p.pool.value_size = s.size;
    p.pool.storage = storage_;
    p.pool.block_floats = s.layers * p.pool.floats();
    const size_t floats = static_cast<size_t>(p.pool.blocks * p.pool.block_floats);
    const PoolMemory memory(floats);
    p.pool.data = memory.data();
    p.rows = s.samples * s.rows;
    p.heads = s.heads;
    std::vector<float> query(static_cast<size_t>(p.rows * s.heads * s.size), 0.01f);
    std::vector<float> fresh(static_cast<size_t>(p.rows * s.kv_heads * s.size), 0.02f);
    std::vector<float> output(query.size());
    p.query = query.data();
    p.key = p.value = s.private_count > 0 || s.causal ? fresh.data() : nullptr;
    p.slot_mapping = p.key != nullptr ? lists.slot_mapping.data() : nullptr;
    p.query_stride = s.heads * s.size;
    p.key_stride = p.value_stride = s.kv_heads * s.size;
    p.output = output.data();
    p.sequences = lists.sequences.data();
    p.groups = s.samples;
    p.shared_slots = lists.shared_slots.data();
    p.shared_length = static_cast<int64_t>(lists.shared_slots.size());
    p.private_slots = lists.private_slots.data();
    p.private_length = static_cast<int64_t>(lists.private_slots.size());
    std::vector<char> workspace(WorkspaceSize(p, runner_.threads, tuning_));
    const double bytes =
        static_cast<double>(lists.distinct * p.pool.floats()) * sizeof(float) / kBlockSlots;
    std::vector<double> kernel, plain;
    const int repetitions = s.causal ? 5 : 15;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      double start = Now(own_time_);
      for (int64_t layer = 0; layer < s.layers; ++layer) {
        p.pool.offset = layer * p.pool.floats();
        if (!Validate(p).empty()) std::abort();
        Run(p, workspace.data(), runner_, tuning_);
      }
      kernel.push_back((Now(own_time_) - start) / static_cast<double>(s.layers));
      start = Now(own_time_);
      Plain(memory.data(), floats);
      plain.push_back((Now(own_time_) - start) / (static_cast<double>(floats) * 4.0) * bytes);
    }
    kernel.erase(kernel.begin());
    plain.erase(plain.begin());
    if (s.causal) {
      const double n = static_cast<double>(s.rows);
      const double pairs = n * static_cast<double>(s.shared) - n * (n - 1.0) / 2.0;
      const double flops = 4.0 * pairs * static_cast<double>(s.samples * s.heads * s.size);
      std::printf("%-40s %9.1f us  %6.1f GFLOP/s   best %6.1f GFLOP/s\n", s.name,
                  Median(kernel) * 1e6, flops / Median(kernel) / 1e9, flops / Least(kernel) / 1e9);
    } else {
      std::printf(
          "%-40s %9.1f us  %6.1f GB/s   plain read %6.1f GB/s   best %6.1f of %6.1f   %.2fx\n",
          s.name, Median(kernel) * 1e6, bytes / Median(kernel) / 1e9, bytes / Median(plain) / 1e9,
          bytes / Least(kernel) / 1e9, bytes / Least(plain) / 1e9, Least(plain) / Least(kernel));
    }
    std::fflush(stdout);
  }

 private:
  void Plain(const float* data, size_t floats) {
    const int64_t parts = 64;
    const size_t part = floats * 4 / parts / 64 * 64;
    auto body = [&](int64_t index) {
      g_sink =
          g_sink ^
          ReadAll(reinterpret_cast<const char*>(data) + static_cast<size_t>(index) * part, part);
    };
    ParallelFor(runner_, parts, body);
  }

  test::ThreadPool<Runner> pool_;
  Runner runner_;
  CachedTuning tuning_;
  std::string filter_;
  Storage storage_;
  bool own_time_;
};

int Main(int argc, char** argv) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  const std::string storage = argc > 4 ? argv[4] : "float32";
  Bench bench(threads, IsaNamed(argc > 2 ? argv[2] : "best"), argc > 3 ? argv[3] : "",
              storage == "float16"    ? Storage::kFloat16
              : storage == "bfloat16" ? Storage::kBfloat16
              : storage == "int8"     ? Storage::kInt8
                                      : Storage::kFloat32);
  std::printf("threads %d\n", threads);
  const Shape shapes[] = {
      // name, samples, rows, shared, own, causal, random, sparse, heads, kv_heads, size, layers
      {"1 row, 704", 1, 1, 704, 0, false, false, false, 12, 12, 64, 12},
      {"4 beams, shared 704, own 32", 1, 4, 704, 32, false, false, false, 12, 12, 64, 12},
      {"4 beams, shared 704, own 64 random", 1, 4, 704, 64, false, true, false, 12, 12, 64, 12},
      {"4 beams, shared 704, own 640 random", 1, 4, 704, 640, false, true, false, 12, 12, 64, 12},
      {"4 beams, shared 64, own 640", 1, 4, 64, 640, false, false, false, 12, 12, 64, 12},
      {"4 beams, shared 64, own 640 random", 1, 4, 64, 640, false, true, false, 12, 12, 64, 12},
      {"4 rows apart, 704 each", 4, 1, 704, 0, false, false, false, 12, 12, 64, 12},
      {"4 beams, joined 704, own 32", 1, 4, 704, 32, false, true, true, 12, 12, 64, 12},
      {"4x4 beams, shared 704, own 32", 4, 4, 704, 32, false, true, false, 12, 12, 64, 12},
      {"cross 4x4 beams, 1024, 16 heads", 4, 4, 1024, 0, false, false, false, 16, 16, 64, 6},
      {"8 beams, shared 704, own 32", 1, 8, 704, 32, false, true, false, 12, 12, 64, 12},
      {"4 beams, 32/8 heads of 128, 2048", 1, 4, 2048, 32, false, true, false, 32, 8, 128, 4},
      {"4 beams, 9/3 heads of 64, 2048", 1, 4, 2048, 32, false, true, false, 9, 3, 64, 16},
      {"small: 4 beams, shared 16, own 8", 1, 4, 16, 8, false, true, false, 12, 12, 64, 12},
      {"prompt 704", 1, 704, 704, 0, true, false, false, 12, 12, 64, 4},
      {"prompt 128 after 576", 1, 128, 704, 0, true, false, false, 12, 12, 64, 4},
      {"prompts 4 x 300", 4, 300, 300, 0, true, false, false, 12, 12, 64, 4},
      {"prompt 512, 32/8 heads of 128", 1, 512, 512, 0, true, false, false, 32, 8, 128, 2},
  };
  for (const Shape& shape : shapes) bench.Measure(shape);
  return 0;
}

}  // namespace
}  // namespace bench
}  // namespace attention
}  // namespace graft

int main(int argc, char** argv) { return graft::attention::bench::Main(argc, argv); }
