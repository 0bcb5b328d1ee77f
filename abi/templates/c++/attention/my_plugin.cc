// Attention of few queries over many keys, as in a step of a decoder: keys and values are read
// once, as stored, with a running softmax (Milakov and Gimelshein, 2018).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "graft.h"
#include "graft/attention.h"

namespace {

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

// Sums in 16 lanes, which a compiler turns into vectors without reordering anything.
FOR_EACH_CPU float Dot(const float* a, const float* b, int64_t count) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int l = 0; l < 16; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

FOR_EACH_CPU void Add(float* to, float weight, const float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += weight * row[i];
}

class MyPlugin {
 public:
  // What this operator can do beside plain attention; see graft/attention.h. A host gives it no
  // block that needs more. AttentionProblem has the parts of what is added here.
  static constexpr uint32_t kCan = graft::Attention::kGroupedHeads | graft::Attention::kCausal;

  static graft::Operator Describe() {
    return graft::Attention::Describe("MyPlugin", "attention of few queries over many keys",
                                      {graft::kFloat32}, kCan);
  }
  explicit MyPlugin(const graft::CreateContext& context) : attention_(context, kCan) {}
  void Infer(graft::InferContext& context) const { attention_.Infer(context); }
  void Run(const graft::RunContext& context) const {
    const graft::AttentionProblem p = attention_.Bind(context);
    const graft::Size rows = graft::Size(p.batch) * p.heads * p.queries;
    context.ParallelFor(rows.To<uint64_t>(), [&](uint64_t row) {
      const auto i = static_cast<int64_t>(row);
      Attend(p, i / p.queries / p.heads, i / p.queries % p.heads, i % p.queries);
    });
  }

 private:
  // One query of one head.
  static void Attend(const graft::AttentionProblem& p, int64_t batch, int64_t head, int64_t i) {
    const int64_t kv_head = head * p.kv_heads / p.heads;
    std::vector<float> query(static_cast<size_t>(p.head_size)), key(query.size());
    std::vector<float> value(static_cast<size_t>(p.value_size)), sum(value.size());
    Copy(p.query.Row<float>(batch, head, i), p.query.feature, &query);
    for (float& x : query) x *= p.scale;
    float highest = -std::numeric_limits<float>::infinity(), total = 0;
    constexpr int64_t kBlock = 64;
    for (int64_t begin = p.First(i); begin < p.End(i); begin += kBlock) {
      const int64_t count = std::min(kBlock, p.End(i) - begin);
      float weights[kBlock], most = highest;
      for (int64_t j = 0; j < count; ++j) {
        const float* k = Compact(p.Key(batch, kv_head, begin + j), p.key.feature, &key);
        weights[j] = Dot(query.data(), k, p.head_size);
        most = std::max(most, weights[j]);
      }
      const float keep = std::exp(highest - most);  // 0 at first
      highest = most;
      total *= keep;
      for (float& x : sum) x *= keep;
      for (int64_t j = 0; j < count; ++j) {
        const float weight = std::exp(weights[j] - highest);
        total += weight;
        Add(sum.data(), weight,
            Compact(p.Value(batch, kv_head, begin + j), p.value.feature, &value), p.value_size);
      }
    }
    float* output = graft::AttentionProblem::Mutable<float>(p.output, batch, head, i);
    for (int64_t f = 0; f < p.value_size; ++f) {
      output[f * p.output.feature] = total > 0 ? sum[static_cast<size_t>(f)] / total : 0.0f;
    }
  }

  static void Copy(const float* from, int64_t stride, std::vector<float>* to) {
    for (size_t f = 0; f < to->size(); ++f) (*to)[f] = from[static_cast<int64_t>(f) * stride];
  }
  // A row whose features lie side by side, copied where they do not.
  static const float* Compact(const float* row, int64_t stride, std::vector<float>* room) {
    if (stride == 1) return row;
    Copy(row, stride, room);
    return room->data();
  }

  graft::AttentionNode attention_;
};

}  // namespace

GRAFT_PLUGIN(MyPlugin);
