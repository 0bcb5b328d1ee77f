// Random problems against double, on every instruction set; samples by their frequencies.
#include "top_k.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "graft/error.h"
#include "graft/type.h"
#include "poison.h"
#include "reference.h"

namespace graft {
namespace top_k {
namespace {

void InTurn(int64_t count, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}

void AtOnce(int64_t count, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i);
  };
  std::thread other(work);
  work();
  other.join();
}

// A problem with its memory.
struct Case {
  Problem problem;
  std::vector<float> scores;  // as the kernel must see them
  std::vector<uint16_t> narrow;
  std::vector<float> bias, values;
  std::vector<int32_t> offsets, tokens, ops;
  std::vector<std::vector<int32_t>> banned;
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  float Real(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }

  void Make(Case* c) {
    Problem& p = c->problem;
    const int64_t kind = Pick(0, 39);
    p.vocab = kind == 0 ? Pick(1, 30000) : kind < 3 ? Pick(3000, 9000) : Pick(1, 300);
    p.rows = Pick(1, 6);
    p.type = static_cast<Type>(Pick(0, 2));
    p.isa = kIsas[Pick(0, 4)];
    if (FindKernel(p.isa) == nullptr) p.isa = Isa::kBest;
    MakeScores(c);
    if (Pick(0, 1) == 0) {
      for (int64_t r = 0; r < p.rows; ++r) c->bias.push_back(Real(-40, 2));
      p.bias = c->bias.data();
    }
    if (Pick(0, 3) != 0) MakeEdits(c);
    if (Pick(0, 2) == 0) {
      c->banned.resize(static_cast<size_t>(p.rows));
      for (auto& row : c->banned) {
        for (int64_t i = Pick(0, 5); i > 0; --i) {
          row.push_back(static_cast<int32_t>(Pick(0, p.vocab - 1)));
        }
      }
      p.bans = [c](int64_t row, std::vector<int32_t>* banned) {
        *banned = c->banned[static_cast<size_t>(row)];
      };
    }
    for (int64_t first = 0; first < p.rows;) {
      Group group;
      group.first = first;
      group.count = Pick(1, p.rows - first);
      group.k = Pick(0, 9) == 0 ? Pick(1, p.vocab * group.count + 3) : Pick(1, 16);
      group.mode = Pick(0, 1) == 0 ? Mode::kLogProbs : Mode::kRaw;
      group.normalize = group.mode == Mode::kLogProbs && Pick(0, 3) == 0;
      p.groups.push_back(group);
      first += group.count;
    }
  }

 private:
  void MakeScores(Case* c) {
    Problem& p = c->problem;
    const int64_t scenery = Pick(0, 4);
    const float mean = Real(-300, 300);
    std::normal_distribution<float> normal(0, 4);
    for (int64_t i = 0; i < p.rows * p.vocab; ++i) {
      float x = normal(random_);
      if (scenery == 1) x = std::floor(x);
      if (scenery == 2) x += mean;
      if (scenery == 3 && Pick(0, 2) != 0) x = -INFINITY;
      if (scenery == 4 && Pick(0, 2) != 0) x = -1e30f;  // what some models mask with
      if (p.type != Type::kFloat32) {
        uint32_t word;
        std::memcpy(&word, &x, 4);
        const uint16_t bits =
            p.type == Type::kFloat16 ? Float16::From(x).bits : static_cast<uint16_t>(word >> 16);
        c->narrow.push_back(bits);
        word = uint32_t{bits} << 16;
        if (p.type == Type::kFloat16) {
          x = Float16{bits}.ToFloat();
        } else {
          std::memcpy(&x, &word, 4);
        }
      }
      c->scores.push_back(x);
    }
    p.scores = p.type == Type::kFloat32 ? static_cast<const void*>(c->scores.data())
                                        : static_cast<const void*>(c->narrow.data());
  }

