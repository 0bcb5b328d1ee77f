// A KV-cache strategy with a layout of its own: the area of a layer is [16 slots][kv_heads][key,
// value, mark]. A slot without its mark was not written here and counts for nothing.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graft.h"
#include "graft_cache.h"

namespace {

using graft::Dim;
using graft::Require;
using graft::Tensor;

constexpr float kMark = 7.0f;

// The layer's area in the blocks of a pool.
struct Area {
  float* data;
  int64_t blocks, block_floats, offset, kv_heads, key_size, value_size;

  Area(const Tensor& cache, int64_t offset, int64_t kv_heads, int64_t key_size, int64_t value_size)
      : data(static_cast<float*>(const_cast<void*>(cache.raw()))),
        blocks(cache.dim(0)),
        block_floats(cache.dim(1)),
        offset(offset),
        kv_heads(kv_heads),
        key_size(key_size),
        value_size(value_size) {
    Require(cache.rank() == 2 && offset >= 0 &&
                offset + GRAFT_CACHE_BLOCK_SIZE * Slot() <= block_floats,
            "interleaved: a block has ", block_floats, " floats, too few for the layer");
  }
  int64_t Head() const { return key_size + value_size + 1; }
  int64_t Slot() const { return kv_heads * Head(); }
  float* At(int64_t slot, int64_t head) const {
    Require(slot >= 0 && slot < blocks * GRAFT_CACHE_BLOCK_SIZE, "interleaved: slot ", slot,
            " lies outside of the pool");
    return data + slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset +
           slot % GRAFT_CACHE_BLOCK_SIZE * Slot() + head * Head();
  }
  // Both sides have their features side by side.
  void Put(int64_t slot, int64_t head, const float* key, const float* value) const {
    float* to = At(slot, head);
    std::copy_n(key, key_size, to);
    std::copy_n(value, value_size, to + key_size);
    to[key_size + value_size] = kMark;
  }
};

class InterleavedAttention {
 public:
  static graft::Operator Describe() {
    return graft::Operator("InterleavedAttention", "attention over interleaved keys and values")
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

  explicit InterleavedAttention(const graft::CreateContext& c)
      : heads_(c.Int("num_heads")),
        kv_heads_(c.Int("kv_num_heads") != 0 ? c.Int("kv_num_heads") : heads_),
        key_size_(c.Int("head_size")),
        value_size_(c.Int("value_size") != 0 ? c.Int("value_size") : key_size_),
        offset_(c.Int("offset")),
        rank_(c.Int("output_rank")),
        window_(c.Int("window")),
        scale_(c.Float("scale") != 0 ? c.Float("scale")
                                     : 1 / std::sqrt(static_cast<double>(key_size_))),
        softcap_(c.Float("softcap")),
        heads_first_(c.String("output_layout") == "bhsd") {}

  void Infer(graft::InferContext& c) const {
    const Dim rows = c.InputDim(0, 0);
    if (rank_ == 2) return c.SetOutput(0, graft::kFloat32, {rows, heads_ * value_size_});
    if (rank_ == 3) return c.SetOutput(0, graft::kFloat32, {rows, 1, heads_ * value_size_});
    if (heads_first_) return c.SetOutput(0, graft::kFloat32, {rows, heads_, 1, value_size_});
    c.SetOutput(0, graft::kFloat32, {rows, 1, heads_, value_size_});
  }

  void Run(const graft::RunContext& c) const {
    const Area area(c.inputs[3], offset_, kv_heads_, key_size_, value_size_);
    Write(c, area);
    const auto* group = static_cast<const int32_t*>(c.inputs[4].raw());
    for (int64_t g = 0; g < c.inputs[4].dim(0); ++g, group += GRAFT_SEQUENCE_COLUMNS) {
      for (int64_t row = 0; row < group[GRAFT_SEQUENCE_TOKENS]; ++row) {
        for (int64_t h = 0; h < heads_; ++h) Attend(c, area, group, row, h);
      }
    }
  }

 private:
  bool Packed(const graft::RunContext& c) const {
    return c.inputs[7].present() && !c.inputs[1].present();
  }
  // Floats from one row of queries to the next: keys and values may stand beside the query.
  int64_t Stride(const graft::RunContext& c) const {
    return heads_ * key_size_ + (Packed(c) ? kv_heads_ * (key_size_ + value_size_) : 0);
  }

  void Write(const graft::RunContext& c, const Area& area) const {
    if (!c.inputs[7].present()) return;
    const auto* slots = static_cast<const int32_t*>(c.inputs[7].raw());
    const auto* query = static_cast<const float*>(c.inputs[0].raw());
    for (int64_t row = 0; row < c.inputs[7].elements(); ++row) {
      if (slots[row] < 0) continue;
      const float* key =
          Packed(c) ? query + row * Stride(c) + heads_ * key_size_
                    : static_cast<const float*>(c.inputs[1].raw()) + row * kv_heads_ * key_size_;
      const float* value =
          Packed(c) ? key + kv_heads_ * key_size_
                    : static_cast<const float*>(c.inputs[2].raw()) + row * kv_heads_ * value_size_;
      for (int64_t h = 0; h < kv_heads_; ++h) {
        area.Put(slots[row], h, key + h * key_size_, value + h * value_size_);
      }
    }
  }

  void Attend(const graft::RunContext& c, const Area& area, const int32_t* group, int64_t row,
              int64_t head) const {
    const int64_t n = group[GRAFT_SEQUENCE_TOKENS], first = group[GRAFT_SEQUENCE_FIRST_TOKEN];
    const int64_t s = group[GRAFT_SEQUENCE_SHARED], m = group[GRAFT_SEQUENCE_PRIVATE];
    const auto* shared =
        static_cast<const int32_t*>(c.inputs[5].raw()) + group[GRAFT_SEQUENCE_SHARED_OFFSET];
    const int32_t* own = nullptr;
    if (m > 0) {
      own = static_cast<const int32_t*>(c.inputs[6].raw()) + group[GRAFT_SEQUENCE_PRIVATE_OFFSET] +
            row * m;
    }
    const int64_t position = group[GRAFT_SEQUENCE_CAUSAL] != 0 ? s - n + row : s + m - 1;
    const float* query =
        static_cast<const float*>(c.inputs[0].raw()) + (first + row) * Stride(c) + head * key_size_;
    const Tensor bias = c.inputs[8];
    std::vector<double> result(static_cast<size_t>(value_size_));
    double highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= position; ++j) {
      if (window_ > 0 && position - j >= window_) continue;
      const float* key = area.At(j < s ? shared[j] : own[j - s], head * kv_heads_ / heads_);
      if (key[key_size_ + value_size_] != kMark) continue;  // changes the result, and so the tokens
      double score = 0;
      for (int64_t f = 0; f < key_size_; ++f) score += double{query[f]} * key[f];
      score *= scale_;
      if (softcap_ > 0) score = softcap_ * std::tanh(score / softcap_);
      if (bias.present()) {
        const int64_t distance = std::min(position - j, bias.dim(1) - 1);
        score += static_cast<const float*>(bias.raw())[head * bias.dim(1) + distance];
      }
      const double top = std::max(highest, score);
      const double before = std::exp(highest - top), weight = std::exp(score - top);
      for (int64_t f = 0; f < value_size_; ++f) {
        result[static_cast<size_t>(f)] =
            before * result[static_cast<size_t>(f)] + weight * key[key_size_ + f];
      }
      sum = before * sum + weight;
      highest = top;
    }
    float* output = c.outputs[0].data<float>() + ((first + row) * heads_ + head) * value_size_;
    for (int64_t f = 0; f < value_size_; ++f) {
      output[f] = sum > 0 ? static_cast<float>(result[static_cast<size_t>(f)] / sum) : 0.0f;
    }
  }

