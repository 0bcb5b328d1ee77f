// Slim attention at its plainest: a block computes one head of one token, by equation 2.1 as it
// stands. It supports every size, stride, type and alignment, needs no workspace, and reads a row
// once for every head and token.
//
// With `values`, V = K W_KV is there already and is what is added up: option 1 of section 2.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SIMPLE_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SIMPLE_CUH_

#include <algorithm>

#include "../device/launch.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

constexpr int32_t kSimpleThreads = 128;   // keys of a step
constexpr int32_t kSimpleColumns = 2048;  // of a row, added up at once

struct SimpleArguments {
  Problem problem;
  const float* values;  // [KeysOf(problem)][heads][value_size], by place in the lists; or none
};

// The group of a token, and the token's place in it; false where no group has it.
GRAFT_DEVICE bool FindGroup(const Problem& p, int64_t token, Group* group, int64_t* place) {
  for (int64_t g = 0; g < p.groups; ++g) {
    *group = GroupAt(p, g);
    *place = token - group->first;
    if (*place >= 0 && *place < group->tokens) return true;
  }
  return false;
}

// Place of key j in the lists: the row of `values`.
GRAFT_DEVICE int64_t ValueRow(const Problem& p, const Group& g, int64_t token, int64_t j) {
  if (p.sequences == nullptr) return g.index * p.positions + j;
  if (j < g.shared) return g.shared_offset + j;
  return p.shared_length + g.private_offset + token * g.private_count + j - g.shared;
}

// The largest, or the sum, over the block. `scratch` has a float a warp.
template <bool Largest>
GRAFT_DEVICE float BlockReduce(float x, float* scratch) {
  x = Largest ? WarpMax(x) : WarpSum(x);
  __syncthreads();  // nobody reads what the last call left there
  if (Lane() == 0) scratch[WarpIndex()] = x;
  __syncthreads();
  x = scratch[0];
  for (int32_t w = 1; w < kSimpleThreads / kWarp; ++w) {
    x = Largest ? fmaxf(x, scratch[w]) : x + scratch[w];
  }
  return x;
}

class SimpleBlock {
 public:
  GRAFT_DEVICE SimpleBlock(const SimpleArguments& a, int64_t token, int64_t head)
      : a_(a), p_(a.problem), token_(token), head_(head), thread_(threadIdx.x) {
    auto* memory = reinterpret_cast<int64_t*>(SharedMemory());
    places_ = memory;
    columns_ = reinterpret_cast<float*>(memory + kSimpleThreads);
    weights_ = columns_ + kSimpleColumns;
    scratch_ = weights_ + kSimpleThreads;
    outputs_ = scratch_ + kSimpleThreads / kWarp;
  }
  static int64_t SharedBytes(const Problem& p) {
    return 8 * kSimpleThreads +
           4 * (kSimpleColumns + kSimpleThreads + kSimpleThreads / kWarp + p.value_size);
  }

  GRAFT_DEVICE void Run() {
    if (!FindGroup(p_, token_, &group_, &place_)) return;
    const bool values = a_.values != nullptr;
    const int64_t columns = values ? p_.value_size : WidthOf(p_);
    for (int64_t begin = 0; begin < columns; begin += kSimpleColumns) {
      const auto count = static_cast<int32_t>(min(int64_t{kSimpleColumns}, columns - begin));
      AddUp(begin, count);
      for (int64_t c = thread_; c < p_.value_size; c += kSimpleThreads) {
        if (!values) {
          outputs_[c] = (begin > 0 ? outputs_[c] : 0.0f) + Contract(begin, count, c);
        } else if (c >= begin && c < begin + count) {
          outputs_[c] = columns_[c - begin];
        }
      }
      __syncthreads();
    }
    for (int64_t c = thread_; c < p_.value_size; c += kSimpleThreads) Write(c, outputs_[c] / sum_);
    if (p_.skipped != nullptr && thread_ == 0) {
      p_.skipped[token_ * p_.heads + head_] = sum_ > 0.0f ? left_out_ / sum_ : 0.0f;
    }
  }

 private:
  // The weighted sum of some columns, and with it the softmax, over all keys.
  GRAFT_DEVICE void AddUp(int64_t begin, int32_t count) {
    for (int32_t c = thread_; c < count; c += kSimpleThreads) columns_[c] = 0.0f;
    __syncthreads();  // without keys, what follows reads them at once
    highest_ = NegativeInfinity();
    sum_ = left_out_ = 0.0f;
    for (int64_t j = 0; j < group_.keys(); j += kSimpleThreads) {
      const float score = ScoreOf(j + thread_);
      const float highest = fmaxf(highest_, BlockReduce<true>(score, scratch_));
      const bool seen = score != NegativeInfinity();
      const float weight = seen ? expf(score - highest) : 0.0f;
      const float rescale = highest_ == NegativeInfinity() ? 0.0f : expf(highest_ - highest);
      const bool small = weight < p_.skip;
      sum_ = sum_ * rescale + BlockReduce<false>(weight, scratch_);
      left_out_ = left_out_ * rescale + BlockReduce<false>(small ? weight : 0.0f, scratch_);
      highest_ = highest;
      if (Seeded(1) && WarpIndex() == 0) Linger();
      weights_[thread_] = small ? 0.0f : weight;
      if (!Seeded(1)) __syncthreads();
      const auto keys = static_cast<int32_t>(min(int64_t{kSimpleThreads}, group_.keys() - j));
      for (int32_t c = thread_; c < count; c += kSimpleThreads) {
        float x = columns_[c] * rescale;
        for (int32_t k = 0; k < keys; ++k) {
          if (weights_[k] != 0.0f) x += weights_[k] * ValueOf(j + k, places_[k], begin + c);
        }
        columns_[c] = x;
      }
      __syncthreads();
    }
  }

