// Attention over the host's pool of keys and values, in its simplest form: what a kernel for graft
// generate has to compute. Its inputs, and what lies where, are those of "The KV cache" in
// abi/README.md.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "graft.h"
#include "graft_cache.h"

namespace {

using graft::Dim;
using graft::HoldsIndex;
using graft::HoldsRange;
using graft::Require;
using graft::Size;
using graft::Tensor;

class PlainDecode {
 public:
  static graft::Operator Describe() {
    return graft::Operator("PlainDecode", "attention over a pool of keys and values, step by step")
        .Input("query", graft::kFloat32)
        .OptionalInput("key", graft::kFloat32)
        .OptionalInput("value", graft::kFloat32)
        .Input("cache", graft::kFloat32)
        .Input("sequences", graft::kInt32)
        .Input("shared_slots", graft::kInt32)
        .OptionalInput("private_slots", graft::kInt32)
        .OptionalInput("slot_mapping", graft::kInt32)
        .OptionalInput("bias", graft::kFloat32)
        .Output("output", graft::kFloat32)
        .Int("num_heads", 0)
        .Required()
        .Int("kv_num_heads", 0)
        .Int("head_size", 0)
        .Required()
        .Int("value_size", 0)
        .Int("offset", 0)
        .Float("scale", 0.0)
        .Float("softcap", 0.0)
        .Int("window", 0)
        .String("output_layout", "bhsd")
        .Int("output_rank", 4);
  }

  explicit PlainDecode(const graft::CreateContext& c)
      : heads_(c.Int("num_heads")),
        kv_heads_(c.Int("kv_num_heads") != 0 ? c.Int("kv_num_heads") : heads_),
        key_size_(c.Int("head_size")),
        value_size_(c.Int("value_size") != 0 ? c.Int("value_size") : key_size_),
        offset_(c.Int("offset")),
        scale_(c.Float("scale") != 0 ? c.Float("scale")
                                     : 1 / std::sqrt(static_cast<double>(key_size_))),
        softcap_(c.Float("softcap")),
        window_(c.Int("window")),
        rank_(c.Int("output_rank")),
        heads_first_(c.String("output_layout") == "bhsd") {
    Require(
        heads_ > 0 && kv_heads_ > 0 && heads_ % kv_heads_ == 0 && key_size_ > 0 && value_size_ > 0,
        "PlainDecode: ", heads_, " heads of ", key_size_, " and ", value_size_, " over ", kv_heads_,
        ", needed are positive numbers, the first a multiple of the last");
  }

  void Infer(graft::InferContext& c) const {
    const Dim rows = c.InputDim(0, 0);
    const Size width = Size(heads_) * value_size_;
    if (rank_ == 2) return c.SetOutput(0, graft::kFloat32, {rows, width});
    if (rank_ == 3) return c.SetOutput(0, graft::kFloat32, {rows, 1, width});
    if (heads_first_) return c.SetOutput(0, graft::kFloat32, {rows, heads_, 1, value_size_});
    c.SetOutput(0, graft::kFloat32, {rows, 1, heads_, value_size_});
  }

  void Run(const graft::RunContext& c) const {
    Check(c);
    const Tensor cache = c.inputs[3], sequences = c.inputs[4];
    const Pool pool{static_cast<float*>(const_cast<void*>(cache.raw())), cache.dim(1)};
    Write(c, pool);
    const auto* step = static_cast<const int32_t*>(sequences.raw());
    for (int64_t g = 0; g < sequences.dim(0); ++g, step += GRAFT_SEQUENCE_COLUMNS) {
      const Size tasks = Size(step[GRAFT_SEQUENCE_TOKENS]) * heads_;
      c.ParallelFor(tasks.To<uint64_t>(), [&](uint64_t i) {
        Attend(c, pool, step, static_cast<int64_t>(i) / heads_, static_cast<int64_t>(i) % heads_);
      });
    }
  }

 private:
  struct Pool {
    float* data;
    int64_t block_floats;
  };

