// Results of parts of the keys, and their joining by log-sum-exp (Dao et al.: Flash-Decoding,
// 2023).
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_PARTS_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_PARTS_CUH_

#include "groups.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

// Where a kernel leaves what it has found: in the problem's output where `count` is 1, otherwise as
// part `first` + blockIdx.y of all.
struct Parts {
  int32_t count = 1;
  int32_t first = 0;
  float* rows = nullptr;  // [count][tokens * heads][width]
  float* lse = nullptr;   // [count][tokens * heads]
};

// A row of results: whole, or a part.
template <typename T>
struct Place {
  void* row;
  Type type;
  float* lse;  // or none

  GRAFT_DEVICE Place(const Problem& p, const Parts& parts, int32_t part, int64_t row_index) {
    if (parts.count == 1) {
      type = p.output_type;
      row = static_cast<char*>(p.output) +
            row_index * p.output_stride * (type == Type::kFloat32 ? sizeof(float) : sizeof(T));
      lse = p.lse == nullptr ? nullptr : p.lse + row_index;
    } else {
      const int64_t at = (int64_t{parts.first} + part) * p.tokens * p.heads + row_index;
      type = Type::kFloat32;
      row = parts.rows + at * p.rows.width;
      lse = parts.lse + at;
    }
  }
};

constexpr int32_t kMergeThreads = 128;

// Block x joins the parts of row x.
template <typename T>
__global__ void __launch_bounds__(kMergeThreads) MergeKernel(Problem p, Parts parts) {
  WaitForLaunch();
  LetNextBegin();
  const int64_t row = blockIdx.x, rows = int64_t{p.tokens} * p.heads;
  float maximum = NegativeInfinity();
  for (int32_t part = 0; part < parts.count; ++part) {
    maximum = fmaxf(maximum, parts.lse[part * rows + row]);
  }
  const bool seen = maximum > NegativeInfinity();
  const auto weight = [&](int32_t part) {
    return exp2f((parts.lse[part * rows + row] - maximum) * kLog2E);
  };
  float sum = 0.0f;
  for (int32_t part = 0; seen && part < parts.count; ++part) sum += weight(part);
  const float inverse = seen ? 1.0f / sum : 0.0f;
  Parts whole;
  const Place<T> place(p, whole, 0, row);
  if (threadIdx.x == 0 && place.lse != nullptr) {
    *place.lse = seen ? maximum + log2f(sum) * kLn2 : NegativeInfinity();
  }
  const int32_t width = p.rows.width;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t vectors = width % 4 == 0 ? width / 4 : 0;
  for (int32_t v = thread; v < vectors; v += kMergeThreads) {
    float x[4] = {};
#pragma unroll 4
    for (int32_t part = 0; part < (seen ? parts.count : 0); ++part) {
      const float share = weight(part) * inverse;
      float y[4];
      LoadVector(parts.rows + (part * rows + row) * width + v * 4, y);
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) x[i] += share * y[i];
    }
    PutFour<T>(place.row, place.type, v * 4, x);
  }
  for (int32_t c = vectors * 4 + thread; c < width; c += kMergeThreads) {
    float x = 0.0f;
    for (int32_t part = 0; seen && part < parts.count; ++part) {
      x += weight(part) * inverse * parts.rows[(part * rows + row) * width + c];
    }
    Put<T>(place.row, place.type, c, x);
  }
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_PARTS_CUH_
