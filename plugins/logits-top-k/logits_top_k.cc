// The operators LogitsTopK and LogSoftmaxTopK: tensors of a node bound to top_k.h.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "graft.h"
#include "index.h"
#include "signature.h"
#include "top_k.h"

namespace {

namespace top_k = graft::top_k;

top_k::Type TypeOf(graft::DataType type) {
  if (type == graft::kFloat16) return top_k::Type::kFloat16;
  return type == graft::kBFloat16 ? top_k::Type::kBFloat16 : top_k::Type::kFloat32;
}

top_k::Runner RunnerOf(const graft::RunContext& context) {
  return [&context](int64_t count, const std::function<void(int64_t)>& task) {
    context.ParallelFor(static_cast<uint64_t>(count),
                        [&](uint64_t i) { task(static_cast<int64_t>(i)); });
  };
}

// The elements of an input that must have `count` of them, or nullptr where it is absent.
template <typename T>
const T* Elements(graft::Tensor tensor, const char* name, graft::Size count) {
  if (!tensor.present()) return nullptr;
  graft::Require(tensor.elements() == count, "LogitsTopK: ", name, " has ", tensor.elements(),
                 " elements, needed are ", count);
  return tensor.data<T>();
}

class LogitsTopK : public top_k::LogitsTopKBase {
 public:
  using LogitsTopKBase::LogitsTopKBase;

  void Run(const graft::RunContext& context) const {
    const graft::Tensor scores = context.inputs[kScores];
    top_k::Problem problem;
    problem.type = TypeOf(scores.type());
    problem.scores = scores.raw();
    problem.vocab = scores.dim(-1);
    graft::Require(problem.vocab >= 1, "LogitsTopK: the scores have no tokens, needed is 1");
    problem.rows = graft::ElementsOf(scores.shape(), scores.rank() - 1);
    ReadGroups(context, &problem);
    problem.bias = Elements<float>(context.inputs[kBias], "bias", problem.rows);
    ReadEdits(context, &problem);

    std::unique_ptr<graft::ngram::Index> index;
    if (ngram_size_ > 0) {
      index = Advance(context, problem);
      problem.bans = [&](int64_t row, std::vector<int32_t>* banned) {
        index->ForEachBanned(row, [&](int32_t token) { banned->push_back(token); });
      };
    }

    const graft::MutableTensor values = context.outputs[0];
    const int64_t width = values.dim(1);
    auto* value = values.data<float>();
    auto* row = context.outputs[1].data<int32_t>();
    auto* token = context.outputs[2].data<int32_t>();
    for (const top_k::Group& group : problem.groups) {
      graft::Require(group.k <= width, "LogitsTopK: a group asks for ", group.k,
                     " candidates, the outputs have room for ", width);
    }
    std::fill(value, value + values.elements(), -std::numeric_limits<float>::infinity());
    std::fill(row, row + values.elements(), -1);
    std::fill(token, token + values.elements(), -1);
    problem.take = [&](int64_t group, const std::vector<top_k::Candidate>& best) {
      int64_t at = group * width;
      for (const top_k::Candidate& candidate : best) {
        value[at] = candidate.score;
        row[at] = candidate.row;
        token[at++] = candidate.token;
      }
    };
    Report(context, top_k::Solve(problem, RunnerOf(context)));
  }

