// Attention over shared rows on tensor cores: 64 rows of queries, and every row of X read once.
//
// 64 rows of 1,024 float32 sums are all registers of a multiprocessor, so the blocks of a cluster
// share the columns: each has some columns of the queries and of X, takes scores over its own
// columns, gives them to the others through distributed shared memory, adds up what all found, does
// the softmax, and adds weights times X to its own columns of the sums. With splits, the cluster
// holds several such sets, each with a part of the keys, and joins them at the end.
//
// One step, for the tile t of 32 keys, with the next tile's scores in flight:
//
//   scores of tile t + 1 over own columns, a quarter of these a warp; quarters added up
//   wait for the others' scores of tile t; softmax of tile t; weights to shared memory
//   give the others the scores of tile t + 1
//   start the copy of a tile to the stage that tile t - 1 left
//   sums += weights X
//
// so that between giving and waiting there is a whole step of arithmetic.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_CUH_

#include "cluster_tiles.cuh"
#include "parts.cuh"
#include "tile.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

// A row's highest score grows by this much, in powers of 2, before sums are rescaled: weights are
// then at most 256, which every type holds as well as 1, and most tiles leave the sums alone.
constexpr float kSlack = 8.0f;

template <typename T, int32_t kWarpColumns>
class ClusterBlock : ClusterTiles<T, kWarpColumns> {
  using Tiles = ClusterTiles<T, kWarpColumns>;
  using Piece = Tile<T, kWarpColumns>;
  static constexpr int32_t kStages = Piece::kStages;
  using Tiles::at_, Tiles::begin_, Tiles::column0_, Tiles::column_, Tiles::count_, Tiles::cut_,
      Tiles::group_, Tiles::lane_, Tiles::p_, Tiles::row0_, Tiles::shared_, Tiles::split_,
      Tiles::tiles_, Tiles::warp_;
  using Tiles::ChooseKeys, Tiles::Copy, Tiles::CopyQueries, Tiles::Find, Tiles::Stage;

 public:
  GRAFT_DEVICE ClusterBlock(const Problem& p, const Parts& parts, const ClusterCut& cut)
      : Tiles(p, cut), parts_(parts) {}

  GRAFT_DEVICE void Run() {
    const int32_t size = cut_.columns * cut_.splits;
    if (!FindTile(p_, static_cast<int32_t>(blockIdx.x) / size, kTileRows, &group_, &row0_)) {
      return WaitForLaunch();
    }
    count_ = min(kTileRows, group_.tokens * p_.heads - row0_);
    ChooseKeys();
    Start();
    for (int32_t t = 0; t < tiles_; ++t) Step(t);
    LetNextBegin();
    CopyWait<0>();
    total_ += __shfl_xor_sync(kAllLanes, total_, 1);
    total_ += __shfl_xor_sync(kAllLanes, total_, 2);
    Finish();
  }

 private:
  // The quarters' meeting place: the stage that tile `tile` will come to, which is free so far.
  GRAFT_DEVICE float4* Reduce(int32_t tile) const {
    return reinterpret_cast<float4*>(Piece::kStageBytes >= kReduceBytes ? Stage(tile)
                                                                        : shared_ + at_.reduce);
  }
  // What the block `source` of this cluster's columns says of a tile, in the block `of`.
  GRAFT_DEVICE float4* Exchange(int32_t tile, int32_t source, int32_t of) const {
    const int32_t others = cut_.columns - 1;
    const int32_t place = (source - of - 1 + cut_.columns) % cut_.columns;
    if (Seeded(4)) tile = 0;
    return reinterpret_cast<float4*>(shared_ + at_.exchange) +
           ((tile & 1) * others + place) * (kTileRows * kTileKeys / 4) + warp_ * (2 * kWarp) +
           lane_;
  }

  // The row whose softmax this lane does, together with three others: it has the keys 8 n + 2 (lane
  // % 4) and the next of each n.
  GRAFT_DEVICE void FindRow() {
    row_ = warp_ * 8 + lane_ / 4;
    const int32_t row = min(row0_ + row_, group_.tokens * p_.heads - 1);
    head_ = row % p_.heads;
    position_ = row_ < count_ ? group_.Position(row / p_.heads) : -1;
    const int64_t index = int64_t{group_.first} * p_.heads + row;
    shift_ = p_.shift == nullptr ? 0.0f : p_.shift[index];
  }

