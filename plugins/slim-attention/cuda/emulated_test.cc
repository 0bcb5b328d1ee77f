// The CUDA variant on the emulator, through the plugin's table, against the CPU one: the random
// layers of tests/slim_problem.h, stored in every type.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "../../../kernels-cuda/device/number.h"
#include "host.h"
#include "slim_problem.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

using test::Attributes;
using test::Buffer;

constexpr const char* kStorages[] = {"float32", "float16", "bfloat16"};

// What a storage may cost a number.
double Allowed(Storage storage, double want) {
  switch (storage) {
    case Storage::kFloat16:
      return 2.5e-3 + 1e-3 * std::fabs(want);
    case Storage::kBfloat16:
      return 2e-2 + 1e-2 * std::fabs(want);
    case Storage::kFloat32:
      break;
  }
  return 1e-5 + 1e-4 * std::fabs(want);
}

// The tensors of one layer as an operator takes them; the cache is the operator's own.
class Call {
 public:
  Call(const Layer& made, Storage storage) : made_(made), p_(made.problem), storage_(storage) {
    pool_ = p_.pool;
    pool_.storage = storage;
    pool_.block_floats = pool_.offset + pool_.area_floats();
    cache_ =
        std::make_unique<Buffer>(kFloat32, std::vector<int64_t>{pool_.blocks, pool_.block_floats});
    cache_->Set(std::vector<float>(static_cast<size_t>(pool_.blocks * pool_.block_floats),
                                   std::numeric_limits<float>::quiet_NaN()));
    for (int64_t slot = 0; slot < pool_.slots(); ++slot) {
      const float* from = p_.pool.data + p_.pool.RowOffset(slot) / 4;
      auto* to = reinterpret_cast<char*>(cache_->data<float>()) + pool_.RowOffset(slot);
      for (int64_t c = 0; c < pool_.width; ++c) Put(to, c, from[c]);
    }
  }

  const char* name() const { return p_.kind == RowKind::kKeys ? "KeyAttention" : "InputAttention"; }

  // The code of the run; output and skipped are left in this call's buffers.
  int32_t Run(const char* library) {
    test::Kernel kernel(test::Load(library), name());
    int32_t code = kernel.Create(MakeAttributes());
    output_ = std::make_unique<Buffer>(kFloat32,
                                       std::vector<int64_t>{p_.tokens, p_.heads, 1, p_.value_size});
    skipped_ = std::make_unique<Buffer>(kFloat32, std::vector<int64_t>{p_.tokens, p_.heads});
    std::vector<graft_tensor*> outputs{output_->tensor()};
    if (p_.kind == RowKind::kKeys) {
      outputs.push_back(p_.skipped != nullptr ? skipped_->tensor() : nullptr);
    }
    if (code == GRAFT_OK) code = kernel.Run(MakeInputs(), outputs);
    message_ = kernel.message.text;
    return code;
  }

  std::vector<float> output() { return output_->Get<float>(); }
  std::vector<float> skipped() { return skipped_->Get<float>(); }
  std::vector<int32_t> cache() { return cache_->Get<int32_t>(); }  // bits: it holds NaN
  bool intact() const {
    for (const auto& buffer : inputs_) {
      if (!buffer->intact()) return false;
    }
    return cache_->intact() && output_->intact() && skipped_->intact();
  }
  const std::string& message() const { return message_; }

 private:
  void Put(char* to, int64_t c, float x) const {
    if (storage_ == Storage::kFloat32) {
      reinterpret_cast<float*>(to)[c] = x;
    } else {
      reinterpret_cast<uint16_t*>(to)[c] =
          storage_ == Storage::kFloat16 ? cuda::NarrowToHalf(x) : cuda::NarrowToBFloat16(x);
    }
  }

  Attributes MakeAttributes() const {
    Attributes a;
    a.Int("num_heads", p_.heads).Int("head_size", p_.head_size).Int("value_size", p_.value_size);
    a.Int("offset", p_.pool.offset).String("storage", kStorages[static_cast<int>(storage_)]);
    a.Float("scale", p_.scale).Float("softcap", p_.softcap).Int("window", p_.window);
    if (p_.kind != RowKind::kKeys) {
      a.Int("width", p_.pool.width).Int("kv_num_heads", p_.kv_heads);
      return a;
    }
    const char* names[] = {"none", "half", "interleaved"};
    a.String("rotary", names[static_cast<int>(p_.rotary)]).Int("rotated", p_.rotated);
    a.Float("skip", p_.skip);
    return a;
  }

  // A tensor of what a pointer holds, or none where there is no pointer.
  template <typename T>
  const graft_tensor* Tensor(const T* values, std::vector<int64_t> shape) {
    if (values == nullptr) return nullptr;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    inputs_.push_back(std::make_unique<Buffer>(std::is_same<T, float>::value ? kFloat32 : kInt32,
                                               std::move(shape)));
    inputs_.back()->Set(std::vector<T>(values, values + count));
    return inputs_.back()->tensor();
  }

