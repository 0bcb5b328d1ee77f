// logits-top-k against its definition in float64: log-softmax, bans, edits, second log-softmax,
// bias, the best of a group in their order, faults.
#include <algorithm>
#include <limits>
#include <map>

#include "../../../kernels-cuda/logits-top-k/launch.cuh"
#include "../../../kernels-cuda/ngram-block/index.cuh"
#include "../check.h"
#include "../memory.h"
#include "logits-top-k-sample.h"

namespace graft {
namespace gpu {
namespace {

namespace top_k = cuda::logits_top_k;
namespace ngram = cuda::ngram_block;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

struct Edit {
  int32_t token, op;
  float value;
};

// A problem on the host.
struct Case {
  int64_t rows = 0, vocab = 0, stride = 0, width = 0;
  cuda::Type type = cuda::Type::kFloat32;
  std::vector<double> scores;  // [rows, vocab]
  std::vector<float> bias, random_numbers, warpers;
  std::vector<std::vector<Edit>> edits;       // a row
  std::vector<std::vector<int64_t>> history;  // a row
  int64_t ngram_size = 0;
  std::vector<int32_t> groups;
  bool listed = true;  // groups are a tensor

  const int32_t* group(int64_t g) const { return groups.data() + g * top_k::kGroupFields; }
  int64_t count() const { return static_cast<int64_t>(groups.size()) / top_k::kGroupFields; }
};

void LogSoftmax(std::vector<double>* row) {
  const double top = *std::max_element(row->begin(), row->end());
  if (top == kNothing) return;
  double sum = 0;
  for (const double x : *row) sum += std::exp(x - top);
  for (double& x : *row) x -= top + std::log(sum);
}

// A row after its bans and edits, and what normalize subtracts from returned scores.
std::vector<double> Reference(const Case& c, const int32_t* group, int64_t r, double* shift) {
  std::vector<double> row(c.scores.begin() + r * c.vocab, c.scores.begin() + (r + 1) * c.vocab);
  const int32_t mode = group[3];
  const bool normalize = (group[4] & top_k::kFlagNormalize) != 0;
  if (mode == top_k::kLogProbs || (mode == top_k::kSample && (group[4] & top_k::kFlagLogSoftmax))) {
    LogSoftmax(&row);
  }
  const std::vector<int64_t>& history = c.history[static_cast<size_t>(r)];
  const auto length = static_cast<int64_t>(history.size());
  for (int64_t i = c.ngram_size - 1; c.ngram_size > 0 && i < length; ++i) {
    if (std::equal(history.begin() + (i - c.ngram_size + 1), history.begin() + i,
                   history.end() - (c.ngram_size - 1))) {
      row[static_cast<size_t>(history[static_cast<size_t>(i)])] = kNothing;
    }
  }
  for (const Edit& e : c.edits[static_cast<size_t>(r)]) {
    double& x = row[static_cast<size_t>(e.token)];
    if (e.op == top_k::kAdd) x += e.value;
    if (e.op == top_k::kPenalise) x = x < 0 ? x * e.value : x / e.value;
    if (e.op == top_k::kBan) x = kNothing;
    if (e.op == top_k::kOnly) {
      std::fill(row.begin(), row.end(), kNothing);
      x = e.value;
    }
  }
  *shift = 0;
  if (normalize && mode == top_k::kLogProbs) LogSoftmax(&row);
  if (normalize && mode == top_k::kRaw) {
    std::vector<double> copy = row;
    LogSoftmax(&copy);
    for (size_t t = 0; t < row.size(); ++t) {
      if (row[t] > kNothing) *shift = row[t] - copy[t];
    }
  }
  return row;
}

struct Scored {
  double key, score;
  int64_t row, token;
};

bool IsEdited(const Case& c, int64_t row, int64_t token) {
  const std::vector<Edit>& edits = c.edits[static_cast<size_t>(row)];
  return std::any_of(edits.begin(), edits.end(), [&](const Edit& e) { return e.token == token; });
}

// Says what is wrong with a group's candidates in the modes that do not sample.
void CheckBest(Trial& trial, const Case& c, int64_t g, const float* scores, const int32_t* rows,
               const int32_t* tokens) {
  const int32_t* group = c.group(g);
  std::vector<Scored> all;
  double largest = 1;
  for (int64_t r = group[0]; r < group[0] + group[1]; ++r) {
    double shift;
    const std::vector<double> row = Reference(c, group, r, &shift);
    const double bias = c.bias.empty() ? 0 : c.bias[static_cast<size_t>(r)];
    for (int64_t t = 0; t < c.vocab; ++t) {
      const double x = row[static_cast<size_t>(t)];
      if (x == kNothing) continue;
      all.push_back({x + bias, x + bias - shift, r, t});
      largest = std::max(
          {largest, std::abs(x), std::abs(c.scores[static_cast<size_t>(r * c.vocab + t)])});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Scored& a, const Scored& b) { return a.key > b.key; });
  std::map<std::pair<int64_t, int64_t>, const Scored*> by_pair;
  for (const Scored& s : all) by_pair[{s.row, s.token}] = &s;
  const double slack = 1e-5 + 3e-7 * largest;
  const bool exact = group[3] == top_k::kRaw;
  for (int64_t i = 0; i < c.width; ++i) {
    const std::string place = "group " + std::to_string(g) + " place " + std::to_string(i);
    if (i >= group[2] || i >= static_cast<int64_t>(all.size())) {
      if (scores[i] != -INFINITY || rows[i] != -1 || tokens[i] != -1) {
        return trial.Fail(place + " is not empty");
      }
      continue;
    }
    const Scored& want = all[static_cast<size_t>(i)];
    const auto found = by_pair.find({rows[i], tokens[i]});
    if (found == by_pair.end()) {
      return trial.Fail(place + " is row " + std::to_string(rows[i]) + " token " +
                        std::to_string(tokens[i]) + ", which is impossible or stands twice");
    }
    const Scored got = *found->second;
    by_pair.erase(found);
    const double error = std::abs(got.score - scores[i]) / (slack + 1e-4 * std::abs(got.score));
    const bool other = got.row != want.row || got.token != want.token;
    // Where rounding may decide, a neighbour may stand here. Equal scores have their order among
    // themselves, but for edited ones, which only float64 may make equal.
    bool tie = false;
    for (const auto& [pair, left] : by_pair) {
      if (pair >= std::make_pair(got.row, got.token)) break;
      tie = tie || (left->key == got.key && (exact || left->row == got.row) &&
                    !IsEdited(c, left->row, left->token) && !IsEdited(c, got.row, got.token));
    }
    if (!(error <= 1) || tie || (other && std::abs(got.key - want.key) > slack)) {
      std::ostringstream text;
      text.precision(9);
      text << place << " is row " << got.row << " token " << got.token << " with " << scores[i]
           << " (float64 gives it " << got.score << "), needed is row " << want.row << " token "
           << want.token << " with " << want.score;
      return trial.Fail(text.str());
    }
  }
}

// The first score that is none, by row and token; false where all are good.
bool FindBad(const Case& c, const int32_t* group, int64_t* row, int64_t* token) {
  for (int64_t r = group[0]; r < group[0] + group[1]; ++r) {
    for (int64_t t = 0; t < c.vocab; ++t) {
      if (c.scores[static_cast<size_t>(r * c.vocab + t)] < INFINITY) continue;
      *row = r, *token = t;
      return true;
    }
  }
  return false;
}

void RandomScores(Trial& trial, Case* c) {
  const int64_t scenery = trial.random.Between(0, 3);
  trial.about << ", scenery " << scenery;
  for (int64_t i = 0; i < c->rows * c->vocab; ++i) {
    double x = trial.random.Uniform(-8, 8);
    if (scenery == 1) x = static_cast<double>(trial.random.Between(-2, 2));  // many are equal
    if (scenery == 2) x = trial.random.Chance(4) ? x * 8 : kNothing;
    if (scenery == 3) x -= 900;
    c->scores.push_back(x);
  }
}

// Edits of one row, in an order that matters.
std::vector<Edit> RandomEdits(Random& random, int64_t vocab) {
  std::vector<Edit> list;
  const int64_t count = random.Chance(6) ? random.Size(0, 200) : random.Between(0, 6);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t span = random.Chance(2) ? std::min<int64_t>(vocab, 4) : vocab;
    list.push_back({static_cast<int32_t>(random.Between(0, span - 1)),
                    static_cast<int32_t>(random.Between(0, 2)),
                    static_cast<float>(random.Between(2, 8)) / 4});
    if (random.Chance(60)) list.back().op = top_k::kOnly;
  }
  return list;
}

// Groups that follow each other, with rows between them that belong to none.
void RandomGroups(Trial& trial, Case* c) {
  Random& random = trial.random;
  const int64_t count = random.Between(1, 3);
  const bool samples = random.Chance(4);
  c->listed = samples || random.Chance(2);
  const auto rows = static_cast<int32_t>(random.Between(1, 5));
  c->width = random.Chance(10) ? random.Size(1, 70) : random.Between(1, 12);
  const auto k = static_cast<int32_t>(random.Between(1, c->width));
  const auto mode = static_cast<int32_t>(random.Between(0, 1)), flags = random.Chance(3) ? 2 : 0;
  for (int64_t g = 0; g < count; ++g) {
    if (!c->listed) {
      c->groups.insert(c->groups.end(),
                       {static_cast<int32_t>(c->rows), rows, k, mode, flags, 0, 0, 0});
      c->rows += rows;
      continue;
    }
    const bool random_numbers = samples && random.Chance(2);
    const bool beams = random_numbers && random.Chance(2);
    const auto own_rows = static_cast<int32_t>(random_numbers && !beams ? 1 : random.Between(1, 5));
    const auto own_k = static_cast<int32_t>(random.Between(1, c->width));
    c->groups.insert(
        c->groups.end(),
        {static_cast<int32_t>(c->rows), own_rows, own_k,
         random_numbers ? int32_t{top_k::kSample} : static_cast<int32_t>(random.Between(0, 1)),
         (random.Chance(3) ? top_k::kFlagNormalize : 0) | (beams ? top_k::kFlagLogSoftmax : 0),
         static_cast<int32_t>(random.Chance(2) ? random.Size(1, 60) : 0),
         static_cast<int32_t>(random.Between(0, 4)),
         static_cast<int32_t>(c->random_numbers.size())});
    for (int32_t i = 0; random_numbers && i < own_k; ++i) {
      c->random_numbers.push_back(static_cast<float>(random.Between(0, (1 << 20) - 1)) / (1 << 20));
    }
    c->rows += own_rows + random.Chance(5);
  }
  for (int64_t g = 0; g < count && !c->random_numbers.empty(); ++g) {
    c->warpers.push_back(random.Chance(2) ? static_cast<float>(random.Uniform(0.3, 2)) : 0);
    c->warpers.push_back(random.Chance(2) ? static_cast<float>(random.Uniform(0.05, 1)) : 0);
    c->warpers.push_back(random.Chance(3) ? static_cast<float>(random.Uniform(0, 0.3)) : 0);
    c->warpers.push_back(random.Chance(3) ? static_cast<float>(random.Uniform(0.05, 0.95)) : 0);
  }
}

template <typename T>
void Solve(Trial& trial, cuda::Type type) {
  Random& random = trial.random;
  Case c;
  c.type = type;
  RandomGroups(trial, &c);
  c.vocab = random.Chance(3) ? random.Size(1, 60) : random.Size(1, 1500);
  c.stride = c.vocab + random.Pick<int64_t>({0, 0, 3});
  trial.about << c.count() << " groups, " << c.rows << " rows of " << c.vocab << ", width "
              << c.width << (c.listed ? ", listed" : "")
              << (c.random_numbers.empty() ? "" : ", samples");
  RandomScores(trial, &c);
  const bool edits = random.Chance(2), biased = random.Chance(2);
  const int64_t bans = random.Between(0, 3);  // 1: of whole rows, 2: of an index
  if (bans == 1 || bans == 2) c.ngram_size = random.Between(1, 3);
  trial.about << (edits ? ", edits" : "") << (biased ? ", bias" : "") << ", n " << c.ngram_size
              << (bans == 2 ? " by index" : "");
  for (int64_t r = 0; r < c.rows; ++r) {
    c.edits.push_back(edits ? RandomEdits(random, c.vocab) : std::vector<Edit>());
    c.history.emplace_back();
    const int64_t length = c.ngram_size == 0 ? 0 : random.Size(0, 60);
    for (int64_t i = 0; i < length; ++i) {
      c.history.back().push_back(random.Between(0, std::min<int64_t>(c.vocab, 5) - 1));
    }
    if (biased) c.bias.push_back(static_cast<float>(random.Between(-40, 0)) / 8);
  }
  if (random.Chance(12)) {
    c.scores[static_cast<size_t>(random.Between(0, c.rows * c.vocab - 1))] =
        random.Chance(2) ? NAN : INFINITY;
  }

  std::vector<T> lines(static_cast<size_t>(c.rows * c.stride), Narrow<T>(NAN));
  for (int64_t i = 0; i < c.rows * c.vocab; ++i) {
    T& to = lines[static_cast<size_t>(i / c.vocab * c.stride + i % c.vocab)];
    to = Narrow<T>(c.scores[static_cast<size_t>(i)]);
    c.scores[static_cast<size_t>(i)] = Wide(to);
  }
  std::vector<int32_t> offsets{0}, edit_tokens, edit_ops, lengths, parents;
  std::vector<float> edit_values;
  int64_t longest = 1;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (const Edit& e : c.edits[static_cast<size_t>(r)]) {
      edit_tokens.push_back(e.token);
      edit_ops.push_back(e.op);
      edit_values.push_back(e.value);
    }
    offsets.push_back(static_cast<int32_t>(edit_tokens.size()));
    lengths.push_back(static_cast<int32_t>(c.history[static_cast<size_t>(r)].size()));
    parents.push_back(-1);
    longest = std::max<int64_t>(longest, lengths.back());
  }
  std::vector<int32_t> tokens(static_cast<size_t>(c.rows * longest), -1);
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto& row = c.history[static_cast<size_t>(r)];
    for (size_t i = 0; i < row.size(); ++i) {
      tokens[static_cast<size_t>(r * longest) + i] = static_cast<int32_t>(row[i]);
    }
  }

