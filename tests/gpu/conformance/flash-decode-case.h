// A problem of flash-decode as its tests know it, and its scores by the formula of problem.h.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_CASE_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_CASE_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "../../../kernels-cuda/flash-decode/problem.h"
#include "../check.h"
#include "../memory.h"

namespace graft {
namespace gpu {
namespace flash_decode {

namespace fd = cuda::flash_decode;
using cuda::Type;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// A tensor [batch, head, position, feature] with gaps, of NaN until it is set.
template <typename T>
struct Tensor {
  fd::Strides strides;
  int64_t sizes[4] = {0, 0, 0, 0};
  std::vector<T> data;

  // Axes from the outermost on, as `order` names them; `gap` numbers after each innermost run.
  Tensor(const int64_t (&size)[4], const char* order, int64_t gap, T fill) {
    int64_t* steps[4] = {&strides.batch, &strides.head, &strides.position, &strides.feature};
    int64_t step = 1;
    for (int i = 3; i >= 0; --i) {
      const int axis = static_cast<int>(std::string("bhsd").find(order[i]));
      *steps[axis] = step;
      step *= std::max<int64_t>(1, size[axis]);
      if (i == 3) step += gap;
    }
    std::copy(size, size + 4, sizes);
    data.assign(static_cast<size_t>(step), fill);
  }
  size_t At(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return static_cast<size_t>(b * strides.batch + h * strides.head + s * strides.position +
                               d * strides.feature);
  }
};

template <typename T>
T Nan() {
  return Narrow<T>(std::numeric_limits<double>::quiet_NaN());
}

template <typename T>
constexpr Type kType = std::is_same_v<T, float>        ? Type::kFloat32
                       : std::is_same_v<T, cuda::Half> ? Type::kFloat16
                                                       : Type::kBFloat16;

// One problem: what the kernel gets, and all that its answer follows from.
template <typename T>
struct Case {
  fd::Problem p;
  std::vector<std::unique_ptr<Tensor<T>>> tensors;
  // What stands on the device.
  std::vector<std::unique_ptr<Array<T>>> arrays;
  std::vector<std::unique_ptr<Array<int32_t>>> lists;
  std::unique_ptr<Array<int64_t>> lengths64_array;
  std::unique_ptr<Array<T>> query_array, bias_array;
  std::unique_ptr<Array<uint8_t>> mask_array;
  std::unique_ptr<Array<float>> distance_array;

  // Group and row within it of every row, in the order of the output's rows, and what it sees.
  struct Row {
    int64_t group, row, position, keys, shared;
  };
  std::vector<Row> rows;
  // Where key (or value) j of a row stands: a tensor, and batch and position in it; -1: nowhere.
  struct Spot {
    const Tensor<T>* tensor;
    int64_t batch, position;
  };
  std::function<Spot(const Row&, int64_t j, bool value)> find;
  std::vector<int64_t> lengths;

  std::unique_ptr<Tensor<T>> query, output, scores, bias;
  std::unique_ptr<Tensor<uint8_t>> mask;
  std::vector<float> distances;
  bool wants_scores = false;

  // The score of a row's key before the softmax, as the formula says; `hidden`: no row may read it.
  // Without dot it is the score where q k^T is 0.
  double ScoreOf(const Row& row, int64_t head, int64_t j, double dot, bool* hidden,
                 std::vector<double>* stages = nullptr) {
    const double scale = p.scale != 0 ? p.scale : 1 / std::sqrt(static_cast<double>(p.head_size));
    double s = scale * dot;
    if (stages != nullptr) stages->push_back(s);
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    if (stages != nullptr) stages->push_back(s);
    bool gone = find(row, j, false).batch < 0;
    const auto add = [&](double bias) {
      if (bias == kLowest) gone = true;
      s = bias == kLowest ? kLowest : static_cast<double>(static_cast<float>(s + bias));
    };
    const auto biased = [&] {
      if (bias != nullptr) add(Wide(bias->data[bias->At(row.group, head, row.row, j)]));
    };
    const bool has_columns = j < p.key_limit;
    if (has_columns && p.mask_after_bias) biased();
    if (has_columns && mask != nullptr && mask->data[mask->At(row.group, head, row.row, j)] == 0) {
      s = p.mask_fill;
      gone = s == kLowest;
    }
    if (has_columns && !p.mask_after_bias) biased();
    const int64_t distance = row.position - j;
    if (p.distances > 0) {
      const int64_t at = std::max<int64_t>(0, std::min(distance, p.distances - 1));
      add(distances[static_cast<size_t>(head * p.distances + at)]);
    }
    const bool ordered = p.causal || p.sequences != nullptr;
    if (j >= row.keys || j >= p.key_limit || (ordered && distance < 0) ||
        (p.window > 0 && distance >= p.window)) {
      gone = true;
    }
    if (gone) s = kLowest;
    *hidden = gone;
    if (stages != nullptr) stages->push_back(s);
    return s;
  }
};

}  // namespace flash_decode
}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_CASE_H_
