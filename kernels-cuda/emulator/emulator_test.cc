// The emulator finds what a GPU would do wrong in silence, and computes what a GPU would.
#include "emulator.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "../device/async_copy.cuh"
#include "../device/launch.cuh"
#include "../device/matrix.cuh"
#include "../device/warp.cuh"

namespace graft {
namespace cuda {
namespace {

LaunchShape Shape(int64_t blocks, int32_t threads, int64_t shared = 0, int32_t cluster = 1) {
  LaunchShape shape;
  shape.grid_x = blocks;
  shape.threads = threads;
  shape.shared_bytes = shared;
  shape.cluster = cluster;
  return shape;
}

// The fault that `run` ends with, for some seed of a few; empty where none does.
template <typename Run>
std::string FaultOf(const Run& run) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    emulator::Seed(seed);
    try {
      run();
    } catch (const emulator::Fault& fault) {
      return fault.what();
    }
  }
  return "";
}

__global__ void Reverse(const float* from, float* to, bool barrier) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
  if (barrier) __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Emulator, BarriersOrderAndTheirLackShows) {
  std::vector<float> from(5 * 96), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  for (const bool barrier : {true, false}) {
    int wrong = 0;
    ASSERT_EQ(Launch(Reverse, Shape(5, 96, 96 * 4), nullptr, from.data(), to.data(), barrier), kOk);
    for (size_t i = 0; i < to.size(); ++i) wrong += to[i] != from[i / 96 * 96 + 95 - i % 96];
    EXPECT_EQ(wrong == 0, barrier) << wrong;
  }
}

__global__ void Diverge() {
  if (threadIdx.x < 32) __syncthreads();
  if (threadIdx.x >= 32) BarrierSync(1, 64);
}
__global__ void MeetElsewhere(int* out) {
  *out = Lane() < 16 ? __shfl_xor_sync(kAllLanes, 1, 1) : __any_sync(kAllLanes, 1);
}
__global__ void ReachTooSoon() { *ClusterMap(SharedMemory(), 1 - ClusterRank()) = 1; }
__global__ void EndTooSoon() {
  ClusterSync();
  *ClusterMap(SharedMemory(), 1 - ClusterRank()) = 1;
}
__global__ void ReachAfterArrival() {
  ClusterSync();
  ClusterArrive();
  *ClusterMap(SharedMemory(), 1 - ClusterRank()) = 1;
  ClusterWait();
}
__global__ void WritePast() { SharedMemory()[100 + threadIdx.x] = 1; }
__global__ void CopyAstray(const float* from) { CopyAsync<16>(SharedMemory() + 4, from); }

TEST(Emulator, NamesFaults) {
  const auto launch = [](void (*kernel)(), int64_t shared) {
    return FaultOf([=] { Launch(kernel, Shape(1, 64, shared), nullptr); });
  };
  EXPECT_NE(launch(Diverge, 0).find("wait for ones that never come"), std::string::npos);
  EXPECT_NE(launch(WritePast, 128).find("after its shared memory"), std::string::npos);
  EXPECT_EQ(launch(WritePast, 164), "");
  EXPECT_NE(FaultOf([] {
              Launch(ReachTooSoon, Shape(2, 32, 16, 2), nullptr);
            }).find("may not have begun"),
            std::string::npos);
  for (void (*kernel)() : {EndTooSoon, ReachAfterArrival}) {
    const std::string fault = FaultOf([&] { Launch(kernel, Shape(2, 32, 16, 2), nullptr); });
    EXPECT_TRUE(fault.find("may still use") != std::string::npos ||
                fault.find("that has ended") != std::string::npos)
        << fault;
  }
  int out = 0;
  EXPECT_NE(FaultOf([&] { Launch(MeetElsewhere, Shape(1, 32), nullptr, &out); }).find("meet in"),
            std::string::npos);
  alignas(16) float from[4] = {};
  EXPECT_NE(FaultOf([&] {
              Launch(CopyAstray, Shape(1, 1, 64), nullptr, from);
            }).find("not a multiple of 16"),
            std::string::npos);
  EXPECT_EQ(Launch(Diverge, Shape(1, 1025), nullptr), kBadLaunch);
  EXPECT_EQ(Launch(Diverge, Shape(0, 32), nullptr), kBadLaunch);
}

__global__ void CopyThrough(const float* from, float* to, bool wait) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  CopyAsync<16>(shared + 4 * threadIdx.x, from + 4 * threadIdx.x, threadIdx.x != 3);
  CopyCommit();
  if (wait) CopyWait<0>();
  __syncthreads();
  const uint32_t other = 31 - threadIdx.x;
  for (uint32_t i = 0; i < 4; ++i) to[4 * other + i] = shared[4 * other + i];
}

TEST(Emulator, CopiesArriveWhenWaitedFor) {
  alignas(16) float from[128], to[128];
  for (int i = 0; i < 128; ++i) from[i] = static_cast<float>(i + 1);
  for (const bool wait : {true, false}) {
    Launch(CopyThrough, Shape(1, 32, 512), nullptr, from, to, wait);
    for (int i = 0; i < 128; ++i) {
      if (wait) {
        EXPECT_EQ(to[i], i / 4 == 3 ? 0 : from[i]);
      } else {
        EXPECT_TRUE(std::isnan(to[i]));
      }
    }
  }
}

