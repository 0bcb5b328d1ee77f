// Logits processing and top-k selection at their simplest, a block a group: each row as floats in a
// workspace, worked on stage by stage, and the best taken one after the other. Supports any k, and
// groups that sample (sample.cuh).
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SIMPLE_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SIMPLE_CUH_

#include "sample.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// Rows as they are processed: values [rows, vocab], and for each row what normalize subtracts from
// the scores that are returned.
struct Workspace {
  float* values;
  float* shifts;
};

// log(sum exp) of a row in two numbers: the greatest and the logarithm of the rest.
GRAFT_DEVICE void LogSumExp(const float* values, int64_t vocab, float* scratch, float* greatest,
                            float* log) {
  float mine = Nothing();
  for (int64_t t = threadIdx.x; t < vocab; t += blockDim.x) mine = fmaxf(mine, values[t]);
  *greatest = MaxAll(mine, scratch);
  *log = 0;
  if (*greatest == Nothing()) return;
  double sum = 0;
  for (int64_t t = threadIdx.x; t < vocab; t += blockDim.x) sum += Weight(values[t], *greatest);
  *log = static_cast<float>(::log(TotalAll(sum, scratch)));
}

GRAFT_DEVICE void Subtract(float* values, int64_t vocab, float greatest, float log) {
  if (greatest == Nothing()) return;
  for (int64_t t = threadIdx.x; t < vocab; t += blockDim.x) values[t] = values[t] - greatest - log;
  __syncthreads();
}

// Computes a row up to the edits, and for log-probabilities up to normalize. Reports a fault.
template <typename T>
GRAFT_DEVICE void WorkOut(const Problem& p, const Group& group, int64_t row, float* values,
                          float* shift, int32_t* numbers, float* scratch, Fault* fault) {
  const T* scores = static_cast<const T*>(p.scores) + row * p.stride;
  if (threadIdx.x == 0) numbers[0] = INT32_MAX;
  __syncthreads();
  for (int64_t t = threadIdx.x; t < p.vocab; t += blockDim.x) {
    values[t] = ToFloat(scores[t]);
    if (IsBad(values[t])) atomicMin(numbers, static_cast<int32_t>(t));
  }
  __syncthreads();
  const int32_t bad = numbers[0];
  if (bad != INT32_MAX) return Tell(fault, kBadScore, row, bad, ToFloat(scores[bad]));

  float greatest, log;
  if (group.mode == kLogProbs || (group.mode == kSample && group.log_softmax)) {
    LogSumExp(values, p.vocab, scratch, &greatest, &log);
    Subtract(values, p.vocab, greatest, log);
  }
  __syncthreads();
  const auto ban = [&](int64_t token) { values[token] = Nothing(); };
  if (WarpIndex() == 0) ForEachIndexBan(p, row, ban);
  ForEachHistoryBan(p, row, numbers + 1, ban);
  __syncthreads();
  int32_t first, last;
  if (!EditsOf(p, row, &first, &last)) return Tell(fault, kBadRequest, row, -1, 0);
  for (int32_t e = first; e < last; ++e) {
    const int32_t token = p.edit_tokens[e], op = p.edit_ops[e];
    if (token < 0 || token >= p.vocab || op < kAdd || op > kOnly) {
      return Tell(fault, kBadRequest, row, token, 0);
    }
    if (op == kOnly) {
      for (int64_t t = threadIdx.x; t < p.vocab; t += blockDim.x) values[t] = Nothing();
    }
    __syncthreads();
    if (threadIdx.x == 0) values[token] = Edit(op, p.edit_values[e], values[token]);
    __syncthreads();
  }
  if (threadIdx.x == 0) *shift = 0;
  if (!group.normalize || group.mode == kSample) return;
  LogSumExp(values, p.vocab, scratch, &greatest, &log);
  if (group.mode == kLogProbs) return Subtract(values, p.vocab, greatest, log);
  if (threadIdx.x == 0 && greatest > Nothing()) *shift = greatest + log;
}

