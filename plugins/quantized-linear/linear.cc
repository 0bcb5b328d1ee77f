#include "linear.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "graft/checked.h"
#include "graft/tasks.h"
#include "kernel.h"
#include "plan.h"

namespace graft {
namespace quantized {
namespace {

constexpr int64_t kAlignment = 64;

// What unsigned integers are moved by to be signed.
constexpr int kSignMove = 128;

using Counter = std::atomic<int64_t>;

// Of all x.
struct Rounding {
  float scale;
  uint8_t zero;
};

const Kernel* Choose(Code code) {
  const Kernel* vnni = code == Code::kPortable ? nullptr : VnniKernel();
  return vnni == nullptr ? &kPortableKernel : vnni;
}

// DynamicQuantizeLinear, as ONNX Runtime's kernel has it: each step is rounded to float32.
Rounding RoundingOf(float least, float greatest) {
  constexpr float kSteps = 255.0f;
  Rounding r{};
  r.scale = greatest == least ? 1.0f : (greatest - least) / kSteps;
  const float zero = 0.0f - least / r.scale;
  // std::min and std::max give their first argument where the second is NaN.
  r.zero = static_cast<uint8_t>(std::nearbyint(std::max(0.0f, std::min(kSteps, zero))));
  return r;
}

Range Joined(const Range* ranges, int64_t count) {
  Range all;
  for (int64_t i = 0; i < count; ++i) {
    all.least = std::min(all.least, ranges[i].least);
    all.greatest = std::max(all.greatest, ranges[i].greatest);
    all.numbers = std::min(all.numbers, ranges[i].numbers);
  }
  return all;
}

// One call, seen by all its workers.
class Call {
 public:
  Call(const Problem& problem, const Plan& plan, const Kernel& kernel, char* workspace)
      : problem_(problem), plan_(plan), kernel_(kernel), workspace_(workspace) {
    for (int i = 0; i < kCounters; ++i) new (&Count(i)) Counter(0);
    if (problem.norm.wanted) {
      for (int64_t i = 0; i < plan.row_blocks; ++i) new (&SharesDone(i)) Counter(0);
    }
    for (int i = 0; i < problem.weight_count; ++i) {
      sums_ |= problem.weights[i].zeros != nullptr;
      group_ends_[i] = (i == 0 ? 0 : group_ends_[i - 1]) +
                       DivideUp(Size(problem.weights[i].columns), kPanelColumns * kTilePanels);
    }
    rounds_ = problem.x != nullptr || sums_ || problem.depth % kDepthStep != 0;
  }

  void Work() {
    Rounding rounding{problem_.scale, problem_.zero};
    if (problem_.x != nullptr) {
      TakeTasks(Count(0), Count(1), plan_.range_tasks, [&](int64_t task) { FindRange(task); });
      WaitForTasks(Count(1), plan_.range_tasks);
      if (!Whole(&rounding)) return;
    }
    if (rounds_) {
      TakeTasks(Count(2), Count(3), plan_.round_tasks,
                [&](int64_t task) { Round(task, rounding); });
      WaitForTasks(Count(3), plan_.round_tasks);
    }
    TakeTasks(Count(4), plan_.row_blocks * plan_.shares,
              [&](int64_t task) { Multiply(task, rounding); });
  }

  // That of y, once all is done.
  void StoreRange() const {
    if (problem_.y_range_wanted)
      *problem_.y_range = Joined(RangesOfY(), plan_.row_blocks * plan_.shares);
  }

  // The rounding of all x, from the ranges of its parts. False where there is NaN.
  bool Whole(Rounding* rounding) const {
    const Range range =
        problem_.x_range_known ? *problem_.x_range : Joined(Ranges(), plan_.range_tasks);
    *rounding = RoundingOf(range.least, range.greatest);
    return range.numbers != 0.0f;
  }

 private:
  static constexpr int kCounters = 5;

  Counter& Count(int i) {
    return *reinterpret_cast<Counter*>(workspace_ + plan_.counters + i * kAlignment);
  }
  Counter& SharesDone(int64_t row_block) {
    return reinterpret_cast<Counter*>(workspace_ + plan_.shares_done)[row_block];
  }
  Range* RangesOfY() const { return reinterpret_cast<Range*>(workspace_ + plan_.y_ranges); }
  Range* Ranges() const { return reinterpret_cast<Range*>(workspace_ + plan_.ranges); }
  uint8_t* Integers() const { return reinterpret_cast<uint8_t*>(workspace_ + plan_.integers); }
  int32_t* RowSums() const { return reinterpret_cast<int32_t*>(workspace_ + plan_.row_sums); }

