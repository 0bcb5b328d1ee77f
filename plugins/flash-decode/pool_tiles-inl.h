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

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Lists the slots of the task's tiles, and reads keys and values through them.
class PoolTiles : public PoolTask {
 protected:
  using PoolTask::PoolTask;

  // Rows of keys or values of one head: where they lie if they are full vectors, else through
  // scratch, padded with zeros.
  ListedRows Listed(const int64_t* offsets, int64_t head, int64_t count, int64_t size,
                    int64_t stride, float* scratch) {
    const float* base = pool_.data + head * kBlockSlots * size;
    if (size % kLanes == 0) return {base, offsets};
    for (int64_t k = 0; k < count; ++k) {
      LoadRow(Type::kFloat32, base + offsets[k], 1, size, stride, 1.0f, scratch + k * stride);
      gathered_[k] = k * stride;
    }
    for (int64_t k = count; k < kSharedTile; ++k) gathered_[k] = gathered_[k - 1];
    return {scratch, gathered_};
  }
  // What to prefetch while something else is computed, if it is read where it lies.
  ListedRows Later(const int64_t* offsets, int64_t head, int64_t size) const {
    if (size % kLanes != 0) return {nullptr, nullptr};
    return {pool_.data + head * kBlockSlots * size, offsets};
  }
  ListedRows Keys(const int64_t* offsets, int64_t head, int64_t count) {
    return Listed(offsets, head, count, pool_.head_size, plan_.key_stride, key_rows_);
  }
  ListedRows Values(const int64_t* offsets, int64_t head, int64_t count) {
    return Listed(offsets, head, count, pool_.value_size, plan_.value_stride, value_rows_);
  }

  // Lists the tile that begins at position j.
  void List(int64_t j, int64_t end, PoolTile& tile) const {
    const CachedGroup& group = *group_;
    tile.begin = j;
    if (j < group.shared_count) {
      const int64_t maximum = packed_ ? kMaxTile : kSharedTile;
      tile.count = std::min(maximum, std::min(end, group.shared_count) - j);
      tile.lists = 1;
      tile.padded = maximum;
      ListSlots(group.shared_slots + j, tile.count, maximum, tile.key_offsets, tile.value_offsets);
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
                tile.key_offsets + i * kPrivateTile, tile.value_offsets + i * kPrivateTile);
    }
  }
  void ListSlots(const int32_t* slots, int64_t count, int64_t padded, int64_t* keys,
                 int64_t* values) const {
    for (int64_t k = 0; k < count; ++k) {
      keys[k] = pool_.KeyOffset(slots[k]);
      values[k] = pool_.ValueOffset(slots[k]);
    }
    for (int64_t k = count; k < padded; ++k) {
      keys[k] = keys[k - 1];
      values[k] = values[k - 1];
    }
  }

  // Transposes the keys of a tile and gathers its values.
  void PackTile(int64_t head, const PoolTile& tile) {
    const int64_t size = pool_.head_size;
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
  int64_t gathered_[kSharedTile];  // offsets of rows in scratch
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_TILES_INL_H_
