// Samples from the rows of a group, after the warpers of Hugging Face's generation: by all threads
// of a block, on rows of floats in which -inf is out of the question. Nothing is sorted: whatever
// is taken from an order is found by bisection over the numbers' bits.
#ifndef GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SAMPLE_CUH_
#define GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SAMPLE_CUH_

#include "select.cuh"

namespace graft {
namespace cuda {
namespace logits_top_k {

// exp(value - greatest), in float32 as long as it does not vanish there: a sample without
// replacement may come to what is left when all else is taken.
GRAFT_DEVICE double Weight(float value, float greatest) {
  const float below = value - greatest;
  if (below > -80.0f) return static_cast<double>(expf(below));
  return value > Nothing() ? ::exp(static_cast<double>(below)) : 0.0;
}

// A probability as PyTorch's softmax of float32 has it.
GRAFT_DEVICE double Share(double weight, double sum) {
  return static_cast<double>(static_cast<float>(weight) * (1 / static_cast<float>(sum)));
}

// The greatest, or the sum, of all threads' numbers, known to all of them. `scratch` holds two
// floats a warp.
GRAFT_DEVICE float MaxAll(float mine, float* scratch) {
  mine = WarpMax(mine);
  __syncthreads();
  if (Lane() == 0) scratch[WarpIndex()] = mine;
  __syncthreads();
  float all = Nothing();
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w)
    all = fmaxf(all, scratch[w]);
  __syncthreads();
  return all;
}
GRAFT_DEVICE double TotalAll(double mine, float* scratch) {
  auto* wide = reinterpret_cast<double*>(scratch);
#pragma unroll
  for (int32_t step = kWarp / 2; step > 0; step /= 2)
    mine += __shfl_xor_sync(kAllLanes, mine, step);
  __syncthreads();
  if (Lane() == 0) wide[WarpIndex()] = mine;
  __syncthreads();
  double all = 0;
  for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x) / kWarp; ++w) all += wide[w];
  __syncthreads();
  return all;
}

// The tokens of one row that may still be sampled.
struct Items {
  float* values;
  int64_t vocab;
  int32_t* numbers;
  float* scratch;

  template <typename Use>
  GRAFT_DEVICE void ForEach(const Use& use) const {
    for (int64_t t = threadIdx.x; t < vocab; t += blockDim.x) {
      if (values[t] > Nothing()) use(values[t], static_cast<int32_t>(t));
    }
  }
  // How many there are of which `counts` is true; their weight.
  template <typename Counts>
  GRAFT_DEVICE int32_t Count(const Counts& counts) const {
    int32_t mine = 0;
    ForEach([&](float value, int32_t token) { mine += counts(value, token); });
    return CountAll(WholeBlock(), mine, numbers);
  }
  template <typename Counts>
  GRAFT_DEVICE double Mass(float greatest, const Counts& counts) const {
    double mine = 0;
    ForEach([&](float value, int32_t token) {
      if (counts(value, token)) mine += Weight(value, greatest);
    });
    return TotalAll(mine, scratch);
  }
  GRAFT_DEVICE float Greatest() const {
    float mine = Nothing();
    ForEach([&](float value, int32_t) { mine = fmaxf(mine, value); });
    return MaxAll(mine, scratch);
  }
  template <typename Stays>
  GRAFT_DEVICE void Keep(const Stays& stays) const {
    ForEach([&](float value, int32_t token) {
      if (!stays(value, token)) values[token] = Nothing();
    });
    __syncthreads();
  }
  // The k-th best, as OrderOf has it; 0 where there are fewer.
  GRAFT_DEVICE uint64_t KthOrder(int64_t k) const {
    return LastThat([&](uint64_t order) {
      return Count([&](float v, int32_t t) { return OrderOf(v, t) >= order; }) >= k;
    });
  }
};

// The number that is written as x is: 0.6 for the float32 that is nearest to it. 0 < x < 1.
GRAFT_DEVICE double Decimal(float x) {
  for (double scale = 10; scale < 1e22; scale *= 10) {
    const double wide = ::round(x * scale) / scale;
    if (static_cast<float>(wide) == x) return wide;
  }
  return static_cast<double>(x);
}

