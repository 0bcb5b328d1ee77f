// The kernel against multi-head attention in float64: random problems, then what must be refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "poison.h"
#include "row_problem.h"
#include "row_reference.h"
#include "thread_pool.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

using graft::testing::ProblemCount;
using graft::testing::WithPoisonedWorkspace;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void RunPoisoned(const Problem& problem, int threads, const Tuning& tuning) {
  WithPoisonedWorkspace(WorkspaceSize(problem, threads, tuning), [&](char* workspace) {
    Run(problem, workspace, test::Threads<Runner>(threads), tuning);
  });
}

void ExpectOutput(const RandomProblem& made, const std::vector<double>& expected) {
  const Problem& p = made.problem;
  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = made.output[kOutputBand + i];
    const double want = expected[i];
    if (std::isnan(want) ? std::isnan(got)
                         : std::fabs(got - want) <= 1e-5 + 1e-4 * std::fabs(want)) {
      continue;
    }
    if (++wrong > 3) return;
    const int64_t at = static_cast<int64_t>(i);
    ADD_FAILURE() << "token " << at / (p.heads * p.value_size) << ", head "
                  << at / p.value_size % p.heads << ", feature " << at % p.value_size << " is "
                  << got << ", the reference " << want << "\n"
                  << made.description;
  }
  for (size_t i = 0; i < kOutputBand; ++i) {
    ASSERT_TRUE(std::isnan(made.output[i])) << "wrote before the output";
    ASSERT_TRUE(std::isnan(made.output[kOutputBand + expected.size() + i]))
        << "wrote past the output";
  }
}

TEST(HiddenStates, AgreesWithMultiHeadAttentionOnRandomProblems) {
  for (int index = 0; index < ProblemCount(10000); ++index) {
    RandomProblem made;
    Make(static_cast<uint32_t>(index), made, true);
    ASSERT_EQ(Validate(made.problem), "") << made.description;
    const std::vector<char> rows = ExpectedRows(made), keys = ExpectedKeys(made);
    RunPoisoned(made.problem, made.threads, made.tuning);
    // Nothing but the written slots changed, bit for bit.
    ASSERT_EQ(std::memcmp(rows.data(), made.rows.data(), rows.size()), 0) << made.description;
    ASSERT_TRUE(keys == made.keys) << made.description;
    ExpectOutput(made, Compute(made, rows.data() + made.rows_start, keys.data() + made.keys_start));
    for (size_t i = 0; i + 1 < made.skipped.size(); ++i) {
      ASSERT_EQ(made.skipped[i], 0.0f) << made.description;
    }
    if (HasFailure()) FAIL() << "problem " << index;
  }
}

// A request's tokens must not depend on what else is in the batch, or on the machine's load.
TEST(HiddenStates, ResultsDoNotDependOnThreadsOrCompany) {
  int groups = 0;
  for (uint32_t index = 0; index < 300; ++index) {
    RandomProblem made;
    Make(index, made, true);
    Tuning tuning;
    tuning.isa = made.tuning.isa;
    RunPoisoned(made.problem, 1, tuning);
    const std::vector<float> alone = made.output;
    tuning.serial_cost = 0;
    RunPoisoned(made.problem, 3, tuning);
    ASSERT_EQ(std::memcmp(alone.data(), made.output.data(), alone.size() * sizeof(float)), 0)
        << made.description;
    const Problem& all = made.problem;
    for (int64_t g = 0; g < all.groups; ++g, ++groups) {
      Problem one = all;
      std::vector<int32_t> step(made.sequences.begin() + g * 8, made.sequences.begin() + g * 8 + 8);
      std::vector<int32_t> second;
      const int64_t token = step[0];
      step[0] = 0;
      one.sequences = step.data();
      if (one.kv_sequences != nullptr) {
        second.assign(made.kv_sequences.begin() + g * 8, made.kv_sequences.begin() + g * 8 + 8);
        second[0] = 0;
        one.kv_sequences = second.data();
      }
      one.groups = 1;
      one.tokens = step[1];
      one.query += token * one.query_stride;
      one.input = nullptr;  // written already
      one.slot_mapping = one.kv_slot_mapping = nullptr;
      if (one.key != nullptr) {
        one.key += token * one.key_stride;
        one.value += token * one.value_stride;
      }
      one.skipped = nullptr;
      std::vector<float> output(static_cast<size_t>(one.tokens * one.heads * one.value_size), kNan);
      one.output = output.data();
      RunPoisoned(one, 2, tuning);
      ASSERT_EQ(std::memcmp(output.data(), all.output + token * all.heads * all.value_size,
                            output.size() * sizeof(float)),
                0)
          << "group " << g << " of " << made.description;
    }
  }
  EXPECT_GT(groups, 500);
}

