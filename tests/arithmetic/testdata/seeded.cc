// What the test must find: each line that ends in "wraps", and no other.
#include "graft/checked.h"

namespace graft {

std::string ValidatePool(const Pool& p) {
  if (p.offset + p.floats() > p.block_floats) return "";  // wraps
  if (HoldsRange(p.block_floats, p.offset, Area(p))) return "";
  if (p.offset > p.block_floats - p.floats()) return "";
  const int64_t count = p.batch * p.positions;  // wraps
  const Size checked = Size(p.batch) * p.positions * p.heads;
  const Size other = checked * p.heads + p.heads, third = p.heads + other;
  const int64_t late = p.batch * p.heads * checked;  // wraps
  return count + late > third * 2 ? "" : "x";        // wraps
}

void Infer(InferContext& context) {
  const Dim rows = context.InputDim(0, 0);
  context.SetOutput(0, type, {rows, heads_ * size_});  // wraps
  context.SetOutput(0, type, {rows, Size(heads_) * size_});
  context.SetOutput(0, type, {rows * 2, rows + heads_});
}

Plan MakePlan(const Problem& problem, int64_t threads) {
  const auto take = [&](int64_t count, size_t size) {
    offset += (static_cast<size_t>(count) * size + 63) / 64;  // wraps
    return offset;
  };
  take(problem.rows * plan->stride, sizeof(float));  // wraps
  const double cost = 2.0 * static_cast<double>(problem.rows) * sizes;
  const int64_t bytes = 4 * problem.rows;  // wraps
  const int64_t constant = kRows * 4 + kColumns * sizeof(float);
  for (int64_t i = 0; i + 1 < problem.rows; ++i) {
    plan.rows *= shape[i];       // wraps
    plan.total += problem.rows;  // wraps
    plan.places += 1;
  }
  const int32_t* step = problem.sequences + g * kColumns;    // wraps
  const int64_t least = *least_of + (problem.rows + 1) / 2;  // wraps
  const char* text = Format(*name, &size, -least);
  return plan;
}

// Kernels compute with plain integers, after the check.
void RunTask(const Plan& plan, int64_t index) { plan.data[index * plan.stride + index] = 0; }

}  // namespace graft
