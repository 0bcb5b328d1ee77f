// The kernel over a pool against the float64 reference: random problems, then what must be refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cached_problem.h"
#include "poison.h"
#include "stored.h"
#include "thread_pool.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

using graft::testing::ProblemCount;
using graft::testing::WithPoisonedWorkspace;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void RunPoisoned(const CachedProblem& problem, int threads, const CachedTuning& tuning) {
  WithPoisonedWorkspace(WorkspaceSize(problem, threads, tuning), [&](char* workspace) {
    Run(problem, workspace, test::Threads<Runner>(threads), tuning);
  });
}

void ExpectOutput(const RandomCachedProblem& made, const std::vector<double>& expected) {
  const CachedProblem& p = made.problem;
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
    ADD_FAILURE() << "row " << at / (p.heads * p.pool.value_size) << ", head "
                  << at / p.pool.value_size % p.heads << ", feature " << at % p.pool.value_size
                  << " is " << got << ", the reference " << want << "\n"
                  << made.description;
  }
  for (size_t i = 0; i < kOutputBand; ++i) {
    ASSERT_TRUE(std::isnan(made.output[i])) << "wrote before the output";
    ASSERT_TRUE(std::isnan(made.output[kOutputBand + expected.size() + i]))
        << "wrote past the output";
  }
}

// A problem of two groups: three rows that share 4 positions and own 2 each, and a prompt of 5.
struct Small {
  CachedProblem p;
  std::vector<float> memory, query, key, value, output;
  std::vector<int32_t> sequences = {0, 3, 0, 4, 0, 2, 0, 0, 3, 5, 4, 6, 0, 0, 1, 0};
  std::vector<int32_t> shared_slots = {0, 1, 2, 3, 16, 17, 18, 19, 20, 21};
  std::vector<int32_t> private_slots = {4, 7, 4, 8, 5, 9};
  std::vector<int32_t> slot_mapping = {7, 8, 9, 17, 18, 19, 20, 21};

  explicit Small(Storage storage = Storage::kFloat32) {
    p.pool.storage = storage;
    p.pool.blocks = 2;
    p.pool.kv_heads = 1;
    p.pool.head_size = p.pool.value_size = 8;
    p.pool.offset = p.pool.floats();
    p.pool.block_floats = 2 * p.pool.floats();
    memory.assign(static_cast<size_t>(2 * p.pool.block_floats), 0.0f);
    p.pool.data = memory.data();
    const std::vector<float> row(8, 0.5f);
    for (int64_t slot = 0; slot < 32; ++slot) {
      for (const bool side : {false, true}) {
        Put(p.pool, slot, 0, side, row.data(), reinterpret_cast<char*>(memory.data()));
      }
    }
    p.rows = 8;
    p.heads = 2;
    query.assign(8 * 16, 0.25f);
    key.assign(8 * 8, 0.25f);
    value.assign(8 * 8, 1.0f);
    output.assign(8 * 16, kNan);
    p.query = query.data();
    p.key = key.data();
    p.value = value.data();
    p.output = output.data();
    p.query_stride = 16;
    p.key_stride = p.value_stride = 8;
    p.slot_mapping = slot_mapping.data();
    p.sequences = sequences.data();
    p.groups = 2;
    p.shared_slots = shared_slots.data();
    p.shared_length = 10;
    p.private_slots = private_slots.data();
    p.private_length = 6;
  }
};

class CachedIn : public ::testing::TestWithParam<Storage> {};
INSTANTIATE_TEST_SUITE_P(Storages, CachedIn, ::testing::ValuesIn(kStorages));