  void MakeEdits(Case* c) {
    Problem& p = c->problem;
    c->offsets.push_back(0);
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t e = Pick(0, 9) == 0 ? Pick(0, 600) : Pick(0, 8); e > 0; --e) {
        c->tokens.push_back(static_cast<int32_t>(Pick(0, p.vocab - 1)));
        c->ops.push_back(static_cast<int32_t>(Pick(0, 50) == 0 ? 3 : Pick(0, 2)));
        c->values.push_back(Real(0.5f, 1.5f));
      }
      c->offsets.push_back(static_cast<int32_t>(c->tokens.size()));
    }
    p.edit_offsets = c->offsets.data();
    p.edit_tokens = c->tokens.data();
    p.edit_ops = c->ops.data();
    p.edit_values = c->values.data();
  }

  std::mt19937 random_;
};

// The best are the best within rounding: each has its own score, and the score of its place.
void Compare(const Case& c, const Group& group, const std::vector<Candidate>& got) {
  const std::vector<Scored> all = AllPairs(c.problem, c.scores, group);
  ASSERT_EQ(got.size(), std::min(all.size(), static_cast<size_t>(group.k)));
  std::map<std::pair<int64_t, int64_t>, double> scores;
  for (const Scored& s : all) scores[{s.row, s.token}] = s.score;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto at = scores.find({got[i].row, got[i].token});
    ASSERT_NE(at, scores.end()) << "row " << got[i].row << ", token " << got[i].token;
    // Rounding of a score that is large itself, or that comes from large ones.
    const double of = std::fabs(static_cast<double>(
        c.scores[static_cast<size_t>(got[i].row * c.problem.vocab + got[i].token)]));
    const double bound = 1e-5 + 1e-6 * std::fabs(at->second) + (of < 1e6 ? 3e-7 * of : 0);
    ASSERT_NEAR(got[i].score, at->second, bound);
    ASSERT_NEAR(got[i].score, all[i].score, bound);
    if (i > 0 && got[i].score == got[i - 1].score) {
      ASSERT_LT(got[i - 1].row * c.problem.vocab + got[i - 1].token,
                got[i].row * c.problem.vocab + got[i].token);
    }
    scores.erase(at);
  }
}

TEST(TopK, RandomProblems) {
  const int rounds = graft::testing::ProblemCount(10000);
  Maker maker(1);
  for (int round = 0; round < rounds; ++round) {
    Case c;
    maker.Make(&c);
    std::vector<std::vector<Candidate>> best(c.problem.groups.size());
    c.problem.take = [&](int64_t g, const std::vector<Candidate>& list) {
      best[static_cast<size_t>(g)] = list;
    };
    const Fault fault = Solve(c.problem, round % 16 == 0 ? Runner(AtOnce) : Runner(InTurn));
    bool empty = false;
    for (const Group& group : c.problem.groups) {
      empty |= AllPairs(c.problem, c.scores, group).empty();
    }
    ASSERT_EQ(fault.kind, empty ? Fault::kNothingLeft : Fault::kNone) << "round " << round;
    if (empty) continue;
    for (size_t g = 0; g < best.size(); ++g) {
      Compare(c, c.problem.groups[g], best[g]);
      if (HasFatalFailure()) FAIL() << "round " << round << ", group " << g;
    }
  }
}

// Samples come as often as their probability says (chi-square), for plain and for beam sampling.
TEST(TopK, SamplesByFrequency) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> scores;
  for (int i = 0; i < 40; ++i) scores.push_back(std::normal_distribution<float>(0, 1)(random));
  constexpr int kRandomNumbers = 200000;
  std::vector<float> random_numbers;
  for (int i = 0; i < kRandomNumbers; ++i)
    random_numbers.push_back(std::min(uniform(random), 0x1.fffffep-1f));
  Problem p;
  p.scores = scores.data();
  p.rows = 1;
  p.vocab = 40;
  Group group;
  group.mode = Mode::kSample;
  group.k = kRandomNumbers;
  group.random_numbers = random_numbers.data();
  group.temperature = 0.7f;
  group.top_k = 12;
  p.groups = {group};
  std::vector<int> counts(40);
  p.take = [&](int64_t, const std::vector<Candidate>& list) {
    for (const Candidate& c : list) ++counts[static_cast<size_t>(c.token)];
  };
  ASSERT_EQ(Solve(p, InTurn).kind, Fault::kNone);
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<float>());
  double sum = 0, chi = 0;
  for (const float x : scores) sum += x >= sorted[11] ? std::exp(x / 0.7) : 0;
  for (size_t t = 0; t < 40; ++t) {
    const double want =
        scores[t] >= sorted[11] ? std::exp(scores[t] / 0.7) / sum * kRandomNumbers : 0;
    if (want == 0) {
      EXPECT_EQ(counts[t], 0);
    } else {
      chi += (counts[t] - want) * (counts[t] - want) / want;
    }
  }
  EXPECT_LT(chi, 31.3);  // 11 degrees of freedom, one in a thousand
}

