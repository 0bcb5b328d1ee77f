// The CUDA variant on the emulator, through the plugin's table, against the CPU one on random
// problems over the whole signature.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cached_problem.h"
#include "host.h"
#include "random_problem.h"
#include "reference.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

using graft::test::Attributes;
using graft::test::Buffer;
using graft::test::Kernel;
using graft::test::Load;

constexpr int kProblems = 200;

// A tensor of a problem as the ABI names it.
class View {
 public:
  View(DataType type, const void* data, std::vector<int64_t> shape, std::vector<int64_t> strides)
      : shape_(std::move(shape)), strides_(std::move(strides)) {
    tensor_ = {const_cast<void*>(data),
               {GRAFT_DEVICE_CPU, 0},
               static_cast<int32_t>(shape_.size()),
               type,
               shape_.data(),
               strides_.empty() ? nullptr : strides_.data(),
               0};
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  graft_tensor* tensor() { return &tensor_; }

 private:
  std::vector<int64_t> shape_, strides_;
  graft_tensor tensor_{};
};

// The tensors of one call; null ones are absent.
class Call {
 public:
  void In(DataType type, const void* data, std::vector<int64_t> shape,
          std::vector<int64_t> strides) {
    Add(&inputs_, type, data, std::move(shape), std::move(strides));
  }
  void Out(DataType type, const void* data, std::vector<int64_t> shape,
           std::vector<int64_t> strides) {
    Add(&outputs_, type, data, std::move(shape), std::move(strides));
  }
  void Run(const char* library, const char* name, const Attributes& attributes) {
    Kernel kernel(Load(library), name);
    ASSERT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
    ASSERT_EQ(kernel.Run({inputs_.begin(), inputs_.end()}, outputs_), GRAFT_OK)
        << kernel.message.text;
  }

 private:
  void Add(std::vector<graft_tensor*>* to, DataType type, const void* data,
           std::vector<int64_t> shape, std::vector<int64_t> strides) {
    if (data == nullptr) return to->push_back(nullptr);
    views_.push_back(std::make_unique<View>(type, data, std::move(shape), std::move(strides)));
    to->push_back(views_.back()->tensor());
  }
  std::vector<std::unique_ptr<View>> views_;
  std::vector<graft_tensor*> inputs_, outputs_;
};

bool Close(double got, double want, double absolute, double relative) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= absolute + relative * std::fabs(want);
}

std::vector<int64_t> StridesOf(const Strides& s) {
  return {s.batch, s.head, s.position, s.feature};
}

Attributes AttributesOf(const Problem& p) {
  Attributes a;
  a.Int("num_heads", p.heads).Int("kv_num_heads", p.kv_heads);
  a.Float("scale", p.scale).Float("softcap", p.softcap);
  a.Int("is_causal", p.causal).Int("window", p.window);
  a.Int("causal_from_lengths", p.diagonal == DiagonalFrom::kLengths);
  a.Float("mask_fill", p.mask_fill).Int("mask_after_bias", p.mask_after_bias);
  a.Int("zero_masked_rows", p.zero_masked_rows).Int("clear_nan", p.clear_nan);
  a.Int("scores_mode", static_cast<int64_t>(p.scores_stage));
  return a;
}

// Whether the signature can say what the problem says: keys are hidden by a limit only where a mask
// or bias of several columns ends before them.
bool CanExpress(const RandomProblem& made) {
  const Problem& p = made.problem;
  if (p.key_limit >= p.past + p.fresh) return true;
  const auto limits = [](const Input& input) {
    return input.data != nullptr && input.strides.feature != 0;
  };
  return p.key_limit > 1 && (limits(p.bias) || limits(p.mask));
}