TEST_P(CachedIn, AgreesWithTheReferenceOnRandomProblems) {
  for (int index = 0; index < ProblemCount(10000); ++index) {
    RandomCachedProblem made;
    Make(static_cast<uint32_t>(index), made, GetParam());
    ASSERT_EQ(Validate(made.problem), "") << made.description;
    GuardedPool& pool = made.pool.back();
    const std::vector<float> memory = pool.Expected(made.problem);
    RunPoisoned(made.problem, made.threads, made.tuning);
    // Nothing but the written slots changed, bit for bit.
    ASSERT_EQ(std::memcmp(memory.data(), pool.memory().data(), memory.size() * sizeof(float)), 0)
        << made.description;
    ExpectOutput(made, Compute(made.problem, memory.data() + pool.start()));
    if (HasFailure()) FAIL() << "problem " << index;
  }
}

// A request's tokens must not depend on what else is in the batch, or on the machine's load.
TEST_P(CachedIn, ResultsDoNotDependOnThreadsOrCompany) {
  int groups = 0;
  for (uint32_t index = 0; index < 300; ++index) {
    RandomCachedProblem made;
    Make(index, made, GetParam());
    CachedTuning tuning;
    tuning.isa = made.tuning.isa;
    RunPoisoned(made.problem, 1, tuning);
    const std::vector<float> alone = made.output;
    tuning.serial_cost = 0;
    RunPoisoned(made.problem, 3, tuning);
    ASSERT_EQ(std::memcmp(alone.data(), made.output.data(), alone.size() * sizeof(float)), 0)
        << made.description;
    const CachedProblem& all = made.problem;
    for (int64_t g = 0; g < all.groups; ++g, ++groups) {
      CachedProblem one = all;
      std::vector<int32_t> step(made.sequences.begin() + g * 8, made.sequences.begin() + g * 8 + 8);
      const int64_t row = step[0];
      step[0] = 0;
      one.sequences = step.data();
      one.groups = 1;
      one.rows = step[1];
      one.query += row * one.query_stride;
      one.bias += row * one.bias_stride;  // 0 where there is none
      one.key = one.value = nullptr;      // written already
      one.slot_mapping = nullptr;
      std::vector<float> output(static_cast<size_t>(one.rows * one.heads * one.pool.value_size),
                                kNan);
      one.output = output.data();
      RunPoisoned(one, 2, tuning);
      ASSERT_EQ(std::memcmp(output.data(), all.output + row * all.heads * all.pool.value_size,
                            output.size() * sizeof(float)),
                0)
          << "group " << g << " of " << made.description;
    }
  }
  EXPECT_GT(groups, 500);
}

// A number that is none must not become one: its row is NaN to those that read it, and to no
// others.
TEST_P(CachedIn, ANumberThatIsNoneStaysNone) {
  for (const float odd : {kNan, std::numeric_limits<float>::infinity()}) {
    Small small(GetParam());
    small.value[1 * 8 + 3] = odd;  // of the second beam's own token
    RunPoisoned(small.p, 1, CachedTuning());
    for (int64_t row = 0; row < small.p.rows; ++row) {
      EXPECT_EQ(std::isfinite(small.output[static_cast<size_t>(row * 16 + 3)]), row != 1)
          << "row " << row;
    }
  }
}

// Rows of zeros, and of numbers too small for the inverse of a scale, are stored as zeros in int8.
TEST(Cached, TinyRowsAreZerosInInt8) {
  Small small(Storage::kInt8);
  std::fill(small.value.begin(), small.value.end(), 1e-38f);
  std::fill(small.key.begin(), small.key.end(), 0.0f);
  RunPoisoned(small.p, 1, CachedTuning());
  for (int64_t row = 3; row < small.p.rows; ++row) {  // the prompt, whose second token reads two
    for (int64_t f = 0; f < 16; ++f) {
      EXPECT_TRUE(std::isfinite(small.output[static_cast<size_t>(row * 16 + f)]));
    }
  }
}