// Tokens go, worst first, of equals the lower ones first, while the probability gone is at most
// 1 - mass. Probabilities and their sum are float32, as PyTorch's, which decides at a boundary.
GRAFT_DEVICE void TopP(const Items& items, float mass, int64_t keep) {
  const float greatest = items.Greatest();
  const double sum = items.Mass(greatest, [](float, int32_t) { return true; });
  const auto most = static_cast<float>(1 - Decimal(mass));
  const auto order_of = [](float v, int32_t t) { return OrderOf(v, ~t); };
  const uint64_t kept = LastThat([&](uint64_t order) {
    return items.Count([&](float v, int32_t t) { return order_of(v, t) >= order; }) >= keep;
  });
  const uint64_t border = LastThat([&](uint64_t order) {
    double gone = 0;
    items.ForEach([&](float v, int32_t t) {
      if (order_of(v, t) < order) gone += Share(Weight(v, greatest), sum);
    });
    return static_cast<float>(TotalAll(gone, items.scratch)) <= most;
  });
  items.Keep(
      [&](float v, int32_t t) { return order_of(v, t) >= border || order_of(v, t) >= kept; });
}

// Tokens below `least` times the best probability go.
GRAFT_DEVICE void MinP(const Items& items, float least, int64_t keep) {
  const float greatest = items.Greatest();
  const double sum = items.Mass(greatest, [](float, int32_t) { return true; });
  const float border = least * static_cast<float>(Share(1, sum));
  const uint64_t kept = items.KthOrder(keep);
  items.Keep([&](float v, int32_t t) {
    return static_cast<float>(Share(Weight(v, greatest), sum)) >= border || OrderOf(v, t) >= kept;
  });
}

