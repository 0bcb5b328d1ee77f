// Operators as a hostile model drives them: attributes, shapes and lists at which arithmetic would
// wrap or an index leaves its memory. Each ends as an error with a reason, or without one; nothing
// around a tensor is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <ostream>

#include "host.h"

namespace graft::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t Power(int exponent) { return int64_t{1} << exponent; }

// An input: floats are zeros, numbers are as listed. One without a type is absent.
struct Given {
  DataType type{};
  std::vector<int64_t> shape;
  std::vector<int32_t> numbers;
};
Given Floats(std::vector<int64_t> shape) { return {kFloat32, std::move(shape), {}}; }
Given Numbers(std::vector<int64_t> shape, std::vector<int32_t> numbers) {
  return {kInt32, std::move(shape), std::move(numbers)};
}
const Given kAbsent;

struct Case {
  const char* name;
  const char* library;  // "" where a build leaves it out
  const char* op;
  std::vector<std::pair<const char*, int64_t>> attributes;
  std::vector<Given> inputs;
  const char* needed;             // part of the message; "" where the call is fine
  uint32_t outputs = UINT32_MAX;  // that the node has; all by default
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::unique_ptr<Buffer> Filled(const Given& given) {
  auto buffer = std::make_unique<Buffer>(given.type, given.shape);
  if (!given.numbers.empty()) {
    buffer->Set(given.numbers);
  } else {
    const graft_tensor& tensor = *buffer->tensor();
    uint64_t bytes = BytesOf(given.type);
    for (int32_t i = 0; i < tensor.ndim; ++i) bytes *= static_cast<uint64_t>(tensor.shape[i]);
    std::memset(tensor.data, 0, bytes);
  }
  return buffer;
}

// Does what the runtime does with a node, and gives the reason of the first refusal.
std::string Drive(const Case& c) {
  const graft_plugin* table = Load(c.library);
  Kernel kernel(table, c.op);
  Attributes attributes;
  for (const auto& [name, value] : c.attributes) attributes.Int(name, value);
  if (kernel.Create(attributes) != GRAFT_OK) return kernel.message.text;

  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<const graft_tensor*> inputs;
  for (const Given& given : c.inputs) {
    inputs.push_back(nullptr);
    if (given.type.bits == 0) continue;
    buffers.push_back(Filled(given));
    inputs.back() = buffers.back()->tensor();
  }

  const graft_plugin_info* info = table->describe();
  uint32_t count = 0;
  for (uint32_t i = 0; i < info->num_operators; ++i) {
    if (std::string(info->operators[i]->name) == c.op) count = info->operators[i]->num_outputs;
  }
  count = std::min(count, c.outputs);
  std::vector<graft_tensor> tensors(count);
  std::vector<std::array<int64_t, GRAFT_MAX_RANK>> shapes(count);
  std::vector<graft_tensor*> outputs;
  for (uint32_t i = 0; i < count; ++i) {
    tensors[i].shape = shapes[i].data();
    outputs.push_back(&tensors[i]);
  }
  if (kernel.Infer(inputs, outputs) != GRAFT_OK) return kernel.message.text;
  for (uint32_t i = 0; i < count; ++i) {
    const std::vector<int64_t> shape(shapes[i].begin(), shapes[i].begin() + tensors[i].ndim);
    __int128 elements = 1;
    for (const int64_t size : shape) {
      if (size < 0) return "an output has an unknown size";
      elements *= size == 0 ? 0 : elements > Power(60) ? 1 : size;
    }
    if (elements > Power(24)) return "an output needs too much memory";
    buffers.push_back(std::make_unique<Buffer>(tensors[i].dtype, shape));
    outputs[i] = buffers.back()->tensor();
  }
  std::string reason;
  try {
    if (kernel.Run(inputs, outputs, 2) != GRAFT_OK) reason = kernel.message.text;
  } catch (const std::exception& error) {  // of the test's workspace
    reason = error.what();
  }
  for (const auto& buffer : buffers) EXPECT_TRUE(buffer->intact());
  return reason;
}

class Hostile : public testing::TestWithParam<Case> {};

TEST_P(Hostile, EndsWithAReasonOrWell) {
  const std::string reason = Drive(GetParam());
  if (*GetParam().needed == 0) {
    EXPECT_EQ(reason, "");
  } else {
    EXPECT_NE(reason.find(GetParam().needed), std::string::npos) << reason;
  }
}

// One sequence of one token that reads one shared slot.
const Given kOneSequence = Numbers({1, 8}, {0, 1, 0, 1, 0, 0, 0, 0});
const Given kSlot = Numbers({1}, {0});
const char* const kWraps = "has more than 63 bits";
const char* const kNothing = "is empty and has an axis";

std::vector<Case> AllCases() {
  const std::vector<std::pair<const char*, int64_t>> head = {{"num_heads", 1}, {"head_size", 4}};
  const auto at_offset = [&](int64_t offset) {
    auto attributes = head;
    attributes.push_back({"offset", offset});
    return attributes;
  };
  const auto plain = [&](Given sequences, Given slots, Given mapping) {
    return std::vector<Given>{Floats({1, 4}), Floats({1, 4}), Floats({1, 4}), Floats({2, 128}),
                              sequences,      slots,          kAbsent,        mapping};
  };
  std::vector<Case> all = {
      {"FlashDecodeHeadsOfNothing",
       FLASH_DECODE,
       "FlashDecode",
       {},
       {Floats({1, 1, 1, 0}), Floats({1, 1, 1, 0}), Floats({1, 1, 1, 0})},
       "head sizes must be at least 1"},
      {"FlashDecodeBatchesOfNothing",  // no element anywhere, but 2^40 rows to go through
       FLASH_DECODE,
       "FlashDecode",
       {},
       {Floats({Power(40), 1, 0, 4}), Floats({Power(40), 1, 0, 4}), Floats({Power(40), 1, 0, 4})},
       kNothing},
      {"FlashDecodeBatchTimesHeads",
       FLASH_DECODE,
       "FlashDecode",
       {},
       {Floats({Power(40), Power(40), 0, 4}), Floats({Power(40), Power(40), 0, 4}),
        Floats({Power(40), Power(40), 0, 4})},
       kNothing},
      {"CachedAttentionWidthWraps",
       FLASH_DECODE,
       "CachedAttention",
       {{"num_heads", Power(30)},
        {"head_size", Power(30)},
        {"value_size", Power(34)},
        {"output_rank", 2}},
       {Floats({16, 0}), kAbsent, kAbsent, Floats({1, 64}),
        Numbers({1, 8}, {0, 16, 0, 1, 0, 0, 0, 0}), kSlot},
       kWraps},
      {"CachedAttentionOffset",
       FLASH_DECODE,
       "CachedAttention",
       at_offset(kMax - 127),
       {Floats({1, 4}), kAbsent, kAbsent, Floats({1, 128}), kOneSequence, kSlot},
       "a block has 128 floats"},
      {"StoreCacheArea",
       FLASH_DECODE,
       "StoreCache",
       {{"kv_num_heads", Power(30)}, {"head_size", Power(29)}},
       {Floats({0, Power(30), 1, Power(29)}), Floats({0, Power(30), 1, Power(29)}), Floats({1, 64}),
        Numbers({0}, {})},
       kNothing},
      {"StoreRowsOffset",
       EL_ATTENTION,
       "StoreRows",
       {{"width", 4}, {"offset", kMax - 63}},
       {Floats({1, 4}), Floats({1, 64}), kSlot},
       "a block has 64 floats"},
      {"StoreRowsWidth",
       SLIM_ATTENTION,
       "StoreRows",
       {{"width", Power(60)}},
       {Floats({0, 4}), Floats({1, 64}), Numbers({0}, {})},
       kWraps},
      {"InputAttentionOffset",
       SLIM_ATTENTION,
       "InputAttention",
       {{"num_heads", 1}, {"head_size", 4}, {"width", 4}, {"offset", kMax - 63}},
       {Floats({1, 4}), Floats({1, 64}), kOneSequence, kSlot, Floats({1, 1, 4, 16}),
        Floats({1, 1, 4, 16})},
       "a block has 64 floats"},
      {"KeyAttentionWidthWrapsToNothing",
       SLIM_ATTENTION,
       "KeyAttention",
       {{"num_heads", Power(32)}, {"head_size", Power(32)}, {"value_size", 1}, {"output_rank", 2}},
       {Floats({0, 0}), Floats({1, 64}), Numbers({0, 8}, {}), kSlot, Floats({Power(32), 1, 0, 16})},
       kNothing},
      {"ELAttentionPanels",
       EL_ATTENTION,
       "ELAttention",
       {{"num_heads", 1}, {"head_size", 4}, {"width", kMax}},
       {Floats({1, 4}), Floats({1, 64}), kOneSequence, kSlot, Floats({1, 1, 4, 16}),
        Floats({1, 1, 4, 16})},
       kWraps},
      {"PackedLinearColumns",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", Power(62) + 16}},
       {Floats({0, 0}), Floats({Power(58) + 1, 0, 16}), Floats({1})},
       kNothing,
       1},
      {"PackedLinearPanels",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", kMax}},
       {Floats({0, 1}), Floats({1, 1, 16})},
       "weight is 1 panels of 16 columns"},
      {"PackPanelsOfNothing",  // 2^40 columns without a row
       PACKED_LINEAR,
       "PackPanels",
       {},
       {Floats({0, Power(40)})},
       kNothing,
       1},
      {"PackedLinearIntegersOfTooFewRows",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 64}), Given{kInt8, {1, 32, 16}, {}}, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
        kAbsent, Given{kBFloat16, {1, 2, 16}, {}}},
       "panels have 32 rows, needed are 64",
       1},
      {"PackedLinearIntegersOfTooFewScales",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 200}), Given{kUInt8, {1, 112, 16}, {}}, kAbsent, kAbsent, kAbsent, kAbsent,
        kAbsent, kAbsent, Given{kBFloat16, {1, 1, 16}, {}}},
       "weight_scale has 1 groups for 200 positions",
       1},
      {"PackedLinearIntegersOfTooFewPanelsOfScales",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 32}},
       {Floats({1, 32}), Given{kInt8, {2, 32, 16}, {}}, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
        kAbsent, Given{kBFloat16, {1, 1, 16}, {}}},
       "weight_scale is 1 panels of 16 columns, weight is 2",
       1},
      {"PackedLinearIntegersWithoutScales",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 32}), Given{kInt8, {1, 32, 16}, {}}},
       "a weight of int8 needs weight_scale",
       1},
      {"PackedLinearFloatsWithScales",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 32}), Floats({1, 32, 16}), kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
        Given{kBFloat16, {1, 1, 16}, {}}},
       "a weight of float takes no weight_scale",
       1},
      {"PackedLinearZeroPointsOfOtherGroups",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 64}), Given{kInt8, {1, 64, 16}, {}}, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
        kAbsent, Floats({1, 2, 16}), Given{kInt8, {1, 1, 16}, {}}},
       "weight_zero_point has 1 elements on axis 1, weight_scale has 2",
       1},
      {"PackedLinearFloatsWithZeroPoints",
       PACKED_LINEAR,
       "PackedLinear",
       {{"columns", 16}},
       {Floats({1, 32}), Floats({1, 32, 16}), kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent,
        kAbsent, Given{kInt8, {1, 1, 16}, {}}},
       "a weight of float takes no weight_zero_point",
       1},
      {"PackedLinearIntegersNotInPanels",
       PACKED_LINEAR,
       "PackedLinear",
       {},
       {Floats({1, 32}), Given{kInt8, {32, 16}, {}}},
       "weight is int8, needed is float where it does not lie in panels",
       1},
      {"PackPanelsOfManyIntegers",  // 2^62 positions, filled up
       PACKED_LINEAR,
       "PackPanels",
       {},
       {Floats({kMax, 0})},
       kNothing,
       1},
      {"NGramBlockRowsTimesVocabulary",
       NGRAM_BLOCK,
       "NGramBlock",
       {{"ngram_size", 2}},
       {Floats({0, Power(40)}), Numbers({Power(24), 0}, {})},
       kNothing},
      {"NGramBlockRowsOfNothing",
       NGRAM_BLOCK,
       "NGramBlock",
       {{"ngram_size", 2}},
       {Floats({Power(40), 0}), Numbers({Power(40), 0}, {})},
       kNothing},
      {"NGramBlockRowsOfNothingWithAnIndex",
       NGRAM_BLOCK,
       "NGramBlock",
       {{"ngram_size", 3}},
       {Floats({Power(58), 0}), Numbers({Power(58), 0}, {}), kAbsent, Numbers({7}, {}),
        Given{kUInt8, {16}, {}}},
       kNothing},
      {"PackedAttentionHeadsWrap",
       REMOVE_PADDING,
       "PackedAttention",
       {{"num_heads", Power(62)}, {"packed_qkv", 1}},
       {Floats({1, 0, 0}), kAbsent, kAbsent, Numbers({1}, {0})},
       kWraps},
      {"PackedAttentionHeadsOfNoPosition",
       REMOVE_PADDING,
       "PackedAttention",
       {},
       {Floats({1, Power(40), 0, 4}), Floats({1, Power(40), 0, 4}), Floats({1, Power(40), 0, 4}),
        Numbers({3}, {0, 0, 0})},
       kNothing},
      {"PackedAttentionBeyondTheLastPosition",
       REMOVE_PADDING,
       "PackedAttention",
       {},
       {Floats({1, 1, 2, 4}), Floats({1, 1, 2, 4}), Floats({1, 1, 2, 4}),
        Numbers({3}, {0, 1 << 30, 2})},
       "offsets[2] is 2, needed is at least the one before it, 1073741824"},
      {"PackedAttentionBeyondItsBias",
       REMOVE_PADDING,
       "PackedAttention",
       {},
       {Floats({1, 1, 2, 4}), Floats({1, 1, 2, 4}), Floats({1, 1, 2, 4}), Numbers({2}, {0, 2}),
        Numbers({1}, {1 << 30}), kAbsent, Floats({2, 2})},
       "sequence 0 is positions 1073741824 to 1073741825 of a bias that has 2"},
      {"RestorePaddingPlacesWrap",
       REMOVE_PADDING,
       "RestorePadding",
       {},
       {Floats({1, 0, 0}), Given{kInt64, {0}, {}}, Floats({Power(40), Power(40)})},
       kWraps},
      {"LogitsTopKRows",
       LOGITS_TOP_K,
       "LogitsTopK",
       {},
       {Floats({Power(32), Power(32), 0})},
       kWraps},
      {"PlainDecodeOffset", PLAIN_DECODE, "PlainDecode", at_offset(kMax - 127),
       plain(kOneSequence, kSlot, kSlot), "a block of cache has 128 floats"},
      {"PlainDecodeWidth",
       PLAIN_DECODE,
       "PlainDecode",
       {{"num_heads", Power(32)}, {"head_size", Power(32)}},
       plain(kOneSequence, kSlot, kSlot),
       kWraps},
      {"PlainDecodeSlot", PLAIN_DECODE, "PlainDecode", head,
       plain(kOneSequence, Numbers({1}, {1 << 30}), kSlot), "shared_slots[0] is slot 1073741824"},
      {"PlainDecodeSlotBelow", PLAIN_DECODE, "PlainDecode", head,
       plain(kOneSequence, Numbers({1}, {-1}), kSlot), "shared_slots[0] is slot -1"},
      {"PlainDecodeMapping", PLAIN_DECODE, "PlainDecode", head,
       plain(kOneSequence, kSlot, Numbers({1}, {1 << 30})), "slot_mapping[0] is slot 1073741824"},
      {"PlainDecodeTokens", PLAIN_DECODE, "PlainDecode", head,
       plain(Numbers({1, 8}, {1 << 30, 1, 0, 1, 0, 0, 0, 0}), kSlot, kSlot), "there are 1 tokens"},
      {"PlainDecodeSharedOffset", PLAIN_DECODE, "PlainDecode", head,
       plain(Numbers({1, 8}, {0, 1, 1 << 30, 1, 0, 0, 0, 0}), kSlot, kSlot),
       "shared_slots has 1 slots"},
      {"PlainDecodePrivate", PLAIN_DECODE, "PlainDecode", head,
       plain(Numbers({1, 8}, {0, 1, 0, 1, 0, 3, 0, 0}), kSlot, kSlot), "private_slots has 0 slots"},
      {"PlainDecodeCausal", PLAIN_DECODE, "PlainDecode", head,
       plain(Numbers({1, 8}, {0, 1, 0, 0, 0, 0, 1, 0}), kSlot, kSlot), "is causal"},
      {"PlainDecodeQuery",
       PLAIN_DECODE,
       "PlainDecode",
       {{"num_heads", 1024}, {"head_size", 1024}, {"kv_num_heads", 1}, {"value_size", 1}},
       {Floats({1, 4}), kAbsent, kAbsent, Floats({1, 1 << 15}), kOneSequence, kSlot},
       "query has 4 elements"},
  };
  all.erase(std::remove_if(all.begin(), all.end(), [](const Case& c) { return *c.library == 0; }),
            all.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, Hostile, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return std::string(info.param.name); });