// Near the largest number a sum of weighted values overflows where their mean does not.
TEST(Cached, ValuesWhoseSumOverflowsHaveTheirMean) {
  constexpr float kLarge = 3e38f;
  for (uint32_t index = 0; index < 1000; ++index) {
    RandomCachedProblem made;
    Make(index, made);
    const CachedProblem& p = made.problem;
    // The values of every second feature, in the pool and on their way there.
    const auto enlarge = [&](float* row) {
      for (int64_t f = 0; f < p.pool.value_size; f += 2) row[f] = row[f] < 0.0f ? -kLarge : kLarge;
    };
    for (int64_t slot = 0; slot < p.pool.slots(); ++slot) {
      for (int64_t h = 0; h < p.pool.kv_heads; ++h) {
        float* row = p.pool.data + p.pool.ValueOffset(slot) + h * kBlockSlots * p.pool.value_size;
        if (!std::isnan(row[0])) enlarge(row);
      }
    }
    for (int64_t row = 0; p.value != nullptr && row < p.rows; ++row) {
      for (int64_t h = 0; h < p.pool.kv_heads; ++h) {
        enlarge(made.value.data() + (p.value - made.value.data()) + row * p.value_stride +
                h * p.pool.value_size);
      }
    }
    GuardedPool& pool = made.pool.back();
    const std::vector<float> memory = pool.Expected(p);
    RunPoisoned(p, made.threads, made.tuning);
    const std::vector<double> expected = Compute(p, memory.data() + pool.start());
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / (p.heads * p.pool.value_size);
      const double got = made.output[kOutputBand + i], want = expected[i];
      const double size = static_cast<int64_t>(i) % p.pool.value_size % 2 == 0 ? kLarge : 1.0;
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : std::fabs(got - want) / size <= 1e-4)
          << "row " << row << " is " << got << ", the reference " << want << "\n"
          << made.description;
    }
  }
}

TEST(Cached, SaysWhatIsWrong) {
  const auto fault = [](auto change) {
    Small small;
    change(small);
    return Validate(small.p);
  };
  EXPECT_EQ(fault([](Small&) {}), "");
  EXPECT_EQ(fault([](Small& s) { s.shared_slots[3] = 32; }),
            "shared_slots[3] is slot 32, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.shared_slots[9] = -1; }),
            "shared_slots[9] is slot -1, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.shared_slots[0] = std::numeric_limits<int32_t>::min(); }),
            "shared_slots[0] is slot -2147483648, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.private_slots[5] = 1000; }),
            "private_slots[5] is slot 1000, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.slot_mapping[1] = 32; }),
            "slot_mapping[1] is slot 32, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.slot_mapping[1] = -2; }),
            "slot_mapping[1] is slot -2, the pool has 32");
  EXPECT_EQ(fault([](Small& s) { s.slot_mapping[1] = -1; }), "");
  EXPECT_EQ(fault([](Small& s) { s.sequences[1] = 0; }), "group 0 has rows 0 .. -1, there are 8");
  EXPECT_EQ(fault([](Small& s) { s.sequences[9] = 6; }), "group 1 has rows 3 .. 8, there are 8");
  EXPECT_EQ(fault([](Small& s) { s.sequences[8] = -1; }), "group 1 has rows -1 .. 3, there are 8");
  EXPECT_EQ(fault([](Small& s) { s.sequences[11] = 7; }),
            "group 1 takes shared_slots[4 .. 11), which has 10");
  EXPECT_EQ(fault([](Small& s) { s.sequences[2] = -1; }),
            "group 0 takes shared_slots[-1 .. 3), which has 10");
  EXPECT_EQ(fault([](Small& s) { s.sequences[5] = 3; }),
            "group 0 takes private_slots[0 .. 9), which has 6");
  EXPECT_EQ(fault([](Small& s) { s.sequences[4] = -2; }),
            "group 0 takes private_slots[-2 .. 4), which has 6");
  EXPECT_EQ(
      fault([](Small& s) { s.sequences[6] = 1; }),
      "group 0 is causal with 3 rows, 4 shared positions and 2 private ones; needed are at least 3 "
      "and 0");
  EXPECT_EQ(
      fault([](Small& s) { s.sequences[11] = 4; }),
      "group 1 is causal with 5 rows, 4 shared positions and 0 private ones; needed are at least 5 "
      "and 0");
  EXPECT_EQ(fault([](Small& s) { s.sequences[6] = 2; }), "group 0 has causal 2, needed is 0 or 1");
  EXPECT_EQ(fault([](Small& s) { s.sequences[7] = 1; }),
            "group 0 has 1 in the reserved column, needed is 0");
  EXPECT_EQ(fault([](Small& s) { s.sequences[8] = 2; }),
            "group 1 begins with row 2, the groups before it end at 3");
  EXPECT_EQ(fault([](Small& s) { s.p.groups = 1; }), "the groups hold 3 rows, there are 8");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.offset = 257; }),
            "a block has 512 floats, the layer takes 256 from 257 on");
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(
      fault([](Small& s) { s.p.pool.offset = kLast - 10; }),
      "a block has 512 floats, the layer takes 256 from " + std::to_string(kLast - 10) + " on");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.offset = -1; }),
            "a block has 512 floats, the layer takes 256 from -1 on");
  EXPECT_EQ(fault([](Small& s) { s.p.heads = 0; }),
            "there are 0 query heads, needed is a multiple of 1 key and value heads");
  EXPECT_EQ(fault([](Small& s) { s.p.value = nullptr; }),
            "key, value and slot_mapping must be given together");
  EXPECT_EQ(fault([](Small& s) { s.p.window = -1; }), "window is -1, needed is 0 or more");
  EXPECT_EQ(fault([](Small& s) { s.p.pool.data = nullptr; }), "the pool has no memory");
}