  // This thread's score; where its row stands is left for all.
  GRAFT_DEVICE float ScoreOf(int64_t j) {
    int64_t row = -1;
    if (j < group_.keys() && Sees(p_, group_.Position(place_) - j)) {
      const int64_t slot = j < group_.shared ? SharedSlot(p_, group_, j)
                                             : PrivateSlot(p_, group_, place_, j - group_.shared);
      if (HasAngle(p_, j)) row = RowOfSlot(p_, group_, slot);
    }
    places_[thread_] = row;
    if (row < 0) return NegativeInfinity();
    const int64_t query = token_ * p_.query_stride + head_ * p_.head_size;
    const bool turn = p_.rotary != Rotary::kNone && !p_.rotated;
    float dot = 0.0f;
    for (int32_t c = 0; c < p_.head_size; ++c) {
      dot += ReadAs(p_.query, p_.type, query + c) * Element(row, head_, c, j, turn, false);
    }
    return Score(p_, head_, group_.Position(place_) - j, dot * ScaleOf(p_));
  }

  // Feature c of a head of a row, turned by its position or back by it.
  GRAFT_DEVICE float Element(int64_t row, int64_t head, int32_t c, int64_t position, bool turn,
                             bool back) const {
    const int64_t slice = row + head * p_.head_size;
    const float x = ReadAs(p_.rows, p_.row_type, slice + c);
    const Turn t = TurnOf(p_, c);
    if (!turn || !t.turns) return x;
    return Turned(p_, t, position, back, x, ReadAs(p_.rows, p_.row_type, slice + t.partner));
  }

  // Column of what is added up: of the value, or of the whole row as it was projected.
  GRAFT_DEVICE float ValueOf(int64_t j, int64_t row, int64_t column) const {
    if (a_.values != nullptr) {
      return a_
          .values[(ValueRow(p_, group_, place_, j) * p_.heads + head_) * p_.value_size + column];
    }
    return Element(row, column / p_.head_size, static_cast<int32_t>(column % p_.head_size), j,
                   p_.rotated, true);
  }

  // What some columns of the sum give for column c of the output.
  GRAFT_DEVICE float Contract(int64_t begin, int32_t count, int64_t c) const {
    const int64_t weight = head_ * p_.weight_head + c / kPanel * p_.weight_panel + c % kPanel;
    float x = 0.0f;
    for (int32_t f = 0; f < count; ++f) {
      x += columns_[f] *
           ReadAs(p_.value_weight, p_.weight_type, weight + (begin + f) * p_.weight_row);
    }
    return x;
  }

  // Without a key there is nothing to add up: zeros. Keys of no weight give NaN, as a softmax does.
  GRAFT_DEVICE void Write(int64_t c, float x) const {
    if (p_.value_bias != nullptr) x += p_.value_bias[head_ * p_.value_size + c];
    WriteAs(p_.output, p_.type, token_ * p_.output_stride + head_ * p_.value_size + c,
            group_.keys() > 0 ? x : 0.0f);
  }

  const SimpleArguments& a_;
  const Problem& p_;
  int64_t token_, head_;
  int32_t thread_;
  Group group_;
  int64_t place_;
  int64_t* places_;  // [kSimpleThreads], rows of the step's keys
  float* columns_;   // [kSimpleColumns]
  float* weights_;   // [kSimpleThreads]
  float* scratch_;
  float* outputs_;  // [value_size]
  float highest_, sum_, left_out_;
};

template <int32_t kThreads>
__global__ void __launch_bounds__(kThreads, 8) SimpleKernel(SimpleArguments a) {
  const int64_t rows = a.problem.tokens * a.problem.heads;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    SimpleBlock(a, row / a.problem.heads, row % a.problem.heads).Run();
    __syncthreads();
  }
}

inline Status RunSimple(const Problem& problem, const float* values, Stream stream) {
  LaunchShape shape;
  shape.grid_x = std::min(problem.tokens * problem.heads, int64_t{1} << 20);
  shape.threads = kSimpleThreads;
  shape.shared_bytes = SimpleBlock::SharedBytes(problem);
  return Launch(&SimpleKernel<kSimpleThreads>, shape, stream, SimpleArguments{problem, values});
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_SIMPLE_CUH_