  Array<T> score(trial, lines, random.Between(0, 9));
  Array<int32_t> group(trial, c.groups), offset(trial, offsets), edit_token(trial, edit_tokens);
  Array<int32_t> edit_op(trial, edit_ops), token(trial, tokens), length(trial, lengths);
  Array<int32_t> parent(trial, parents);
  Array<float> edit_value(trial, edit_values), bias(trial, c.bias), sample(trial, c.random_numbers);
  Array<float> warper(trial, c.warpers);
  const int64_t places = c.count() * c.width;
  Array<float> out_score(trial, places, 1);
  Array<int32_t> out_row(trial, places, 3), out_token(trial, places);
  Array<int32_t> faults(trial, c.count() * top_k::kFaultFields), first_fault(trial, 4);

  top_k::Problem p;
  p.scores = score.data();
  p.type = type;
  p.rows = c.rows;
  p.vocab = c.vocab;
  p.stride = c.stride;
  p.count = c.count();
  if (c.listed) {
    p.groups = group.data();
  } else {
    p.group_rows = c.group(0)[1];
    p.k = c.group(0)[2], p.mode = c.group(0)[3], p.flags = c.group(0)[4];
  }
  if (!c.random_numbers.empty()) p.random_numbers = sample.data(), p.warpers = warper.data();
  p.num_random_numbers = static_cast<int64_t>(c.random_numbers.size());
  if (biased) p.bias = bias.data();
  if (edits) {
    p.edit_offsets = offset.data();
    p.edit_tokens = edit_token.data();
    p.edit_ops = edit_op.data();
    p.edit_values = edit_value.data();
    p.num_edits = edit_token.size();
  }
  ngram::Rows history;
  history.tokens = token.data();
  history.stride = history.columns = longest;
  history.rows = c.rows;
  history.lengths = length.data();
  Array<unsigned char> memory(trial, std::vector<unsigned char>(40000, 0));
  if (bans == 1) p.history = history, p.ngram_size = c.ngram_size;
  if (bans == 2) {
    ngram::MakeIndexView(memory.data(), memory.size(), c.ngram_size, &p.index);
    const ngram::Step step{history, parent.data(), c.vocab};
    ngram::IndexPlan plan = ngram::PlanIndex(c.rows, longest);
    plan.begin.threads = 64;
    trial.Expect(ngram::AdvanceIndex(p.index, step, plan, nullptr));
  }