 private:
  // Groups as the input states them; without it, each row is a group of its own.
  void ReadGroups(const graft::RunContext& context, top_k::Problem* problem) const {
    const graft::Tensor groups = context.inputs[kGroups];
    if (!groups.present()) {
      problem->groups.resize(static_cast<size_t>(problem->rows));
      for (int64_t r = 0; r < problem->rows; ++r) {
        top_k::Group& group = problem->groups[static_cast<size_t>(r)];
        group.first = r;
        group.k = k_;
        group.mode = raw_ ? top_k::Mode::kRaw : top_k::Mode::kLogProbs;
      }
      return;
    }
    const auto* warpers = Elements<float>(context.inputs[kWarpers], "warpers",
                                          graft::Size(groups.dim(0)) * kWarperFields);
    const graft::Tensor random_numbers = context.inputs[kRandomNumbers];
    for (int64_t g = 0; g < groups.dim(0); ++g) {
      const int32_t* field = groups.data<int32_t>() + graft::Size(g) * kGroupFields;
      top_k::Group group;
      group.first = field[0];
      group.count = field[1];
      group.k = field[2];
      graft::Require(field[3] >= 0 && field[3] <= 2, "LogitsTopK: group ", g, " has mode ",
                     field[3], ", needed is 0 (log-probabilities), 1 (raw) or 2 (sample)");
      group.mode = static_cast<top_k::Mode>(field[3]);
      group.log_softmax = (field[4] & 1) != 0;
      group.normalize = (field[4] & 2) != 0;
      group.top_k = field[5];
      group.min_keep = field[6];
      if (warpers != nullptr) {
        const float* warper = warpers + graft::Size(g) * kWarperFields;
        group.temperature = warper[0];
        group.top_p = warper[1];
        group.min_p = warper[2];
        group.typical_p = warper[3];
      }
      if (group.mode == top_k::Mode::kSample) {
        const int64_t count = random_numbers.present() ? random_numbers.elements() : 0;
        graft::Require(graft::HoldsRange(count, field[7], group.k), "LogitsTopK: group ", g,
                       " takes ", group.k, " random numbers from ", field[7], ", there are ",
                       count);
        if (group.k > 0) group.random_numbers = random_numbers.data<float>() + field[7];
      }
      problem->groups.push_back(group);
    }
  }

  static void ReadEdits(const graft::RunContext& context, top_k::Problem* problem) {
    const graft::Tensor tokens = context.inputs[kEditTokens];
    const int64_t count = tokens.present() ? tokens.elements() : 0;
    problem->edit_offsets = Elements<int32_t>(context.inputs[kEditOffsets], "edit_offsets",
                                              graft::Size(problem->rows) + 1);
    problem->edit_tokens = Elements<int32_t>(tokens, "edit_tokens", count);
    problem->edit_ops = Elements<int32_t>(context.inputs[kEditOps], "edit_ops", count);
    problem->edit_values = Elements<float>(context.inputs[kEditValues], "edit_values", count);
    const bool any = problem->edit_offsets != nullptr;
    const bool all = problem->edit_tokens != nullptr && problem->edit_ops != nullptr &&
                     problem->edit_values != nullptr;
    graft::Require(
        any ? all : count == 0,
        "LogitsTopK: edit_offsets, edit_tokens, edit_ops and edit_values belong together");
    graft::Require(!any || problem->edit_offsets[problem->rows] <= count,
                   "LogitsTopK: edit_offsets end at ",
                   any ? problem->edit_offsets[problem->rows] : 0, ", there are ", count, " edits");
  }

  // Grows the index of n-grams by this step's tokens.
  std::unique_ptr<graft::ngram::Index> Advance(const graft::RunContext& context,
                                               const top_k::Problem& problem) const {
    const graft::Tensor tokens = context.inputs[kTokens], memory = context.inputs[kIndex];
    const auto* parents = Elements<int32_t>(context.inputs[kParents], "parents", problem.rows);
    graft::Require(memory.present() && parents != nullptr && tokens.present() &&
                       tokens.rank() == 2 && tokens.dim(0) == problem.rows,
                   "LogitsTopK: ngram_size needs tokens [rows, new], parents [rows] and an index");
    const int64_t length = tokens.dim(1);
    const auto* token = tokens.data<int32_t>();
    for (int64_t i = 0; i < tokens.elements(); ++i) {
      graft::Require(token[i] >= 0 && token[i] < problem.vocab, "LogitsTopK: row ",
                     i / std::max<int64_t>(1, length), " holds token ", token[i],
                     ", the vocabulary has ", problem.vocab);
    }
    // The index is memory that the host lends for writing, like a cache.
    auto index = std::make_unique<graft::ngram::Index>(const_cast<void*>(memory.raw()),
                                                       memory.elements(), ngram_size_);
    index->Advance(parents, token, length, problem.rows, [&](int64_t) { return length; });
    return index;
  }