// The largest number that a row of the problem contributes to an output.
double LargestValue(const RandomProblem& made, const char* rows) {
  const Problem& p = made.problem;
  double largest = 0.0;
  const auto look = [&](int64_t slot) {
    const std::vector<double> x = RowOf(p, rows, slot);
    // Turning a row leaves each pair's length; twice the largest number is enough room for that.
    for (double v : Project(x, made.value_matrix, nullptr, p.kv_heads * p.value_size, 0,
                            p.kv_heads * p.value_size)) {
      largest = std::max(largest, std::fabs(v));
    }
  };
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* s = p.sequences + g * 8;
    for (int64_t j = 0; j < s[3]; ++j) look(p.shared_slots[s[2] + j]);
    for (int64_t j = 0; j < s[1] * s[5]; ++j) look(p.private_slots[s[4] + j]);
  }
  return largest;
}

// What is left out is what is reported, each key of it below the limit.
TEST(HiddenStates, SkippingReportsWhatItLeavesOut) {
  int with = 0, without = 0;
  for (uint32_t index = 0; with < 200 && index < 20000; ++index) {
    RandomProblem made;
    Make(index, made);
    Problem& p = made.problem;
    if (p.rotary != Rotary::kNone && p.rotated) continue;  // LargestValue reads rows as stored
    if (p.kv_sequences != nullptr || p.tokens == 0) continue;
    made.tuning.prompt = 0;
    made.skipped.assign(static_cast<size_t>(p.tokens * p.heads), kNan);
    p.skipped = made.skipped.data();
    RunPoisoned(p, made.threads, made.tuning);
    const std::vector<float> exact = made.output;
    p.skip = index % 2 == 0 ? 1e-2f : 1e-3f;
    ASSERT_EQ(Validate(p), "");
    RunPoisoned(p, made.threads, made.tuning);
    const double largest = LargestValue(made, made.rows.data() + made.rows_start);
    for (int64_t g = 0; g < p.groups; ++g) {
      const int32_t* s = p.sequences + g * 8;
      for (int64_t row = s[0] * p.heads; row < (s[0] + s[1]) * p.heads; ++row) {
        const double skipped = made.skipped[static_cast<size_t>(row)];
        if (s[3] + s[5] == 0) {
          ASSERT_EQ(skipped, 0.0) << made.description;
          continue;
        }
        ASSERT_GE(skipped, 0.0) << made.description;
        ASSERT_LE(skipped, (s[3] + s[5]) * double{p.skip}) << made.description;
        (skipped > 0.0 ? with : without) += 1;
        for (int64_t i = 0; i < p.value_size; ++i) {
          const double got = p.output[row * p.value_size + i];
          const double want = exact[static_cast<size_t>(kOutputBand + row * p.value_size + i)];
          if (skipped == 0.0) {
            ASSERT_EQ(got, want) << made.description;
          } else {
            ASSERT_LE(std::fabs(got - want), skipped * largest + 1e-5) << made.description;
          }
        }
      }
    }
  }
  EXPECT_GE(with, 200);
  EXPECT_GT(without, 100);
}

// Two tokens that share three rows of 4 numbers, and own one key and value each.
struct Small {
  Problem p;
  std::vector<float> memory, keys, weight, query, output;
  std::vector<int32_t> sequences = {0, 2, 0, 3, 0, 0, 0, 0}, shared_slots = {0, 1, 2},
                       slot_mapping = {1, -1};
  std::vector<int32_t> kv_sequences = {0, 2, 0, 0, 0, 1, 0, 0}, kv_private_slots = {0, 1},
                       kv_slot_mapping = {0, 1};