  top_k::Shape shape{c.rows,
                     c.vocab,
                     c.count(),
                     c.listed ? 4 : p.group_rows,
                     c.width,
                     !c.random_numbers.empty(),
                     top_k::HasNamed(p),
                     type};
  top_k::TopKPlan plan = top_k::PlanSimple(static_cast<int32_t>(32 * random.Between(1, 3)), shape);
  if (c.random_numbers.empty() && c.width <= top_k::kMaxCandidates && !random.Chance(6)) {
    // Every path at small sizes: clusters, rounds of few rows, rings of few and of many chunks.
    const auto teams = static_cast<int32_t>(random.Between(1, top_k::kMaxTeams));
    const auto warps = static_cast<int32_t>(random.Between(1, teams > 2 ? 2 : 3));
    plan = top_k::PlanFast(random.Pick({1, 1, 2, 4, 8}), static_cast<int32_t>(random.Between(1, 4)),
                           teams, 32 * warps, random.Size(0, 60000), shape);
    trial.about << ", fast, parts " << plan.layout.parts << ", at once " << plan.layout.at_once
                << ", teams " << teams << ", chunks " << plan.layout.chunks << " of "
                << plan.layout.chunk;
  }
  if (random.Chance(8)) plan = top_k::PlanTopK(shape, {});  // as it is on a device
  trial.about << (plan.fast ? "" : ", simple") << ", threads " << plan.shape.threads;
  Array<unsigned char> workspace(trial, plan.workspace);
  trial.Expect(top_k::TakeTopK(
      p, {out_score.data(), out_row.data(), out_token.data(), c.width, faults.data()}, plan,
      workspace.data(), nullptr));
  trial.Expect(top_k::FirstFault(faults.data(), c.count(), first_fault.data(), nullptr));

