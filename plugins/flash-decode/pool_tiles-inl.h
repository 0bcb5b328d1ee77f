// Tiles of one task over a pool: from slots to rows of keys and values.
#if defined(GRAFT_FLASH_DECODE_POOL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_TILES_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_TILES_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "cached.h"
#include "cached_plan.h"
#include "hwy/highway.h"
#include "listed-inl.h"
#include "memory-inl.h"
#include "packed-inl.h"
#include "pool_task-inl.h"
#include "stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Lists of keys and values that will be read next, of one head; null: nothing is prefetched.
struct LaterRows {
  const int64_t* keys;
  const int64_t* values;
  int64_t head;
};

// Lists the slots of the task's tiles, and reads keys and values through them.
class PoolTiles : public PoolTask {
 protected:
  using PoolTask::PoolTask;

  // scores_[r][k] = scale of key k * dot(query row first + r, numbers of key k) of one head's keys,
  // whose list begins `at` in the tile's.
  void DotKeys(int64_t first, int64_t rows, const PoolTile& tile, int64_t at, int64_t head,
               const LaterRows& later) {
    const Side side{pool_.head_size, plan_.key_stride, key_rows_};
    WithRows(side, tile.key_offsets + at, tile.count, head, later.keys, later.head,
             [&](auto keys, auto next) {
               DotListed(query_ + first * plan_.key_stride, plan_.key_stride, rows, keys,
                         tile.count, key_vectors_, next, scores_);
             });
    if (scaled_) Scale(rows, tile, at, head);
  }

  // Adds a head's values, weighted with scores_, to the accumulators of `rows` query rows. The
  // scale of a value goes to its weights, which are not read again.
  void AddValues(int64_t first, int64_t rows, const PoolTile& tile, int64_t at, int64_t head,
                 const LaterRows& later, const float* rescale) {
    if (scaled_) Scale(rows, tile, at, pool_.kv_heads + head);
    const Side side{pool_.value_size, plan_.value_stride, value_rows_};
    WithRows(side, tile.value_offsets + at, tile.count, head, later.values, later.head,
             [&](auto values, auto next) {
               AddWeightedListed(scores_, rows, values, tile.count, value_vectors_, next, rescale,
                                 accumulator_ + first * plan_.value_stride, plan_.value_stride);
             });
  }

  // Scales lie apart from what they scale: a line holds those of a head and block.
  void PrefetchScales(const int64_t* offsets, int64_t count, int64_t head) const {
    const float* keys = pool_.data + head * kBlockSlots;
    const float* values = keys + pool_.kv_heads * kBlockSlots;
    for (int64_t k = 0; k < count; ++k) {
      if (k > 0 && offsets[k] == offsets[k - 1] + 1) continue;
      __builtin_prefetch(keys + offsets[k], 0, 2);
      __builtin_prefetch(values + offsets[k], 0, 2);
    }
  }

  // Lists the tile that begins at position j.
  void List(int64_t j, int64_t end, PoolTile& tile) const {
    const CachedGroup& group = *group_;
    tile.begin = j;
    tile.adjacent = true;
    if (j < group.shared_count) {
      const int64_t maximum = packed_ ? kMaxTile : kSharedTile;
      tile.count = std::min(maximum, std::min(end, group.shared_count) - j);
      tile.lists = 1;
      tile.padded = maximum;
      ListSlots(group.shared_slots + j, tile.count, maximum, 0, tile);
      return;
    }
    tile.count = std::min(kPrivateTile, end - j);
    tile.lists = rows_;
    tile.padded = kPrivateTile;
    const int64_t m = group.private_count;
    const int32_t* private_slots = group.private_slots + row0_ * m + (j - group.shared_count);
    for (int64_t i = 0; i < rows_; ++i) {
      // A shared tile before this one prefetches its first kSharedTile entries.
      ListSlots(private_slots + i * m, tile.count, i + 1 < rows_ ? kPrivateTile : kSharedTile,
                i * kPrivateTile, tile);
    }
  }
  // Lists slots from entry `at` of the tile's lists on.
  void ListSlots(const int32_t* slots, int64_t count, int64_t padded, int64_t at,
                 PoolTile& tile) const {
    int64_t* keys = tile.key_offsets + at;
    int64_t* values = tile.value_offsets + at;
    for (int64_t k = 0; k < count; ++k) {
      keys[k] = pool_.KeyOffset(slots[k]);
      values[k] = pool_.ValueOffset(slots[k]);
    }
    for (int64_t k = count; k < padded; ++k) {
      keys[k] = keys[k - 1];
      values[k] = values[k - 1];
    }
    for (int64_t k = 0; k < count; k += kLanes) {
      for (int64_t i = 1; i < kLanes; ++i) {
        tile.adjacent &= keys[k + i] == keys[k] + i * pool_.head_size;
      }
    }
    if (!scaled_) return;
    int64_t* scales = tile.scale_offsets + at;
    for (int64_t k = 0; k < count; ++k) scales[k] = pool_.ScaleOffset(slots[k]);
    for (int64_t k = count; k < padded; ++k) scales[k] = scales[k - 1];
  }