// The index of n-grams is memory that a model may bring: every number in it is doubted.
struct Damage {
  const char* name;
  int64_t word;  // of the memory, an int32
  int32_t value;
};
void PrintTo(const Damage& d, std::ostream* out) { *out << d.name; }
class HostileIndex : public testing::TestWithParam<Damage> {};

TEST_P(HostileIndex, EndsWithAReason) {
  constexpr int64_t kBytes = 4096;
  Buffer scores(kFloat32, {1, 8}), tokens(kInt32, {1, 4}), parents(kInt32, {1}),
      index(kUInt8, {kBytes}), output(kFloat32, {1, 8});
  scores.Set<float>({1, 2, 3, 4, 5, 6, 7, 8});
  tokens.Set<int32_t>({1, 2, 1, 2});
  std::memset(index.data<void>(), 0, kBytes);
  Kernel kernel(Load(NGRAM_BLOCK), "NGramBlock");
  ASSERT_EQ(kernel.Create(Attributes().Int("ngram_size", 2)), GRAFT_OK);
  const auto run = [&](int32_t parent) {
    parents.Set<int32_t>({parent});
    return kernel.Run({scores.tensor(), tokens.tensor(), nullptr, parents.tensor(), index.tensor()},
                      {output.tensor()});
  };
  ASSERT_EQ(run(-1), GRAFT_OK) << kernel.message.text;
  index.data<int32_t>()[GetParam().word] = GetParam().value;
  EXPECT_EQ(run(0), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(kernel.message.text).find("fill its memory with zeros"), std::string::npos)
      << kernel.message.text;
  EXPECT_TRUE(index.intact() && output.intact());
}

// The header's numbers; then lists of `capacity` nodes each, and the rows' last nodes at the end.
constexpr int64_t kCapacity = (4096 - 64 - 63 * 8) / 36, kBuckets = 128;
std::vector<Damage> AllDamage() {
  if (*NGRAM_BLOCK == 0) return {};
  return {
      {"Nodes", 1, 1 << 28},
      {"NodesBelow", 1, -5},
      {"Capacity", 6, 1 << 28},
      {"Buckets", 7, 1 << 28},
      {"MaxRows", 8, 1 << 28},
      {"Rows", 9, 1 << 28},
      {"Parent", 16 + kCapacity + 3, 1 << 28},
      {"ParentOfItself", 16 + kCapacity + 3, 3},
      {"Jump", 16 + 2 * kCapacity + 3, 1 << 28},
      {"Head", 16 + 7 * kCapacity + kBuckets, 1 << 28},
  };
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostileIndex);
INSTANTIATE_TEST_SUITE_P(Words, HostileIndex, testing::ValuesIn(AllDamage()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace graft::test
