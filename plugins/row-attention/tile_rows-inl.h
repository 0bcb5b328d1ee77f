// The rows of one tile: what scores are taken from, and what is added up. Both are the pool's rows
// where they lie, unless they are no floats, no whole panels, or turned by rotary positions.
#if defined(GRAFT_ROW_ATTENTION_TILE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_TILE_ROWS_INL_H_
#undef GRAFT_ROW_ATTENTION_TILE_ROWS_INL_H_
#else
#define GRAFT_ROW_ATTENTION_TILE_ROWS_INL_H_
#endif

#include <cstring>
#include <utility>

#include "area-inl.h"
#include "hwy/highway.h"
#include "row_attention.h"
#include "row_plan.h"
#include "tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {

class TileRows {
 public:
  // `sum_rows` and `key_rows` have room for a tile, and one row more for the pool's as floats.
  TileRows(const Problem& problem, const Plan& plan, float* sum_rows, float* key_rows)
      : problem_(problem), plan_(plan), sum_rows_(sum_rows), key_rows_(key_rows) {}
  TileRows(const TileRows&) = delete;
  TileRows& operator=(const TileRows&) = delete;

  // Takes up `count` slots, which hold positions j and on. Lists repeat their last row up to a
  // full vector.
  void List(const int32_t* slots, int64_t j, int64_t count) {
    if (plan_.direct_sums && slots == asked_slots_ && count == asked_count_) {
      std::swap(sums_, asked_);
      asked_slots_ = nullptr;
      if (plan_.keys == KeyRows::kSums) return Pad(sums_, count);
    }
    for (int64_t k = 0; k < count; ++k) {
      const char* row = RowOf(slots[k]);
      const float* in_pool = reinterpret_cast<const float*>(row);
      if (plan_.direct_sums) {
        sums_[k] = in_pool;
      } else {
        float* to = sum_rows_ + k * plan_.width;
        if (problem_.rotary != Rotary::kNone && problem_.rotated) {
          TurnRow(Floats(row), j + k, -1.0f, problem_.head_size, to);
        } else {
          ReadRow(problem_.pool.storage, row, problem_.pool.width, plan_.width, to);
        }
        sums_[k] = to;
      }
      switch (plan_.keys) {
        case KeyRows::kSums:
          break;
        case KeyRows::kPool:
          keys_[k] = in_pool;
          break;
        case KeyRows::kMade:
          keys_[k] = key_rows_ + k * plan_.key_width;
          MakeKeys(row, j + k, key_rows_ + k * plan_.key_width);
          break;
      }
    }
    Pad(sums_, count);
    if (plan_.keys != KeyRows::kSums) Pad(keys_, count);
  }

  // The rows of the tile that will be listed next.
  Prefetcher Prefetch(const int32_t* slots, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      asked_[k] = reinterpret_cast<const float*>(RowOf(slots[k]));
    }
    asked_slots_ = slots;
    asked_count_ = count;
    return Prefetcher(asked_, count, problem_.pool.row_bytes());
  }

  // Copies the rows that are added up side by side, plan.width floats apart, and returns them.
  const float* Gather(int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      float* to = sum_rows_ + k * plan_.width;
      if (sums_[k] != to) {
        std::memcpy(to, sums_[k], static_cast<size_t>(plan_.width) * sizeof(float));
        sums_[k] = to;
      }
    }
    return sum_rows_;
  }

  const float* const* keys() const { return plan_.keys == KeyRows::kSums ? sums_ : keys_; }
  const float* const* sums() const { return sums_; }

 private:
  const char* RowOf(int32_t slot) const {
    return reinterpret_cast<const char*>(problem_.pool.data) + problem_.pool.RowOffset(slot);
  }

  static void Pad(const float** list, int64_t count) {
    for (int64_t k = count; k % kPanel != 0; ++k) list[k] = list[k - 1];
  }

  // A row of the pool as floats.
  const float* Floats(const char* row) {
    if (problem_.pool.storage == Storage::kFloat32) return reinterpret_cast<const float*>(row);
    float* to = key_rows_ + kMaxRowTile * plan_.key_width;
    ReadRow(problem_.pool.storage, row, problem_.pool.width, problem_.pool.width, to);
    return to;
  }

  // Turns all heads of a row; a head of `to` begins `slice` floats after the one before.
  void TurnRow(const float* from, int64_t position, float direction, int64_t slice,
               float* to) const {
    const int64_t size = problem_.head_size, pairs = problem_.pairs;
    for (int64_t h = 0; h < problem_.kv_heads; ++h) {
      Turn(problem_.rotary, pairs, problem_.cosine + position * pairs,
           problem_.sine + position * pairs, direction, size, from + h * size, to + h * slice);
    }
    const int64_t written = (problem_.kv_heads - 1) * slice + size;
    const int64_t padded = slice == size ? plan_.width : problem_.kv_heads * slice;
    std::memset(to + written, 0, static_cast<size_t>(padded - written) * sizeof(float));
  }

  // Keys of all heads of a row, each padded with zeros to full panels.
  void MakeKeys(const char* row, int64_t position, float* to) {
    const float* from = Floats(row);
    const int64_t size = problem_.head_size, rest = plan_.slice - size;
    if (problem_.rotary != Rotary::kNone && !problem_.rotated) {
      TurnRow(from, position, 1.0f, plan_.slice, to);
    } else {
      for (int64_t h = 0; h < problem_.kv_heads; ++h) {
        std::memcpy(to + h * plan_.slice, from + h * size,
                    static_cast<size_t>(size) * sizeof(float));
      }
    }
    for (int64_t h = 0; h < problem_.kv_heads; ++h) {
      std::memset(to + h * plan_.slice + size, 0, static_cast<size_t>(rest) * sizeof(float));
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  float* sum_rows_;  // [kMaxRowTile][width]
  float* key_rows_;  // [kMaxRowTile][key_width], then a row of the pool
  const float* lists_[2][kMaxRowTile];
  const float** sums_ = lists_[0];
  const float** asked_ = lists_[1];  // of the tile to come
  const int32_t* asked_slots_ = nullptr;
  int64_t asked_count_ = 0;
  const float* keys_[kMaxRowTile];  // where they are not what is added up
};

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_TILE_ROWS_INL_H_