  // Transposes the keys of a tile and gathers its values.
  void PackTile(int64_t head, const PoolTile& tile) {
    const int64_t size = pool_.head_size;
    if (pool_.storage != Storage::kFloat32) return PackStored(head, tile);
    const float* keys = pool_.data + head * kBlockSlots * size;
    for (int64_t k = 0; k < tile.count; k += kLanes) {
      const int64_t count = std::min(kLanes, tile.count - k);
      const int64_t* offsets = tile.key_offsets + k;
      bool adjacent = true;
      for (int64_t i = 1; i < count; ++i) adjacent &= offsets[i] == offsets[0] + i * size;
      RowsOfType<float> rows{keys + offsets[0], size};
      if (!adjacent) {
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(key_rows_ + i * plan_.key_stride, keys + offsets[i],
                      static_cast<size_t>(size) * sizeof(float));
        }
        rows = {key_rows_, plan_.key_stride};
      }
      PackKeys(rows, count, size, 1.0f, key_rows_, packed_keys_ + k);
    }
    const float* values = pool_.data + head * kBlockSlots * pool_.value_size;
    for (int64_t k = 0; k < tile.count; ++k) {
      LoadRow(Type::kFloat32, values + tile.value_offsets[k], 1, pool_.value_size,
              plan_.value_stride, 1.0f, value_rows_ + k * plan_.value_stride);
    }
  }

  // How many keys of a tile, from the first on, query row r of a KV head and those before it see.
  int64_t SeenBy(int64_t r, const PoolTile& tile) const {
    const int64_t high = high_[r / plan_.group_heads] - tile.begin;
    return std::max<int64_t>(0, std::min(high, tile.count));
  }

 private:
  // Keys or values.
  struct Side {
    int64_t size, stride;
    float* scratch;  // [kSharedTile][stride]
  };

  // Calls body(rows, rows to prefetch) with rows of one head: where they lie if they are full
  // vectors that the target converts, else as floats in scratch, padded with zeros. Neither has
  // scales in it.
  template <class Body>
  void WithRows(const Side& side, const int64_t* offsets, int64_t count, int64_t head,
                const int64_t* later, int64_t later_head, const Body& body) {
    const int64_t shift = pool_.shift();
    const char* data = reinterpret_cast<const char*>(pool_.data);
    const char* base = data + ((head * kBlockSlots * side.size) << shift);
    const char* next = data + ((later_head * kBlockSlots * side.size) << shift);
    const auto where = [&](auto number) {
      (void)number;
      using T = decltype(number);
      body(ListedRows<T>{reinterpret_cast<const T*>(base), offsets},
           ListedRows<T>{later != nullptr ? reinterpret_cast<const T*>(next) : nullptr, later});
    };
    if (side.size % kLanes == 0) {
      switch (pool_.storage) {
        case Storage::kFloat32:
          return where(float());
        case Storage::kBfloat16:
          return where(Brain());
        case Storage::kInt8:
          return where(int8_t());
        case Storage::kFloat16:
#if GRAFT_HALF_IN_HARDWARE
          return where(Half());
#else
          break;
#endif
      }
    }
    for (int64_t k = 0; k < count; ++k) {
      LoadStored(pool_.storage, base + (offsets[k] << shift), side.size, side.stride, 1.0f,
                 side.scratch + k * side.stride);
      gathered_[k] = k * side.stride;
    }
    for (int64_t k = count; k < kSharedTile; ++k) gathered_[k] = gathered_[k - 1];
    body(ListedRows<float>{side.scratch, gathered_}, ListedRows<float>{nullptr, nullptr});
  }

  // Multiplies what scores_ holds of `rows` query rows with the scales of keys or values: those of
  // a KV head, or of kv_heads + head.
  void Scale(int64_t rows, const PoolTile& tile, int64_t at, int64_t head) {
    const DF d;
    const float* from = pool_.data + head * kBlockSlots;
    const int64_t* offsets = tile.scale_offsets + at;
    for (int64_t k = 0; k < tile.count; k += kLanes) {
      VF scales;
      if (tile.adjacent) {
        scales = hn::LoadU(d, from + offsets[k]);
      } else {
        HWY_ALIGN float apart[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) apart[i] = from[offsets[k + i]];
        scales = hn::Load(d, apart);
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* scores = scores_ + r * kMaxTile + k;
        hn::StoreU(hn::Mul(hn::LoadU(d, scores), scales), d, scores);
      }
    }
  }

  // PackTile for numbers that are no floats: each becomes one on its way, its scale in it.
  void PackStored(int64_t head, const PoolTile& tile) {
    const int64_t size = pool_.head_size, value_size = pool_.value_size;
    const float* scales = pool_.data + head * kBlockSlots;
    const auto scale = [&](int64_t k, int64_t side) {
      return scaled_ ? scales[tile.scale_offsets[k] + side * pool_.kv_heads * kBlockSlots] : 1.0f;
    };
    for (int64_t k = 0; k < tile.count; k += kLanes) {
      const int64_t count = std::min(kLanes, tile.count - k);
      for (int64_t i = 0; i < count; ++i) {
        LoadStored(pool_.storage, pool_.At(tile.key_offsets[k + i] + head * kBlockSlots * size),
                   size, size, scale(k + i, 0), key_rows_ + i * plan_.key_stride);
      }
      PackKeys({key_rows_, plan_.key_stride}, count, size, 1.0f, key_rows_, packed_keys_ + k);
    }
    for (int64_t k = 0; k < tile.count; ++k) {
      LoadStored(pool_.storage, pool_.At(tile.value_offsets[k] + head * kBlockSlots * value_size),
                 value_size, plan_.value_stride, scale(k, 1), value_rows_ + k * plan_.value_stride);
    }
  }

  int64_t gathered_[kSharedTile];  // offsets of rows in scratch
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_TILES_INL_H_
