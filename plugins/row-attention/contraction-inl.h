// The last phase of a call: from sums of rows to outputs.
#if defined(GRAFT_ROW_ATTENTION_CONTRACTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_CONTRACTION_INL_H_
#undef GRAFT_ROW_ATTENTION_CONTRACTION_INL_H_
#else
#define GRAFT_ROW_ATTENTION_CONTRACTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graft/merge-inl.h"
#include "hwy/highway.h"
#include "row_attention.h"
#include "row_plan.h"
#include "softmax-inl.h"
#include "tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {
namespace simd = attention::HWY_NAMESPACE;
namespace kit = graft::HWY_NAMESPACE;

// What a call has added up, turned into its output: parts joined, multiplied by W_V, divided by the
// sum of their weights, joined with the second part.
class Contraction {
 public:
  Contraction(const Problem& problem, const Plan& plan, const char* workspace, char* scratch)
      : problem_(problem),
        plan_(plan),
        groups_(reinterpret_cast<const Group*>(workspace + plan.group_offset)),
        tokens_(reinterpret_cast<const int32_t*>(workspace + plan.token_offset)),
        owner_(reinterpret_cast<const int32_t*>(workspace + plan.owner_offset)),
        partials_(reinterpret_cast<const float*>(workspace + plan.partial_offset)),
        states_(reinterpret_cast<const float*>(workspace + plan.state_offset)),
        second_(reinterpret_cast<const float*>(workspace + plan.second_offset)),
        second_lse_(reinterpret_cast<const float*>(workspace + plan.second_lse)) {
    const WorkerLayout layout = LayOutWorker(plan);
    merged_ = reinterpret_cast<float*>(scratch + layout.merged);
    outputs_ = reinterpret_cast<float*>(scratch + layout.outputs);
  }

  // Joins the parts of some tokens and one KV head and multiplies what they added up by W_V.
  void Contract(int64_t task) {
    const int64_t g = task % problem_.kv_heads;
    const int64_t begin = task / problem_.kv_heads * plan_.contract_tokens;
    const int64_t end = std::min(plan_.few_tokens, begin + plan_.contract_tokens);
    const int64_t panels = plan_.value_stride / kPanel;
    const Panels weight{problem_.value_weight + g * panels * problem_.pool.width * kPanel,
                        problem_.pool.width, panels};
    ForTiles((end - begin) * plan_.group_heads, [&](int64_t r0, int64_t count) {
      const float* from[kTileRows];
      float* to[kTileRows];
      Total total[kTileRows];
      int64_t row[kTileRows];
      for (int64_t r = 0; r < count; ++r) {
        const int64_t token = tokens_[begin + (r0 + r) / plan_.group_heads];
        const int64_t head = g * plan_.group_heads + (r0 + r) % plan_.group_heads;
        row[r] = token * problem_.heads + head;
        from[r] = Merge(groups_[owner_[begin + (r0 + r) / plan_.group_heads]], row[r],
                        merged_ + r * plan_.width, total[r]);
        to[r] = outputs_ + r * plan_.value_stride;
      }
      MultiplyPanels(from, count, weight, 0, panels, 1.0f, to);
      for (int64_t r = 0; r < count; ++r) Finish(row[r], g, total[r], to[r]);
    });
  }

 private:
  // State of a row over all parts.
  struct Total {
    simd::OnlineRow row;
    float skipped;
    bool keys;  // whether there are any, seen or not
  };

  // Joins the parts of a row, into `merged` where there are several.
  const float* Merge(const Group& group, int64_t row, float* merged, Total& total) const {
    const int64_t r = row - group.first * problem_.heads;
    const auto state = [&](int64_t part) {
      return states_ + (group.first_partial + part * group.rows + r) * kStates;
    };
    const auto sums = [&](int64_t part) {
      return partials_ + (group.first_partial + part * group.rows + r) * plan_.width;
    };
    const auto row_of = [&](int64_t part) {
      return simd::OnlineRow{state(part)[kMaximum], state(part)[kSum]};
    };
    total.keys = group.keys() + group.second > 0;
    total.skipped = group.parts == 1 ? state(0)[kSkipped] : 0.0f;
    if (group.parts == 1) {
      total.row = row_of(0);
      return sums(0);
    }
    std::memset(merged, 0, static_cast<size_t>(plan_.width) * sizeof(float));
    total.row = kit::MergeParts(
        group.parts, row_of,
        [this](float x) {
          return plan_.base2 ? simd::PowerOfNonPositive<true>(x)
                             : simd::PowerOfNonPositive<false>(x);
        },
        [&](int64_t part, float weight) {
          total.skipped += weight * state(part)[kSkipped];
          kit::AddScaled(weight, sums(part), plan_.width, merged);
        });
    return merged;
  }

  // Writes one row of output: divided by its sum, joined with the second part.
  void Finish(int64_t row, int64_t g, const Total& total, const float* product) const {
    const int64_t size = problem_.value_size;
    const bool seen = !total.row.empty();
    const float* second = nullptr;
    float first_weight = 1.0f, second_weight = 0.0f;
    if (problem_.kv_sequences != nullptr) {
      const float lse = second_lse_[row];
      const float own =
          total.row.maximum * (plan_.base2 ? 0.693147181f : 1.0f) + std::log(total.row.sum);
      if (!(lse == simd::kNegativeInfinity)) {
        second = second_ + row * size;
        const float base = seen ? std::max(lse, own) : lse;
        second_weight = std::exp(lse - base);
        first_weight = seen ? std::exp(own - base) : 0.0f;
        const float sum = first_weight + second_weight;
        first_weight /= sum;
        second_weight /= sum;
      }
    }
    float* to = problem_.output + row * size;
    const float* bias = problem_.value_bias != nullptr ? problem_.value_bias + g * size : nullptr;
    if (!seen && second == nullptr) {
      // No key has any weight. Without a single key the sums are empty: zeros.
      const float fill = total.keys ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
      for (int64_t i = 0; i < size; ++i) to[i] = fill;
    } else {
      const float factor = seen ? first_weight / total.row.sum : 0.0f;
      for (int64_t i = 0; i < size; ++i) {
        float value = seen ? product[i] * factor : 0.0f;
        if (bias != nullptr) value += first_weight * bias[i];
        if (second != nullptr) value += second_weight * second[i];
        to[i] = value;
      }
    }
    if (problem_.skipped != nullptr) {
      problem_.skipped[row] = seen ? total.skipped / total.row.sum : 0.0f;
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  const Group* groups_;
  const int32_t* tokens_;
  const int32_t* owner_;
  const float* partials_;
  const float* states_;
  const float* second_;      // the second part's output
  const float* second_lse_;  // and the logarithm of its sum
  float* merged_;            // [kTileRows][width]
  float* outputs_;           // [kTileRows][value_stride]
};

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_CONTRACTION_INL_H_
