// Matmuls with W_KV by multiplications of float32, and values made of rows by them, where these
// come first.
//
// A block multiplies kContractRows rows by 64 columns of one head's weight, some hundred features
// at a time: rows stand in shared memory as [feature][row], so that a thread takes one weight and
// all rows of a feature with two 16-byte loads.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CONTRACT_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CONTRACT_CUH_

#include <algorithm>

#include "../device/launch.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

constexpr int32_t kContractThreads = 256;
constexpr int32_t kContractRows = 8;
constexpr int32_t kContractFeatures = 512;                     // at a time
constexpr int32_t kContractLanes = kContractThreads / kPanel;  // threads that share a column
constexpr int32_t kContractPanels = kContractColumns / kPanel;
// Rows, which the last sums take the place of.
constexpr int32_t kContractFloats = std::max(
    kContractRows * kContractFeatures, kContractLanes* kPanel*(kContractRows* kContractPanels + 1));

// What a block of a grid over (columns, head, rows) computes.
struct ContractPlace {
  int64_t head, row0;
  int64_t column0;

  GRAFT_DEVICE ContractPlace(const Problem& p, int64_t block) {
    const int64_t columns = (p.value_size + kContractColumns - 1) / kContractColumns;
    column0 = block % columns * kContractColumns;
    head = block / columns % p.heads;
    row0 = block / columns / p.heads * kContractRows;
  }
  static int64_t Blocks(const Problem& p, int64_t rows) {
    return CeilDivide(p.value_size, kContractColumns) * p.heads * CeilDivide(rows, kContractRows);
  }
};

// Fill(row, feature) gives a number of the left side, Store(row, column, x) takes one of the
// output; rows are 0 .. kContractRows - 1, of which the caller's own bound says which there are.
template <typename W, typename Fill, typename Store>
GRAFT_DEVICE void Contract(const Problem& p, const ContractPlace& at, int32_t rows,
                           const Fill& fill, const Store& store) {
  auto* left = reinterpret_cast<float*>(SharedMemory());
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t column = thread % kPanel, lane = thread / kPanel;
  const auto width = static_cast<int32_t>(WidthOf(p));
  const auto* weight = static_cast<const W*>(p.value_weight) + at.head * p.weight_head +
                       at.column0 / kPanel * p.weight_panel + column;
  float sums[kContractPanels][kContractRows] = {};
  for (int32_t begin = 0; begin < width; begin += kContractFeatures) {
    const int32_t count = min(kContractFeatures, width - begin);
    for (int32_t f = thread; f < count; f += kContractThreads) {
      float x[kContractRows];
#pragma unroll
      for (int32_t r = 0; r < kContractRows; ++r) x[r] = r < rows ? fill(r, begin + f) : 0.0f;
#pragma unroll
      for (int32_t r = 0; r < kContractRows; r += 4) {
        const float four[4] = {x[r], x[r + 1], x[r + 2], x[r + 3]};
        StoreVector(left + f * kContractRows + r, four);
      }
    }
    __syncthreads();
    for (int32_t f = lane; f < count; f += kContractLanes) {
      float x[kContractRows];
#pragma unroll
      for (int32_t r = 0; r < kContractRows; r += 4) {
        float four[4];
        LoadVector(left + f * kContractRows + r, four);
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) x[r + i] = four[i];
      }
#pragma unroll
      for (int32_t panel = 0; panel < kContractPanels; ++panel) {
        if (at.column0 + panel * kPanel + column >= p.value_size) break;
        const float w = ToFloat(weight[panel * p.weight_panel + (begin + f) * p.weight_row]);
#pragma unroll
        for (int32_t r = 0; r < kContractRows; ++r) sums[panel][r] += x[r] * w;
      }
    }
    __syncthreads();
  }
  // The lanes' sums, added up.
  constexpr int32_t kMine = kContractPanels * kContractRows + 1;
#pragma unroll
  for (int32_t panel = 0; panel < kContractPanels; ++panel) {
#pragma unroll
    for (int32_t r = 0; r < kContractRows; ++r) {
      left[thread * kMine + panel * kContractRows + r] = sums[panel][r];
    }
  }
  __syncthreads();
  for (int32_t i = thread; i < rows * kContractColumns; i += kContractThreads) {
    const int32_t row = i / kContractColumns, c = i % kContractColumns;
    if (at.column0 + c >= p.value_size) continue;
    float x = 0.0f;
    for (int32_t l = 0; l < kContractLanes; ++l) {
      x += left[(l * kPanel + c % kPanel) * kMine + c / kPanel * kContractRows + row];
    }
    store(row, at.column0 + c, x);
  }
}

struct ValueArguments {
  Problem problem;
  float* values;  // [keys][heads][value_size], by place in the lists
  int64_t keys;
};

// V = K W_KV of every place in the lists.
template <typename W>
__global__ void __launch_bounds__(kContractThreads, 2) ValueKernel(ValueArguments a) {
  const Problem& p = a.problem;
  const ContractPlace at(p, blockIdx.x);
  const auto rows = static_cast<int32_t>(min(int64_t{kContractRows}, a.keys - at.row0));
  // Where a place's row stands, and its position, which only rows that are turned back need.
  const auto row_of = [&](int64_t place, int64_t* position) {
    Group group = {};
    *position = 0;
    if (p.sequences != nullptr) {
      return RowOfSlot(p, group,
                       place < p.shared_length ? p.shared_slots[place]
                                               : p.private_slots[place - p.shared_length]);
    }
    group = GroupAt(p, place / p.positions);
    *position = place % p.positions;
    if (!HasAngle(p, *position) || *position >= group.shared) return int64_t{-1};
    return RowOfSlot(p, group, *position);
  };
  const auto head_size = static_cast<int32_t>(p.head_size);
  const auto fill = [&](int32_t row, int32_t f) {
    int64_t position;
    const int64_t from = row_of(at.row0 + row, &position);
    if (from < 0) return 0.0f;
    const float x = ReadAs(p.rows, p.row_type, from + f);
    const Turn turn = TurnOf(p, f % head_size);
    if (!p.rotated || !turn.turns) return x;
    const float y = ReadAs(p.rows, p.row_type, from + f - f % head_size + turn.partner);
    return Turned(p, turn, position, true, x, y);
  };
  const auto store = [&](int32_t row, int64_t c, float x) {
    a.values[((at.row0 + row) * p.heads + at.head) * p.value_size + c] = x;
  };
  Contract<W>(p, at, rows, fill, store);
}

template <typename Arguments>
Status RunContract(void (*kernel)(Arguments), const Arguments& arguments, int64_t rows,
                   int32_t splits, bool dependent, Stream stream) {
  LaunchShape shape;
  shape.grid_x = ContractPlace::Blocks(arguments.problem, rows);
  shape.threads = kContractThreads;
  shape.shared_bytes = 4 * (kContractFloats + kContractRows * splits);
  shape.dependent = dependent;
  return Launch(kernel, shape, stream, arguments);
}

inline Status RunValues(const ValueArguments& a, Stream stream) {
  switch (a.problem.weight_type) {
    case Type::kFloat16:
      return RunContract(&ValueKernel<Half>, a, a.keys, 0, false, stream);
    case Type::kBFloat16:
      return RunContract(&ValueKernel<BFloat16>, a, a.keys, 0, false, stream);
    default:
      return RunContract(&ValueKernel<float>, a, a.keys, 0, false, stream);
  }
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_CONTRACT_CUH_
