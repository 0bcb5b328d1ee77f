#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graft {
namespace top_k {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

void LogSoftmax(std::vector<double>* row) {
  const double greatest = *std::max_element(row->begin(), row->end());
  if (greatest == kNothing) return;
  double sum = 0;
  for (const double x : *row) sum += std::exp(x - greatest);
  for (double& x : *row) x = x - greatest - std::log(sum);
}

}  // namespace

std::vector<Scored> AllPairs(const Problem& problem, const std::vector<float>& scores,
                             const Group& group) {
  std::vector<Scored> all;
  for (int64_t r = group.first; r < group.first + group.count; ++r) {
    std::vector<double> row(scores.begin() + r * problem.vocab,
                            scores.begin() + (r + 1) * problem.vocab);
    if (group.mode == Mode::kLogProbs) LogSoftmax(&row);
    if (problem.bans) {
      std::vector<int32_t> banned;
      problem.bans(r, &banned);
      for (const int32_t token : banned) row[static_cast<size_t>(token)] = kNothing;
    }
    const int64_t begin = problem.edit_offsets != nullptr ? problem.edit_offsets[r] : 0;
    const int64_t end = problem.edit_offsets != nullptr ? problem.edit_offsets[r + 1] : 0;
    for (int64_t e = begin; e < end; ++e) {
      double& x = row[static_cast<size_t>(problem.edit_tokens[e])];
      const double value = problem.edit_values[e];
      switch (static_cast<Op>(problem.edit_ops[e])) {
        case Op::kAdd:
          x += value;
          break;
        case Op::kPenalise:
          x = x < 0 ? x * value : x / value;
          break;
        case Op::kBan:
          x = kNothing;
          break;
        case Op::kOnly:
          std::fill(row.begin(), row.end(), kNothing);
          x = value;
          break;
      }
    }
    if (group.normalize) LogSoftmax(&row);
    for (int64_t t = 0; t < problem.vocab; ++t) {
      const double x = row[static_cast<size_t>(t)];
      if (x > kNothing) all.push_back({r, t, x + (problem.bias != nullptr ? problem.bias[r] : 0)});
    }
  }
  std::sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.row != b.row ? a.row < b.row : a.token < b.token;
  });
  return all;
}

}  // namespace top_k
}  // namespace graft
