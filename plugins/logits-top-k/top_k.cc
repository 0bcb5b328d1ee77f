#include "top_k.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "graft/checked.h"
#include "row.h"
#include "sample.h"

namespace graft {
namespace top_k {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Scores below which another thread costs more than it saves.
constexpr int64_t kTaskScores = 40000;

// A pair of the row that is worked on, and what it is ranked by.
struct Ranked {
  float key;
  int32_t row, token;
  float score;
};

bool Before(const Ranked& a, const Ranked& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

void KeepBest(std::vector<Ranked>* list, int64_t k) {
  if (static_cast<int64_t>(list->size()) > k) {
    std::nth_element(list->begin(), list->begin() + k, list->end(), Before);
    list->resize(static_cast<size_t>(k));
  }
}

// One row of a group, or all of a group that samples.
struct Task {
  int64_t group, row;
  Fault fault;
  std::vector<Ranked> best;
  std::vector<Candidate> sampled;
};

void TakeRow(const Problem& problem, const Kernel& kernel, const Group& group, Task* task) {
  const float bias = problem.bias != nullptr ? problem.bias[task->row] : 0;
  const bool log_probs = group.mode == Mode::kLogProbs;
  const int64_t wanted = std::min(group.k, problem.vocab);
  const int64_t capacity = std::max<int64_t>(1024, Size(wanted) * 2 + 8 * kStrip);
  const std::unique_ptr<Found[]> found(new Found[static_cast<size_t>(capacity)]);
  Row row(problem, kernel, task->row);
  if (!row.Read(wanted, log_probs || group.normalize, bias, found.get(), capacity, false)) {
    task->fault = row.fault();
    return;
  }
  if (log_probs) row.TakeLogSoftmax();
  row.Apply();
  if (log_probs && group.normalize) row.Renormalize();
  float shift = 0;
  if (!log_probs && group.normalize) {
    float greatest, log;
    row.LogSumExp(&greatest, &log);
    shift = greatest + log;  // without the bias, which stays in the score
  }
  const auto put = [&](float score, int32_t token) {
    const float key = score + bias;
    if (key > kNothing) {
      task->best.push_back({key, static_cast<int32_t>(task->row), token, key - shift});
    }
  };
  task->best.reserve(static_cast<size_t>(row.count()) + row.edited().size());
  if (!row.rest_banned()) {
    for (int64_t i = 0; i < row.count(); ++i) put(row.Shifted(found[i].value), found[i].token);
  }
  for (const Edited& e : row.edited()) put(e.score, e.token);
  KeepBest(&task->best, group.k);
}

void Check(const Problem& problem) {
  Require(problem.vocab >= 1, "the scores have ", problem.vocab, " tokens a row, needed is 1");
  for (size_t i = 0; i < problem.groups.size(); ++i) {
    const Group& group = problem.groups[i];
    Require(group.count >= 1 && HoldsRange(problem.rows, group.first, group.count), "group ", i,
            " has rows ", group.first, " to ", Size(group.first) + group.count - 1,
            ", the scores have ", problem.rows, " rows");
    Require(group.k >= 1, "group ", i, " asks for ", group.k, " candidates, needed is 1 or more");
    if (group.mode != Mode::kSample) continue;
    Require(group.random_numbers != nullptr, "group ", i, " samples and has no random numbers");
    Require(group.log_softmax || group.count == 1, "group ", i, " samples from ", group.count,
            " rows; only beam sampling has more than one");
  }
  if (problem.edit_offsets == nullptr) return;
  for (int64_t r = 0; r < problem.rows; ++r) {
    Require(problem.edit_offsets[r] >= 0 && problem.edit_offsets[r] <= problem.edit_offsets[r + 1],
            "the edits of row ", r, " begin at ", problem.edit_offsets[r], " and end at ",
            problem.edit_offsets[r + 1]);
  }
}

}  // namespace

Fault Solve(const Problem& problem, const Runner& runner) {
  Check(problem);
  const Kernel& kernel = *FindKernel(problem.isa);
  std::vector<Task> tasks;
  for (size_t g = 0; g < problem.groups.size(); ++g) {
    const Group& group = problem.groups[g];
    const int64_t rows = group.mode == Mode::kSample ? 1 : group.count;
    for (int64_t r = 0; r < rows; ++r) {
      tasks.push_back({static_cast<int64_t>(g), group.first + r, {}, {}, {}});
    }
  }
  const auto run = [&](int64_t i) {
    Task& task = tasks[static_cast<size_t>(i)];
    const Group& group = problem.groups[static_cast<size_t>(task.group)];
    if (group.mode == Mode::kSample) {
      task.fault = SampleGroup(problem, kernel, group, &task.sampled);
    } else {
      TakeRow(problem, kernel, group, &task);
    }
  };
  const auto count = static_cast<int64_t>(tasks.size());
  const int64_t chunk = std::max<int64_t>(1, kTaskScores / problem.vocab);
  if (count <= chunk) {
    for (int64_t i = 0; i < count; ++i) run(i);
  } else {
    runner((count + chunk - 1) / chunk, [&](int64_t c) {
      for (int64_t i = c * chunk; i < std::min(count, (c + 1) * chunk); ++i) run(i);
    });
  }

  std::vector<Ranked> ranked;
  std::vector<Candidate> best;
  for (size_t at = 0; at < tasks.size();) {
    const int64_t g = tasks[at].group;
    const Group& group = problem.groups[static_cast<size_t>(g)];
    ranked.clear();
    best.clear();
    for (; at < tasks.size() && tasks[at].group == g; ++at) {
      const Task& task = tasks[at];
      if (task.fault.kind != Fault::kNone) return task.fault;
      ranked.insert(ranked.end(), task.best.begin(), task.best.end());
      best.insert(best.end(), task.sampled.begin(), task.sampled.end());
    }
    KeepBest(&ranked, group.k);
    std::sort(ranked.begin(), ranked.end(), Before);
    for (const Ranked& r : ranked) best.push_back({r.row, r.token, r.score});
    if (best.empty()) {
      Fault fault;
      fault.kind = Fault::kNothingLeft;
      fault.row = group.first;
      return fault;
    }
    problem.take(g, best);
  }
  return {};
}

}  // namespace top_k
}  // namespace graft
