// What the tensor cores do at most: `peak [--rounds N]`, as JSON. Matmuls of random bf16 numbers,
// none of them zero, by wgmma where the device has it (9.0) and by mma.sync; each is timed only if
// its answer is that of float64. On the emulator answers are checked and nothing is timed.
//
// Ends with 0 when every answer was right, 1 when one was not, 4 where there is no device.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "clock.h"
#include "json.h"
#include "peak.cuh"

namespace graft {
namespace peak {
namespace {

// An array on the device.
template <typename T>
class Memory {
 public:
  explicit Memory(int64_t count) : count_(count), data_(gpu::Reserve(bytes())) {
    gpu::SetBytes(data_, 0xff, bytes());  // NaN
  }
  explicit Memory(const std::vector<T>& values) : Memory(static_cast<int64_t>(values.size())) {
    gpu::CopyBytes(data_, values.data(), bytes(), gpu::Direction::kToDevice);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { gpu::Release(data_); }

  template <typename As = T>
  As* as() const {
    return static_cast<As*>(data_);
  }
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(count_));
    gpu::CopyBytes(values.data(), data_, bytes(), gpu::Direction::kToHost);
    return values;
  }

 private:
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  int64_t count_;
  void* data_;
};

// Of either sign, from 1/8 to 2: never zero, and sums do not drown one another.
std::vector<BFloat16> Randoms(gpu::Random& random, int64_t count) {
  std::vector<BFloat16> list = gpu::Numbers<BFloat16>(random, count, 0.125, 2);
  for (BFloat16& x : list) x.bits ^= static_cast<uint16_t>(random.Between(0, 1) << 15);
  return list;
}

// What is wrong with `passes` times a b^T, a and b with rows of `depth` numbers; empty: nothing.
std::string Wrong(const float* got, const BFloat16* a, const BFloat16* b, int32_t rows,
                  int32_t columns, int32_t depth, int32_t passes) {
  for (int32_t i = 0; i < rows; ++i) {
    for (int32_t j = 0; j < columns; ++j) {
      double want = 0;
      for (int32_t k = 0; k < depth; ++k) {
        want += gpu::Wide(a[i * depth + k]) * gpu::Wide(b[j * depth + k]);
      }
      want *= passes;
      const double found = got[i * columns + j];
      if (std::abs(found - want) <= 1e-3 * passes * (std::sqrt(depth) + std::abs(want))) continue;
      return "[" + std::to_string(i) + "][" + std::to_string(j) + "] is " + gpu::Number(found) +
             ", float64 gives " + gpu::Number(want);
    }
  }
  return "";
}

struct Options {
  int64_t rounds = 21;
};

// One way of multiplying: its rate, or why there is none.
struct Way {
  const char* name;
  double teraflops = 0;
  std::string wrong{}, layout{};
};

// TFLOP/s: the median of the rounds, each of some milliseconds, after clocks have settled.
double Rate(const Options& options, double flops_a_pass,
            const std::function<cuda::Status(int32_t)>& multiply) {
  const double first = gpu::TimeEach(2, [&](int64_t) { return multiply(100); })[1];
  const auto passes = static_cast<int32_t>(std::min(std::max(5 / (first / 100), 1.0), 1e6));
  const auto work = [&](int64_t) { return multiply(passes); };
  gpu::TimeEach(60, work);  // 300 ms
  std::vector<double> times = gpu::TimeEach(options.rounds, work);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return flops_a_pass * passes / times[times.size() / 2] / 1e9;
}

Way ByWarps(const gpu::Facts& facts, const Options& options) {
  gpu::Random random(1);
  const std::vector<BFloat16> a = Randoms(random, kSide * kDepth),
                              b = Randoms(random, kSide * kDepth);
  cuda::LaunchShape shape;
  shape.grid_x = facts.timed ? facts.limits.multiprocessors : 2;
  shape.threads = kWarpThreads;
  const int64_t warps = shape.grid_x * kWarpThreads / cuda::kWarp;
  const Memory<BFloat16> left(a), right(b);
  const Memory<float> out(warps * kSide * kSide);
  const auto multiply = [&](int32_t passes) {
    return cuda::Launch(MultiplyByWarps, shape, gpu::WorkStream(), left.as<uint32_t>(),
                        right.as<uint32_t>(), out.as(), passes);
  };
  Way way{"mma.sync"};
  gpu::TimeEach(1, [&](int64_t) { return multiply(3); });
  const std::vector<float> got = out.Read();
  for (const int64_t warp : {int64_t{0}, warps - 1}) {
    if (way.wrong.empty()) {
      way.wrong = Wrong(&got[static_cast<size_t>(warp * kSide * kSide)], a.data(), b.data(), kSide,
                        kSide, kDepth, 3);
    }
  }
  if (way.wrong.empty() && facts.timed) {
    way.teraflops =
        Rate(options, 2.0 * kSide * kSide * kDepth * static_cast<double>(warps), multiply);
  }
  return way;
}

#if defined(__CUDACC__)

// Fields of a wgmma descriptor beside its address, in bytes: from one core matrix to the next along
// the columns and along the rows.
constexpr uint64_t Descriptor(uint64_t leading, uint64_t stride, uint64_t swizzle) {
  return leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62;
}

Way ByGroups(const gpu::Facts& facts, const Options& options) {
  gpu::Random random(2);
  const std::vector<BFloat16> a = Randoms(random, kGroups * kM * kK), b = Randoms(random, kN * kK);
  cuda::LaunchShape shape;
  shape.grid_x = facts.limits.multiprocessors;
  shape.threads = kGroups * kGroupThreads;
  shape.shared_bytes = kSharedBytes;
  const Memory<BFloat16> left(a), right(b);
  const Memory<float> out(shape.grid_x * kGroups * kM * kN);
  const uint32_t step_a = kM * 2, step_b = kN * 2;  // two columns of core matrices
  const struct {
    const char* name;
    Layout layout;
  } layouts[] = {
      {"128-byte swizzle", {true, Descriptor(16, 1024, 1), Descriptor(16, 1024, 1), 2, 2}},
      {"core matrices",
       {false, Descriptor(kM * 16, 128, 0), Descriptor(kN * 16, 128, 0), step_a, step_b}},
      {"core matrices, offsets exchanged",
       {false, Descriptor(128, kM * 16, 0), Descriptor(128, kN * 16, 0), step_a, step_b}},
  };
  Way way{"wgmma"};
  for (const auto& one : layouts) {
    const auto multiply = [&](int32_t passes) {
      return cuda::Launch(MultiplyByGroups, shape, gpu::WorkStream(), left.as(), right.as(),
                          out.as(), one.layout, passes);
    };
    gpu::SetBytes(out.as(), 0xff, shape.grid_x * kGroups * kM * kN * 4);
    gpu::TimeEach(1, [&](int64_t) { return multiply(3); });
    const std::vector<float> got = out.Read();
    std::string wrong;
    for (const int64_t block : {int64_t{0}, shape.grid_x - 1}) {
      if (!wrong.empty()) break;
      wrong = Wrong(&got[static_cast<size_t>(block * kGroups * kM * kN)], a.data(), b.data(),
                    kGroups * kM, kN, kK, 1);
    }
    if (wrong.empty()) {
      way.wrong.clear();
      way.layout = one.name;
      way.teraflops =
          Rate(options, 2.0 * kGroups * kM * kN * kK * static_cast<double>(shape.grid_x), multiply);
      return way;
    }
    way.wrong += (way.wrong.empty() ? "" : "; ") + std::string(one.name) + ": " + wrong;
  }
  return way;
}

#endif

std::string Json(const Way& way) {
  std::string out = "{\"way\": " + gpu::Quoted(way.name);
  out += ", \"teraflops\": " + (way.teraflops > 0 ? gpu::Number(way.teraflops) : "null");
  if (!way.layout.empty()) out += ", \"layout\": " + gpu::Quoted(way.layout);
  return out + ", \"wrong\": " + gpu::Quoted(way.wrong) + "}";
}

int Main(int argc, char** argv) {
  Options options;
  if (argc == 3 && std::strcmp(argv[1], "--rounds") == 0) options.rounds = std::atoll(argv[2]);
  if ((argc != 1 && argc != 3) || options.rounds < 1) {
    std::fprintf(stderr, "usage: %s [--rounds N]\n", argv[0]);
    return 2;
  }
  gpu::Facts facts;
  std::string why;
  if (!gpu::OpenDevice(&facts, &why)) {
    std::fprintf(stderr, "%s: no device: %s\n", argv[0], why.c_str());
    return 4;
  }
  std::vector<Way> ways;
  const auto run = [&](const char* name, Way (*multiply)(const gpu::Facts&, const Options&)) {
    try {
      ways.push_back(multiply(facts, options));
    } catch (const std::exception& error) {
      ways.push_back({name, 0, error.what(), ""});
    }
  };
  run("mma.sync", ByWarps);
#if defined(__CUDACC__)
  // Last: after an instruction that the device refuses, nothing runs any more.
  if (facts.limits.major == 9 && facts.limits.minor == 0) run("wgmma", ByGroups);
#endif
  bool right = true;
  std::string list;
  for (const Way& way : ways) {
    right = right && way.wrong.empty();
    list += (list.empty() ? "" : ", ") + Json(way);
  }
  std::printf("{\"record\": \"matrix\", \"timed\": %s, \"ways\": [%s]}\n",
              facts.timed ? "true" : "false", list.c_str());
  return right ? 0 : 1;
}

}  // namespace
}  // namespace peak
}  // namespace graft

int main(int argc, char** argv) { return graft::peak::Main(argc, argv); }