  GRAFT_DEVICE void Start() {
    const bool shares = cut_.columns * cut_.splits > 1;
    if (shares) Arrive();  // memory of a block may be written once it has begun
    // The launch before may still make queries and their shifts, and reads no rows of X.
    Copy(0, Find(0));
    if (!Seeded(7)) WaitForLaunch();
    CopyQueries();
    CopyCommit();
    if (Seeded(7)) {
      CopyWait<0>();
      WaitForLaunch();
    }
    FindRow();
#pragma unroll
    for (int32_t tile = 1; tile < kStages - 1; ++tile) {
      Copy(tile, Find(tile));
      CopyCommit();
    }
#pragma unroll
    for (int32_t m = 0; m < 4; ++m) {
#pragma unroll
      for (int32_t n = 0; n < 2 * Piece::kSumPairs; ++n) {
#pragma unroll
        for (int32_t i = 0; i < 4; ++i) sums_[m][n][i] = 0.0f;
      }
    }
    if (shares) AwaitOthers();
    if (tiles_ == 0) return;
    CopyWait<kStages - 2>();
    __syncthreads();
    Score(0, kStages - 1, scores_);
    Give(0, scores_);
  }

  // This block's scores of the lane's row and eight keys: `tile` is there, `free` has not come.
  GRAFT_DEVICE void Score(int32_t tile, int32_t free, float (&mine)[8]) {
    typename Piece::Scores scores;
    Piece::Score(shared_ + at_.query, Stage(tile), scores);
    const int32_t half = warp_ / 4, quarter = warp_ % 4;
    if (Seeded(5) && quarter > 0) Linger();
    float4* places = Reduce(free) + lane_;
    // Of four slabs of 8 rows a warp holds one and gives the others away.
#pragma unroll
    for (int32_t slab = 0; slab < 4; ++slab) {
      float part[8];
#pragma unroll
      for (int32_t i = 0; i < 8; ++i) part[i] = scores[slab / 2][i / 2][slab % 2 * 2 + i % 2];
      if (slab == quarter) {
#pragma unroll
        for (int32_t i = 0; i < 8; ++i) mine[i] = part[i];
      } else {
        float4* to = places + ((half * 4 + slab) * 3 + (quarter - slab + 3) % 4) * (2 * kWarp);
        to[0] = make_float4(part[0], part[1], part[2], part[3]);
        to[kWarp] = make_float4(part[4], part[5], part[6], part[7]);
      }
    }
    if (!Seeded(5)) BarrierSync(1 + half, kTileThreads / 2);
#pragma unroll
    for (int32_t i = 0; i < 3; ++i) AddTo(mine, places + (warp_ * 3 + i) * (2 * kWarp));
  }

  static GRAFT_DEVICE void AddTo(float (&to)[8], const float4* from) {
    const float4 low = from[0], high = from[kWarp];
    to[0] += low.x, to[1] += low.y, to[2] += low.z, to[3] += low.w;
    to[4] += high.x, to[5] += high.y, to[6] += high.z, to[7] += high.w;
  }

  GRAFT_DEVICE void Give(int32_t tile, const float (&mine)[8]) {
    if (cut_.columns == 1) return;
    for (int32_t other = 0; other < cut_.columns; ++other) {
      if (other == column_) continue;
      float4* to = Of(Exchange(tile, column_, other), split_ * cut_.columns + other);
      to[0] = make_float4(mine[0], mine[1], mine[2], mine[3]);
      to[kWarp] = make_float4(mine[4], mine[5], mine[6], mine[7]);
    }
    Arrive();
  }

  // Adds what the other blocks found, in the same order in each, so that all agree to the bit.
  GRAFT_DEVICE void Take(int32_t tile, float (&scores)[8]) {
    if (cut_.columns == 1) return;
    AwaitOthers();
    if (Seeded(4)) {
      if (column_ > 0) Linger();
      for (int32_t i = 0; i < 8 * column_; ++i) __syncwarp();  // others may pass meanwhile
    }
    float sum[8] = {};
    for (int32_t source = 0; source < cut_.columns; ++source) {
      if (source == column_) {
#pragma unroll
        for (int32_t i = 0; i < 8; ++i) sum[i] += scores[i];
      } else {
        AddTo(sum, Exchange(tile, source, column_));
      }
    }
#pragma unroll
    for (int32_t i = 0; i < 8; ++i) scores[i] = sum[i];
  }