// The best pair of row and token after `last`, by all threads; key -inf where there is none.
GRAFT_DEVICE Ranked NextBest(const Problem& p, const Group& group, const Workspace& work,
                             const Ranked& last, Ranked* shared) {
  Ranked best = {Nothing(), INT32_MAX, INT32_MAX, 0};
  for (int64_t r = group.first; r < group.first + group.count; ++r) {
    const float bias = p.bias != nullptr ? p.bias[r] : 0;
    for (int64_t t = threadIdx.x; t < p.vocab; t += blockDim.x) {
      const float key = work.values[r * p.vocab + t] + bias;
      const Ranked here = {key, static_cast<int32_t>(r), static_cast<int32_t>(t), key};
      if (key > Nothing() && Before(last, here) && Before(here, best)) best = here;
    }
  }
#pragma unroll
  for (int32_t step = kWarp / 2; step > 0; step /= 2) {
    const Ranked other = {__shfl_xor_sync(kAllLanes, best.key, step),
                          __shfl_xor_sync(kAllLanes, best.row, step),
                          __shfl_xor_sync(kAllLanes, best.token, step), 0};
    if (Before(other, best)) best = other;
  }
  __syncthreads();
  if (Lane() == 0) shared[WarpIndex()] = best;
  __syncthreads();
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w) {
    if (Before(shared[w], best)) best = shared[w];
  }
  __syncthreads();
  return best;
}

// Whether another group has rows of this one, which the workspace has room for once.
GRAFT_DEVICE bool Overlaps(const Problem& p, const Group& group, int64_t g) {
  bool mine = false;
  for (int64_t i = threadIdx.x; p.groups != nullptr && i < p.count; i += blockDim.x) {
    const int64_t first = p.groups[i * kGroupFields], count = p.groups[i * kGroupFields + 1];
    mine = mine || (i != g && first < group.first + group.count && group.first < first + count);
  }
  return __syncthreads_or(mine) != 0;
}

template <typename T>
__global__ void __launch_bounds__(512, 1) Simple(Problem p, Outputs out, Workspace work) {
  auto* numbers = reinterpret_cast<int32_t*>(SharedMemory());
  auto* scratch = reinterpret_cast<float*>(SharedMemory() + 256);
  for (int64_t g = blockIdx.x; g < p.count; g += gridDim.x) {
    const Group group = ReadGroup(p, g, out.width);
    Fault fault = {kNone, -1, -1, 0};
    if (!group.good || Overlaps(p, group, g)) Tell(&fault, kBadRequest, group.first, -1, 0);
    for (int64_t r = 0; r < group.count && fault.kind == kNone; ++r) {
      const int64_t row = group.first + r;
      float* values = work.values + row * p.vocab;
      WorkOut<T>(p, group, row, values, work.shifts + row, numbers, scratch, &fault);
      __syncthreads();
      if (group.mode == kSample && fault.kind == kNone) {
        Warp(group, values, p.vocab, p.bias != nullptr ? p.bias[row] : 0, numbers, scratch);
      }
    }
    __syncthreads();
    int32_t found = 0;
    const auto put = [&](const Ranked& one) {
      if (threadIdx.x == 0) {
        const int64_t at = g * out.width + found;
        out.scores[at] = one.score;
        out.rows[at] = one.row;
        out.tokens[at] = one.token;
      }
      ++found;
    };
    if (fault.kind == kNone && group.mode == kSample) {
      Between(p, group, work.values + group.first * p.vocab, numbers, scratch, put);
    } else if (fault.kind == kNone) {
      Ranked last = {__uint_as_float(0x7f800000u), -1, -1, 0};
      while (found < group.k) {
        last = NextBest(p, group, work, last, reinterpret_cast<Ranked*>(scratch));
        if (!(last.key > Nothing())) break;
        Ranked told = last;
        told.score = last.key - work.shifts[last.row];
        put(told);
      }
    }
    PutRest(out, g, fault, group.first, found);
    __syncthreads();
  }
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SIMPLE_CUH_