  // Scores that cannot be searched: reported in the output where the node has it, else thrown.
  static void Report(const graft::RunContext& context, const top_k::Fault& fault) {
    const graft::MutableTensor output = context.outputs[3];
    if (output.present()) {
      auto* to = output.data<int32_t>();
      to[0] = fault.kind;
      to[1] = static_cast<int32_t>(fault.row);
      to[2] = static_cast<int32_t>(fault.token);
      std::memcpy(to + 3, &fault.score, sizeof fault.score);
      return;
    }
    graft::Require(fault.kind != top_k::Fault::kBadScore, "LogitsTopK: row ", fault.row,
                   " has the score ", fault.score, " for token ", fault.token);
    graft::Require(fault.kind != top_k::Fault::kNothingLeft,
                   "LogitsTopK: every token of the group that begins with row ", fault.row,
                   " is banned");
  }
};

// LogSoftmax and TopK along the last axis, in one pass: the values and indices of ONNX's TopK.
class LogSoftmaxTopK : public top_k::LogSoftmaxTopKBase {
 public:
  using LogSoftmaxTopKBase::LogSoftmaxTopKBase;

  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    const int64_t k = context.inputs[1].data<int64_t>()[0];
    const graft::MutableTensor output = context.outputs[0];
    graft::Require(output.dim(-1) == k, "LogSoftmaxTopK: k is ", k, ", it was ", output.dim(-1),
                   " when the kernel was made; k must be constant");
    const int64_t vocab = x.dim(-1);
    if (k == 0 || x.elements() == 0) return;
    auto* values = output.data<float>();
    auto* indices = context.outputs[1].data<int64_t>();
    top_k::Problem problem;
    problem.scores = x.raw();
    problem.vocab = vocab;
    problem.rows = x.elements() / vocab;
    // A row without probabilities is NaN, as its softmax is, and the others are computed.
    for (int64_t first = 0; first < problem.rows;) {
      problem.groups.clear();
      for (int64_t r = first; r < problem.rows; ++r) {
        top_k::Group group;
        group.first = r;
        group.k = k;
        problem.groups.push_back(group);
      }
      problem.take = [&](int64_t group, const std::vector<top_k::Candidate>& best) {
        Put(x.data<float>(), vocab, first + group, k, best, values, indices);
      };
      const top_k::Fault fault = top_k::Solve(problem, RunnerOf(context));
      if (fault.kind == top_k::Fault::kNone) return;
      for (int64_t i = 0; i < k; ++i) {
        values[fault.row * k + i] = std::numeric_limits<float>::quiet_NaN();
        indices[fault.row * k + i] = i;
      }
      first = fault.row + 1;
    }
  }

 private:
  // The candidates of a row, and where they are too few the first of its impossible tokens.
  static void Put(const float* x, int64_t vocab, int64_t row, int64_t k,
                  const std::vector<top_k::Candidate>& best, float* values, int64_t* indices) {
    int64_t at = row * k;
    for (const top_k::Candidate& candidate : best) {
      values[at] = candidate.score;
      indices[at++] = candidate.token;
    }
    for (int64_t t = 0; at < (row + 1) * k; ++t) {
      if (x[row * vocab + t] != -std::numeric_limits<float>::infinity()) continue;
      values[at] = x[row * vocab + t];
      indices[at++] = t;
    }
  }
};

}  // namespace

GRAFT_PLUGIN(graft::ForEngine<LogitsTopK>, LogSoftmaxTopK);
