// What a block of the stream kernel has added up, on its way out: joined with the other splits of
// its cluster, where there are any, and written.
//
// Every block of a cluster adds up an equal part of the columns of all of them: it scales what it
// has by the share of its split, sends the others' parts into their shared memory, where tiles
// stood, and adds what it is sent to its own part, still in registers.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_JOIN_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_JOIN_CUH_

#include "../device/warp.cuh"
#include "chunk.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

// A row's softmax in one split: highest score (of base 2), sum, skipped, and 1 where the row's
// group has keys at all.
constexpr int32_t kStateNumbers = 4;

struct StreamArguments {
  Problem problem;
  StreamShape shape;
  float* sums;    // [tokens][parts][heads][width]
  float* states;  // [tokens][parts][heads][kStateNumbers]
};

// Multiplies each row of sums by its factor.
template <int32_t kRowTiles, int32_t kPairs>
GRAFT_DEVICE void ScaleRows(const float (&factors)[kRowTiles][2],
                            float (&sums)[kRowTiles][kPairs][2][4]) {
#pragma unroll
  for (int32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int32_t n = 0; n < kPairs; ++n) {
#pragma unroll
      for (int32_t i = 0; i < 8; ++i) sums[m][n][i / 4][i % 4] *= factors[m][i % 4 / 2];
    }
  }
}

template <int32_t kRowTiles>
class StreamResult {
 public:
  static constexpr int32_t kPairs = PairsOf(kRowTiles);
  static constexpr int32_t kRows = 16 * kRowTiles;
  using Sums = float[kRowTiles][kPairs][2][4];

  GRAFT_DEVICE StreamResult(const StreamArguments& a, const Work& work, unsigned char* memory)
      : a_(a), p_(a.problem), s_(a.shape), w_(work), memory_(memory) {
    pairs_ = w_.columns / 16;
    rows_ = w_.chunk.tokens * static_cast<int32_t>(p_.heads);
  }