void RunProblem(RandomProblem& made, const char* library) {
  const Problem& p = made.problem;
  const DataType type = p.type == Type::kFloat32 ? kFloat32 : kFloat16;
  const int64_t keys = p.past + p.fresh;
  const int64_t columns = std::min(keys, p.key_limit);
  Call call;
  const auto in = [&](const Input& input, int64_t heads, int64_t positions, int64_t size) {
    call.In(type, input.data, {p.batch, heads, positions, size}, StridesOf(input.strides));
  };
  in(p.query, p.heads, p.queries, p.head_size);
  in(p.key, p.kv_heads, p.fresh, p.head_size);
  in(p.value, p.kv_heads, p.fresh, p.value_size);
  in(p.past_key, p.kv_heads, p.past, p.head_size);
  in(p.past_value, p.kv_heads, p.past, p.value_size);
  const auto broadcast = [&](const Input& input, DataType of) {
    const Strides& s = input.strides;
    call.In(of, input.data,
            {s.batch == 0 ? 1 : p.batch, s.head == 0 ? 1 : p.heads, s.position == 0 ? 1 : p.queries,
             s.feature == 0 ? 1 : columns},
            StridesOf(s));
  };
  broadcast(p.bias, type);
  broadcast(p.mask, kBool);
  if (p.lengths64 != nullptr) {
    call.In(kInt64, p.lengths64, {p.batch}, {});
  } else {
    call.In(kInt32, p.lengths32, {p.batch}, {});
  }
  const auto out = [&](const Output& output, int64_t heads, int64_t positions, int64_t size) {
    call.Out(type, output.data, {p.batch, heads, positions, size}, StridesOf(output.strides));
  };
  out(p.output, p.heads, p.queries, p.value_size);
  out(p.present_key, p.kv_heads, keys, p.head_size);
  out(p.present_value, p.kv_heads, keys, p.value_size);
  out(p.scores, p.heads, p.queries, keys);
  call.Run(library, "FlashDecode", AttributesOf(p));
}

TEST(FlashDecodeCuda, AnswersAsTheCpuVariant) {
  int compared = 0;
  for (int index = 0; index < kProblems; ++index) {
    RandomProblem cpu, cuda;
    Make(static_cast<uint32_t>(index), cpu);
    Make(static_cast<uint32_t>(index), cuda);
    cpu.problem.sinks = nullptr;  // which the CPU variant alone takes
    const Problem& p = cpu.problem;
    if (!CanExpress(cpu) || p.past + p.fresh == 0) continue;
    ++compared;
    ASSERT_NO_FATAL_FAILURE(RunProblem(cpu, CPU_LIBRARY)) << cpu.description;
    ASSERT_NO_FATAL_FAILURE(RunProblem(cuda, CUDA_LIBRARY)) << cpu.description;
    const Expected expected = Compute(p);
    const bool half = p.type == Type::kFloat16;
    const auto compare = [&](Tensor& got, Tensor& want, int64_t row, bool exact, const char* what) {
      if (want.empty()) return;
      EXPECT_FALSE(got.Damaged()) << what << ": wrote outside\n" << cpu.description;
      int64_t at = 0;
      want.ForEach([&](int64_t i, int64_t, int64_t, int64_t, int64_t) {
        const double slack = exact ? 0 : 8 * expected.slack[static_cast<size_t>(at++ / row)];
        const double g = Element(p.type, got.data(), i), w = Element(p.type, want.data(), i);
        if (exact ? Close(g, w, 0, 0)
                  : Close(g, w, (half ? 2.5e-3 : 2e-5) + slack, (half ? 2e-3 : 2e-4) + slack)) {
          return;
        }
        ADD_FAILURE() << what << '[' << i << "] is " << g << ", the CPU gives " << w << '\n'
                      << cpu.description;
      });
    };
    compare(cuda.output, cpu.output, p.value_size, false, "output");
    compare(cuda.scores, cpu.scores, p.past + p.fresh, false, "scores");
    compare(cuda.present_key, cpu.present_key, 1, true, "present_key");
    compare(cuda.present_value, cpu.present_value, 1, true, "present_value");
    if (HasFailure()) FAIL() << "problem " << index;
  }
  EXPECT_GT(compared, kProblems * 9 / 10);
}