  // The weights of a tile to shared memory; returns whether a row's sums must be rescaled.
  GRAFT_DEVICE bool Soften(int32_t tile, uint32_t there, float (&scores)[8]) {
    const int32_t column = lane_ % 4 * 2;
    const int32_t distance = position_ - begin_ - tile * kTileKeys - column;
    float top = NegativeInfinity();
#pragma unroll
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t key = i / 2 * 8 + i % 2;
      const bool valid = row_ < count_ && (there >> (key + column) & 1) != 0;
      scores[i] = valid ? kLog2E * ScoreOf(p_, scores[i], shift_, head_, distance - key)
                        : NegativeInfinity();
      top = fmaxf(top, scores[i]);
    }
    top = WarpMax<4>(top);
    const float before = most_;
    if (top > before + kSlack || !(before > NegativeInfinity())) most_ = top;
    const bool grown = most_ > before && before > NegativeInfinity();
    const float factor = grown ? exp2f(before - most_) : 1.0f;
    total_ *= factor;
    const float base = most_ > NegativeInfinity() ? most_ : 0.0f;
#pragma unroll
    for (int32_t n = 0; n < 4; ++n) {
      const float low = exp2f(scores[2 * n] - base), high = exp2f(scores[2 * n + 1] - base);
      total_ += low + high;
      auto* to = Piece::WeightAt(shared_ + at_.weights, row_, n) + lane_ % 4 * 4;
      *reinterpret_cast<uint32_t*>(to) = Pack<T>(low, high);
    }
    if (lane_ % 4 == 0) Factors()[row_] = factor;
    return grown;
  }

  GRAFT_DEVICE void Step(int32_t t) {
    // Lists are read here and looked at after the matmul, which takes longer.
    const int32_t coming = t + kStages - 1;
    const int64_t present = Find(t), found = Find(coming);
    CopyWait<kStages - 3>();
    __syncthreads();
    float next[8];
    const bool more = t + 1 < tiles_;
    if (more) Score(t + 1, coming, next);
    Take(t, scores_);
    const uint32_t there = __ballot_sync(kAllLanes, present >= 0);
    const bool grown = Soften(t, there, scores_);
    if (more) Give(t + 1, next);
    const bool rescale = __syncthreads_or(grown) != 0;
    Copy(coming, found);
    CopyCommit();
    if (rescale) Rescale();
    Piece::Add(shared_ + at_.weights, Stage(t), sums_);
    if (more) {
#pragma unroll
      for (int32_t i = 0; i < 8; ++i) scores_[i] = next[i];
    }
  }

  GRAFT_DEVICE float* Factors() const { return reinterpret_cast<float*>(shared_ + at_.factors); }

  // Multiplies every row's sums by the row's factor.
  GRAFT_DEVICE void Rescale() {
#pragma unroll
    for (int32_t m = 0; m < 4; ++m) {
      const float low = Factors()[m * 16 + lane_ / 4], high = Factors()[m * 16 + lane_ / 4 + 8];
#pragma unroll
      for (int32_t n = 0; n < 2 * Piece::kSumPairs; ++n) {
        sums_[m][n][0] *= low, sums_[m][n][1] *= low;
        sums_[m][n][2] *= high, sums_[m][n][3] *= high;
      }
    }
  }

  // Highest score and sum of weights of a row in each split.
  GRAFT_DEVICE float2* State(int32_t split, int32_t row) const {
    return reinterpret_cast<float2*>(shared_ + at_.states) + split * kTileRows + row;
  }

  GRAFT_DEVICE void Finish() {
    const float2 mine = make_float2(most_, total_);
    if (cut_.splits == 1) {
      if (lane_ % 4 == 0) *State(0, row_) = mine;
      __syncthreads();
    } else {
      // All have read their tiles; then each gets the states of all, and sums of its own rows.
      Arrive();
      AwaitOthers();
      if (lane_ % 4 == 0) {
        for (int32_t split = 0; split < cut_.splits; ++split) {
          *Of(State(split_, row_), split * cut_.columns + column_) = mine;
        }
      }
      __syncwarp();  // all lanes arrive together
      GiveSums();
      Arrive();
      AwaitOthers();
    }
    const int32_t each = 4 / cut_.splits;  // 16 rows of sums
#pragma unroll
    for (int32_t m = 0; m < 4; ++m) {
      if (m / each == split_) Write(m, m % each, each);
    }
  }

  // Where the sums of 16 rows and 8 columns a warp come to, a fragment a lane.
  GRAFT_DEVICE float4* Received(int32_t place, int32_t m, int32_t each, int32_t n) const {
    return reinterpret_cast<float4*>(shared_ + at_.rows) +
           ((place * each + m) * (2 * Piece::kSumPairs) + n) * kTileThreads +
           static_cast<int32_t>(threadIdx.x);
  }
  GRAFT_DEVICE int32_t PlaceOf(int32_t source, int32_t of) const {
    return (source - of - 1 + cut_.splits) % cut_.splits;
  }

  GRAFT_DEVICE void GiveSums() {
    const int32_t each = 4 / cut_.splits;
#pragma unroll
    for (int32_t m = 0; m < 4; ++m) {
      const int32_t owner = m / each;
      if (owner == split_) continue;
#pragma unroll
      for (int32_t n = 0; n < 2 * Piece::kSumPairs; ++n) {
        float4* to = Received(PlaceOf(split_, owner), m % each, each, n);
        *Of(to, owner * cut_.columns + column_) =
            make_float4(sums_[m][n][0], sums_[m][n][1], sums_[m][n][2], sums_[m][n][3]);
      }
    }
  }

  // Joins a row's splits: the weight of each, divided by the sum of all, and the row's state.
  GRAFT_DEVICE float2 Join(int32_t row, float (&weights)[4]) const {
    float maximum = NegativeInfinity(), sum = 0.0f;
    for (int32_t s = 0; s < cut_.splits; ++s) maximum = fmaxf(maximum, State(s, row)->x);
#pragma unroll
    for (int32_t s = 0; s < 4; ++s) {
      weights[s] = 0.0f;
      if (s >= cut_.splits || !(State(s, row)->x > NegativeInfinity())) continue;
      weights[s] = exp2f(State(s, row)->x - maximum);
      sum += weights[s] * State(s, row)->y;
    }
#pragma unroll
    for (int32_t s = 0; s < 4; ++s) weights[s] = sum > 0.0f ? weights[s] / sum : 0.0f;
    return make_float2(maximum, sum);
  }

  // Writes rows 16 m .. of the tile: `local` of this block's `each`.
  GRAFT_DEVICE void Write(int32_t m, int32_t local, int32_t each) {
#pragma unroll
    for (int32_t upper = 0; upper < 2; ++upper) {
      const int32_t row = m * 16 + upper * 8 + lane_ / 4;
      if (row >= count_) continue;
      float weights[4];
      const float2 state = Join(row, weights);
      const Place<T> place(p_, parts_, static_cast<int32_t>(blockIdx.y),
                           int64_t{group_.first} * p_.heads + row0_ + row);
      if (column_ == 0 && warp_ == 0 && lane_ % 4 == 0 && place.lse != nullptr) {
        *place.lse = state.y > 0.0f ? (state.x + log2f(state.y)) * kLn2 : NegativeInfinity();
      }
#pragma unroll
      for (int32_t n = 0; n < 2 * Piece::kSumPairs; ++n) {
        float low = 0.0f, high = 0.0f;
#pragma unroll
        for (int32_t s = 0; s < 4; ++s) {
          if (s >= cut_.splits) continue;
          float x, y;
          if (s == split_) {
            x = sums_[m][n][2 * upper], y = sums_[m][n][2 * upper + 1];
          } else {
            const float4 other = *Received(PlaceOf(s, split_), local, each, n);
            x = upper == 0 ? other.x : other.z, y = upper == 0 ? other.y : other.w;
          }
          low += weights[s] * x, high += weights[s] * y;
        }
        const int32_t column = column0_ + warp_ * kWarpColumns + n * 8 + lane_ % 4 * 2;
        if (column >= p_.rows.width - (Seeded(3) ? 8 : 0)) continue;
        if (place.type == Type::kFloat32) {
          *reinterpret_cast<float2*>(static_cast<float*>(place.row) + column) =
              make_float2(low, high);
        } else {
          *reinterpret_cast<uint32_t*>(static_cast<T*>(place.row) + column) = Pack<T>(low, high);
        }
      }
    }
  }

  const Parts& parts_;
  int32_t row_ = 0, head_ = 0, position_ = 0;
  float shift_ = 0.0f;

  float most_ = NegativeInfinity();  // of the row, powers of 2; what weights are taken relative to
  float total_ = 0.0f;               // of the lane's own weights
  float scores_[8];
  typename Piece::Sums sums_;
};

// Blocks of a cluster along x share a tile of rows; y: parts of the keys.
template <typename T, int32_t kWarpColumns>
__global__ void __launch_bounds__(kTileThreads, 1)
    ClusterKernel(Problem p, Parts parts, ClusterCut cut) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  // Wider blocks do not fit the shared memory of these devices, and no plan has them.
  if constexpr (kWarpColumns <= 48) ClusterBlock<T, kWarpColumns>(p, parts, cut).Run();
#else
  ClusterBlock<T, kWarpColumns>(p, parts, cut).Run();
#endif
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_CLUSTER_CUH_