TEST(Cached, GroupsMayComeInAnyOrderOfTheirRows) {
  Small small;
  std::rotate(small.sequences.begin(), small.sequences.begin() + 8, small.sequences.end());
  EXPECT_EQ(Validate(small.p), "");
}

TEST(Cached, ARowWithoutAnyPositionIsZero) {
  Small small;
  small.sequences = {0, 8, 0, 0, 0, 0, 0, 0};
  small.p.groups = 1;
  ASSERT_EQ(Validate(small.p), "");
  RunPoisoned(small.p, 1, CachedTuning());
  for (float y : small.output) EXPECT_EQ(y, 0.0f);
}

TEST(Cached, ASinkIsAWeightWithoutAValue) {
  Small small;
  const float sinks[] = {-std::numeric_limits<float>::infinity(), 0.75f};
  small.p.sinks = sinks;
  RunPoisoned(small.p, 1, CachedTuning());
  const std::vector<double> want = Compute(small.p, small.memory.data());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(small.output[i], want[i], 1e-6) << i;
  small.sequences = {0, 8, 0, 0, 0, 0, 0, 0};  // no position at all
  small.p.groups = 1;
  RunPoisoned(small.p, 1, CachedTuning());
  for (float y : small.output) EXPECT_EQ(y, 0.0f);
}

TEST(Cached, SmallProblemsStayOnOneThread) {
  Small small;
  static int calls;
  calls = 0;
  Runner runner;
  runner.threads = 8;
  runner.parallel_for = [](void*, int64_t count, void (*task)(void*, int64_t), void* argument) {
    ++calls;
    for (int64_t i = 0; i < count; ++i) task(argument, i);
  };
  std::vector<char> workspace(WorkspaceSize(small.p, runner.threads));
  attention::Run(small.p, workspace.data(), runner);
  EXPECT_EQ(calls, 0);
  // A host that runs tasks one after the other must not hang either.
  CachedTuning tuning;
  tuning.serial_cost = 0;
  attention::Run(small.p, workspace.data(), runner, tuning);
  EXPECT_EQ(calls, 1);
}