  std::vector<const graft_tensor*> MakeInputs() {
    inputs_.clear();
    const int64_t width = p_.pool.width, panels = (p_.value_size + kPanel - 1) / kPanel;
    static const int32_t none = 0;  // where a list is empty, but must be there
    std::vector<const graft_tensor*> all{
        Tensor(p_.query, {p_.tokens, p_.heads * p_.head_size}), cache_->tensor(),
        Tensor(p_.sequences, {p_.groups, 8}),
        Tensor(p_.shared_slots != nullptr ? p_.shared_slots : &none, {p_.shared_length})};
    if (p_.kind != RowKind::kKeys) {
      all.push_back(Tensor(p_.key_weight,
                           {p_.kv_heads, (width + kPanel - 1) / kPanel, p_.head_size, kPanel}));
    }
    all.push_back(Tensor(p_.value_weight, {p_.kv_heads, panels, width, kPanel}));
    if (p_.kind != RowKind::kKeys) {
      all.push_back(Tensor(p_.key_bias, {p_.kv_heads * p_.head_size}));
    }
    all.push_back(Tensor(p_.value_bias, {p_.kv_heads * p_.value_size}));
    all.push_back(Tensor(p_.bias, {p_.heads, p_.distances}));
    all.push_back(Tensor(p_.private_slots, {p_.private_length}));
    all.push_back(Tensor(p_.input, {p_.tokens, width}));
    all.push_back(Tensor(p_.slot_mapping, {p_.tokens}));
    if (p_.kind == RowKind::kKeys) {
      all.push_back(Tensor(p_.cosine, {p_.positions, p_.pairs}));
      all.push_back(Tensor(p_.sine, {p_.positions, p_.pairs}));
    }
    return all;
  }

  const Layer& made_;
  const Problem& p_;
  Storage storage_;
  RowPool pool_;
  std::unique_ptr<Buffer> cache_, output_, skipped_;
  std::vector<std::unique_ptr<Buffer>> inputs_;
  std::string message_;
};

TEST(SlimCuda, AnswersAsTheCpuVariant) {
  for (int index = 0; index < 400; ++index) {
    Layer made;
    Make(static_cast<uint32_t>(index), 4.0, made);
    // What is skipped depends on the order of keys; then the reference is float64, over floats.
    const bool skips = made.problem.skip > 0;
    const auto storage = static_cast<Storage>(skips ? 0 : index % 3);
    SCOPED_TRACE(made.description + ", " + kStorages[static_cast<int>(storage)]);
    Call cpu(made, storage), cuda(made, storage);
    ASSERT_EQ(cpu.Run(CPU_LIBRARY), GRAFT_OK) << cpu.message();
    ASSERT_EQ(cuda.Run(CUDA_LIBRARY), GRAFT_OK) << cuda.message();
    ASSERT_TRUE(cuda.intact());
    ASSERT_EQ(cpu.cache(), cuda.cache());
    std::vector<float> want = cpu.output();
    const std::vector<float> got = cuda.output(), skipped = cuda.skipped();
    const Answer answer = skips ? Compute(made) : Answer();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / static_cast<size_t>(made.problem.value_size);
      if (skips) want[i] = static_cast<float>(answer.output[i]);
      double allowed = Allowed(storage, want[i]);
      if (skips) allowed += 1.01 * skipped[row] * answer.largest[row];
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_LE(std::fabs(got[i] - want[i]), allowed)
          << "output " << i << " is " << got[i] << ", wanted " << want[i];
      if (skips) {
        ASSERT_LE(skipped[row], answer.below_skip[row] * 1.05 + 1e-6);
      }
    }
  }
}

TEST(SlimCuda, StoresRowsAsTheCpuVariant) {
  constexpr int64_t kWidth = 20, kRows = 9;
  for (const char* storage : kStorages) {
    std::vector<std::vector<int32_t>> results;
    for (const char* library : {CPU_LIBRARY, CUDA_LIBRARY}) {
      Buffer rows(kFloat32, {kRows, kWidth}), slot_mapping(kInt32, {kRows}), count(kInt32, {1});
      Buffer cache(kFloat32, {2, 16 * kWidth + 3});
      std::vector<float> values;
      for (int i = 0; i < kRows * kWidth; ++i) values.push_back(std::sin(static_cast<float>(i)));
      rows.Set(values);
      slot_mapping.Set(std::vector<int32_t>{3, -1, 0, 31, 16, -1, 5, 6, 30});
      test::Kernel kernel(test::Load(library), "StoreRows");
      ASSERT_EQ(kernel.Create(std::move(
                    Attributes().Int("width", kWidth).Int("offset", 3).String("storage", storage))),
                GRAFT_OK);
      ASSERT_EQ(
          kernel.Run({rows.tensor(), cache.tensor(), slot_mapping.tensor()}, {count.tensor()}),
          GRAFT_OK)
          << kernel.message.text;
      EXPECT_TRUE(cache.intact());
      results.push_back(cache.Get<int32_t>());
      results.back().push_back(count.data<int32_t>()[0]);
    }
    EXPECT_EQ(results[0], results[1]) << storage;
  }
}

TEST(SlimCuda, RefusesWhatTheCpuVariantRefuses) {
  test::Kernel kernel(test::Load(CUDA_LIBRARY), "KeyAttention");
  EXPECT_EQ(kernel.Create(
                std::move(Attributes().Int("num_heads", 2).Int("head_size", 4).Int("rotated", 1))),
            GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text,
               "KeyAttention: rotated is 1 and rotary none, needed is half or interleaved");
}

}  // namespace
}  // namespace testing
}  // namespace row_attention
}  // namespace graft