// Layouts, folded heads, queries, keys and values side by side, and present in past's memory.
TEST(FlashDecodeCuda, TakesEveryLayout) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto shape_of = [](const std::string& layout, int64_t b, int64_t h, int64_t s, int64_t d) {
    if (layout == "bhsd") return std::vector<int64_t>{b, h, s, d};
    if (layout == "bshd") return std::vector<int64_t>{b, s, h, d};
    if (layout == "bhds") return std::vector<int64_t>{b, h, d, s};
    return std::vector<int64_t>{b, s, h * d};  // folded
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t b = pick(1, 2), g = pick(1, 2), h = g * pick(1, 3), s = pick(1, 4);
    const int64_t d = pick(0, 3) == 0 ? pick(1, 9) : 8 * pick(1, 6),
                  past = pick(0, 1) * pick(1, 40);
    const bool packed = pick(0, 3) == 0, folded = packed || pick(0, 1) == 0;
    const bool in_place = past > 0 && pick(0, 2) == 0;
    const char* rows[] = {"bhsd", "bshd"};
    const char* any[] = {"bhsd", "bshd", "bhds"};
    const std::string query = folded ? "folded" : rows[pick(0, 1)];
    const std::string key = folded ? "folded" : any[pick(0, 2)];
    const std::string value = folded ? "folded" : rows[pick(0, 1)], output = rows[pick(0, 1)];
    Attributes a;
    a.Int("num_heads", h).Int("kv_num_heads", g).Int("packed_qkv", packed).Int("is_causal", 1);
    a.String("output_layout", output.c_str());
    if (!folded) {
      a.String("query_layout", query.c_str());
      a.String("key_layout", key.c_str()).String("value_layout", value.c_str());
    }
    const bool half = pick(0, 1) == 1;
    const DataType type = half ? kFloat16 : kFloat32;
    const auto fill = [&](Buffer& x) {
      int64_t count = 1;
      for (int32_t i = 0; i < x.tensor()->ndim; ++i) count *= x.tensor()->shape[i];
      std::uniform_real_distribution<float> sample(-1.5f, 1.5f);
      for (int64_t i = 0; i < count; ++i) {
        if (half) {
          x.data<Float16>()[i] = Float16::From(sample(random));
        } else {
          x.data<float>()[i] = sample(random);
        }
      }
    };
    Buffer q(type, shape_of(query, b, packed ? h + 2 * g : h, s, d)),
        k(type, shape_of(key, b, g, s, d));
    Buffer v(type, shape_of(value, b, g, s, d)), pk(type, {b, g, past, d}),
        pv(type, {b, g, past, d});
    for (Buffer* x : {&q, &k, &v, &pk, &pv}) fill(*x);
    std::vector<std::vector<double>> answers;
    for (const char* library : {CPU_LIBRARY, CUDA_LIBRARY}) {
      Buffer out(type, shape_of(output, b, h, s, d));
      Buffer present_k(type, {b, g, past + s, d}), present_v(type, {b, g, past + s, d});
      // A buffer with room for the new positions: past is the first of them.
      Buffer old_k(type, {b, g, past, d}), old_v(type, {b, g, past, d});
      std::vector<const graft_tensor*> inputs = {q.tensor()};
      inputs.push_back(packed ? nullptr : k.tensor());
      inputs.push_back(packed ? nullptr : v.tensor());
      std::vector<std::unique_ptr<View>> views;
      if (past > 0) {
        for (auto [from, to] : {std::pair(&pk, &present_k), std::pair(&pv, &present_v)}) {
          if (!in_place) {
            inputs.push_back(from->tensor());
            continue;
          }
          const int64_t bytes = d * (half ? 2 : 4);
          for (int64_t row = 0; row < b * g; ++row) {
            std::memcpy(to->data<char>() + row * (past + s) * bytes,
                        from->data<char>() + row * past * bytes, static_cast<size_t>(past * bytes));
          }
          views.push_back(std::make_unique<View>(
              type, to->data<void>(), std::vector<int64_t>{b, g, past, d},
              std::vector<int64_t>{g * (past + s) * d, (past + s) * d, d, 1}));
          inputs.push_back(views.back()->tensor());
        }
      }
      Kernel kernel(Load(library), "FlashDecode");
      ASSERT_EQ(kernel.Create(a), GRAFT_OK) << kernel.message.text;
      ASSERT_EQ(kernel.Run(inputs, {out.tensor(), present_k.tensor(), present_v.tensor()}),
                GRAFT_OK)
          << kernel.message.text;
      EXPECT_TRUE(out.intact() && present_k.intact() && present_v.intact());
      answers.emplace_back();
      for (Buffer* x : {&out, &present_k, &present_v}) {
        const int64_t count = x == &out ? b * h * s * d : b * g * (past + s) * d;
        for (int64_t i = 0; i < count; ++i) {
          answers.back().push_back(half ? x->data<Float16>()[i].ToFloat() : x->data<float>()[i]);
        }
      }
    }
    for (size_t i = 0; i < answers[0].size(); ++i) {
      ASSERT_TRUE(Close(answers[1][i], answers[0][i], half ? 2.5e-3 : 2e-5, half ? 2e-3 : 2e-4))
          << "round " << round << ", number " << i << " is " << answers[1][i] << ", the CPU gives "
          << answers[0][i];
    }
  }
}