TEST(Store, WritesTheSlotsNamedAndNothingElse) {
  Dice random(5);
  for (int index = 0; index < 200; ++index) {
    graft::attention::Pool sizes;
    sizes.storage = kStorages[index % 4];
    sizes.kv_heads = random.Between(1, 3);
    sizes.head_size = random.Between(1, 20);
    sizes.value_size = random.Between(1, 20);
    sizes.offset = random.Between(0, 40);
    sizes.block_floats = sizes.offset + sizes.floats() + random.Between(0, 40);
    StoreProblem p;
    p.batch = random.Between(0, 3);
    p.positions = random.Between(0, 150);
    sizes.blocks = p.batch * p.positions / kBlockSlots + 3;
    GuardedPool pool(sizes, random.Between(0, 3));
    p.pool = pool.pool();
    const int64_t tokens = p.batch * p.positions;
    std::vector<int32_t> slots(static_cast<size_t>(p.pool.slots()));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    random.Shuffle(slots);
    slots.resize(static_cast<size_t>(tokens));
    int64_t stored = 0;
    for (int32_t& slot : slots) {
      if (random.Between(0, 9) == 0) slot = -1;
      stored += slot >= 0 ? 1 : 0;
    }
    p.slot_mapping = slots.data();
    // Tokens first, as CachedAttention's writes come, and the same data by head with strides.
    CachedProblem same;
    same.pool = sizes;
    same.rows = tokens;
    same.key_stride = sizes.kv_heads * sizes.head_size;
    same.value_stride = sizes.kv_heads * sizes.value_size;
    std::vector<float> key, value;
    for (int64_t i = 0; i < tokens * same.key_stride + 1; ++i) key.push_back(static_cast<float>(i));
    for (int64_t i = 0; i < tokens * same.value_stride + 1; ++i) {
      value.push_back(static_cast<float>(-i));
    }
    same.key = key.data();
    same.value = value.data();
    same.slot_mapping = slots.data();
    const bool transposed = random.Between(0, 1) != 0;
    std::vector<float> keys(key);
    p.key = {key.data(), {p.positions * same.key_stride, sizes.head_size, same.key_stride, 1}};
    if (transposed) {  // [batch, heads, size, positions]
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < sizes.kv_heads; ++h) {
          for (int64_t f = 0; f < sizes.head_size; ++f) {
            for (int64_t j = 0; j < p.positions; ++j) {
              keys[static_cast<size_t>(
                  ((b * sizes.kv_heads + h) * sizes.head_size + f) * p.positions + j)] =
                  key[static_cast<size_t>((b * p.positions + j) * same.key_stride +
                                          h * sizes.head_size + f)];
            }
          }
        }
      }
      p.key = {keys.data(),
               {p.positions * same.key_stride, sizes.head_size * p.positions, 1, p.positions}};
    }
    p.value = {value.data(),
               {p.positions * same.value_stride, sizes.value_size, same.value_stride, 1}};
    const std::vector<float> expected = pool.Expected(same);
    ASSERT_EQ(Validate(p), "");
    EXPECT_EQ(attention::Run(p, test::Threads<Runner>(index % 3 + 1)), stored);
    ASSERT_EQ(std::memcmp(expected.data(), pool.memory().data(), expected.size() * sizeof(float)),
              0);
  }
}

TEST(Store, SaysWhatIsWrong) {
  Small small;
  StoreProblem p;
  p.pool = small.p.pool;
  p.batch = 2;
  p.positions = 2;
  p.key = p.value = {small.key.data(), {16, 8, 8, 1}};
  p.slot_mapping = small.slot_mapping.data();
  EXPECT_EQ(Validate(p), "");
  small.slot_mapping[2] = 32;
  EXPECT_EQ(Validate(p), "slot_mapping[2] is slot 32, the pool has 32");
  p.slot_mapping = nullptr;
  EXPECT_EQ(Validate(p), "key, value and slot_mapping are required");
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
