// From q k^T to the weight of a softmax.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_SCORE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_SCORE_CUH_

#include "tile.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;
GRAFT_DEVICE float NegativeInfinity() { return __int_as_float(static_cast<int32_t>(0xff800000)); }

// score = q k^T * factor; weight = 2^((score - maximum) * unit). Where nothing is done to scores
// they are taken times log2(e) at once. A fill of the lowest number would overflow that way.
struct Units {
  float factor, unit;
  bool plain;  // scores are q k^T times factor
};
GRAFT_DEVICE Units UnitsOf(const Problem& p) {
  const float scale = p.scale != 0 ? p.scale : 1.0f / sqrtf(static_cast<float>(p.head_size));
  const bool plain = p.softcap <= 0 && p.bias.data == nullptr && p.mask.data == nullptr &&
                     p.distance_bias == nullptr;
  return plain ? Units{scale * kLog2E, 1.0f, true} : Units{scale, kLog2E, false};
}

GRAFT_DEVICE float Softcapped(const Problem& p, float s) {
  return p.softcap > 0 ? p.softcap * tanhf(s / p.softcap) : s;
}

// Adds what a bias says. One of -inf makes the score -inf whatever it was, NaN included.
GRAFT_DEVICE float Biased(float s, float bias) {
  return bias == NegativeInfinity() ? bias : s + bias;
}

// The score of a visible key after mask and biases. `token` counts within the group, `head` all
// query heads.
template <typename T>
GRAFT_DEVICE float Masked(const Problem& p, const Tile& tile, int32_t token, int64_t head,
                          int32_t position, float s) {
  if (p.bias.data != nullptr || p.mask.data != nullptr) {
    float bias = 0;
    if (p.bias.data != nullptr) {
      const Strides& at = p.bias.strides;
      bias = ToFloat(static_cast<const T*>(
          p.bias.data)[RowOffset(p, tile, at, head, token) + position * at.feature]);
    }
    if (p.mask_after_bias) s = Biased(s, bias);
    if (p.mask.data != nullptr) {
      const Strides& at = p.mask.strides;
      if (static_cast<const uint8_t*>(
              p.mask.data)[RowOffset(p, tile, at, head, token) + position * at.feature] == 0) {
        s = p.mask_fill;
      }
    }
    if (!p.mask_after_bias) s = Biased(s, bias);
  }
  if (p.distance_bias != nullptr) {
    int64_t distance = tile.Position(token) - position;
    if (distance > p.distances - 1) distance = p.distances - 1;
    if (distance < 0) distance = 0;
    const int64_t row = (int64_t{tile.first_row} + token) * p.distance_bias_stride;
    s = Biased(s, p.distance_bias[row + head * p.distances + distance]);
  }
  return s;
}

// The state of a row's softmax over the keys seen so far: Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018, algorithm 3.
struct alignas(8) State {
  float maximum, sum;
};

// Whether a row has no weights, or none that may be seen.
GRAFT_DEVICE bool Weightless(const Problem& p, const State& state) {
  if (p.clear_nan && state.sum != state.sum) return true;
  return state.maximum == NegativeInfinity() && state.sum == 0;
}
// The value of such a row.
GRAFT_DEVICE float Lost(const Problem& p, const Tile& tile) {
  const bool zeros = p.zero_masked_rows || p.clear_nan || tile.keyless;
  return zeros ? 0.0f : __int_as_float(0x7fffffff);
}

// Any finite base gives weights of 0 while all scores are -inf.
GRAFT_DEVICE float BaseOf(float maximum) { return maximum == NegativeInfinity() ? 0.0f : maximum; }
GRAFT_DEVICE float WeightOf(float score, float base, float unit) {
  return exp2f((score - base) * unit);
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_SCORE_CUH_
