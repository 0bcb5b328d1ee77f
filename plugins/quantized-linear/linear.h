// y = x W + b where x and W are integers of eight bits, on the CPU: raw pointers, no runtime.
//
// x is rounded as ONNX's DynamicQuantizeLinear rounds it, and what follows is done in the order and
// the precision in which ONNX Runtime does it: all results have the bits of its own.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_LINEAR_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "norm.h"

namespace graft {
namespace quantized {

// Columns of a panel of W, and integers of one column that lie side by side in it: those that one
// instruction multiplies and adds up.
constexpr int64_t kPanelColumns = 16;
constexpr int64_t kDepthStep = 4;

// How rows of heads lie: one row after the other; batch, heads, positions, size; or batch, heads,
// size, positions.
enum class Layout { kRows, kHeads, kHeadsTransposed };

// W, packed. Arrays have one element a column, zeros beyond the last one up to a whole panel.
struct Weight {
  int64_t columns = 0;  // N
  const int8_t* panels =
      nullptr;                    // [N / 16, rounded up][K / 4, rounded up][16][4], as Pack made it
  const int32_t* sums = nullptr;  // of the integers of a column
  const int32_t* zeros = nullptr;  // that stand for 0; none where all are 0
  const float* scales = nullptr;
  const float* bias = nullptr;  // or none
  bool gelu = false;            // of x W + b
  float* y = nullptr;
  Layout layout = Layout::kRows;
};

// Most weights that one x is multiplied with.
constexpr int kMaxWeights = 3;

// One call. Outputs must not overlap anything else.
struct Problem {
  int64_t rows = 0;   // M
  int64_t depth = 0;  // K

  // x is floats, which are rounded first, or integers with a scale and the integer that stands for
  // 0.
  const float* x = nullptr;           // [M, K], or as x_layout says
  Layout x_layout = Layout::kRows;    // kRows or kHeads
  const uint8_t* integers = nullptr;  // [M, K]
  float scale = 0.0f;
  uint8_t zero = 0;

  // Heads, and rows of one sequence: M is a number of sequences. Where a layout is not kRows.
  int64_t heads = 0;
  int64_t positions = 0;

  int weight_count = 0;
  Weight weights[kMaxWeights];

  // Of the y of a single weight, of rows one after the other.
  Norm norm;

  // Of x, where an operator before has found it, and for that of the y of a single weight.
  bool x_range_known = false, y_range_wanted = false;
  const Range* x_range = nullptr;
  Range* y_range = nullptr;
};

// Runs task(argument, i) for every i in [0, count), in any order and on any threads, and returns
// when all are done. `threads` is how many run at once at most. With parallel_for == nullptr the
// caller's thread does everything.
struct Runner {
  void (*parallel_for)(void* context, int64_t count, void (*task)(void* argument, int64_t index),
                       void* argument) = nullptr;
  void* context = nullptr;
  int64_t threads = 1;
};

// kVnni needs AVX-512 with VNNI; kPortable runs everywhere.
enum class Code { kBest, kPortable, kVnni };

// Whether this CPU, and this build, runs it.
bool Supports(Code code);

// W, [K, N] and compact, as panels. Bytes of unsigned integers are moved by 128, and so must be the
// integers that stand for 0. sums has one element a column of all panels.
size_t PackedBytes(int64_t depth, int64_t columns);
int64_t PackedColumns(int64_t columns);
void Pack(const uint8_t* weight, bool is_signed, int64_t depth, int64_t columns, int8_t* panels,
          int32_t* sums);

// Bytes of scratch that Run needs. Both calls must see the same sizes, threads and code.
size_t WorkspaceSize(const Problem& problem, int64_t threads);

// Computes the problem. False, and outputs are of no use, where x has NaN: what becomes of those
// depends on where they stand. Allocates nothing, throws nothing and retains nothing. workspace
// needs no alignment.
bool Run(const Problem& problem, void* workspace, const Runner& runner, Code code = Code::kBest);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_LINEAR_H_
