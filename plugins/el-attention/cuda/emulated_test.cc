// The CUDA variant on the emulator, through the plugin's table, against the CPU one: the random
// calls on which the CPU kernel is tested.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "host.h"
#include "row_problem.h"

namespace graft::test {
namespace {

using row_attention::Problem;
using row_attention::Storage;
using row_attention::testing::RandomProblem;

const char* NameOf(Storage storage) {
  return storage == Storage::kFloat32   ? "float32"
         : storage == Storage::kFloat16 ? "float16"
                                        : "bfloat16";
}

// What is allowed between the variants: the CPU holds queries in float32, the GPU rounds them to
// what rows are stored in.
double Allowed(Storage storage, double want) {
  switch (storage) {
    case Storage::kFloat32:
      return 1e-5 + 1e-4 * std::abs(want);
    case Storage::kFloat16:
      return 2.5e-3 + 1e-3 * std::abs(want);
    default:
      return 2e-2 + 1e-2 * std::abs(want);
  }
}

// Tensors of one call, made for each variant anew since both write to the pools.
class Call {
 public:
  explicit Call(const RandomProblem& made) : p_(made.problem) {
    const int64_t t = p_.tokens, panels = (p_.pool.width + 15) / 16;
    const int64_t value_panels = (p_.value_size + 15) / 16;
    const int64_t queries = p_.heads * p_.head_size, keys = p_.kv_heads * p_.head_size;
    const int64_t values = p_.kv_heads * p_.value_size;
    Floats({t, queries}, p_.query, p_.query_stride);
    cache_ = Floats({p_.pool.blocks, p_.pool.block_floats}, p_.pool.data, p_.pool.block_floats);
    Lists({p_.groups, 8}, made.sequences);
    Lists({static_cast<int64_t>(made.shared_slots.size())}, made.shared_slots);
    Floats({p_.kv_heads, panels, p_.head_size, 16}, p_.key_weight);
    Floats({p_.kv_heads, value_panels, p_.pool.width, 16}, p_.value_weight);
    Floats({keys}, p_.key_bias);
    Floats({values}, p_.value_bias);
    Floats({p_.heads, p_.distances}, p_.bias);
    Lists({static_cast<int64_t>(made.private_slots.size())}, made.private_slots);
    Floats({t, p_.pool.width}, p_.input, p_.input_stride);
    Lists({t}, made.slot_mapping, p_.input != nullptr);
    Floats({t, keys}, p_.key, p_.key_stride);
    Floats({t, values}, p_.value, p_.value_stride);
    const bool second = p_.kv_sequences != nullptr;
    kv_cache_ = Floats({p_.kv_pool.blocks, p_.kv_pool.block_floats},
                       second ? p_.kv_pool.data : nullptr, p_.kv_pool.block_floats);
    Lists({p_.groups, 8}, made.kv_sequences, second);
    Lists({static_cast<int64_t>(made.kv_shared_slots.size())}, made.kv_shared_slots, second);
    Lists({static_cast<int64_t>(made.kv_private_slots.size())}, made.kv_private_slots, second);
    Lists({t}, made.kv_slot_mapping, second && p_.key != nullptr);
    output_ = std::make_unique<Buffer>(kFloat32, std::vector<int64_t>{t, p_.heads * p_.value_size});
  }

  // Returns the answer; empty after a failure.
  std::vector<float> Run(const char* library) {
    Kernel kernel(Load(library), "ELAttention");
    Attributes attributes;
    attributes.Int("num_heads", p_.heads).Int("kv_num_heads", p_.kv_heads);
    attributes.Int("head_size", p_.head_size).Int("value_size", p_.value_size);
    attributes.Int("width", p_.pool.width).Int("offset", p_.pool.offset);
    attributes.Int("kv_offset", p_.kv_pool.offset).Int("window", p_.window).Int("output_rank", 2);
    attributes.Float("scale", p_.scale).Float("softcap", p_.softcap);
    attributes.String("storage", NameOf(p_.pool.storage));
    EXPECT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
    const int32_t code = kernel.Run(inputs_, {output_->tensor()});
    EXPECT_EQ(code, GRAFT_OK) << kernel.message.text;
    for (const auto& buffer : buffers_) EXPECT_TRUE(buffer->intact());
    EXPECT_TRUE(output_->intact());
    return code == GRAFT_OK ? output_->Get<float>() : std::vector<float>();
  }

  std::vector<uint32_t> cache() const { return cache_->Get<uint32_t>(); }
  std::vector<uint32_t> kv_cache() const {
    return kv_cache_ == nullptr ? std::vector<uint32_t>() : kv_cache_->Get<uint32_t>();
  }

 private:
  Buffer* Add(DataType type, const std::vector<int64_t>& shape) {
    buffers_.push_back(std::make_unique<Buffer>(type, shape));
    inputs_.push_back(buffers_.back()->tensor());
    return buffers_.back().get();
  }
  // Rows of a matrix that stand `stride` apart in `from`, compact; absent where `from` is null.
  Buffer* Floats(const std::vector<int64_t>& shape, const float* from, int64_t stride = -1) {
    if (from == nullptr) {
      inputs_.push_back(nullptr);
      return nullptr;
    }
    Buffer* buffer = Add(kFloat32, shape);
    int64_t width = 1;
    for (size_t i = stride < 0 ? 0 : 1; i < shape.size(); ++i) width *= shape[i];
    const int64_t rows = stride < 0 ? 1 : shape[0];
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(buffer->data<float>() + r * width, from + r * std::max<int64_t>(stride, 0),
                  static_cast<size_t>(width) * sizeof(float));
    }
    return buffer;
  }
  void Lists(const std::vector<int64_t>& shape, const std::vector<int32_t>& values,
             bool given = true) {
    if (!given) {
      inputs_.push_back(nullptr);
    } else {
      Add(kInt32, shape)->Set(values);
    }
  }

