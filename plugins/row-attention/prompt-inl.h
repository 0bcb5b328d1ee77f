// Keys and values of a prompt, made from its rows: with many tokens that is less arithmetic than
// taking scores from the rows themselves.
#if defined(GRAFT_ROW_ATTENTION_PROMPT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_PROMPT_INL_H_
#undef GRAFT_ROW_ATTENTION_PROMPT_INL_H_
#else
#define GRAFT_ROW_ATTENTION_PROMPT_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "row_attention.h"
#include "row_plan.h"
#include "tile_rows-inl.h"
#include "tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {

class KeyMaker {
 public:
  KeyMaker(const Problem& problem, const Plan& plan, const Prompt& prompt, char* scratch)
      : problem_(problem),
        plan_(plan),
        prompt_(prompt),
        layout_(LayOutWorker(plan)),
        products_(reinterpret_cast<float*>(scratch + layout_.scores)),
        outputs_(reinterpret_cast<float*>(scratch + layout_.outputs)),
        rows_(problem, plan, reinterpret_cast<float*>(scratch + layout_.sum_rows),
              reinterpret_cast<float*>(scratch + layout_.key_rows)) {}

  void Make(int64_t index) {
    begin_ = index * kPromptTile;
    count_ = std::min(kPromptTile, prompt_.group->shared_count - begin_);
    if (UsesNewKeys(problem_, *prompt_.group)) {
      CopyNew();
      return;
    }
    rows_.List(prompt_.group->shared_slots + begin_, begin_, count_);
    const bool hidden = problem_.kind == RowKind::kHiddenStates;
    const float* rows = hidden ? rows_.Gather(count_) : nullptr;
    for (int64_t h = 0; h < prompt_.heads; ++h) {
      if (hidden) {
        Keys(h, rows);
      } else {
        for (int64_t k = 0; k < count_; ++k) {
          std::memcpy(KeyAt(h, k), rows_.keys()[k] + (prompt_.head0 + h) * plan_.slice,
                      static_cast<size_t>(problem_.head_size) * sizeof(float));
        }
      }
      Values(h);
    }
  }

 private:
  float* KeyAt(int64_t h, int64_t k) const {
    const attention::Pool& pool = prompt_.pool;
    return pool.data + pool.KeyOffset(begin_ + k) + h * kBlockSlots * pool.head_size;
  }
  float* ValueAt(int64_t h, int64_t k) const {
    const attention::Pool& pool = prompt_.pool;
    return pool.data + pool.ValueOffset(begin_ + k) + h * kBlockSlots * pool.value_size;
  }

  // The call's own keys and values, where all positions are new.
  void CopyNew() const {
    const int64_t size = problem_.head_size, value_size = problem_.value_size;
    for (int64_t k = 0; k < count_; ++k) {
      const int64_t token = prompt_.group->first + begin_ + k;
      for (int64_t h = 0; h < prompt_.heads; ++h) {
        const int64_t head = prompt_.head0 + h;
        std::memcpy(KeyAt(h, k), problem_.key + token * problem_.key_stride + head * size,
                    static_cast<size_t>(size) * sizeof(float));
        std::memcpy(ValueAt(h, k),
                    problem_.value + token * problem_.value_stride + head * value_size,
                    static_cast<size_t>(value_size) * sizeof(float));
      }
    }
  }

  // x W_K + b_K of one head: the columns of W_K stand in its panels as rows do in a pool.
  void Keys(int64_t h, const float* rows) {
    const int64_t size = problem_.head_size, g = prompt_.head0 + h;
    const float* weight = problem_.key_weight + g * plan_.width * size;
    const float* columns[kMaxRowTile];
    for (int64_t c0 = 0; c0 < size; c0 += kMaxRowTile) {
      const int64_t count = std::min(kMaxRowTile, size - c0);
      for (int64_t c = 0; c < RoundUp(count, kPanel); ++c) {
        columns[c] = weight + std::min(c0 + c, size - 1) * kPanel;
      }
      const DotRows dot{columns, count, 0, plan_.width / kPanel, size * kPanel};
      Prefetcher nothing;
      Dot(rows, plan_.width, count_, dot, nothing, products_, kMaxRowTile);
      for (int64_t k = 0; k < count_; ++k) {
        float* to = KeyAt(h, k) + c0;
        const float* from = products_ + k * kMaxRowTile;
        for (int64_t c = 0; c < count; ++c) {
          to[c] = from[c] +
                  (problem_.key_bias != nullptr ? problem_.key_bias[g * size + c0 + c] : 0.0f);
        }
      }
    }
  }

  // x W_V + b_V of one head.
  void Values(int64_t h) const {
    const int64_t size = problem_.value_size, g = prompt_.head0 + h;
    const int64_t panels = plan_.value_stride / kPanel;
    const Panels weight{problem_.value_weight + g * panels * problem_.pool.width * kPanel,
                        problem_.pool.width, panels};
    ForTiles(count_, [&](int64_t first, int64_t count) {
      float* to[kTileRows];
      for (int64_t r = 0; r < count; ++r) to[r] = outputs_ + r * plan_.value_stride;
      MultiplyPanels(rows_.sums() + first, count, weight, 0, panels, 1.0f, to);
      for (int64_t r = 0; r < count; ++r) {
        float* value = ValueAt(h, first + r);
        for (int64_t i = 0; i < size; ++i) {
          value[i] = to[r][i] +
                     (problem_.value_bias != nullptr ? problem_.value_bias[g * size + i] : 0.0f);
        }
      }
    });
  }

  const Problem& problem_;
  const Plan& plan_;
  const Prompt& prompt_;
  const WorkerLayout layout_;
  float* products_;  // [kPromptTile][kMaxRowTile]
  float* outputs_;   // [kTileRows][value_stride]
  TileRows rows_;
  int64_t begin_ = 0, count_ = 0;
};

void MakeKeys(const Problem& problem, const Plan& plan, const Prompt& prompt, int64_t index,
              char* scratch) {
  KeyMaker(problem, plan, prompt, scratch).Make(index);
}

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_PROMPT_INL_H_