  // Everything that is read or written by a number from the model must be there.
  void Check(const graft::RunContext& c) const {
    const Tensor query = c.inputs[0], key = c.inputs[1], value = c.inputs[2], cache = c.inputs[3];
    const Tensor sequences = c.inputs[4], shared = c.inputs[5], own = c.inputs[6];
    const Tensor mapping = c.inputs[7], bias = c.inputs[8];
    Require(query.rank() >= 1 && cache.rank() == 2 && sequences.rank() == 2 &&
                sequences.dim(1) == GRAFT_SEQUENCE_COLUMNS,
            "PlainDecode: query needs rows, cache rank 2, sequences ", GRAFT_SEQUENCE_COLUMNS,
            " columns");
    const Size area = Size(kv_heads_) * GRAFT_CACHE_BLOCK_SIZE * (Size(key_size_) + value_size_);
    Require(HoldsRange(cache.dim(1), offset_, area), "PlainDecode: a block of cache has ",
            cache.dim(1), " floats, the layer takes ", area, " from ", offset_, " on");
    const Size rows = query.dim(0), slots = Size(cache.dim(0)) * GRAFT_CACHE_BLOCK_SIZE;
    Require(query.elements() == rows * QueryStride(c), "PlainDecode: query has ", query.elements(),
            " elements, needed are ", rows * QueryStride(c));
    Require(key.present() == value.present() && (mapping.present() || !key.present()),
            "PlainDecode: key, value and slot_mapping must be given together");
    Require(!key.present() || (key.elements() == rows * kv_heads_ * key_size_ &&
                               value.elements() == rows * kv_heads_ * value_size_),
            "PlainDecode: key and value need ", rows, " rows");
    Require(!bias.present() || ((bias.rank() == 2 || (bias.rank() == 3 && bias.dim(0) == rows)) &&
                                bias.dim(-2) == heads_ && bias.dim(-1) >= 1),
            "PlainDecode: bias needs ", heads_, " rows of distances, for all tokens or for each");
    if (mapping.present()) {
      Require(mapping.elements() == rows, "PlainDecode: slot_mapping needs a slot a row");
      CheckSlots(mapping, 0, rows, -1, slots, "slot_mapping");
    }
    const auto* step = static_cast<const int32_t*>(sequences.raw());
    std::vector<bool> answered(rows.To<size_t>());
    for (int64_t g = 0; g < sequences.dim(0); ++g, step += GRAFT_SEQUENCE_COLUMNS) {
      const Size n = step[GRAFT_SEQUENCE_TOKENS], s = step[GRAFT_SEQUENCE_SHARED];
      const Size m = step[GRAFT_SEQUENCE_PRIVATE];
      Require(HoldsRange(rows, step[GRAFT_SEQUENCE_FIRST_TOKEN], n) && s >= 0 && m >= 0,
              "PlainDecode: sequence ", g, " has ", n, " tokens, ", s, " shared and ", m,
              " private positions, there are ", rows, " tokens");
      Require(step[GRAFT_SEQUENCE_CAUSAL] == 0 || (m == 0 && s >= n), "PlainDecode: sequence ", g,
              " is causal with ", n, " tokens and ", s, " positions");
      CheckSlots(shared, step[GRAFT_SEQUENCE_SHARED_OFFSET], s, 0, slots, "shared_slots");
      CheckSlots(own, step[GRAFT_SEQUENCE_PRIVATE_OFFSET], n * m, 0, slots, "private_slots");
      const Size first = step[GRAFT_SEQUENCE_FIRST_TOKEN];
      std::fill_n(answered.begin() + first, n.To<int64_t>(), true);
    }
    const auto missed = std::find(answered.begin(), answered.end(), false);
    Require(missed == answered.end(), "PlainDecode: row ", missed - answered.begin(),
            " of query is in no sequence");
  }

  // Slots first .. first + count - 1 of a list, which may be absent, from `least` on.
  static void CheckSlots(const Tensor& list, Size first, Size count, int64_t least, Size slots,
                         const char* name) {
    const Size length = list.present() ? list.elements() : 0;
    Require(HoldsRange(length, first, count), "PlainDecode: ", name, " has ", length, " slots, ",
            count, " are taken from ", first, " on");
    const auto* slot = static_cast<const int32_t*>(list.present() ? list.raw() : nullptr);
    for (int64_t i = first; i < first + count; ++i) {
      Require(slot[i] >= least && slot[i] < slots, "PlainDecode: ", name, "[", i, "] is slot ",
              slot[i], ", the pool has ", slots);
    }
  }

  float* Key(const Pool& p, int64_t slot, int64_t head) const {
    return p.data + graft_cache_key_offset(slot, head, p.block_floats, offset_, key_size_);
  }
  float* Value(const Pool& p, int64_t slot, int64_t head) const {
    return p.data + graft_cache_value_offset(slot, head, p.block_floats, offset_, kv_heads_,
                                             key_size_, value_size_);
  }
  // Floats from one row of queries to the next: key and value may stand beside the query.
  int64_t QueryStride(const graft::RunContext& c) const {
    const bool packed = c.inputs[7].present() && !c.inputs[1].present();
    const Size query = Size(heads_) * key_size_;
    return packed ? query + Size(kv_heads_) * (Size(key_size_) + value_size_) : query;
  }

