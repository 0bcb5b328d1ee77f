// How far the kernel is from the machine's limits.
//
//   packed_linear_bench [threads] [isa: best|baseline|sse4|avx2|avx512] [filter] [file]
//
// Few rows: bytes of weights a second, against a plain read of the same bytes, interleaved with it.
// Each repetition walks through enough layers that nothing is left in a cache from the last. Many
// rows: arithmetic a second. With one thread both are in the thread's own time: other programs then
// disturb a figure through caches and memory bus only. Without a file,
// weights lie in large pages. With one, they are its bytes,
// mapped, from an odd address on; numbers that they happen to be do not matter for the time, except
// for subnormals.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linear.h"
#include "quantized.h"
#include "thread_pool.h"

namespace graft {
namespace linear {
namespace {

double Now(bool own_time) {
  if (own_time) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

volatile int64_t g_sink;

// Reads bytes and holds something that depends on them.
void ReadAll(const char* from, size_t bytes) {
  int64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    int64_t line[8];
    std::memcpy(line, from + i, 64);
    for (int k = 0; k < 8; ++k) sums[k] ^= line[k];
  }
  for (int64_t s : sums) g_sink = g_sink ^ s;
}

struct Weights {
  const char* data;
  size_t bytes;
};

struct Shape {
  std::string name;
  int64_t depth, columns;
  bool transposed;
  bool panels = false;
  WeightType type = WeightType::kFloat32;
  RowType row_type = RowType::kInt8;
};

constexpr int64_t kGroup = 32;

class Bench {
 public:
  Bench(int threads, Isa isa, std::string filter, Weights weights)
      : pool_(threads, 20000), filter_(std::move(filter)), weights_(weights) {
    tuning_.isa = isa;
    runner_ = pool_.runner();
    own_time_ = threads == 1;
  }

  void Run(const Shape& shape, int64_t rows) {
    const std::string name = shape.name + " rows " + std::to_string(rows);
    if (name.find(filter_) == std::string::npos) return;
    const PackedShape packed = ShapeOf(shape.type, shape.depth, shape.columns, kGroup);
    const size_t numbers = shape.panels
                               ? PackedBytes(shape.type, shape.depth, shape.columns)
                               : static_cast<size_t>(shape.depth * shape.columns) * sizeof(float);
    const size_t bytes =
        numbers + static_cast<size_t>(packed.panels * packed.groups * kPanelColumns) * 2;
    const size_t matrices = std::max<size_t>(1, std::min<size_t>(weights_.bytes / bytes, 400));
    const size_t layers = rows > 32 ? std::min<size_t>(matrices, 4) : matrices;
    std::vector<float> x(static_cast<size_t>(rows * shape.depth), 0.5f);
    std::vector<float> y(static_cast<size_t>(rows * shape.columns));
    Problem p = {rows,        shape.depth, shape.columns,    x.data(),
                 shape.depth, nullptr,     shape.transposed, shape.panels,
                 nullptr,     y.data(),    shape.columns};
    p.type = shape.type;
    p.group = kGroup;
    p.row_type = shape.row_type;
    std::vector<char> workspace(WorkspaceSize(p, runner_.threads, tuning_));
    std::vector<double> kernel, plain;
    for (int repetition = 0; repetition < 8; ++repetition) {
      double start = Now(own_time_);
      for (size_t i = 0; i < layers; ++i) {
        p.weight = reinterpret_cast<const float*>(weights_.data + i * bytes);
        p.quantized = weights_.data + i * bytes;
        p.weight_scale = reinterpret_cast<const uint16_t*>(weights_.data + i * bytes + numbers);
        linear::Run(p, workspace.data(), runner_, tuning_);
      }
      kernel.push_back((Now(own_time_) - start) / static_cast<double>(layers));
      start = Now(own_time_);
      for (size_t i = 0; i < layers; ++i) Read(weights_.data + i * bytes, bytes);
      plain.push_back((Now(own_time_) - start) / static_cast<double>(layers));
    }
    kernel.erase(kernel.begin());
    plain.erase(plain.begin());
    const auto size = static_cast<double>(bytes);
    const double flops = 2.0 * static_cast<double>(rows * shape.depth * shape.columns);
    std::printf(
        "%-26s %9.1f us  %6.1f GB/s of %6.1f  %5.2fx  %7.1f GFLOP/s   best %6.1f GB/s, %7.1f "
        "GFLOP/s\n",
        name.c_str(), Median(kernel) * 1e6, size / Median(kernel) / 1e9, size / Median(plain) / 1e9,
        Median(plain) / Median(kernel), flops / Median(kernel) / 1e9, size / Least(kernel) / 1e9,
        flops / Least(kernel) / 1e9);
    std::fflush(stdout);
  }