GRAFT_DEVICE uint64_t BitsOf(double x) {
#if defined(__CUDACC__)
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

// Tokens whose information lies nearest the row's entropy stay, up to a probability.
GRAFT_DEVICE void TypicalP(const Items& items, float mass, int64_t keep) {
  const float greatest = items.Greatest();
  const double sum = items.Mass(greatest, [](float, int32_t) { return true; });
  double mine = 0;
  items.ForEach([&](float v, int32_t) {
    const double share = Weight(v, greatest) / sum;
    if (share > 0) mine -= share * ::log(share);
  });
  const double entropy = TotalAll(mine, items.scratch);
  // Distances are not below 0, so their bits have their order.
  const auto distance = [&](float v) {
    return BitsOf(::fabs(-::log(Weight(v, greatest) / sum) - entropy));
  };
  const uint64_t border = LastThat([&](uint64_t bits) {
    double nearer = 0;
    items.ForEach([&](float v, int32_t) {
      if (distance(v) < bits) nearer += Share(Weight(v, greatest), sum);
    });
    return static_cast<float>(TotalAll(nearer, items.scratch)) < mass;
  });
  // Among the first `keep`: nearer than the farthest of them, or as near with a lower token.
  const uint64_t farthest = LastThat([&](uint64_t bits) {
    return items.Count([&](float v, int32_t) { return distance(v) < bits; }) < keep;
  });
  const int64_t nearer = items.Count([&](float v, int32_t) { return distance(v) < farthest; });
  const uint64_t last_token = LastThat([&](uint64_t token) {
    return items.Count([&](float v, int32_t t) {
      return distance(v) == farthest && static_cast<uint64_t>(t) < token;
    }) < keep - nearer;
  });
  items.Keep([&](float v, int32_t t) {
    const uint64_t d = distance(v);
    return d <= border || d < farthest || (d == farthest && static_cast<uint64_t>(t) <= last_token);
  });
}

// The warpers, normalize and the bias of one row.
GRAFT_DEVICE void Warp(const Group& group, float* values, int64_t vocab, float bias,
                       int32_t* numbers, float* scratch) {
  const Items items{values, vocab, numbers, scratch};
  const bool cool = group.temperature != 0 && group.temperature != 1;
  if (cool) {
    items.ForEach([&](float v, int32_t t) { values[t] = v / group.temperature; });
    __syncthreads();
  }
  const auto size = [&] { return items.Count([](float, int32_t) { return true; }); };
  const int64_t keep = group.min_keep > 1 ? group.min_keep : 1;
  if (size() == 0) return;
  const int64_t top_k = group.top_k > keep ? group.top_k : keep;
  if (group.top_k > 0 && size() > top_k) {
    const float least = ScoreOf(items.KthOrder(top_k));
    items.Keep([&](float v, int32_t) { return v >= least; });
  }
  if (group.top_p > 0 && group.top_p < 1 && size() > keep) TopP(items, group.top_p, keep);
  if (group.min_p > 0 && size() > keep) MinP(items, group.min_p, keep);
  if (group.typical_p > 0 && group.typical_p < 1) TypicalP(items, group.typical_p, keep);
  if (group.normalize) {
    const float greatest = items.Greatest();
    const double sum = items.Mass(greatest, [](float, int32_t) { return true; });
    const auto log = static_cast<float>(::log(sum));
    items.ForEach([&](float v, int32_t t) { values[t] = v - greatest - log; });
    __syncthreads();
  }
  if (bias != 0) items.ForEach([&](float v, int32_t t) { values[t] = v + bias; });
  __syncthreads();
}

// Samples from the group's rows, which follow each other in `values`. A random number u takes the
// first token, by row and then token, at which the running sum of weights exceeds u times their
// sum; with log_softmax without replacement. Calls put(candidate) on all threads.
template <typename Put>
GRAFT_DEVICE void Between(const Problem& p, const Group& group, float* values, int32_t* numbers,
                          float* scratch, const Put& put) {
  const int64_t count = group.count * p.vocab;
  const auto threads = static_cast<int64_t>(blockDim.x), thread = static_cast<int64_t>(threadIdx.x);
  const Items items{values, count, numbers, scratch};
  const float greatest = items.Greatest();
  if (greatest == Nothing()) return;
  double sum = items.Mass(greatest, [](float, int32_t) { return true; });
  const auto log = static_cast<float>(::log(sum));
  // Each thread has a run of tokens; which one holds the sample is found by the sums of the runs.
  const int64_t run = (count + threads - 1) / threads;
  const int64_t begin = thread * run < count ? thread * run : count;
  const int64_t end = begin + run < count ? begin + run : count;
  auto* sums = reinterpret_cast<double*>(scratch + 64);
  for (int32_t k = 0; k < group.k; ++k) {
    double mine = 0;
    for (int64_t i = begin; i < end; ++i) mine += Weight(values[i], greatest);
    __syncthreads();
    sums[thread] = mine;
    __syncthreads();
    double all = 0, before = 0;
    int64_t last = -1;  // the last run that holds anything
    for (int64_t i = 0; i < threads; ++i) {
      if (sums[i] > 0) last = i;
      all += sums[i];
    }
    if (last < 0) return;  // nothing possible is left
    const double target =
        static_cast<double>(p.random_numbers[group.first_random_number + k]) * all;
    int64_t holder = last;
    for (int64_t i = 0; i < last; ++i) {
      if (before + sums[i] > target) {
        holder = i;
        break;
      }
      before += sums[i];
    }
    if (thread == holder) {
      int64_t sampled = -1;
      for (int64_t i = begin; i < end; ++i) {
        const double weight = Weight(values[i], greatest);
        if (weight == 0) continue;
        sampled = i;
        if ((before += weight) > target) break;
      }
      numbers[2] = static_cast<int32_t>(sampled / p.vocab);
      numbers[3] = static_cast<int32_t>(sampled % p.vocab);
      scratch[0] = values[sampled];
      if (group.log_softmax) values[sampled] = Nothing();
    }
    __syncthreads();
    const float value = scratch[0];
    put(Ranked{value, static_cast<int32_t>(group.first + numbers[2]), numbers[3],
               group.log_softmax ? value : value - greatest - log});
    __syncthreads();
  }
}

}  // namespace logits_top_k
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_LOGITS_TOP_K_SAMPLE_CUH_