  // All threads, once no thread of this block has scores to compute.
  GRAFT_DEVICE void Write(Sums& sums) const {
    if constexpr (kClusters) {
      if (s_.joined > 1) Join(sums);
    }
    if (s_.joined == 1) WriteStates();
    const int32_t g = Lane() / 4, t = Lane() % 4;
    const int32_t pairs = pairs_ - (Seeded(4) ? 1 : 0);
#pragma unroll
    for (int32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const int32_t row = 16 * m + 8 * i + g;
        if (row >= rows_) continue;
        float* to = a_.sums + PlaceOf(row) * WidthOf(p_) + w_.head0 * p_.head_size + 2 * t;
#pragma unroll
        for (int32_t n = 0; n < kPairs; ++n) {
          const int32_t pair = WarpIndex() + n * s_.warps;
          if (pair >= pairs) break;
#pragma unroll
          for (int32_t half = 0; half < 2; ++half) {
            if (TakerOf(pair, half) != w_.join) continue;
            *reinterpret_cast<float2*>(to + 16 * pair + 8 * half) =
                make_float2(sums[m][n][half][2 * i], sums[m][n][half][2 * i + 1]);
          }
        }
      }
    }
  }

 private:
  // Which of the joined splits' blocks adds up eight columns.
  GRAFT_DEVICE int32_t TakerOf(int32_t pair, int32_t half) const {
    return (2 * pair + half) & (s_.joined - 1);
  }

  // An address in this block's shared memory, in that of the block that has the same split `join`
  // of the keys and the columns of a head.
  template <typename T>
  GRAFT_DEVICE T* Peer(T* at, int32_t join, int32_t head) const {
    if constexpr (kClusters) {
      if (s_.joined > 1) return ClusterMap(at, join * s_.cluster + head / s_.heads);
    }
    return at;
  }
  // Where a row's state stands, `number` being 0: highest score, 1: sum, 2: left out.
  GRAFT_DEVICE float* State(int32_t row, int32_t number) const {
    return reinterpret_cast<float*>(memory_ + s_.state) + number * kRows + row;
  }
  GRAFT_DEVICE float HighestOf(int32_t row, int32_t head) const {
    float highest = NegativeInfinity();
    for (int32_t s = 0; s < s_.joined; ++s) highest = fmaxf(highest, *Peer(State(row, 0), s, head));
    return highest;
  }
  GRAFT_DEVICE float ShareOf(int32_t row, int32_t head, int32_t join, float highest) const {
    const float own = *Peer(State(row, 0), join, head);
    return own == NegativeInfinity() ? 0.0f : exp2f(own - highest);
  }

  // Place of a row of the matrices among all results.
  GRAFT_DEVICE int64_t PlaceOf(int32_t row) const {
    const auto heads = static_cast<int32_t>(p_.heads);
    const int64_t token = w_.chunk.group.first + w_.chunk.first + row / heads;
    return (token * s_.parts() + w_.part) * heads + row % heads;
  }

  // The softmax of this block's heads, of every so manieth row where splits are joined.
  GRAFT_DEVICE void WriteStates() const {
    for (auto row = static_cast<int32_t>(threadIdx.x); row < rows_;
         row += static_cast<int32_t>(blockDim.x)) {
      const int32_t head = row % static_cast<int32_t>(p_.heads);
      if (head < w_.head0 || head >= w_.head0 + w_.mine) continue;
      if ((row & (s_.joined - 1)) != w_.join) continue;
      const float highest = HighestOf(row, head);
      float sum = 0.0f, left_out = 0.0f;
      for (int32_t s = 0; s < s_.joined; ++s) {
        const float share = ShareOf(row, head, s, highest);
        sum += share * *Peer(State(row, 1), s, head);
        left_out += share * *Peer(State(row, 2), s, head);
      }
      *reinterpret_cast<float4*>(a_.states + PlaceOf(row) * kStateNumbers) =
          make_float4(highest, sum, left_out, w_.chunk.group.keys() > 0 ? 1.0f : 0.0f);
    }
  }

  // Where this lane finds its numbers of eight columns that another block has sent, rows 8 * i + g
  // of tile m after i + 2 * m times `Apart()`: [sender][8 rows][columns][lane].
  GRAFT_DEVICE float2* Sent(int32_t sender, int32_t pair) const {
    return reinterpret_cast<float2*>(memory_) + sender * 2 * kRowTiles * Apart() +
           2 * pair / s_.joined * kWarp + Lane();
  }
  GRAFT_DEVICE int32_t Apart() const { return SentSlots(pairs_, s_.joined) * kWarp; }

  // For every eight columns of this warp that this block adds up, or that others do.
  template <typename Do>
  GRAFT_DEVICE void ForColumns(bool mine, const Do& act) const {
#pragma unroll
    for (int32_t n = 0; n < kPairs; ++n) {
      const int32_t pair = WarpIndex() + n * s_.warps;
      if (pair >= pairs_) break;
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        const int32_t taker = TakerOf(pair, half);
        if ((taker == w_.join) == mine) act(n, half, pair, taker);
      }
    }
  }

  GRAFT_DEVICE void Join(Sums& sums) const {
    const int32_t g = Lane() / 4, apart = Apart();
    // All blocks have added up all their tiles: none reads its tiles, or changes its states.
    if (!Seeded(9)) ClusterSync();
    float shares[kRowTiles][2];
#pragma unroll
    for (int32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const int32_t row = 16 * m + 8 * i + g, head = row % static_cast<int32_t>(p_.heads);
        shares[m][i] = 0.0f;
        if (row >= rows_) continue;
        const int32_t join = Seeded(7) ? s_.joined - 1 - w_.join : w_.join;
        shares[m][i] = ShareOf(row, head, join, HighestOf(row, head));
      }
    }
    ScaleRows(shares, sums);
    WriteStates();
    if (Seeded(8) && w_.join == 1) Linger();
    ForColumns(false, [&](int32_t n, int32_t half, int32_t pair, int32_t taker) {
      float2* to = ClusterMap(Sent(w_.join > taker ? w_.join - 1 : w_.join, pair),
                              taker * s_.cluster + w_.head0 / s_.heads);
#pragma unroll
      for (int32_t i = 0; i < 2 * kRowTiles; ++i) {
        const float* from = &sums[i / 2][n][half][i % 2 * 2];
        if (8 * i < rows_) to[i * apart] = make_float2(from[0], from[1]);
      }
    });
    // All has come, and no block touches another's memory from here on.
    if (!Seeded(8)) ClusterSync();
    ForColumns(true, [&](int32_t n, int32_t half, int32_t pair, int32_t) {
      for (int32_t sender = 0; sender < s_.joined - 1; ++sender) {
        const float2* from = Sent(sender, pair);
#pragma unroll
        for (int32_t i = 0; i < 2 * kRowTiles; ++i) {
          if (8 * i >= rows_) break;
          const float2 x = from[i * apart];
          sums[i / 2][n][half][i % 2 * 2] += x.x;
          sums[i / 2][n][half][i % 2 * 2 + 1] += x.y;
        }
      }
    });
    if (Seeded(8)) ClusterSync();
  }

  const StreamArguments& a_;
  const Problem& p_;
  const StreamShape& s_;
  const Work& w_;
  unsigned char* memory_;
  int32_t pairs_, rows_;
};

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_JOIN_CUH_