// Rows of `width` floats from rows that stand `stride` apart.
std::vector<float> Compact(const float* from, int64_t rows, int64_t width, int64_t stride) {
  std::vector<float> to;
  for (int64_t r = 0; r < rows; ++r)
    to.insert(to.end(), from + r * stride, from + r * stride + width);
  return to;
}

void RunCached(RandomCachedProblem& made, const char* library, bool packed) {
  const CachedProblem& p = made.problem;
  const Pool& pool = p.pool;
  const int64_t q = p.heads * pool.head_size, k = pool.kv_heads * pool.head_size;
  const int64_t v = pool.kv_heads * pool.value_size;
  std::vector<float> query = Compact(p.query, p.rows, q, p.query_stride), key, value;
  if (p.key != nullptr) {
    key = Compact(p.key, p.rows, k, p.key_stride);
    value = Compact(p.value, p.rows, v, p.value_stride);
  }
  packed = packed && p.key != nullptr;
  if (packed) {
    std::vector<float> all;
    for (int64_t r = 0; r < p.rows; ++r) {
      all.insert(all.end(), query.begin() + r * q, query.begin() + (r + 1) * q);
      all.insert(all.end(), key.begin() + r * k, key.begin() + (r + 1) * k);
      all.insert(all.end(), value.begin() + r * v, value.begin() + (r + 1) * v);
    }
    query = all;
  }
  Attributes a;
  a.Int("num_heads", p.heads).Int("kv_num_heads", pool.kv_heads);
  a.Int("head_size", pool.head_size).Int("value_size", pool.value_size).Int("offset", pool.offset);
  a.Float("scale", p.scale).Float("softcap", p.softcap).Int("window", p.window);
  Call call;
  const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  call.In(kFloat32, query.data(), {p.rows, p.rows == 0 ? q : size(query) / p.rows}, {});
  call.In(kFloat32, packed || p.key == nullptr ? nullptr : key.data(), {p.rows, k}, {});
  call.In(kFloat32, packed || p.key == nullptr ? nullptr : value.data(), {p.rows, v}, {});
  call.In(kFloat32, pool.data, {pool.blocks, pool.block_floats}, {});
  call.In(kInt32, p.sequences, {p.groups, 8}, {});
  call.In(kInt32, p.shared_slots, {p.shared_length}, {});
  call.In(kInt32, p.private_slots, {p.private_length}, {});
  call.In(kInt32, p.key == nullptr ? nullptr : p.slot_mapping, {p.rows}, {});
  if (p.bias_stride > 0) {
    call.In(kFloat32, p.bias, {p.rows, p.heads, p.distances}, {});
  } else {
    call.In(kFloat32, p.bias, {p.heads, p.distances}, {});
  }
  call.Out(kFloat32, p.output, {p.rows, p.heads, 1, pool.value_size}, {});
  call.Run(library, "CachedAttention", a);
}

TEST(CachedAttentionCuda, AnswersAsTheCpuVariant) {
  for (int index = 0; index < kProblems; ++index) {
    RandomCachedProblem cpu, cuda;
    Make(static_cast<uint32_t>(index), cpu);
    Make(static_cast<uint32_t>(index), cuda);
    if (cpu.problem.rows == 0) continue;
    ASSERT_NO_FATAL_FAILURE(RunCached(cpu, CPU_LIBRARY, index % 3 == 0)) << cpu.description;
    ASSERT_NO_FATAL_FAILURE(RunCached(cuda, CUDA_LIBRARY, index % 3 == 0)) << cpu.description;
    for (size_t i = 0; i < cpu.output.size(); ++i) {
      ASSERT_TRUE(Close(cuda.output[i], cpu.output[i], 2e-5, 2e-4))
          << "output[" << i << "] is " << cuda.output[i] << ", the CPU gives " << cpu.output[i]
          << '\n'
          << cpu.description;
    }
    ASSERT_EQ(std::memcmp(cuda.pool[0].memory().data(), cpu.pool[0].memory().data(),
                          cpu.pool[0].memory().size() * sizeof(float)),
              0)
        << "the pool differs\n"
        << cpu.description;
  }
}