TEST(TopK, BeamSamplingTakesEachPairOnce) {
  std::mt19937 random(5);
  std::vector<float> scores;
  for (int i = 0; i < 3 * 10; ++i) scores.push_back(std::normal_distribution<float>(0, 1)(random));
  std::vector<float> random_numbers;
  for (int i = 0; i < 40; ++i)
    random_numbers.push_back(std::uniform_real_distribution<float>(0, 0.99f)(random));
  Problem p;
  p.scores = scores.data();
  p.rows = 3;
  p.vocab = 10;
  Group group;
  group.count = 3;
  group.k = 40;
  group.mode = Mode::kSample;
  group.log_softmax = true;
  group.random_numbers = random_numbers.data();
  p.groups = {group};
  std::set<std::pair<int32_t, int32_t>> seen;
  p.take = [&](int64_t, const std::vector<Candidate>& list) {
    for (const Candidate& c : list) EXPECT_TRUE(seen.insert({c.row, c.token}).second);
  };
  ASSERT_EQ(Solve(p, InTurn).kind, Fault::kNone);
  EXPECT_EQ(seen.size(), 30u) << "every pair once, then nothing is left";
}

TEST(TopK, ProblemsThatContradictThemselves) {
  const std::vector<float> scores(8, 0.0f);
  const auto refused = [&](const std::function<void(Problem*)>& change) {
    Problem p;
    p.scores = scores.data();
    p.rows = 2;
    p.vocab = 4;
    p.groups.resize(1);
    p.take = [](int64_t, const std::vector<Candidate>&) {};
    change(&p);
    try {
      Solve(p, InTurn);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](Problem*) {}), "accepted");
  EXPECT_EQ(refused([](Problem* p) { p->groups[0].first = 2; }),
            "group 0 has rows 2 to 2, the scores have 2 rows");
  EXPECT_EQ(refused([](Problem* p) { p->groups[0].k = 0; }),
            "group 0 asks for 0 candidates, needed is 1 or more");
  EXPECT_EQ(refused([](Problem* p) { p->groups[0].mode = Mode::kSample; }),
            "group 0 samples and has no random numbers");
  const int32_t offsets[] = {0, 1, 1}, backwards[] = {0, 1, 0}, outside[] = {4}, token[] = {1};
  const int32_t op[] = {0}, unknown[] = {7};
  const float value[] = {1};
  const auto edits = [&](const int32_t* at, const int32_t* tokens, const int32_t* ops) {
    return [=, &value](Problem* p) {
      p->edit_offsets = at;
      p->edit_tokens = tokens;
      p->edit_ops = ops;
      p->edit_values = value;
    };
  };
  EXPECT_EQ(refused(edits(offsets, token, op)), "accepted");
  EXPECT_EQ(refused(edits(backwards, token, op)), "the edits of row 1 begin at 1 and end at 0");
  EXPECT_EQ(refused(edits(offsets, outside, op)),
            "row 0 has an edit of token 4, the vocabulary has 4");
  EXPECT_EQ(refused(edits(offsets, token, unknown)),
            "row 0 has an edit of kind 7, needed is 0 to 3");
}

}  // namespace
}  // namespace top_k
}  // namespace graft