  int64_t heads_, kv_heads_, key_size_, value_size_, offset_, rank_, window_;
  double scale_, softcap_;
  bool heads_first_;
};

class StoreInterleaved {
 public:
  static graft::Operator Describe() {
    return graft::Operator("StoreInterleaved", "keys and values of whole sequences, interleaved")
        .Input("key", graft::kFloat32)
        .Input("value", graft::kFloat32)
        .Input("cache", graft::kFloat32)
        .Input("slot_mapping", graft::kInt32)
        .Output("count", graft::kInt32)
        .Int("kv_num_heads", 0)
        .Required()
        .Int("head_size", 0)
        .Required()
        .Int("value_size", 0)
        .Int("offset", 0)
        .String("key_layout", "bhsd")
        .String("value_layout", "bhsd");
  }
  explicit StoreInterleaved(const graft::CreateContext& c)
      : heads_(c.Int("kv_num_heads")),
        key_size_(c.Int("head_size")),
        value_size_(c.Int("value_size") != 0 ? c.Int("value_size") : key_size_),
        offset_(c.Int("offset")),
        key_heads_first_(c.String("key_layout") == "bhsd"),
        value_heads_first_(c.String("value_layout") == "bhsd") {}
  void Infer(graft::InferContext& c) const { c.SetOutput(0, graft::kInt32, {1}); }
  void Run(const graft::RunContext& c) const {
    const Area area(c.inputs[2], offset_, heads_, key_size_, value_size_);
    const auto* slots = static_cast<const int32_t*>(c.inputs[3].raw());
    const int64_t positions = c.inputs[3].elements();
    int32_t stored = 0;
    for (int64_t p = 0; p < positions; ++p) {
      if (slots[p] < 0) continue;
      for (int64_t h = 0; h < heads_; ++h) {
        area.Put(slots[p], h, From(c.inputs[0], key_heads_first_, key_size_, positions, p, h),
                 From(c.inputs[1], value_heads_first_, value_size_, positions, p, h));
      }
      ++stored;
    }
    *c.outputs[0].data<int32_t>() = stored;
  }

 private:
  // One head of one position, of one sequence.
  const float* From(const Tensor& t, bool heads_first, int64_t size, int64_t positions, int64_t p,
                    int64_t h) const {
    return static_cast<const float*>(t.raw()) +
           (heads_first ? h * positions + p : p * heads_ + h) * size;
  }

  int64_t heads_, key_size_, value_size_, offset_;
  bool key_heads_first_, value_heads_first_;
};

}  // namespace

GRAFT_PLUGIN(InterleavedAttention, StoreInterleaved);