  const Problem& p_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<const graft_tensor*> inputs_;
  Buffer* cache_ = nullptr;
  Buffer* kv_cache_ = nullptr;
  std::unique_ptr<Buffer> output_;
};

// Calls that the emulator runs in less than a second.
bool IsSmall(const Problem& p) {
  return p.tokens * p.heads * (p.shared_length + p.private_length + p.kv_private_length) < 20000;
}

TEST(ElAttentionCuda, AnswersAsTheCpuVariant) {
  int rounds = 0, halves = 0, seconds = 0;
  for (uint32_t index = 0; rounds < 120; ++index) {
    RandomProblem made;
    row_attention::testing::Make(index, made);
    const Problem& p = made.problem;
    if (p.kind != row_attention::RowKind::kHiddenStates || !IsSmall(p)) continue;
    ++rounds;
    halves += p.pool.storage != Storage::kFloat32;
    seconds += p.kv_sequences != nullptr;
    Call cuda(made), cpu(made);
    const std::vector<float> got = cuda.Run(CUDA_LIBRARY), want = cpu.Run(CPU_LIBRARY);
    ASSERT_EQ(got.size(), want.size()) << made.description;
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_LE(std::abs(double{got[i]} - want[i]), Allowed(p.pool.storage, want[i]))
          << "element " << i << ": " << got[i] << ", the CPU gives " << want[i] << "; "
          << made.description;
    }
    ASSERT_EQ(cuda.cache(), cpu.cache()) << made.description;
    ASSERT_EQ(cuda.kv_cache(), cpu.kv_cache()) << made.description;
  }
  EXPECT_GT(halves, 20);
  EXPECT_GT(seconds, 20);
}

TEST(ElAttentionCuda, StoresRowsAsTheCpuVariant) {
  for (const char* storage : {"float32", "float16", "bfloat16"}) {
    for (const int64_t width : {1, 24, 300}) {
      const int64_t count = 9, blocks = 2, floats = 16 * width + 3;
      Buffer rows(kFloat32, {3, 3, width}), slot_mapping(kInt32, {count});
      for (int64_t i = 0; i < count * width; ++i) {
        rows.data<float>()[i] = std::sin(static_cast<float>(i)) * 3;
      }
      slot_mapping.Set<int32_t>({4, -1, 31, 0, 17, 16, -1, 3, 15});
      std::vector<uint32_t> caches[2];
      for (const bool cuda : {false, true}) {
        Buffer cache(kFloat32, {blocks, floats}), stored(kInt32, {1});
        Kernel kernel(Load(cuda ? CUDA_LIBRARY : CPU_LIBRARY), "StoreRows");
        Attributes attributes;
        attributes.Int("width", width).Int("offset", 3).String("storage", storage);
        ASSERT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
        ASSERT_EQ(
            kernel.Run({rows.tensor(), cache.tensor(), slot_mapping.tensor()}, {stored.tensor()}),
            GRAFT_OK)
            << kernel.message.text;
        EXPECT_EQ(stored.Get<int32_t>(), std::vector<int32_t>{7});
        EXPECT_TRUE(cache.intact() && stored.intact());
        caches[cuda ? 1 : 0] = cache.Get<uint32_t>();
      }
      EXPECT_EQ(caches[0], caches[1]) << storage << ' ' << width;
    }
  }
}

// Lists are device memory, which the host never reads: a slot out of range is left out.
TEST(ElAttentionCuda, LeavesOutSlotsThatThePoolLacks) {
  Buffer rows(kFloat32, {3, 2}), slot_mapping(kInt32, {3}), cache(kFloat32, {1, 32}),
      stored(kInt32, {1});
  rows.Set<float>({1, 2, 3, 4, 5, 6});
  slot_mapping.Set<int32_t>({16, -7, 15});
  Kernel kernel(Load(CUDA_LIBRARY), "StoreRows");
  Attributes attributes;
  attributes.Int("width", 2);
  ASSERT_EQ(kernel.Create(attributes), GRAFT_OK) << kernel.message.text;
  ASSERT_EQ(kernel.Run({rows.tensor(), cache.tensor(), slot_mapping.tensor()}, {stored.tensor()}),
            GRAFT_OK);
  EXPECT_EQ(stored.Get<int32_t>(), std::vector<int32_t>{1});
  EXPECT_TRUE(cache.intact());
  EXPECT_EQ(cache.data<float>()[30], 5);
  EXPECT_EQ(cache.data<float>()[31], 6);
  EXPECT_TRUE(std::isnan(cache.data<float>()[0]));
}

TEST(ElAttentionCuda, RefusesRowsThatAreTooWide) {
  Buffer rows(kFloat32, {1, 16385}), slot_mapping(kInt32, {1}), stored(kInt32, {1});
  Buffer cache(kFloat32, {1, 16 * 16385});
  Kernel kernel(Load(CUDA_LIBRARY), "StoreRows");
  Attributes attributes;
  attributes.Int("width", 16385);
  ASSERT_EQ(kernel.Create(attributes), GRAFT_OK);
  EXPECT_NE(kernel.Run({rows.tensor(), cache.tensor(), slot_mapping.tensor()}, {stored.tensor()}),
            GRAFT_OK);
  EXPECT_STREQ(kernel.message.text, "StoreRows: width is 16385, needed is at most 16384");
}

}  // namespace
}  // namespace graft::test
