// GELU against float64.
#include <cmath>

#include "../../../kernels-cuda/gelu/gelu.cuh"
#include "../check.h"
#include "../memory.h"

namespace graft {
namespace gpu {
namespace {

template <typename T>
void ConformIn(Trial& trial, cuda::Type type) {
  const int64_t count = trial.random.Size(0, 20000);
  const bool tanh = trial.random.Chance(2);
  const bool in_place = trial.random.Chance(4);
  // One time in two both begin at a multiple of 16 bytes.
  const bool shifted = trial.random.Chance(2);
  const int64_t x_shift = shifted ? trial.random.Between(0, 8) : 0;
  const int64_t y_shift = shifted ? trial.random.Between(0, 8) : 0;
  cuda::DeviceLimits limits;
  limits.multiprocessors = static_cast<int32_t>(trial.random.Between(1, 4));  // several rounds
  trial.about << "type " << static_cast<int>(type) << ", " << count << " elements, shifts "
              << x_shift << ' ' << y_shift << (tanh ? ", tanh" : "")
              << (in_place ? ", in place" : "") << ", " << limits.multiprocessors
              << " multiprocessors";
  const std::vector<T> values = Numbers<T>(trial.random, count, -9, 9);
  Array<T> x(trial, values, x_shift), y(trial, count, y_shift);
  T* out = in_place ? x.data() : y.data();
  trial.Expect(cuda::gelu::Gelu<T>(x.data(), out, count, tanh, limits, nullptr));
  std::vector<double> want;
  for (const T& value : values) {
    const double v = Wide(value);
    const double inner = tanh ? std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))
                              : std::erf(v / std::sqrt(2.0));
    want.push_back(v / 2 * (1 + inner));
  }
  trial.Expect("y", (in_place ? x : y).Read(), want, ToleranceOf(type));
}

void Conform(Trial& trial) {
  switch (trial.random.Between(0, 2)) {
    case 0:
      return ConformIn<float>(trial, cuda::Type::kFloat32);
    case 1:
      return ConformIn<cuda::Half>(trial, cuda::Type::kFloat16);
    default:
      return ConformIn<cuda::BFloat16>(trial, cuda::Type::kBFloat16);
  }
}

GRAFT_CONFORM("gelu", Conform);

}  // namespace
}  // namespace gpu
}  // namespace graft
