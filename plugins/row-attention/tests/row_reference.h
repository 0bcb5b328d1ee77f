// Plain multi-head attention in float64: keys and values are made from rows, then attended to.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_REFERENCE_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "row_attention.h"
#include "row_problem.h"

namespace graft {
namespace row_attention {
namespace testing {

// Puts a row into the memory of a pool, each number rounded to what the pool stores.
void PutRow(const RowPool& pool, int64_t slot, const float* from, char* memory);

// What the pools must look like after the problem's rows, keys and values are written.
std::vector<char> ExpectedRows(const RandomProblem& made);
std::vector<char> ExpectedKeys(const RandomProblem& made);

// The row of a slot, [width].
std::vector<double> RowOf(const Problem& p, const char* rows, int64_t slot);

// x W + b of one row and KV head.
std::vector<double> Project(const std::vector<double>& x, const std::vector<float>& w,
                            const float* bias, int64_t columns, int64_t first, int64_t count);

// The output [tokens, heads, value_size], given the pools after all writes.
std::vector<double> Compute(const RandomProblem& made, const char* rows, const char* keys);

}  // namespace testing
}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_TESTS_ROW_REFERENCE_H_
