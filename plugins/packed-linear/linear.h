// y = x W + b for few and many rows, on the CPU, float32: raw pointers, no runtime.
//
// W is read where it lies. A matmul of few rows is bound by memory: W is streamed once, in the
// order in which it lies, and is copied nowhere. For many rows blocks of W are packed into scratch.
// A W that lies in panels (Pack) is the fastest form for any number of rows.
#ifndef GRAFT_PLUGINS_PACKED_LINEAR_LINEAR_H_
#define GRAFT_PLUGINS_PACKED_LINEAR_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "graft/isa.h"
#include "graft_cache.h"

namespace graft {
namespace linear {

// What becomes of xW + b: x/2 (1 + erf(x / sqrt 2)), or its tanh form or x / (1 + exp(-1.702 x))
// (Hendrycks and Gimpel, 2016), or max(x, 0), or x / (1 + exp(-x)).
enum class Activation { kNone, kGelu, kGeluTanh, kGeluQuick, kRelu, kSilu };

// Layer normalization of a row (Ba, Kiros and Hinton, 2016): (x - mean) / sqrt(variance + epsilon)
// * scale + bias. That by the root mean square (Zhang and Sennrich, 2019) takes 0 for the mean.
struct Norm {
  const float* scale = nullptr;  // one a column; none: no normalization
  const float* bias = nullptr;   // one a column, or none
  float epsilon = 0.0f;
  bool centred = true;  // by the mean
};

// What a weight in panels is made of: quantized.h has the layouts.
enum class WeightType { kFloat32, kInt8, kInt4, kBFloat16 };

// What rows of x are multiplied as where weights are integers: rounded to integers of eight or of
// sixteen bits, a scale for each row and group (integers-inl.h has the formula), or as they are.
enum class RowType { kInt8, kInt16, kFloat32 };

// Matrices that one weight may hold side by side.
constexpr int64_t kMaxParts = 3;

// One call. y must not overlap anything else.
struct Problem {
  int64_t rows = 0;     // M
  int64_t depth = 0;    // K
  int64_t columns = 0;  // N

  const float* x = nullptr;       // [M, K]
  int64_t x_stride = 0;           // floats from one row to the next
  const float* weight = nullptr;  // [K, N], or [N, K] when transposed; compact; any alignment
  bool transposed = false;
  // weight is [columns / 16, rounded up][K][16], as Pack made it.
  bool panels = false;
  const float* bias = nullptr;  // [N] or none
  float* y = nullptr;           // [M, N]
  int64_t y_stride = 0;

  // y = after(activation(before(x) W + b) + residual), where weight lies in panels.
  Norm before = {};  // [K]
  Activation activation = Activation::kNone;
  const float* residual = nullptr;  // [M, N], or none
  int64_t residual_stride = 0;
  Norm after = {};  // [N]

  // y = activation(x V + a) (x W + b) where weight is V beside W and bias is a beside b, each of
  // whole panels, weight lies in panels and nothing is added or normalized after: [M, N / 2].
  bool gated = false;

  // Where weight lies in panels and N is of several matrices side by side, each has a y of its own,
  // [M, N / parts]: y is the first of them, and more are the others. The columns of each are whole
  // panels, and none is normalized after.
  int64_t parts = 1;
  float* more[kMaxParts - 1] = {};

  // Where panels are of another type than float32 they lie at `quantized`, as Quantize made them,
  // and weight is unused. Integers have scales, one a column for `group` positions of the depth,
  // and may have zero points, which are taken from them: quantized.h has the layout.
  WeightType type = WeightType::kFloat32;
  const void* quantized = nullptr;     // any alignment
  const void* weight_scale = nullptr;  // bfloat16, or float32 where wide_scales; any alignment
  bool wide_scales = false;
  const int8_t* weight_zero = nullptr;  // or none: 0
  int64_t group = 32;                   // 32, 64 or 128
  RowType row_type = RowType::kInt8;
};

// Runs task(argument, i) for every i in [0, count), in any order and on any threads, and returns
// when all are done. `threads` is how many run at once at most; it sizes the work, and a wrong
// value costs speed only. With parallel_for == nullptr the caller's thread does everything.
struct Runner {
  void (*parallel_for)(void* context, int64_t count, void (*task)(void* argument, int64_t index),
                       void* argument) = nullptr;
  void* context = nullptr;
  int64_t threads = 1;
};

// What is otherwise chosen by the shape of the problem; tests force every value in turn.
struct Tuning {
  Isa isa = Isa::kBest;
  int64_t blocked_rows = 0;  // rows from which on W is packed; 0: chosen
  int64_t panel = 0;         // columns of a task; 0: chosen
  int64_t splits = 0;        // parts that the depth is split into; 0: chosen
  bool no_dots = false;      // without the instructions for dot products of bytes (VNNI, SDOT)
};

constexpr int64_t kPanelColumns = GRAFT_PANEL_COLUMNS;

// Floats of W [K, N] in panels.
size_t PackedFloats(int64_t depth, int64_t columns);

// Packs W, [K, N] or [N, K] when transposed, compact, any alignment, into panels. Columns beyond N
// become zeros.
void Pack(const float* weight, int64_t depth, int64_t columns, bool transposed, float* panels,
          const Runner& runner);

// True when this CPU, and this build, can run `isa`.
bool Supports(Isa isa);

// Bytes of scratch that Run needs. Both calls must see the same sizes, threads and tuning.
size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning = Tuning());

// Computes the problem. Sums depend on sizes, threads and tuning only, not on which thread did
// what: the same call gives the same bits. Allocates nothing, throws nothing and retains nothing:
// concurrent calls with different workspaces are safe. workspace needs no alignment.
void Run(const Problem& problem, void* workspace, const Runner& runner,
         const Tuning& tuning = Tuning());

}  // namespace linear
}  // namespace graft

#endif  // GRAFT_PLUGINS_PACKED_LINEAR_LINEAR_H_
