// What the machine can do, measured beside every figure of the kernel.
#ifndef GRAFT_PLUGINS_FLASH_DECODE_BENCH_MACHINE_H_
#define GRAFT_PLUGINS_FLASH_DECODE_BENCH_MACHINE_H_

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "attention.h"

namespace graft {
namespace attention {
namespace bench {

// Seconds on a clock. With `own_time` of the calling thread alone: other programs then disturb a
// single-threaded figure through the caches and the memory bus only.
inline double Now(bool own_time) {
  if (own_time) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs body(i) for i in [0, count) through a runner.
template <class Body>
void ParallelFor(const Runner& runner, int64_t count, Body& body) {
  if (runner.parallel_for == nullptr) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  runner.parallel_for(
      runner.context, count,
      [](void* argument, int64_t index) { (*static_cast<Body*>(argument))(index); }, &body);
}

// Reads bytes and returns something that depends on them.
inline int64_t ReadAll(const char* from, size_t bytes) {
  int64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    int64_t line[8];
    std::memcpy(line, from + i, 64);
    for (int k = 0; k < 8; ++k) sums[k] ^= line[k];
  }
  int64_t sum = 0;
  for (int64_t s : sums) sum ^= s;
  return sum;
}

// Copies bytes past the caches; both ends are aligned to 64.
inline void StreamCopy(const char* from, char* to, size_t bytes) {
#if defined(__SSE2__)
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    _mm_prefetch(from + i + 2048, _MM_HINT_T0);
    for (size_t k = 0; k < 64; k += 16) {
      const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + k));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k), v);
    }
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// Multiplies and adds on registers alone, kChains independent sums at a time; returns their number.
template <class Vector, int kChains>
inline __attribute__((always_inline)) double MultiplyAndAdd(float* to) {
  constexpr int64_t kTimes = 200000;
  constexpr int kFloats = sizeof(Vector) / sizeof(float);
  Vector sums[kChains], factor, term;
  for (int f = 0; f < kFloats; ++f) factor[f] = 0.5f, term[f] = 0.25f;
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) sums[i] = term * static_cast<float>(i);
  for (int64_t k = 0; k < kTimes; ++k) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + term;
  }
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) *to += sums[i][0];
  return 2.0 * kTimes * kChains * kFloats;
}
using Vector4 = float __attribute__((vector_size(16)));
#if defined(__x86_64__)
using Vector8 = float __attribute__((vector_size(32)));
using Vector16 = float __attribute__((vector_size(64)));
__attribute__((target("avx512f"), noinline)) inline double WorkOnVectors16(float* to) {
  return MultiplyAndAdd<Vector16, 24>(to);
}
__attribute__((target("avx2,fma"), noinline)) inline double WorkOnVectors8(float* to) {
  return MultiplyAndAdd<Vector8, 12>(to);
}
#endif

// Floating point operations a second of one thread, at most.
inline double PeakRate(bool own_time) {
  float sink = 0.0f;
  double best = 0.0;
  for (int repetition = 0; repetition < 9; ++repetition) {
    const double start = Now(own_time);
    double work = 0.0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
      work = WorkOnVectors16(&sink);
    } else if (__builtin_cpu_supports("fma")) {
      work = WorkOnVectors8(&sink);
    }
#endif
    if (work == 0.0) work = MultiplyAndAdd<Vector4, 12>(&sink);
    best = std::max(best, work / (Now(own_time) - start));
  }
  volatile float kept = sink;
  (void)kept;
  return best;
}

// A pool as a host makes it: one mapping, in huge pages but where SMALL_PAGES is set, filled.
class PoolMemory {
 public:
  explicit PoolMemory(size_t floats) : bytes_((floats * 4 + (2 << 20)) >> 21 << 21) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    if (std::getenv("SMALL_PAGES") == nullptr) madvise(at, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<float*>(at);
    for (size_t i = 0; i < floats; ++i) data_[i] = static_cast<float>(i % 997) * 1e-3f - 0.5f;
  }
  ~PoolMemory() { munmap(data_, bytes_); }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;
  float* data() const { return data_; }

 private:
  size_t bytes_;
  float* data_;
};

// The middle of a list of times.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
inline double Least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace bench
}  // namespace attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_FLASH_DECODE_BENCH_MACHINE_H_
