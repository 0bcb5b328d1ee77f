// A tile: rows of one group that a block computes together, and the stream of keys that they see.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_TILE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_TILE_CUH_

#include "../device/number.cuh"
#include "../device/warp.cuh"
#include "plan.h"

namespace graft {
namespace cuda {
namespace flash_decode {

// Row r of a tile is token token0 + r / heads, query head head0 + r % heads of the KV head.
struct Tile {
  int32_t group = -1;     // none: there are fewer tiles than planned for
  int32_t first_row = 0;  // of the group, where sequences say so
  int32_t token0 = 0, tokens = 0;
  int32_t head0 = 0, heads = 0;
  int32_t shared = 0;         // positions on which all rows of the group agree
  int32_t private_count = 0;  // positions after them, of each row
  const int32_t* shared_slots = nullptr;
  const int32_t* private_slots = nullptr;  // of token0
  int32_t diagonal = 0, advance = 0;       // token i is position diagonal + i * advance
  int32_t low = 0, zone = 0;               // of shared positions, low .. low + zone - 1 are seen
  int32_t stream = 0;  // keys to go through: the zone, then each token's private ones
  bool keyless = false;

  GRAFT_DEVICE int32_t Rows() const { return tokens * heads; }
  GRAFT_DEVICE int32_t Position(int32_t token) const { return diagonal + token * advance; }
};

// The positions that a row sees: low .. high - 1.
struct Sight {
  int32_t low, high;
};
GRAFT_DEVICE Sight SightOf(const Problem& p, const Tile& tile, int32_t token) {
  const int64_t position = tile.Position(token);
  Sight sight;
  int64_t high = tile.shared + tile.private_count;
  if (high > p.key_limit) high = p.key_limit;
  if (p.causal || tile.advance == 0 || IsPool(p)) {
    if (high > position + 1) high = position + 1 > 0 ? position + 1 : 0;
  }
  sight.high = static_cast<int32_t>(high);
  sight.low = 0;
  if (p.window > 0 && position + 1 > p.window) {
    sight.low = static_cast<int32_t>(position + 1 - p.window);
  }
  return sight;
}

GRAFT_DEVICE int32_t LengthOf(const Problem& p, int32_t group) {
  int64_t length = p.keys;
  if (p.lengths32 != nullptr) length = p.lengths32[group];
  if (p.lengths64 != nullptr) length = p.lengths64[group];
  length = length < 0 ? 0 : length > p.keys ? p.keys : length;
  return static_cast<int32_t>(length);
}

// Rows of a group as `sequences` tell them; none where its columns do not fit the tensors.
GRAFT_DEVICE int32_t RowsOfStep(const Problem& p, int64_t group) {
  const int32_t* step = p.sequences + group * kSequenceColumns;
  const int64_t first = step[kSequenceFirstToken], rows = step[kSequenceTokens];
  const int64_t shared_at = step[kSequenceSharedOffset], shared = step[kSequenceShared];
  const int64_t own_at = step[kSequencePrivateOffset], private_count = step[kSequencePrivate];
  const bool fits = first >= 0 && rows >= 1 && first + rows <= p.rows && shared_at >= 0 &&
                    shared >= 0 && shared_at + shared <= p.shared_length && own_at >= 0 &&
                    private_count >= 0 && own_at + rows * private_count <= p.private_length &&
                    (step[kSequenceCausal] == 0 || (private_count == 0 && shared >= rows));
  return fits ? static_cast<int32_t>(rows) : 0;
}

// Which group tile `index` belongs to, and its place there. Groups of a pool are found by a scan of
// their steps, 32 at a time. All lanes of a warp take part.
GRAFT_DEVICE Tile FindTile(const Problem& p, const Cut& cut, int64_t index) {
  Tile tile;
  int32_t rows = 0, place = 0;
  if (!IsPool(p)) {
    rows = static_cast<int32_t>(p.rows);
    const int64_t tiles = CeilDivide(p.rows, cut.tile_tokens) * cut.head_parts;
    tile.group = static_cast<int32_t>(index / tiles);
    place = static_cast<int32_t>(index % tiles);
  } else {
    int64_t before = 0;
    for (int64_t first = 0; first < p.groups && tile.group < 0; first += kWarp) {
      const int64_t group = first + Lane();
      const int32_t mine = group < p.groups ? RowsOfStep(p, group) : 0;
      int32_t until = static_cast<int32_t>(CeilDivide(mine, cut.tile_tokens)) * cut.head_parts;
      const int32_t tiles = until;
#pragma unroll
      for (int32_t by = 1; by < kWarp; by *= 2) {
        const int32_t other = __shfl_up_sync(kAllLanes, until, static_cast<uint32_t>(by));
        if (Lane() >= by) until += other;
      }
      const uint32_t holds = __ballot_sync(kAllLanes, index < before + until);
      if (holds != 0) {
        const int32_t lane = __ffs(static_cast<int32_t>(holds)) - 1;
        tile.group = static_cast<int32_t>(first) + lane;
        rows = __shfl_sync(kAllLanes, mine, lane);
        place = static_cast<int32_t>(index - before) - __shfl_sync(kAllLanes, until - tiles, lane);
      }
      before += __shfl_sync(kAllLanes, until, kWarp - 1);
    }
    if (tile.group < 0) return tile;
  }
  const int32_t part = place % cut.head_parts;
  const int32_t group_heads = static_cast<int32_t>(p.heads / p.kv_heads);
  tile.head0 = part * cut.tile_heads;
  tile.heads = min(cut.tile_heads, group_heads - tile.head0);
  tile.token0 = place / cut.head_parts * cut.tile_tokens;
  tile.tokens = min(cut.tile_tokens, rows - tile.token0);

  if (IsPool(p)) {
    const int32_t* step = p.sequences + static_cast<int64_t>(tile.group) * kSequenceColumns;
    tile.first_row = step[kSequenceFirstToken];
    tile.shared = step[kSequenceShared];
    tile.private_count = step[kSequencePrivate];
    tile.shared_slots = p.shared_slots + step[kSequenceSharedOffset];
    tile.private_slots = p.private_slots + step[kSequencePrivateOffset] +
                         static_cast<int64_t>(tile.token0) * tile.private_count;
    const bool causal = step[kSequenceCausal] != 0;
    tile.diagonal = causal ? tile.shared - rows : tile.shared + tile.private_count - 1;
    tile.advance = causal ? 1 : 0;
    tile.keyless = tile.shared + tile.private_count == 0;
  } else {
    const int32_t length = LengthOf(p, tile.group);
    const bool beams = p.places == Places::kIndirection;
    tile.shared = beams && p.prefix < length ? static_cast<int32_t>(p.prefix) : length;
    tile.private_count = length - tile.shared;
    tile.advance = beams ? 0 : 1;
    tile.diagonal = beams             ? length - 1
                    : p.diagonal >= 0 ? static_cast<int32_t>(p.diagonal)
                                      : length - rows;
    tile.keyless = p.keys == 0;
  }

  // A tile's rows see neighbouring ranges, the first token's beginning first.
  const Sight first = SightOf(p, tile, tile.token0);
  const Sight last = SightOf(p, tile, tile.token0 + tile.tokens - 1);
  tile.low = min(first.low, tile.shared);
  tile.zone = max(min(last.high, tile.shared) - tile.low, 0);
  tile.stream = tile.zone + tile.tokens * tile.private_count;
  return tile;
}

// A key of the stream: its position, and the token of the tile that it belongs to, -1: all.
struct Key {
  int32_t position, owner;
};
GRAFT_DEVICE Key KeyAt(const Tile& tile, int32_t index) {
  if (index < tile.zone) return {tile.low + index, -1};
  const auto after = static_cast<uint32_t>(index - tile.zone);
  const auto private_count = static_cast<uint32_t>(tile.private_count);
  const uint32_t owner = after / private_count;
  return {tile.shared + static_cast<int32_t>(after - owner * private_count),
          static_cast<int32_t>(owner)};
}

// Where a key and its value stand for a KV head; null where the lists name no such place.
template <typename T>
struct Found {
  const T *key, *value;
};
template <typename T>
GRAFT_DEVICE Found<T> Find(const Problem& p, const Tile& tile, Key key, int32_t kv_head) {
  int64_t block = tile.group, slot = key.position;
  const Input* keys = &p.key;
  const Input* values = &p.value;
  switch (p.places) {
    case Places::kContiguous:
      if (slot >= p.past) {
        slot -= p.past;
        keys = &p.fresh_key;
        values = &p.fresh_value;
      }
      break;
    case Places::kBlockTable:
      block = p.table[tile.group * p.table_stride + slot / p.block_slots];
      slot %= p.block_slots;
      break;
    case Places::kIndirection:
      block = tile.group * p.rows;
      if (key.owner >= 0) {
        block = p.table[(block + tile.token0 + key.owner) * p.table_stride + slot];
      }
      break;
    case Places::kPool:
      slot = key.owner < 0
                 ? tile.shared_slots[slot]
                 : tile.private_slots[static_cast<int64_t>(key.owner) * tile.private_count + slot -
                                      tile.shared];
      block = slot < 0 ? -1 : slot / p.block_slots;
      slot = slot < 0 ? 0 : slot % p.block_slots;
      break;
  }
  if (p.places != Places::kContiguous && (block < 0 || block >= p.blocks))
    return {nullptr, nullptr};
  const Strides &k = keys->strides, &v = values->strides;
  return {
      static_cast<const T*>(keys->data) + block * k.batch + kv_head * k.head + slot * k.position,
      static_cast<const T*>(values->data) + block * v.batch + kv_head * v.head + slot * v.position};
}

// Offset of a tensor's row: [group, head, token], the rows of all groups in one batch with
// sequences.
GRAFT_DEVICE int64_t RowOffset(const Problem& p, const Tile& tile, const Strides& s, int64_t head,
                               int32_t token) {
  const int64_t batch = IsPool(p) ? tile.first_row * s.position : tile.group * s.batch;
  return batch + head * s.head + token * s.position;
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_TILE_CUH_