template <typename T>
__global__ void Product(const T* a, const T* b, float* d) {
  auto* shared = reinterpret_cast<uint16_t*>(SharedMemory());  // A [16][16], B [16][8] in rows of 8
  for (int32_t i = Lane(); i < 256; i += 32) shared[i] = a[i].bits;
  for (int32_t i = Lane(); i < 128; i += 32) shared[256 + i] = b[i].bits;
  __syncwarp();
  uint32_t left[4], right[4];
  LoadMatrices(left, shared + (Lane() % 16) * 16 + Lane() / 16 * 8);
  LoadMatrices<true>(right, shared + 256 + Lane() % 16 * 8);
  const uint32_t pair[2] = {right[0], right[1]};
  float sum[4] = {};
  Multiply<T>(sum, left, pair);
  const int32_t g = Lane() / 4, t = Lane() % 4;
  for (int32_t i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

template <typename T>
void CheckMatmul() {
  std::mt19937 random(1);
  T a[256], b[128];
  for (T& x : a) x = FromFloat<T>(static_cast<float>(random() % 200) / 64 - 1.5f);
  for (T& x : b) x = FromFloat<T>(static_cast<float>(random() % 200) / 64 - 1.5f);
  float d[128];
  Launch(Product<T>, Shape(1, 32, 768), nullptr, a, b, d);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double want = 0;
      for (int k = 0; k < 16; ++k) want += double{ToFloat(a[i * 16 + k])} * ToFloat(b[k * 8 + j]);
      EXPECT_NEAR(d[i * 8 + j], want, 1e-4);
    }
  }
}

TEST(Emulator, MultipliesFragments) {
  CheckMatmul<Half>();
  CheckMatmul<BFloat16>();
}

__global__ void SumOfCluster(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  if (threadIdx.x == 0) *shared = static_cast<float>(blockIdx.x + 1);
  ClusterSync();
  float sum = 0;
  for (int32_t rank = 0; rank < ClusterSize(); ++rank) sum += *ClusterMap(shared, rank);
  ClusterSync();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST(Emulator, ClustersShareMemory) {
  float out[8];
  Launch(SumOfCluster, Shape(8, 64, 16, 4), nullptr, out);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], i < 4 ? 10 : 26);
}

// In each round a block sends the next one a number, which arrives only after a wait. Two places
// take turns, since a neighbour may be a round ahead.
__global__ void Rounds(float* out, int32_t places, bool waits) {
  ClusterSync();  // all have begun
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int32_t next = (ClusterRank() + 1) % ClusterSize();
  float sum = 0;
  for (int32_t i = 0; i < 6; ++i) {
    ClusterMap(shared, next)[i % places * 32 + threadIdx.x] = static_cast<float>(i + 1);
    ClusterArrive();
    if (waits) ClusterWait();
    sum += shared[i % places * 32 + threadIdx.x];
    if (!waits) ClusterWait();
  }
  ClusterSync();
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}

TEST(Emulator, ClusterBarriersInTwoHalves) {
  const auto wrong = [](int32_t places, bool waits) {
    int count = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      emulator::Seed(seed);
      float out[64];
      Launch(Rounds, Shape(2, 32, 256, 2), nullptr, out, places, waits);
      for (const float x : out) count += !(x == 21);
    }
    return count;
  };
  EXPECT_EQ(wrong(2, true), 0);
  EXPECT_GT(wrong(1, true), 0);
  EXPECT_GT(wrong(2, false), 0);
}

__global__ void ArriveOnly() { ClusterArrive(); }

TEST(Emulator, AnArrivalIsWaitedFor) {
  EXPECT_NE(FaultOf([] {
              Launch(ArriveOnly, Shape(2, 32, 0, 2), nullptr);
            }).find("ended between ClusterArrive and ClusterWait"),
            std::string::npos);
}

__global__ void Write(float* out, float x) { out[blockIdx.x * blockDim.x + threadIdx.x] = x; }
// out = 2 * in, which the launch before writes; waits for it, or does not before it reads.
__global__ void Twice(const float* in, float* out, bool waits) {
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[at];
  WaitForLaunch();
  if (waits) x = in[at];
  LetNextBegin();
  out[at] = 2 * x;
}
__global__ void NeverWaits(float*) {}