// What the CPU refuses, because it reads lists first, a device does without: no key, no write.
TEST(CachedAttentionCuda, FollowsNoIndexOutOfRange) {
  std::vector<float> query(2 * 8, 0.5f), key(2 * 8, 1), value(2 * 8, 3);
  Buffer pool(kFloat32, {2, 16 * 16}), out(kFloat32, {2, 1, 1, 8});
  pool.Set(std::vector<float>(2 * 16 * 16, 1.0f));
  const std::vector<int32_t> sequences = {0, 2, 0, 3, 0, 1, 0, 0}, shared_slots = {5, -1, 1 << 30},
                             private_slots = {32, 7}, slot_mapping = {32, -7};
  Call call;
  call.In(kFloat32, query.data(), {2, 8}, {});
  call.In(kFloat32, key.data(), {2, 8}, {});
  call.In(kFloat32, value.data(), {2, 8}, {});
  call.In(kFloat32, pool.data<void>(), {2, 256}, {});
  call.In(kInt32, sequences.data(), {1, 8}, {});
  call.In(kInt32, shared_slots.data(), {3}, {});
  call.In(kInt32, private_slots.data(), {2}, {});
  call.In(kInt32, slot_mapping.data(), {2}, {});
  call.In(kFloat32, nullptr, {}, {});
  call.Out(kFloat32, out.data<void>(), {2, 1, 1, 8}, {});
  Attributes a;
  a.Int("num_heads", 1).Int("head_size", 8);
  call.Run(CUDA_LIBRARY, "CachedAttention", a);
  EXPECT_TRUE(pool.intact() && out.intact());
  EXPECT_EQ(pool.Get<float>(), std::vector<float>(2 * 16 * 16, 1.0f));
  EXPECT_EQ(out.Get<float>(), std::vector<float>(16, 1.0f));
}

// A pool of another type than the queries' is read on the CPU alone.
TEST(CachedAttentionCuda, RefusesOtherTypesOfThePool) {
  for (const char* storage : {"float16", "bfloat16", "int8"}) {
    Attributes a;
    a.Int("num_heads", 1).Int("head_size", 8).String("storage", storage);
    Kernel kernel(Load(CUDA_LIBRARY), "CachedAttention");
    EXPECT_NE(kernel.Create(a), GRAFT_OK);
    EXPECT_STREQ(kernel.message.text,
                 "CachedAttention: storage is a type that this operator reads on the CPU alone, "
                 "needed is float32");
  }
}

TEST(StoreCacheCuda, StoresAsTheCpuVariant) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> sample(-1, 1);
  for (int round = 0; round < 30; ++round) {
    const int64_t n = 1 + round % 3, s = 1 + round % 7, heads = 1 + round % 2, d = 4 + round % 5;
    const int64_t blocks = 4, floats = 3 + heads * 16 * (d + d + 1);
    Buffer key(kFloat32, {n, s, heads * d}), value(kFloat32, {n, heads, s, d + 1});
    std::vector<float> numbers(static_cast<size_t>(n * s * heads * d));
    for (float& x : numbers) x = sample(random);
    key.Set(numbers);
    numbers.resize(static_cast<size_t>(n * s * heads * (d + 1)), 0.25f);
    value.Set(numbers);
    std::vector<int32_t> slots(64), slot_mapping;
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    std::shuffle(slots.begin(), slots.end(), random);
    for (int64_t i = 0; i < n * s; ++i)
      slot_mapping.push_back(i % 4 == 3 ? -1 : slots[static_cast<size_t>(i)]);
    Attributes a;
    a.Int("kv_num_heads", heads).Int("head_size", d).Int("value_size", d + 1).Int("offset", 3);
    std::vector<std::vector<float>> pools;
    std::vector<int32_t> counts;
    for (const char* library : {CPU_LIBRARY, CUDA_LIBRARY}) {
      Buffer pool(kFloat32, {blocks, floats}), count(kInt32, {1});
      pool.Set(std::vector<float>(static_cast<size_t>(blocks * floats), 7.0f));
      Buffer list(kInt32, {n * s});
      list.Set(slot_mapping);
      Kernel kernel(Load(library), "StoreCache");
      ASSERT_EQ(kernel.Create(a), GRAFT_OK) << kernel.message.text;
      ASSERT_EQ(kernel.Run({key.tensor(), value.tensor(), pool.tensor(), list.tensor()},
                           {count.tensor()}),
                GRAFT_OK)
          << kernel.message.text;
      EXPECT_TRUE(pool.intact() && count.intact());
      pools.push_back(pool.Get<float>());
      counts.push_back(count.data<int32_t>()[0]);
    }
    EXPECT_EQ(pools[0], pools[1]) << round;
    EXPECT_EQ(counts[0], counts[1]) << round;
  }
}

}  // namespace
}  // namespace testing
}  // namespace attention
}  // namespace graft