  void FindRange(int64_t task) {
    const int64_t begin = task * plan_.range_chunk, all = problem_.rows * problem_.depth;
    Range& range = Ranges()[task];
    range.numbers = kernel_.range(problem_.x + begin, std::min(plan_.range_chunk, all - begin),
                                  &range.least, &range.greatest);
  }

  void Round(int64_t task, Rounding rounding) {
    const int64_t begin = task * plan_.round_rows,
                  end = std::min(problem_.rows, begin + plan_.round_rows);
    for (int64_t row = begin; row < end; ++row) {
      uint8_t* to = Integers() + row * plan_.x_stride;
      std::fill(to + problem_.depth, to + plan_.x_stride, uint8_t{0});
      if (problem_.x == nullptr) {
        std::memcpy(to, problem_.integers + row * problem_.depth,
                    static_cast<size_t>(problem_.depth));
      } else if (problem_.x_layout == Layout::kRows) {
        kernel_.quantize(problem_.x + row * problem_.depth, problem_.depth, rounding.scale,
                         rounding.zero, to);
      } else {
        const int64_t size = problem_.depth / problem_.heads;
        const int64_t sequence = row / problem_.positions, position = row % problem_.positions;
        const float* from =
            problem_.x + (sequence * problem_.heads * problem_.positions + position) * size;
        for (int64_t h = 0; h < problem_.heads; ++h) {
          kernel_.quantize(from + h * problem_.positions * size, size, rounding.scale,
                           rounding.zero, to + h * size);
        }
      }
      if (sums_) RowSums()[row] = kernel_.sum(to, problem_.depth);
    }
  }

  // Some rows times some groups of panels.
  void Multiply(int64_t task, Rounding rounding) {
    const int64_t row = task / plan_.shares * plan_.row_block;
    const int64_t rows = std::min(plan_.row_block, problem_.rows - row);
    const int64_t first = task % plan_.shares * plan_.share,
                  last = std::min(plan_.groups, first + plan_.share);
    Range* range = nullptr;  // of what this task leaves of y
    if (problem_.y_range_wanted) *(range = RangesOfY() + task) = Range();
    for (int64_t group = first; group < last; ++group) {
      int i = 0;
      while (group >= group_ends_[i]) ++i;
      MultiplyGroup(problem_.weights[i], group - (i == 0 ? 0 : group_ends_[i - 1]), row, rows,
                    rounding, problem_.norm.wanted ? nullptr : range);
    }
    // Whoever finishes a row block normalises it while it is near.
    if (!problem_.norm.wanted) return;
    if (SharesDone(task / plan_.shares).fetch_add(1, std::memory_order_acq_rel) + 1 == plan_.shares)
      kernel_.normalise(problem_.norm, row, rows, problem_.weights[0].columns,
                        problem_.weights[0].y, range);
  }

  void MultiplyGroup(const Weight& w, int64_t group, int64_t row, int64_t rows, Rounding rounding,
                     Range* range) {
    constexpr int64_t kColumns = kPanelColumns * kTilePanels;
    int32_t start[kColumns];
    float scales[kColumns];
    const int64_t first = group * kColumns;
    Tile tile{};
    tile.columns = std::min(kColumns, w.columns - first);
    tile.panels = static_cast<int>((tile.columns + kPanelColumns - 1) / kPanelColumns);
    for (int64_t j = 0; j < tile.panels * kPanelColumns; ++j) {
      // sum (x - zero) (w - zero of w), without the part that depends on the row.
      uint32_t begin = static_cast<uint32_t>(w.sums[first + j]);
      if (w.zeros != nullptr) {
        begin -= static_cast<uint32_t>(problem_.depth) * static_cast<uint32_t>(w.zeros[first + j]);
      }
      start[j] = static_cast<int32_t>(-(begin * rounding.zero));
      scales[j] = rounding.scale * w.scales[first + j];
    }
    tile.steps = plan_.steps;
    tile.panel_bytes = plan_.steps * kDepthStep * kPanelColumns;
    tile.weight = w.panels + group * kTilePanels * tile.panel_bytes;
    tile.x_stride = rounds_ ? plan_.x_stride : problem_.depth;
    tile.start = start;
    tile.scales = scales;
    tile.zeros = w.zeros == nullptr ? nullptr : w.zeros + first;
    tile.bias = w.bias == nullptr ? nullptr : w.bias + first;
    tile.gelu = w.gelu;
    tile.range = range;
    for (int64_t end = row + rows; row < end; row += tile.rows) {
      tile.rows = static_cast<int>(std::min<int64_t>(kTileRows, end - row));
      tile.x = (rounds_ ? Integers() : problem_.integers) + row * tile.x_stride;
      tile.row_sums = RowSums() + row;
      if (Place(w, row, first, &tile)) {
        kernel_.tile(tile);
        continue;
      }
      float y[kTileRows][kColumns];
      tile.row_stride = kColumns;
      tile.column_stride = 1;
      for (int p = 0; p < tile.panels; ++p) tile.y[p] = y[0] + p * kPanelColumns;
      kernel_.tile(tile);
      for (int r = 0; r < tile.rows; ++r) {
        for (int64_t j = 0; j < tile.columns; ++j) *At(w, row + r, first + j) = y[r][j];
      }
    }
  }