  Small() {
    p.pool.blocks = 2;
    p.pool.width = 4;
    p.pool.offset = 8;
    p.pool.block_floats = 72;
    memory.assign(144, 0.5f);
    p.pool.data = memory.data();
    p.tokens = 2;
    p.heads = p.kv_heads = 1;
    p.head_size = p.value_size = 4;
    weight.assign(64, 0.25f);
    p.key_weight = p.value_weight = weight.data();
    query.assign(8, 0.25f);
    p.query = p.input = query.data();
    p.query_stride = p.input_stride = 4;
    p.slot_mapping = slot_mapping.data();
    output.assign(8, kNan);
    p.output = output.data();
    p.sequences = sequences.data();
    p.groups = 1;
    p.shared_slots = shared_slots.data();
    p.shared_length = 3;
    p.kv_pool.blocks = 1;
    p.kv_pool.kv_heads = 1;
    p.kv_pool.head_size = p.kv_pool.value_size = 4;
    p.kv_pool.block_floats = 128;
    keys.assign(128, 0.5f);
    p.kv_pool.data = keys.data();
    p.kv_sequences = kv_sequences.data();
    p.kv_private_slots = kv_private_slots.data();
    p.kv_private_length = 2;
    p.kv_slot_mapping = kv_slot_mapping.data();
    p.key = p.value = query.data();
    p.key_stride = p.value_stride = 4;
  }
};

TEST(HiddenStates, SaysWhatIsWrong) {
  const auto fault = [](auto change) {
    Small small;
    change(small);
    return Validate(small.p);
  };
  EXPECT_EQ(fault([](Small&) {}), "");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.offset = 9; }),
            "a block has 72 floats, rows take 64 from 9 on");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.width = 0; }), "rows are 0 wide, needed is at least 1");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.data = nullptr; }), "the pool has no memory");
  EXPECT_EQ(fault([](Small& s) { s.p.kv_heads = 2; }),
            "there are 1 query heads, needed is a multiple of 2 key and value heads");
  EXPECT_EQ(fault([](Small& s) { s.p.value_weight = nullptr; }), "weights are required");
  EXPECT_EQ(fault([](Small& s) { s.p.input = nullptr; }),
            "rows and their slots must be given together");
  EXPECT_EQ(fault([](Small& s) { s.shared_slots[1] = 32; }),
            "shared_slots[1] is slot 32, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.slot_mapping[1] = -2; }),
            "slot_mapping[1] is slot -2, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.sequences[3] = 4; }),
            "group 0 takes shared_slots[0 .. 4), which has 3");
  EXPECT_EQ(fault([](Small& s) { s.p.skip = 1.0f; }), "skip is 1, needed is 0 to 1");
  EXPECT_EQ(fault([](Small& s) { s.p.window = -1; }), "window is -1, needed is 0 or more");
  EXPECT_EQ(fault([](Small& s) { s.kv_private_slots[1] = 16; }),
            "second part: private_slots[1] is slot 16, the pool has 16");
  EXPECT_EQ(fault([](Small& s) { s.p.key = nullptr; }),
            "second part: key, value and slot_mapping must be given together");
  EXPECT_EQ(fault([](Small& s) { s.p.value = s.p.key = nullptr; }),
            "second part: key, value and slot_mapping must be given together");
  EXPECT_EQ(fault([](Small& s) { s.p.kv_pool.value_size = 3; }),
            "the pool of keys and values has 1 heads of 4 and 3, needed are 1 of 4 and 4");
  EXPECT_EQ(fault([](Small& s) { s.sequences[6] = 1; }),
            "group 0 is causal and has positions in both parts");
  EXPECT_EQ(fault([](Small& s) {
              s.p.kv_sequences = nullptr;
              s.p.kind = RowKind::kKeys;
              s.p.head_size = 2;
            }),
            "rows are 4 wide, keys of 1 heads of 2 need 2 and as many KV heads, not 1");
  EXPECT_EQ(fault([](Small& s) { s.p.rotary = Rotary::kHalf; }),
            "rotary positions need rows of keys");
  static const float angles[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  const auto turned = [&](int64_t pairs, int64_t positions) {
    return fault([=](Small& s) {
      s.p.kv_sequences = nullptr;
      s.p.kind = RowKind::kKeys;
      s.p.rotary = Rotary::kHalf;
      s.p.cosine = s.p.sine = angles;
      s.p.pairs = pairs;
      s.p.positions = positions;
    });
  };
  EXPECT_EQ(turned(1, 3), "");
  EXPECT_EQ(turned(3, 3), "rotary positions turn 3 pairs, heads of 4 have 1 to 2");
  EXPECT_EQ(turned(2, 2), "group 0 has 3 positions, there are angles for 2");
}