TEST(Emulator, ADependentLaunchBeginsBeforeTheOtherHasRun) {
  LaunchShape first = Shape(3, 32), middle = Shape(3, 32), last = Shape(3, 32);
  first.followed = middle.dependent = middle.followed = last.dependent = true;
  for (const bool waits : {true, false}) {
    emulator::Seed(1);
    float x[96] = {}, y[96] = {}, z[96] = {};
    ASSERT_EQ(Launch(Write, first, nullptr, x, 3.0f), kOk);
    EXPECT_EQ(x[0], 0);  // not yet
    ASSERT_EQ(Launch(Twice, middle, nullptr, x, y, waits), kOk);
    ASSERT_EQ(Launch(Twice, last, nullptr, y, z, waits), kOk);
    int stale = 0;
    for (int i = 0; i < 96; ++i) stale += y[i] != 6 || z[i] != 12;
    EXPECT_EQ(stale == 0, waits) << stale;
  }
  float x[96] = {}, y[96] = {};
  ASSERT_EQ(Launch(Twice, last, nullptr, x, y, true), kOk);  // after a launch that has run
  EXPECT_NE(FaultOf([&] {
              Launch(Write, first, nullptr, x, 1.0f);
              Launch(NeverWaits, last, nullptr, x);
            }).find("without WaitForLaunch"),
            std::string::npos);
  EXPECT_NE(FaultOf([&] {
              Launch(Write, first, nullptr, x, 1.0f);
              Launch(Write, Shape(1, 32), nullptr, x, 1.0f);
            }).find("followed by a dependent one"),
            std::string::npos);
}

__global__ void Touch() { SharedMemory()[0] = 1; }

TEST(Launch, SharedLimitIsRaisedOnceADeviceAndNeverLowered) {
  const int64_t before = emulator::SharedLimitsSet();
  std::vector<std::thread> threads;
  std::vector<int> bad(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &bad] {
      for (int i = 0; i < 50; ++i) {
        try {
          bad[t] += Launch(Touch, Shape(1, 32, (i + t) % 2 == 0 ? 50 << 10 : 200 << 10), nullptr);
        } catch (const emulator::Fault&) {
          ++bad[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, std::vector<int>(4));
  EXPECT_EQ(emulator::SharedLimitsSet() - before, 1);
  std::thread([] {
    emulator::SetDevice(1);
    EXPECT_EQ(Launch(Touch, Shape(1, 32, 100 << 10), nullptr), kOk);
  }).join();
  EXPECT_EQ(emulator::SharedLimitsSet() - before, 2);
}

TEST(Launch, ClustersThatRunAtOnceAreThoseOfTheLimits) {
  LaunchShape shape = Shape(8, 32, 100 << 10);
  for (int i = 0; i < kClusterSizes; ++i) {
    shape.cluster = 1 << i;
    EXPECT_EQ(ActiveClusters(Touch, shape), DeviceLimits().clusters[i]);
  }
  shape.cluster = 3;  // of 8 blocks: no launch
  EXPECT_EQ(ActiveClusters(Touch, shape), 0);
}

__global__ void Reduce(const float* from, float* sum, float* maximum, int* order) {
  sum[threadIdx.x] = WarpSum(from[threadIdx.x]);
  maximum[threadIdx.x] = WarpMax<8>(from[threadIdx.x]);
  order[atomicAdd(order + 64, 1)] = static_cast<int>(threadIdx.x);
}

TEST(Emulator, ReducesInEveryOrder) {
  float from[64], sum[64], maximum[64];
  int order[65] = {}, other[65] = {};
  for (int i = 0; i < 64; ++i) from[i] = static_cast<float>(i * 7 % 64);
  for (int* list : {order, other}) {
    Launch(Reduce, Shape(1, 64), nullptr, from, sum, maximum, list);
  }
  EXPECT_NE(std::vector<int>(order, order + 64), std::vector<int>(other, other + 64));
  for (int i = 0; i < 64; ++i) {
    float want = 0, largest = 0;
    for (int j = 0; j < 32; ++j) want += from[i / 32 * 32 + j];
    for (int j = 0; j < 8; ++j) largest = std::max(largest, from[i / 8 * 8 + j]);
    EXPECT_EQ(sum[i], want);
    EXPECT_EQ(maximum[i], largest);
  }
}

TEST(Number, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    _Float16 exact;
    std::memcpy(&exact, &h, 2);
    const float wide = WidenHalf(h);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(wide, static_cast<float>(exact));
    EXPECT_EQ(NarrowToHalf(wide), h);
    EXPECT_EQ(NarrowToBFloat16(WidenBFloat16(h)), h);
  }
  std::mt19937 random(2);
  for (int i = 0; i < 1000000; ++i) {
    const float f = FloatOfBits(static_cast<uint32_t>(random()));
    if (std::isnan(f)) continue;
    const auto exact = static_cast<_Float16>(f);
    uint16_t bits;
    std::memcpy(&bits, &exact, 2);
    ASSERT_EQ(NarrowToHalf(f), bits) << f;
    const float down = FloatOfBits(BitsOfFloat(f) & 0xffff0000),
                up = FloatOfBits((BitsOfFloat(f) & 0xffff0000) + 0x10000),
                near = WidenBFloat16(NarrowToBFloat16(f));
    if (std::isinf(up)) continue;
    EXPECT_LE(std::abs(double{f} - near), std::abs(double{f} - down));
    EXPECT_LE(std::abs(double{f} - near), std::abs(double{f} - up));
  }
}

}  // namespace
}  // namespace cuda
}  // namespace graft
