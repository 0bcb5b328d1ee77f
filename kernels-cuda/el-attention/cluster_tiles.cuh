// What a block of a cluster has of a tile of rows: which keys, and their way into shared memory.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_TILES_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_TILES_CUH_

#include "groups.cuh"
#include "tile.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

// Below 9.0 there are no clusters, and a plan for it has none.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
GRAFT_DEVICE int32_t RankOf(bool clustered) { return clustered ? ClusterRank() : 0; }
GRAFT_DEVICE void Arrive() { ClusterArrive(); }
GRAFT_DEVICE void AwaitOthers() { ClusterWait(); }
template <typename V>
GRAFT_DEVICE V* Of(V* shared, int32_t rank) {
  return ClusterMap(shared, rank);
}
#else
GRAFT_DEVICE int32_t RankOf(bool) { return 0; }
GRAFT_DEVICE void Arrive() {}
GRAFT_DEVICE void AwaitOthers() {}
template <typename V>
GRAFT_DEVICE V* Of(V* shared, int32_t) {
  return shared;
}
#endif

template <typename T, int32_t kWarpColumns>
class ClusterTiles {
  using Piece = Tile<T, kWarpColumns>;
  static constexpr int32_t kStages = Piece::kStages;

 protected:
  GRAFT_DEVICE ClusterTiles(const Problem& p, const ClusterCut& cut)
      : p_(p), cut_(cut), at_(LayOut(kWarpColumns, cut.columns)) {
    shared_ = SharedMemory();
    const int32_t size = cut.columns * cut.splits, rank = RankOf(size > 1);
    column_ = rank % cut.columns;
    split_ = rank / cut.columns;
    column0_ = column_ * Piece::kColumns;
    lane_ = Lane();
    warp_ = WarpIndex();
  }

  GRAFT_DEVICE unsigned char* Stage(int32_t tile) const {
    return shared_ + at_.rows + tile % kStages * Piece::kStageBytes;
  }

  // The positions of this block: a run of as many tiles in every block of the cluster.
  GRAFT_DEVICE void ChooseKeys() {
    const int32_t first = group_.Position(row0_ / p_.heads);
    const int32_t last = group_.Position((row0_ + count_ - 1) / p_.heads);
    int32_t low = p_.window > 0 ? max(0, first - p_.window + 1) : 0;
    low -= low % kTileKeys;
    const int32_t high = min(group_.shared, last + 1);
    const int32_t tiles = max(0, (high - low + kTileKeys - 1) / kTileKeys);
    const int32_t pieces = cut_.parts * cut_.splits;
    const int32_t piece = static_cast<int32_t>(blockIdx.y) * cut_.splits + split_;
    tiles_ = (tiles + pieces - 1) / pieces;
    begin_ = low + piece * tiles_ * kTileKeys;
    end_ = min(high, begin_ + tiles_ * kTileKeys);
  }

  // Where lane i's key of a tile stands in the rows; -1: nowhere.
  GRAFT_DEVICE int64_t Find(int32_t tile) const {
    const int32_t position = begin_ + tile * kTileKeys + lane_;
    if (position >= end_) return -1;
    const int32_t slot = SlotOf(p_.lists, group_, 0, position, p_.rows.slots);
    return slot < 0 ? -1 : ByteOf(p_.rows, slot);
  }

  // Starts the copy of a tile whose keys were found, four keys a warp.
  GRAFT_DEVICE void Copy(int32_t tile, int64_t found) const {
    if (tile >= tiles_) return;
    const auto* data = static_cast<const char*>(p_.rows.data);
#pragma unroll
    for (int32_t i = 0; i < kTileKeys / Piece::kWarps; ++i) {
      const int32_t key = warp_ * (kTileKeys / Piece::kWarps) + i;
      const int64_t byte = __shfl_sync(kAllLanes, found, key);
      Piece::CopyRow(Stage(tile), key, data + max(byte, int64_t{0}), column0_, p_.rows.width,
                     byte >= 0);
    }
  }

  GRAFT_DEVICE void CopyQueries() const {
    const T* query = static_cast<const T*>(p_.query) +
                     (int64_t{group_.first} * p_.heads + row0_) * p_.query_stride;
    for (int32_t row = warp_; row < kTileRows; row += Piece::kWarps) {
      const bool valid = row < count_;
      Piece::CopyRow(shared_ + at_.query, row, query + (valid ? row : 0) * p_.query_stride,
                     column0_, p_.rows.width, valid);
    }
  }

  const Problem& p_;
  const ClusterCut& cut_;
  const ClusterLayout at_;
  unsigned char* shared_;
  int32_t column_, split_;  // which of the cluster this block is
  int32_t column0_;
  int32_t lane_, warp_;

  Group group_;
  int32_t row0_ = 0, count_ = 0;  // rows of the group
  int32_t tiles_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_TILES_CUH_