  // Where y has an element.
  float* At(const Weight& w, int64_t row, int64_t column) const {
    if (w.layout == Layout::kRows) return w.y + row * w.columns + column;
    const int64_t size = w.columns / problem_.heads, positions = problem_.positions;
    const int64_t head = row / positions * problem_.heads + column / size;
    const int64_t position = row % positions, at = column % size;
    return w.y + head * positions * size +
           (w.layout == Layout::kHeads ? position * size + at : at * positions + position);
  }

  // Lets a tile write y. False where its rows or the columns of a panel do not lie evenly there.
  bool Place(const Weight& w, int64_t row, int64_t column, Tile* tile) const {
    tile->column_stride = 1;
    tile->row_stride = w.columns;
    if (w.layout != Layout::kRows) {
      const int64_t size = w.columns / problem_.heads;
      if (size % kPanelColumns != 0 || row % problem_.positions + tile->rows > problem_.positions)
        return false;
      const bool transposed = w.layout == Layout::kHeadsTransposed;
      tile->row_stride = transposed ? 1 : size;
      tile->column_stride = transposed ? problem_.positions : 1;
    }
    for (int p = 0; p < tile->panels; ++p) tile->y[p] = At(w, row, column + p * kPanelColumns);
    return true;
  }

  const Problem& problem_;
  const Plan& plan_;
  const Kernel& kernel_;
  char* workspace_;
  bool sums_ = false;    // of rows are needed
  bool rounds_ = false;  // integers of x lie in the workspace
  int64_t group_ends_[kMaxWeights] = {};
};

}  // namespace

bool Supports(Code code) { return code != Code::kVnni || VnniKernel() != nullptr; }

int64_t PackedColumns(int64_t columns) { return RoundUp(Size(columns), kPanelColumns); }

size_t PackedBytes(int64_t depth, int64_t columns) {
  return (Size(PackedColumns(columns)) * RoundUp(Size(depth), kDepthStep)).To<size_t>();
}

void Pack(const uint8_t* weight, bool is_signed, int64_t depth, int64_t columns, int8_t* panels,
          int32_t* sums) {
  const int64_t panel = RoundUp(Size(depth), kDepthStep) * kPanelColumns;
  std::fill(panels, panels + PackedBytes(depth, columns), int8_t{0});
  std::fill(sums, sums + PackedColumns(columns), 0);
  for (int64_t k = 0; k < depth; ++k) {
    int8_t* to = panels + k / kDepthStep * kDepthStep * kPanelColumns + k % kDepthStep;
    for (int64_t j = 0; j < columns; ++j) {
      const uint8_t byte = weight[k * columns + j];
      const int32_t value = is_signed ? static_cast<int8_t>(byte) : int32_t{byte} - kSignMove;
      to[j / kPanelColumns * panel + j % kPanelColumns * kDepthStep] = static_cast<int8_t>(value);
      sums[j] = static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(value));
    }
  }
}

size_t WorkspaceSize(const Problem& problem, int64_t threads) {
  return (Size(MakePlan(problem, threads).total_bytes) + kAlignment - 1).To<size_t>();
}

bool Run(const Problem& problem, void* workspace, const Runner& runner, Code code) {
  if (problem.y_range_wanted) *problem.y_range = Range();
  if (problem.rows == 0) return true;
  const Plan plan = MakePlan(problem, runner.threads);
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  char* aligned = reinterpret_cast<char*>((address + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
  Call call(problem, plan, *Choose(code), aligned);
  if (runner.parallel_for == nullptr || plan.workers == 1) {
    call.Work();
  } else {
    runner.parallel_for(
        runner.context, plan.workers,
        [](void* argument, int64_t) { static_cast<Call*>(argument)->Work(); }, &call);
  }
  call.StoreRange();
  Rounding rounding;
  return problem.x == nullptr || call.Whole(&rounding);
}

}  // namespace quantized
}  // namespace graft
