// The CUDA variant on the emulator, through the plugin's table, against the CPU one.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "host.h"

namespace graft::test {
namespace {

TEST(FusedGeluCuda, ServesTheDevice) {
  const graft_plugin* table = Load(CUDA_LIBRARY);
  EXPECT_EQ(table->describe()->device_type, GRAFT_DEVICE_CUDA);
  for (const int32_t type : {GRAFT_DEVICE_CUDA, GRAFT_DEVICE_CPU}) {
    const graft_device device{type, 0};
    graft_probe_result result{};
    result.size = sizeof result;
    Message message;
    ASSERT_EQ(table->probe(&device, &result, &message.c), GRAFT_OK);
    EXPECT_EQ(result.score > 0, type == GRAFT_DEVICE_CUDA) << message.text;
  }
}

TEST(FusedGeluCuda, AnswersAsTheCpuVariant) {
  std::mt19937 random(11);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> shape(static_cast<size_t>(pick(0, 3)));
    for (int64_t& size : shape) size = pick(0, 20);
    const bool half = pick(0, 1) == 1;
    const DataType type = half ? kFloat16 : kFloat32;
    const auto shift = static_cast<uint64_t>(pick(0, 3) == 0 ? pick(0, 15) : 0);
    Buffer x(type, shape, shift), cuda(type, shape, shift), cpu(type, shape);
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      if (half) {
        x.data<Float16>()[i] = Float16::From(normal(random));
      } else {
        x.data<float>()[i] = normal(random);
      }
    }
    const Attributes attributes =
        std::move(Attributes().String("approximate", pick(0, 1) == 1 ? "tanh" : "none"));
    for (const auto& [path, y] : {std::pair(CUDA_LIBRARY, &cuda), std::pair(CPU_LIBRARY, &cpu)}) {
      Kernel kernel(Load(path), "FusedGelu");
      ASSERT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
      ASSERT_EQ(kernel.Run({x.tensor()}, {y->tensor()}), GRAFT_OK) << kernel.message.text;
    }
    for (int64_t i = 0; i < count; ++i) {
      const double got = half ? cuda.data<Float16>()[i].ToFloat() : cuda.data<float>()[i];
      const double want = half ? cpu.data<Float16>()[i].ToFloat() : cpu.data<float>()[i];
      const double bound = half ? 1e-6 + 1e-3 * std::abs(want) : 1e-6 + 1e-6 * std::abs(want);
      ASSERT_LE(std::abs(got - want), bound) << "element " << i << " round " << round;
    }
    ASSERT_TRUE(x.intact() && cuda.intact()) << round;
  }
}

TEST(FusedGeluCuda, RefusesAnUnknownForm) {
  Kernel kernel(Load(CUDA_LIBRARY), "FusedGelu");
  EXPECT_EQ(kernel.Create(Attributes().String("approximate", "erf")), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text, "approximate is erf, needed is none or tanh");
}

}  // namespace
}  // namespace graft::test
