// The vector code of every instruction set against plain loops, on memory as large as it may be
// read.
#include "kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "graft/type.h"

namespace graft {
namespace top_k {
namespace {

// Floats that end where their memory ends, begun anywhere.
std::vector<float> Scores(std::mt19937& random, int64_t n, float mean, float deviation) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> scores(static_cast<size_t>(n));
  for (float& x : scores) x = normal(random);
  return scores;
}

TEST(Kernel, PassFindsAndSums) {
  for (const Isa isa : kIsas) {
    const Kernel* kernel = FindKernel(isa);
    if (kernel == nullptr) continue;
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
      const int64_t n = std::uniform_int_distribution<int64_t>(1, 700)(random);
      const float mean = static_cast<float>(std::uniform_int_distribution<int>(-900, 900)(random));
      std::vector<float> x = Scores(random, n, mean, round % 3 == 0 ? 40.0f : 3.0f);
      if (round % 5 == 0) x[static_cast<size_t>(n / 2)] = -std::numeric_limits<float>::infinity();
      const float threshold = mean + 1;
      std::vector<Found> want;
      double sum = 0, greatest = -INFINITY;
      for (const float v : x) greatest = std::max<double>(greatest, v);
      for (int64_t i = 0; i < n; ++i) {
        const float v = x[static_cast<size_t>(i)];
        sum += std::exp(v - greatest);
        if (v > threshold) want.push_back({v, static_cast<int32_t>(7 + i)});
      }
      for (const bool with_sum : {true, false}) {
        std::vector<Found> found(static_cast<size_t>(2 * kStrip));
        std::vector<Found> got;
        Pass pass;
        pass.found = found.data();
        pass.capacity = 2 * kStrip;
        pass.threshold = threshold;
        // Sometimes far below, so that it must rise on the way.
        pass.reference = round % 2 == 0 ? x[0] : std::numeric_limits<float>::lowest();
        if (!std::isfinite(pass.reference)) pass.reference = std::numeric_limits<float>::lowest();
        for (int64_t done = 0; done < n;) {
          done += (with_sum ? kernel->pass_sum : kernel->pass)(x.data() + done, n - done, 7 + done,
                                                               &pass);
          got.insert(got.end(), found.data(), found.data() + pass.count);
          pass.count = 0;  // the caller makes room
        }
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i].value, want[i].value);
          ASSERT_EQ(got[i].token, want[i].token);
        }
        float maximum = -INFINITY;
        double total = 0;
        for (int lane = 0; lane < Pass::kLanes; ++lane) {
          maximum = std::max(maximum, pass.maximum[lane]);
          total += pass.sum[lane];
        }
        ASSERT_EQ(maximum, static_cast<float>(greatest));
        if (!with_sum) continue;
        ASSERT_NEAR(std::log(total) + pass.reference, std::log(sum) + greatest,
                    1e-6 + 1e-7 * std::fabs(greatest))
            << "mean " << mean << ", reference " << pass.reference;
      }
    }
  }
}

TEST(Kernel, BadScoresShowInTheSum) {
  for (const Isa isa : kIsas) {
    const Kernel* kernel = FindKernel(isa);
    if (kernel == nullptr) continue;
    for (const float bad : {NAN, INFINITY}) {
      for (int64_t n = 1; n < 300; n += 7) {
        for (int64_t at = 0; at < n; at += 5) {
          std::vector<float> x(static_cast<size_t>(n), -1.0f);
          x[static_cast<size_t>(at)] = bad;
          for (const bool with_sum : {true, false}) {
            Found found[2 * kStrip];
            Pass pass;
            pass.found = found;
            pass.capacity = 2 * kStrip;
            pass.threshold = 10;
            (with_sum ? kernel->pass_sum : kernel->pass)(x.data(), n, 0, &pass);
            double total = 0;
            for (const float lane : pass.sum) total += lane;
            ASSERT_FALSE(total < INFINITY) << bad << " at " << at << " of " << n;
          }
        }
      }
    }
  }
}

TEST(Kernel, ExponentialsAreAccurate) {
  for (const Isa isa : kIsas) {
    const Kernel* kernel = FindKernel(isa);
    if (kernel == nullptr) continue;
    std::vector<float> x, y(100001);
    for (int i = 0; i <= 100000; ++i) x.push_back(-86.0f * static_cast<float>(i) / 100000);
    const double sum = kernel->exponentials(x.data(), 100001, 0.0f, y.data());
    double want = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = std::exp(static_cast<double>(x[i]));
      want += e;
      // The rounding of x * log2(e) is in it.
      ASSERT_LE(std::fabs(y[i] / e - 1), 3e-7 + 1e-7 * std::fabs(x[i])) << x[i];
    }
    EXPECT_NEAR(sum / want, 1, 1e-6);
    const float edges[] = {-INFINITY, -1e30f, -200.0f, 0.0f, NAN};
    kernel->exponentials(edges, 5, 0.0f, y.data());
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(y[3], 1);
    EXPECT_TRUE(std::isnan(y[4]));
  }
}

TEST(Kernel, ChunkMaximaAndWidening) {
  std::mt19937 random(3);
  for (const Isa isa : kIsas) {
    const Kernel* kernel = FindKernel(isa);
    if (kernel == nullptr) continue;
    const std::vector<float> x = Scores(random, 1000, 0, 5);
    for (const int64_t chunk : {16, 64}) {
      std::vector<float> maxima(static_cast<size_t>(1000 / chunk));
      kernel->chunk_maxima(x.data(), 1000, chunk, maxima.data());
      for (int64_t c = 0; c < 1000 / chunk; ++c) {
        ASSERT_EQ(maxima[static_cast<size_t>(c)],
                  *std::max_element(x.begin() + c * chunk, x.begin() + (c + 1) * chunk));
      }
    }
    // Every pattern of 16 bits, at lengths that are no multiple of a vector.
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(bits.size());
    for (const int64_t n : {65536, 65529}) {
      kernel->widen(Type::kFloat16, bits.data(), n, wide.data());
      for (int64_t i = 0; i < n; ++i) {
        const float want = Float16{static_cast<uint16_t>(i)}.ToFloat();
        ASSERT_TRUE(wide[static_cast<size_t>(i)] == want ||
                    (std::isnan(want) && std::isnan(wide[static_cast<size_t>(i)])))
            << i;
      }
      kernel->widen(Type::kBFloat16, bits.data(), n, wide.data());
      for (int64_t i = 0; i < n; ++i) {
        uint32_t word;
        std::memcpy(&word, &wide[static_cast<size_t>(i)], 4);
        ASSERT_EQ(word, static_cast<uint32_t>(i) << 16);
      }
    }
  }
}

}  // namespace
}  // namespace top_k
}  // namespace graft
