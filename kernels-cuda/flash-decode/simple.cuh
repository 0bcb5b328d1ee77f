// The algorithm at its plainest, a block a row, head and range of columns: any sizes, any strides,
// masks as tensors, scores as an output. The reference that the fast kernels are read against.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_SIMPLE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_SIMPLE_CUH_

#include "score.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

// What the threads of a block share.
template <typename T>
struct SimpleMemory {
  float sums[kSimpleColumns];
  float weights[kSimpleThreads];
  const T* values[kSimpleThreads];
  float reduced[kWarps];
};

// The largest, or the sum, over the block, known to all threads.
template <bool kMaximum>
GRAFT_DEVICE float OverBlock(float x, float* reduced) {
  x = kMaximum ? WarpMax(x) : WarpSum(x);
  if (Lane() == 0) reduced[WarpIndex()] = x;
  __syncthreads();
  x = reduced[0];
  for (int32_t i = 1; i < kWarps; ++i) x = kMaximum ? fmaxf(x, reduced[i]) : x + reduced[i];
  __syncthreads();
  return x;
}

template <typename T>
GRAFT_DEVICE float Product(const T* query, int64_t query_step, const T* key, int64_t key_step,
                           int64_t size) {
  float sum = 0;
  for (int64_t f = 0; f < size; ++f) {
    sum += ToFloat(query[f * query_step]) * ToFloat(key[f * key_step]);
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kSimpleThreads) SimpleKernel(Problem p, Cut cut) {
  auto& memory = *reinterpret_cast<SimpleMemory<T>*>(SharedMemory());
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float scale = p.scale != 0 ? p.scale : 1.0f / sqrtf(static_cast<float>(p.head_size));
  T* const scores = static_cast<T*>(p.scores.data);

  for (int64_t item = blockIdx.x; item < cut.items; item += gridDim.x) {
    const int64_t index = item % cut.tiles;
    const auto kv_head = static_cast<int32_t>(item / cut.tiles % p.kv_heads);
    const int64_t column0 = item / cut.tiles / p.kv_heads * kSimpleColumns;
    const Tile tile = FindTile(p, cut, index);
    if (tile.group < 0) continue;
    const int32_t token = tile.token0;
    const int64_t head = kv_head * (p.heads / p.kv_heads) + tile.head0;
    const T* query =
        static_cast<const T*>(p.query.data) + RowOffset(p, tile, p.query.strides, head, token);
    const Sight sight = SightOf(p, tile, token);
    // The early stages of the scores show q k^T of hidden keys too.
    const auto first = scores != nullptr ? 0 : sight.low;
    const auto last = scores != nullptr ? static_cast<int32_t>(p.keys) : sight.high;
    const int64_t columns = min(p.value_size - column0, static_cast<int64_t>(kSimpleColumns));
    const int64_t scores_at =
        scores != nullptr ? RowOffset(p, tile, p.scores.strides, head, token) : 0;
    const bool writes_scores = scores != nullptr && column0 == 0;

    // The score of position j, written out as it passes the wanted stage.
    const auto score_at = [&](int32_t j, bool writes, const T** value) {
      *value = nullptr;
      const auto write = [&](ScoresStage stage, float s) {
        if (writes && p.scores_stage == stage) {
          scores[scores_at + j * p.scores.strides.feature] = FromFloat<T>(s);
        }
      };
      const Found<T> found = Find<T>(p, tile, {j, j < tile.shared ? -1 : 0}, kv_head);
      if (found.key == nullptr) return NegativeInfinity();
      const bool old = p.places != Places::kContiguous || j < p.past;
      const Strides& k = old ? p.key.strides : p.fresh_key.strides;
      float s = scale * Product(query, p.query.strides.feature, found.key, k.feature, p.head_size);
      write(ScoresStage::kProduct, s);
      s = Softcapped(p, s);
      write(ScoresStage::kSoftcapped, s);
      const bool seen = j >= sight.low && j < sight.high;
      s = seen ? Masked<T>(p, tile, token, head, j, s) : NegativeInfinity();
      write(ScoresStage::kMasked, s);
      *value = found.value;
      return s;
    };

    State state{NegativeInfinity(), 0.0f};
    for (int64_t c = thread; c < columns; c += kSimpleThreads) memory.sums[c] = 0;
    for (int32_t begin = first; begin < last; begin += kSimpleThreads) {
      const int32_t j = begin + thread;
      const T* value = nullptr;
      const float s = j < last ? score_at(j, writes_scores, &value) : NegativeInfinity();
      const float highest = OverBlock<true>(s, memory.reduced);
      // A NaN among scores may be lost in the maximum; it reaches the sum either way.
      const float maximum = fmaxf(state.maximum, highest);
      const float weight = j < last ? WeightOf(s, BaseOf(maximum), kLog2E) : 0.0f;
      const float shrink = WeightOf(state.maximum, BaseOf(maximum), kLog2E);
      state.sum = state.sum * shrink + OverBlock<false>(weight, memory.reduced);
      state.maximum = maximum;
      memory.weights[thread] = weight;
      memory.values[thread] = value;
      __syncthreads();
      const int32_t count = min(kSimpleThreads, last - begin);
      for (int64_t c = thread; c < columns; c += kSimpleThreads) {
        float sum = memory.sums[c] * shrink;
        for (int32_t k = 0; k < count; ++k) {
          // What has no weight may hold anything.
          if (memory.weights[k] == 0 || memory.values[k] == nullptr) continue;
          const bool old = p.places != Places::kContiguous || begin + k < p.past;
          const Strides& v = old ? p.value.strides : p.fresh_value.strides;
          sum += memory.weights[k] * ToFloat(memory.values[k][(column0 + c) * v.feature]);
        }
        memory.sums[c] = sum;
      }
      __syncthreads();
    }

    const bool weightless = Weightless(p, state);
    const float factor = weightless ? Lost(p, tile) : 1.0f / state.sum;
    T* output = static_cast<T*>(p.output.data) + RowOffset(p, tile, p.output.strides, head, token);
    for (int64_t c = thread; c < columns; c += kSimpleThreads) {
      output[(column0 + c) * p.output.strides.feature] =
          FromFloat<T>(weightless ? factor : memory.sums[c] * factor);
    }
    if (p.lse != nullptr && column0 == 0 && thread == 0) {
      const int64_t row = IsPool(p) ? tile.first_row : tile.group * p.rows;
      p.lse[(row + token) * p.heads + head] =
          weightless ? NegativeInfinity() : state.maximum + logf(state.sum);
    }
    if (writes_scores && p.scores_stage == ScoresStage::kProbabilities) {
      for (int32_t j = thread; j < last; j += kSimpleThreads) {
        const T* value;
        const float s = score_at(j, false, &value);
        const float weight =
            weightless ? factor : WeightOf(s, BaseOf(state.maximum), kLog2E) * factor;
        scores[scores_at + j * p.scores.strides.feature] = FromFloat<T>(weight);
      }
    }
    __syncthreads();
  }
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_SIMPLE_CUH_
