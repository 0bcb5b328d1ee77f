// Logits processing and top-k selection: from rows of logits to the tokens that a search goes on
// with.
//
// Knows no runtime: raw pointers and a function that runs tasks in parallel. For each row of a
// group, in this order:
//
//   log-softmax                  kLogProbs, and kSample with log_softmax
//   bans, then edits             a token at a time, in the order given, in float32
//   warpers                      kSample: temperature, top-k, top-p, min-p, typical-p
//   log-softmax                  with normalize
//   bias                         the running score of the row's beam
//
// and then, over all rows of the group, the k best pairs of row and token (equal scores: the lower
// row, then the lower token), or k samples. Minus infinity is a ban; NaN and plus infinity among
// the scores are an error.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_TOP_K_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_TOP_K_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel.h"

namespace graft {
namespace top_k {

enum class Mode : int32_t { kLogProbs = 0, kRaw = 1, kSample = 2 };

enum class Op : int32_t {
  kAdd = 0,       // score += value
  kPenalise = 1,  // score < 0 ? score * value : score / value
  kBan = 2,       // -inf
  kOnly = 3,      // value, and -inf for every other token of the row
};

// A run of rows that share their candidates. Zero leaves a warper out.
struct Group {
  int64_t first = 0, count = 1, k = 1;
  Mode mode = Mode::kLogProbs;
  bool log_softmax = false;  // kSample: beam sampling, samples without replacement
  bool normalize = false;    // kRaw: changes the scores of candidates, not their order
  int64_t top_k = 0, min_keep = 0;
  float temperature = 0, top_p = 0, min_p = 0, typical_p = 0;
  const float* random_numbers = nullptr;  // kSample: k numbers in [0, 1)
};

struct Candidate {
  int32_t row, token;
  float score;
};

// What is wrong with the scores, as the first in order of groups and rows.
struct Fault {
  enum Kind : int32_t { kNone = 0, kBadScore = 1, kNothingLeft = 2 };
  Kind kind = kNone;
  int64_t row = -1;    // kNothingLeft: the first of the group
  int64_t token = -1;  // kBadScore
  float score = 0;
};

// Calls task(i) for i in [0, count), in any order, possibly at once.
using Runner = std::function<void(int64_t count, const std::function<void(int64_t)>& task)>;

struct Problem {
  Type type = Type::kFloat32;
  const void* scores = nullptr;  // [rows, vocab]
  int64_t rows = 0, vocab = 0;
  const float* bias = nullptr;  // [rows]
  // The edits of row r are those from edit_offsets[r] up to edit_offsets[r + 1]. May be absent.
  const int32_t* edit_offsets = nullptr;
  const int32_t* edit_tokens = nullptr;
  const int32_t* edit_ops = nullptr;
  const float* edit_values = nullptr;
  // Appends the tokens of a row that are banned before its edits; may be empty. Called from tasks.
  std::function<void(int64_t row, std::vector<int32_t>* banned)> bans;
  std::vector<Group> groups;
  // Takes the best of a group, at most its k, in order.
  std::function<void(int64_t group, const std::vector<Candidate>& best)> take;
  Isa isa = Isa::kBest;
};

// Throws graft::Error when the problem contradicts itself; gives a fault of the scores back.
Fault Solve(const Problem& problem, const Runner& runner);

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_TOP_K_H_
