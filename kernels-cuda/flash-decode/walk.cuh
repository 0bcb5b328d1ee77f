// What the fast kernels have in common: which block does what, which rows see a key, and the
// weights of a run of keys.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_WALK_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_WALK_CUH_

#include "merge.cuh"
#include "stage.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

// One block's share of the work: a tile, a KV head, and a part of the stream. Parts of the same
// tile follow each other: where they are a cluster's, its blocks go through tiles together.
struct Item {
  Tile tile;
  int32_t kv_head, begin, end;
};
template <int32_t kKeys>
GRAFT_DEVICE Item ItemAt(const Problem& p, const Cut& cut, int64_t index) {
  Item item;
  const auto split = static_cast<int32_t>(index % cut.splits);
  const int64_t place = index / cut.splits;
  item.tile = FindTile(p, cut, place % cut.tiles);
  item.kv_head = static_cast<int32_t>(place / cut.tiles);
  constexpr int32_t kStep = kWarps * kKeys;
  const int32_t steps = (item.tile.stream + kStep - 1) / kStep;
  const int32_t part = (steps + cut.splits - 1) / cut.splits * kStep;
  item.begin = min(split * part, item.tile.stream);
  item.end = min(item.begin + part, item.tile.stream);
  return item;
}

// Copies a tile's queries to shared memory, [kRows][cut.key_stride], zeros where there are none.
template <typename T, int32_t kRows>
GRAFT_DEVICE void CopyQueries(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head,
                              T* to) {
  constexpr int32_t kThreads = kWarps * kWarp;
  constexpr int32_t kAtOnce = 8;  // loads in flight before the first is stored
  const int64_t head0 = kv_head * (p.heads / p.kv_heads) + tile.head0;
  const Strides& s = p.query.strides;
  const int32_t count = kRows * cut.key_stride;
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < count;
       first += kThreads * kAtOnce) {
    T x[kAtOnce];
#pragma unroll
    for (int32_t k = 0; k < kAtOnce; ++k) {
      const int32_t i = first + k * kThreads;
      const int32_t row = i / cut.key_stride, f = i % cut.key_stride;
      x[k] = T{};
      if (row >= tile.Rows() || f >= p.head_size) continue;
      x[k] = static_cast<const T*>(p.query.data)[RowOffset(p, tile, s, head0 + row % tile.heads,
                                                           tile.token0 + row / tile.heads) +
                                                 f * s.feature];
    }
#pragma unroll
    for (int32_t k = 0; k < kAtOnce; ++k) {
      if (first + k * kThreads < count) to[first + k * kThreads] = x[k];
    }
  }
}

// What a row of the tile may see.
struct RowSight {
  int32_t token;  // of the tile; -1: the tile has no such row
  int64_t head;
  Sight sight;
};
GRAFT_DEVICE RowSight RowSightOf(const Problem& p, const Tile& tile, int32_t kv_head, int32_t row) {
  if (row >= tile.Rows()) return {-1, 0, {0, 0}};
  const int32_t token = row / tile.heads;
  return {token, kv_head * (p.heads / p.kv_heads) + tile.head0 + row % tile.heads,
          SightOf(p, tile, tile.token0 + token)};
}

// Shared positions low .. high - 1 are seen by every row.
GRAFT_DEVICE Sight SeenByAll(const Problem& p, const Tile& tile) {
  return {SightOf(p, tile, tile.token0 + tile.tokens - 1).low, SightOf(p, tile, tile.token0).high};
}

// Whether q k^T of a run of keys needs nothing but a factor: all rows see all of them.
GRAFT_DEVICE bool IsClean(const Tile& tile, const Sight& all, const Units& units, int32_t index,
                          int32_t count, int32_t end, uint32_t there) {
  const int32_t position = tile.low + index;
  return units.plain && there == (1u << count) - 1 && index + count <= min(end, tile.zone) &&
         position >= all.low && position + count <= all.high;
}

// The score of one row and key. `there` is the key's own bit.
template <typename T>
GRAFT_DEVICE float ScoreOf(const Problem& p, const Tile& tile, const Units& units,
                           const RowSight& row, Key key, bool there, float product) {
  const bool mine = key.owner < 0 || key.owner == row.token || Seeded(4);
  if (!there || row.token < 0 || !mine || key.position < row.sight.low ||
      key.position >= row.sight.high) {
    return NegativeInfinity();
  }
  const float s = Softcapped(p, product * units.factor);
  return units.plain ? s : Masked<T>(p, tile, tile.token0 + row.token, row.head, key.position, s);
}

// Takes in the largest score of a run: the factor by which everything summed before shrinks.
GRAFT_DEVICE float Raise(State* state, float highest, float unit) {
  const float maximum = fmaxf(state->maximum, highest);
  const float shrink = WeightOf(state->maximum, BaseOf(maximum), unit);
  state->maximum = maximum;
  state->sum *= shrink;
  return shrink;
}

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_WALK_CUH_