 private:
  static double Least(const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  }

  void Read(const char* from, size_t bytes) {
    struct Part {
      const char* from;
      size_t bytes, chunk;
    } part = {from, bytes, bytes / 16 + 64};
    runner_.parallel_for(
        runner_.context, 16,
        [](void* argument, int64_t i) {
          const Part& p = *static_cast<Part*>(argument);
          const size_t begin = static_cast<size_t>(i) * p.chunk;
          if (begin < p.bytes) ReadAll(p.from + begin, std::min(p.chunk, p.bytes - begin));
        },
        &part);
  }

  test::ThreadPool<Runner> pool_;
  Runner runner_;
  Tuning tuning_;
  std::string filter_;
  Weights weights_;
  bool own_time_;
};

Weights Map(const char* path) {
  const int file = open(path, O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) {
    std::perror(path);
    std::exit(1);
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  close(file);
  if (data == MAP_FAILED) {
    std::perror(path);
    std::exit(1);
  }
  return {static_cast<const char*>(data) + 3, bytes - 3};
}

// Numbers in memory of large pages, as a host that packs weights holds them. The two halves of each
// are equal, so that they are numbers of bfloat16, too.
Weights Make(size_t count) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = count * sizeof(float);
  void* data =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    std::perror("memory for weights");
    std::exit(1);
  }
  const uintptr_t address = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1);
  auto* made = reinterpret_cast<float*>(address);
  madvise(made, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < count; ++i) {
    made[i] = static_cast<float>(i % 997) * 1e-3f - 0.5f;
    uint16_t halves[2];
    std::memcpy(halves, made + i, sizeof halves);
    halves[0] = halves[1];
    std::memcpy(made + i, halves, sizeof halves);
  }
  return {reinterpret_cast<const char*>(made), bytes};
}

int Main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const Isa isa = IsaNamed(count > 2 ? arguments[2] : "best");
  const std::string filter = count > 3 ? arguments[3] : "";
  Weights weights;
  if (count > 4) {
    weights = Map(arguments[4]);
  } else {
    weights = Make(size_t{100} << 20);
  }
  Bench bench(threads, isa, filter, weights);
  std::vector<Shape> shapes = {
      {"768 x 2304", 768, 2304, false},   {"768 x 768", 768, 768, false},
      {"768 x 3072", 768, 3072, false},   {"3072 x 768", 3072, 768, false},
      {"768 x 50257", 768, 50257, false}, {"768 x 50257 T", 768, 50257, true},
  };
  const std::pair<int64_t, int64_t> packed[] = {
      {768, 2304},  {768, 768}, {768, 3072}, {3072, 768}, {1024, 4096}, {4096, 1024},
      {768, 50257}, {384, 384}, {384, 1152}, {384, 1536}, {1536, 384},  {576, 1536},
  };
  const struct {
    const char* name;
    WeightType type;
    RowType row_type;
  } kinds[] = {{"P", WeightType::kFloat32, RowType::kFloat32},
               {"int8", WeightType::kInt8, RowType::kInt8},
               {"int4", WeightType::kInt4, RowType::kInt8},
               {"int8-int16", WeightType::kInt8, RowType::kInt16},
               {"int4-int16", WeightType::kInt4, RowType::kInt16},
               {"int8-float", WeightType::kInt8, RowType::kFloat32},
               {"int4-float", WeightType::kInt4, RowType::kFloat32},
               {"bfloat16", WeightType::kBFloat16, RowType::kFloat32}};
  for (const auto& kind : kinds) {
    for (const auto& [depth, columns] : packed) {
      const std::string name =
          std::to_string(depth) + " x " + std::to_string(columns) + " " + kind.name;
      shapes.push_back({name, depth, columns, false, true, kind.type, kind.row_type});
    }
  }
  for (const Shape& shape : shapes) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 32}) bench.Run(shape, rows);
  }
  for (const Shape& shape : shapes) {
    if (shape.columns > 10000) continue;
    for (const int64_t rows : {33, 64, 256, 704, 1024, 8192}) bench.Run(shape, rows);
  }
  return 0;
}

}  // namespace
}  // namespace linear
}  // namespace graft

int main(int count, char** arguments) { return graft::linear::Main(count, arguments); }