  const std::vector<float> got = out_score.Read();
  const std::vector<int32_t> rows = out_row.Read(), toks = out_token.Read(), told = faults.Read();
  std::vector<int32_t> first{top_k::kNone, -1, -1, 0};
  for (int64_t g = 0; g < c.count(); ++g) {
    const int32_t* fault = told.data() + g * top_k::kFaultFields;
    if (fault[0] != top_k::kNone && first[0] == top_k::kNone) first.assign(fault, fault + 4);
    const int64_t at = g * c.width;
    int64_t row, bad;
    if (FindBad(c, c.group(g), &row, &bad)) {
      const std::vector<int32_t> want{
          top_k::kBadScore, static_cast<int32_t>(row), static_cast<int32_t>(bad),
          static_cast<int32_t>(cuda::BitsOfFloat(
              static_cast<float>(Wide(lines[static_cast<size_t>(row * c.stride + bad)]))))};
      if (!std::equal(fault, fault + 3, want.begin())) {
        trial.Fail("fault " + std::to_string(fault[0]) + " of row " + std::to_string(fault[1]) +
                   " token " + std::to_string(fault[2]) + ", needed is 1 of row " +
                   std::to_string(row) + " token " + std::to_string(bad));
      }
      if (!std::isnan(got[static_cast<size_t>(at)])) trial.Fail("a bad group has candidates");
      continue;
    }
    const bool none = rows[static_cast<size_t>(at)] < 0;
    if (fault[0] != (none ? top_k::kNothingLeft : top_k::kNone) ||
        (none && fault[1] != c.group(g)[0])) {
      trial.Fail("group " + std::to_string(g) + " tells fault " + std::to_string(fault[0]));
    }
    if (c.group(g)[3] == top_k::kSample) {
      std::vector<std::vector<double>> sampled_from;
      for (int64_t r = c.group(g)[0]; r < c.group(g)[0] + c.group(g)[1]; ++r) {
        double shift;
        sampled_from.push_back(Reference(c, c.group(g), r, &shift));
      }
      CheckSamples(trial, c.group(g), c.warpers.data() + g * top_k::kWarperFields, c.random_numbers,
                   c.bias, std::move(sampled_from), c.width, got.data() + at, rows.data() + at,
                   toks.data() + at);
    } else {
      CheckBest(trial, c, g, got.data() + at, rows.data() + at, toks.data() + at);
    }
  }
  trial.ExpectSame("first fault", first_fault.Read(), first);
}

void Conform(Trial& trial) {
  const auto type =
      trial.random.Pick({cuda::Type::kFloat32, cuda::Type::kFloat16, cuda::Type::kBFloat16});
  if (type == cuda::Type::kFloat32) return Solve<float>(trial, type);
  if (type == cuda::Type::kFloat16) return Solve<cuda::Half>(trial, type);
  Solve<cuda::BFloat16>(trial, type);
}
GRAFT_CONFORM("logits-top-k", Conform);

}  // namespace
}  // namespace gpu
}  // namespace graft