// Lists may be the same for several groups: what a call needs does not follow from their length.
TEST(HiddenStates, GroupsMayShareTheirLists) {
  const int64_t groups = 4, tokens = 40;
  Small small;
  Problem& p = small.p;
  p.kv_sequences = nullptr;
  p.key = p.value = nullptr;
  p.kv_slot_mapping = nullptr;
  p.input = nullptr;
  p.slot_mapping = nullptr;
  p.tokens = groups * tokens;
  p.groups = groups;
  small.sequences.clear();
  std::vector<int32_t> private_slots;
  for (int32_t g = 0; g < groups; ++g) {
    small.sequences.insert(small.sequences.end(), {g * static_cast<int32_t>(tokens),
                                                   static_cast<int32_t>(tokens), 0, 3, 0, 1, 0, 0});
  }
  for (int32_t i = 0; i < tokens; ++i) private_slots.push_back(3 + i % 29);
  for (size_t i = 0; i < small.memory.size(); ++i) {
    small.memory[i] = static_cast<float>(i % 11) * 0.1f;
  }
  small.query.assign(static_cast<size_t>(p.tokens * 4), 0.0f);
  for (size_t i = 0; i < small.query.size(); ++i) {
    small.query[i] = static_cast<float>(i % static_cast<size_t>(tokens * 4) % 7) * 0.2f;
  }
  small.output.assign(small.query.size(), kNan);
  p.query = small.query.data();
  p.output = small.output.data();
  p.sequences = small.sequences.data();
  p.private_slots = private_slots.data();
  p.private_length = tokens;
  ASSERT_EQ(Validate(p), "");
  RunPoisoned(p, 2, Tuning());
  const size_t group = static_cast<size_t>(tokens * 4);
  for (size_t i = 0; i < small.output.size(); ++i) {
    ASSERT_FALSE(std::isnan(small.output[i])) << i;
    ASSERT_EQ(small.output[i], small.output[i % group]) << i;
  }
}

TEST(HiddenStates, NoKeyThatCountsIsNotANumber) {
  const float hidden = -std::numeric_limits<float>::infinity();
  Small small;
  small.p.bias = &hidden;
  small.p.distances = 1;
  ASSERT_EQ(Validate(small.p), "");
  RunPoisoned(small.p, 1, Tuning());
  for (float value : small.output) EXPECT_TRUE(std::isnan(value));
  small.p.kv_sequences = nullptr;
  small.sequences[3] = 0;  // no key at all: empty sums
  RunPoisoned(small.p, 1, Tuning());
  for (float value : small.output) EXPECT_EQ(value, 0.0f);
}

TEST(StoreRows, StoresWhatHasASlotAndRoundsOnce) {
  for (Storage storage :
       {Storage::kFloat32, Storage::kFloat16, Storage::kBfloat16, Storage::kInt8}) {
    const int64_t count = 150, width = 21;
    RandomProblem made;  // holds the pool
    StoreProblem p;
    p.pool.blocks = 10;
    p.pool.width = width;
    p.pool.offset = 3;
    p.pool.storage = storage;
    p.pool.block_floats = p.pool.area_floats() + 5;
    made.rows.assign(static_cast<size_t>(p.pool.blocks * p.pool.block_floats * 4),
                     static_cast<char>(0xFF));
    p.pool.data = reinterpret_cast<float*>(made.rows.data());
    std::vector<float> rows;
    std::vector<int32_t> slot_mapping;
    for (int64_t i = 0; i < count; ++i) {
      slot_mapping.push_back(i % 7 == 3 ? -1 : static_cast<int32_t>((i * 11) % 160));
      // Subnormal halves and ties among them.
      for (int64_t f = 0; f < width; ++f) {
        rows.push_back(std::ldexp(1.0f + static_cast<float>((i * width + f) * 37 % 4096) / 4096.0f,
                                  static_cast<int>((i + f) % 40) - 26) *
                       (f % 2 == 0 ? 1.0f : -1.0f));
      }
    }
    p.rows = rows.data();
    p.count = count;
    p.slot_mapping = slot_mapping.data();
    ASSERT_EQ(Validate(p), "");
    made.problem.pool = p.pool;
    made.problem.tokens = count;
    made.problem.input = rows.data();
    made.problem.input_stride = width;
    made.problem.slot_mapping = slot_mapping.data();
    const std::vector<char> expected = ExpectedRows(made);
    EXPECT_EQ(row_attention::Run(p, test::Threads<Runner>(2)), count - 21);
    EXPECT_TRUE(expected == made.rows) << "storage " << static_cast<int>(storage);
    slot_mapping[8] = 160;
    EXPECT_EQ(Validate(p), "slot_mapping[8] is slot 160, the pool has 160");
  }
}

}  // namespace
}  // namespace testing
}  // namespace row_attention
}  // namespace graft