  // Puts the new keys and values where the host says, before anything is read.
  void Write(const graft::RunContext& c, const Pool& pool) const {
    if (!c.inputs[7].present()) return;
    const auto* slots = static_cast<const int32_t*>(c.inputs[7].raw());
    const bool packed = !c.inputs[1].present();
    const auto* query = static_cast<const float*>(c.inputs[0].raw());
    for (int64_t row = 0; row < c.inputs[7].elements(); ++row) {
      if (slots[row] < 0) continue;
      const float* key =
          packed ? query + row * QueryStride(c) + heads_ * key_size_
                 : static_cast<const float*>(c.inputs[1].raw()) + row * kv_heads_ * key_size_;
      const float* value =
          packed ? key + kv_heads_ * key_size_
                 : static_cast<const float*>(c.inputs[2].raw()) + row * kv_heads_ * value_size_;
      for (int64_t h = 0; h < kv_heads_; ++h) {
        std::copy_n(key + h * key_size_, key_size_, Key(pool, slots[row], h));
        std::copy_n(value + h * value_size_, value_size_, Value(pool, slots[row], h));
      }
    }
  }

  // One token and head of a sequence, whose descriptor step is.
  void Attend(const graft::RunContext& c, const Pool& pool, const int32_t* step, int64_t row,
              int64_t head) const {
    const int64_t n = step[GRAFT_SEQUENCE_TOKENS], first = step[GRAFT_SEQUENCE_FIRST_TOKEN];
    const int64_t s = step[GRAFT_SEQUENCE_SHARED], m = step[GRAFT_SEQUENCE_PRIVATE];
    const auto* shared_slots =
        static_cast<const int32_t*>(c.inputs[5].raw()) + step[GRAFT_SEQUENCE_SHARED_OFFSET];
    const auto* private_slots = c.inputs[6].present()
                                    ? static_cast<const int32_t*>(c.inputs[6].raw()) +
                                          step[GRAFT_SEQUENCE_PRIVATE_OFFSET] + row * m
                                    : nullptr;
    // The row's own position, and how many it sees: of a prompt (causal) none after itself.
    const int64_t position = step[GRAFT_SEQUENCE_CAUSAL] != 0 ? s - n + row : s + m - 1;
    const int64_t seen = position + 1;
    const int64_t kv_head = head * kv_heads_ / heads_;
    const float* query = static_cast<const float*>(c.inputs[0].raw()) +
                         (first + row) * QueryStride(c) + head * key_size_;
    const auto slot = [&](int64_t j) { return j < s ? shared_slots[j] : private_slots[j - s]; };

    std::vector<double> weights(static_cast<size_t>(std::max<int64_t>(seen, 0)));
    double highest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      const float* key = Key(pool, slot(j), kv_head);
      double score = 0;
      for (int64_t f = 0; f < key_size_; ++f) score += double{query[f]} * key[f];
      score *= scale_;
      if (softcap_ > 0) score = softcap_ * std::tanh(score / softcap_);
      if (const Tensor bias = c.inputs[8]; bias.present()) {
        const int64_t distances = bias.dim(-1);
        const int64_t of = (bias.rank() == 3 ? (first + row) * heads_ : 0) + head;
        score += static_cast<const float*>(
            bias.raw())[of * distances + std::min<int64_t>(position - j, distances - 1)];
      }
      if (window_ > 0 && position - j >= window_) score = -std::numeric_limits<double>::infinity();
      weights[static_cast<size_t>(j)] = score;
      highest = std::max(highest, score);
    }
    std::vector<double> result(static_cast<size_t>(value_size_));
    for (int64_t j = 0; j < seen; ++j) {
      const double weight = std::exp(weights[static_cast<size_t>(j)] - highest);
      const float* value = Value(pool, slot(j), kv_head);
      sum += weight;
      for (int64_t f = 0; f < value_size_; ++f) result[static_cast<size_t>(f)] += weight * value[f];
    }
    float* output = c.outputs[0].data<float>() + ((first + row) * heads_ + head) * value_size_;
    for (int64_t f = 0; f < value_size_; ++f) {
      output[f] = seen > 0 ? static_cast<float>(result[static_cast<size_t>(f)] / sum) : 0.0f;
    }
  }

  int64_t heads_, kv_heads_, key_size_, value_size_, offset_;
  double scale_, softcap_;
  int64_t window_, rank_;
  bool heads_first_;
};

}  // namespace

GRAFT_PLUGIN(graft::ForEngine<PlainDecode>);
