// A decode step that reads every key once for all heads and some tokens.
//
// A block takes one group's tokens, or some of them, a part of the keys, and some heads' columns of
// every row; where a row is wider than a block can add up, a cluster of blocks shares it, and each
// gives the weights of its heads to all. Tiles of keys pass through shared memory:
//
//   scores   a warp takes a head's slice of the tile against the query of each token (16-bit rows:
//            keys are the rows of the matrix multiplication, tokens its columns), and the step of
//            the softmax that follows: weights, and by what to rescale what is there already
//   sums     all warps add (tokens x heads) rows of weights times whole rows of the tile, each its
//            own columns, on the tensor cores for 16-bit rows: accumulators stay in registers
//
// The scores of tile i + 1 and the sums of tile i share one step, which costs one barrier, while
// tiles i + 2 and i + 3 are on their way.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STREAM_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STREAM_CUH_

#include "../device/async_copy.cuh"
#include "../device/launch.cuh"
#include "../device/matrix.cuh"
#include "add.cuh"
#include "chunk.cuh"
#include "join.cuh"
#include "keys.cuh"

namespace graft {
namespace cuda {
namespace slim_attention {

constexpr int32_t kNotes = 8;  // tiles whose keys are noted in shared memory

template <typename R, int32_t kRowTiles>
class StreamBlock {
 public:
  GRAFT_DEVICE explicit StreamBlock(const StreamArguments& a)
      : a_(a), p_(a.problem), s_(a.shape), memory_(SharedMemory()) {
    warp_ = WarpIndex();
    lane_ = Lane();
    w_ = At<Work>(s_.work);
  }

  GRAFT_DEVICE void Run() {
    if (warp_ == 0) Begin();
    __syncthreads();
    const int32_t tiles = w_->tiles, steps = w_->steps;
    if (tiles < 0) return;  // and so does every block of the cluster
    Prepare();
    __syncthreads();
    Load(0);
    CopyCommit();
    Load(1);
    CopyCommit();
    float sums[kRowTiles][kPairs][2][4] = {};
    for (int32_t i = -1; i < steps; ++i) {
      if (Seeded(3)) {
        CopyWait<2>();  // one too many may be on its way
      } else {
        CopyWait<1>();
      }
      // Tile i + 1 is there for all, the weights of tile i are, and nobody reads tile i - 1.
      Meet();
      Load(i + 3);
      CopyCommit();
      NoteKeys(i + 4);
      AskForKeys(i + 5);
      if (i + 1 < tiles) Scores(i + 1);
      if (i < 0 || i >= tiles) continue;
      if (p_.rotated) {
        TurnBack(i);
        __syncthreads();
      }
      if (Seeded(9) && i + 1 == tiles && w_->join == 0) Linger();
      Add(i, sums);
    }
    LetNextBegin();
    if (Seeded(10)) Linger();
    StreamResult<kRowTiles>(a_, *w_, memory_).Write(sums);
  }

 private:
  static constexpr int32_t kKeys = TileKeys(sizeof(R) == 4 ? Type::kFloat32 : Type::kFloat16);
  static constexpr int32_t kPairs = PairsOf(kRowTiles);
  static constexpr int32_t kRows = 16 * kRowTiles;

  template <typename T>
  GRAFT_DEVICE T* At(int32_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  GRAFT_DEVICE R* Tile(int32_t tile) const {
    return At<R>(tile % kStages * kKeys * s_.tile_stride);
  }
  GRAFT_DEVICE int32_t TileStride() const {
    return s_.tile_stride / static_cast<int32_t>(sizeof(R));
  }
  GRAFT_DEVICE Note* Notes(int32_t tile) const { return At<Note>(s_.keys) + tile % kNotes * kKeys; }
  GRAFT_DEVICE R* Weights(int32_t tile, int32_t row) const {
    return At<R>(s_.weights + (tile % 2 * kRows + row) * s_.weight_stride);
  }
  GRAFT_DEVICE float* Rescale(int32_t tile) const {
    return At<float>(s_.rescale) + tile % 2 * kRows;
  }
  GRAFT_DEVICE float* Highest() const { return At<float>(s_.state); }
  GRAFT_DEVICE float* Sum() const { return At<float>(s_.state) + kRows; }
  GRAFT_DEVICE float* LeftOut() const { return At<float>(s_.state) + 2 * kRows; }

  GRAFT_DEVICE int32_t Heads() const { return static_cast<int32_t>(p_.heads); }
  GRAFT_DEVICE int32_t HeadSize() const { return static_cast<int32_t>(p_.head_size); }

  // Row of the matrices for a token of the chunk.
  GRAFT_DEVICE int32_t RowOf(int32_t token, int32_t head) const {
    return Seeded(5) ? head * w_->chunk.tokens + token : token * Heads() + head;
  }

  // Waits for all blocks of the cluster.
  GRAFT_DEVICE void Meet() const {
    __syncwarp();
    if constexpr (kClusters) {
      if (s_.cluster > 1) return ClusterSync();
    }
    __syncthreads();
  }

  // Finds out what this block is to do; one warp.
  GRAFT_DEVICE void Begin() const {
    const int32_t blocks = s_.cluster * s_.joined, parts = s_.parts();
    const int64_t unit = static_cast<int64_t>(blockIdx.x) / blocks;
    const auto rank = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(blocks));
    Work work = {};
    work.part = static_cast<int32_t>(unit % parts);
    work.join = rank / s_.cluster;
    work.chunk = FindChunk(p_, unit / parts, s_.tokens);
    work.tiles = -1;
    if (work.chunk.tokens > 0) {
      work.keys = KeysFor(p_, work.chunk);
      const int64_t split = work.part * s_.joined + work.join;
      const int64_t all = (work.keys.count + kKeys - 1) / kKeys;
      work.first = all * split / s_.splits;
      work.tiles = static_cast<int32_t>(all * (split + 1) / s_.splits - work.first);
      // Blocks that meet at every tile meet as often.
      work.steps =
          s_.cluster > 1 ? static_cast<int32_t>((all + s_.splits - 1) / s_.splits) : work.tiles;
    }
    work.head0 = rank % s_.cluster * s_.heads;
    work.mine = min(s_.heads, static_cast<int32_t>(p_.heads) - work.head0);
    work.columns = work.mine * static_cast<int32_t>(p_.head_size);
    if (lane_ == 0) *w_ = work;
  }

  GRAFT_DEVICE void Prepare() {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    const auto threads = static_cast<int32_t>(blockDim.x);
    for (int32_t i = thread; i < 2 * kRows * kKeys; i += threads) {
      Weights(i / kKeys / kRows, i / kKeys % kRows)[i % kKeys] = FromFloat<R>(0.0f);
    }
    for (int32_t i = thread; i < 2 * kRows; i += threads) Rescale(0)[i] = 1.0f;
    for (int32_t i = thread; i < kRows; i += threads) {
      Highest()[i] = NegativeInfinity();
      Sum()[i] = LeftOut()[i] = 0.0f;
    }
    for (int32_t token = 0; token < w_->chunk.tokens; ++token) {
      const int64_t from = (w_->chunk.group.first + w_->chunk.first + token) * p_.query_stride +
                           w_->head0 * p_.head_size;
      for (int32_t c = thread; c < w_->columns; c += threads) {
        At<R>(s_.query + token * s_.query_stride)[c] =
            FromFloat<R>(ReadAs(p_.query, p_.type, from + c));
      }
    }
    for (int32_t tile = 0; tile < 3; ++tile) {
      AskForKeys(tile);
      NoteKeys(tile);
    }
    AskForKeys(3);
  }

  // Loads the slot of this thread's key of a tile, a step before it is noted.
  GRAFT_DEVICE void AskForKeys(int32_t tile) {
    if (static_cast<int32_t>(threadIdx.x) >= kKeys || tile >= w_->tiles) return;
    const KeyRow& keys = w_->keys;
    const Chunk& chunk = w_->chunk;
    int64_t x = (w_->first + tile) * kKeys + static_cast<int32_t>(threadIdx.x);
    token_ = position_ = slot_ = -1;
    if (x >= keys.count) return;
    if (x < keys.shared) {
      position_ = static_cast<int32_t>(keys.low + x);
      slot_ = static_cast<int32_t>(SharedSlot(p_, chunk.group, position_));
      return;
    }
    x -= keys.shared;
    token_ = static_cast<int32_t>(x / keys.private_count);
    const int64_t j = x - token_ * keys.private_count;
    position_ = static_cast<int32_t>(chunk.group.shared + j);
    slot_ = static_cast<int32_t>(PrivateSlot(p_, chunk.group, chunk.first + token_, j));
  }

  GRAFT_DEVICE void NoteKeys(int32_t tile) const {
    if (static_cast<int32_t>(threadIdx.x) >= kKeys || tile >= w_->tiles) return;
    Note note = {-1, 0, token_};
    if (position_ >= 0 && HasAngle(p_, position_)) {
      note.row = RowOfSlot(p_, w_->chunk.group, slot_);
      note.position = position_;
    }
    Notes(tile)[threadIdx.x] = note;
  }

  // Prefetches a tile: this block's columns of every row, zeros for keys that are not there.
  GRAFT_DEVICE void Load(int32_t tile) {
    if (tile >= w_->tiles) return;
    for (int32_t k = warp_; k < kKeys; k += s_.warps) {
      const int64_t row = Notes(tile)[k].row;
      const R* from = static_cast<const R*>(p_.rows) + int64_t{w_->head0} * HeadSize();
      if (row > 0) from += row;
      R* to = Tile(tile) + k * TileStride();
      for (int32_t c = lane_ * kVector<R>; c < w_->columns; c += kWarp * kVector<R>) {
        CopyAsync<16>(to + c, from + c, row >= 0);
      }
    }
  }

  // Matmuls of a head's queries with its slices of the tile, into out [token][key]. The slices are
  // `rows`, `stride` apart.
  GRAFT_DEVICE void Multiply(const R* rows, int32_t stride, int32_t head, float* out) const {
    const auto query = [&](int32_t token) {
      return At<const R>(s_.query + token * s_.query_stride) + head * HeadSize();
    };
    if constexpr (sizeof(R) == 2) {
      const int32_t g = lane_ / 4, t = lane_ % 4;
      const R* from = rows + lane_ % 16 * stride + lane_ / 16 * 8;
      const bool has = g < w_->chunk.tokens;
      const R* q = query(has ? g : 0) + 2 * t;
      float d[4] = {};
      for (int32_t c = 0; c < HeadSize(); c += 16) {
        uint32_t a[4], b[2] = {0, 0};
        LoadMatrices(a, from + c);
        if (has) {
          b[0] = *reinterpret_cast<const uint32_t*>(q + c);
          b[1] = *reinterpret_cast<const uint32_t*>(q + c + 8);
        }
        cuda::Multiply<R>(d, a, b);
      }
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) out[(2 * t + i % 2) * kKeys + g + i / 2 * 8] = d[i];
    } else {
      const int32_t k = lane_ / 4, part = lane_ % 4;
      for (int32_t token = 0; token < w_->chunk.tokens; ++token) {
        float dot = 0.0f;
#pragma unroll 2  // more would not fit beside the sums
        for (int32_t c = 4 * part; c < HeadSize(); c += 16) {
          float x[4], q[4];
          LoadVector(rows + k * stride + c, x);
          LoadVector(query(token) + c, q);
#pragma unroll
          for (int32_t i = 0; i < 4; ++i) dot += x[i] * q[i];
        }
        dot = WarpSum<4>(dot);
        if (part == 0) out[token * kKeys + k] = dot;
      }
    }
  }

  // Feature c of a head's slice of key k, turned by its position or back by it.
  GRAFT_DEVICE float TurnedFeature(const R* slice, int32_t position, int32_t c, bool back) const {
    const Turn turn = TurnOf(p_, c);
    const float x = ToFloat(slice[c]);
    return turn.turns ? Turned(p_, turn, position, back, x, ToFloat(slice[turn.partner])) : x;
  }

  GRAFT_DEVICE void Scores(int32_t tile) {
    const Note* notes = Notes(tile);
    float* products = At<float>(s_.scores) + warp_ * kStreamTokens * kKeys;
    for (int32_t h = warp_; h < w_->mine; h += s_.warps) {
      const R* rows = Tile(tile) + h * HeadSize();
      int32_t stride = TileStride();
      if (p_.rotary != Rotary::kNone && !p_.rotated) {
        stride = s_.turned_stride / static_cast<int32_t>(sizeof(R));
        R* turned = At<R>(s_.turned + warp_ * kKeys * s_.turned_stride);
        for (int32_t i = lane_; i < kKeys * HeadSize(); i += kWarp) {
          const int32_t k = i / HeadSize(), c = i - k * HeadSize();
          turned[k * stride + c] =
              FromFloat<R>(TurnedFeature(rows + k * TileStride(), notes[k].position, c, false));
        }
        rows = turned;
        __syncwarp();
      }
      Multiply(rows, stride, h, products);
      __syncwarp();
      Softmax(tile, w_->head0 + h, products);
      __syncwarp();
    }
  }

  // The step of a head's softmax over a tile: weights and factors, for all blocks of the cluster.
  // A run of kKeys lanes takes a token.
  GRAFT_DEVICE void Softmax(int32_t tile, int32_t head, const float* products) const {
    const int32_t k = lane_ % kKeys;
    const Note note = Notes(tile)[k];
    const float scale = ScaleOf(p_);
    for (int32_t t0 = 0; t0 < w_->chunk.tokens; t0 += kWarp / kKeys) {
      const int32_t token = t0 + lane_ / kKeys;
      const bool active = token < w_->chunk.tokens;
      const int32_t row = RowOf(active ? token : 0, head);
      const int64_t distance = w_->chunk.group.Position(w_->chunk.first + token) - note.position;
      float score = NegativeInfinity();
      if (active && note.row >= 0 && (note.token < 0 || note.token == token) &&
          Sees(p_, distance)) {
        score = kLog2E * Score(p_, head, distance, scale * products[token * kKeys + k]);
      }
      float before = NegativeInfinity(), sum = 0.0f, left_out = 0.0f;
      if (active) before = Highest()[row], sum = Sum()[row], left_out = LeftOut()[row];
      const float highest = fmaxf(before, WarpMax<kKeys>(score));
      float weight = score == NegativeInfinity() ? 0.0f : exp2f(score - highest);
      const bool small = weight < p_.skip;
      const float left = p_.skip > 0.0f ? WarpSum<kKeys>(small ? weight : 0.0f) : 0.0f;
      // What counts is what will be added up: weights as rounded, so that their shares make up 1.
      const R rounded = FromFloat<R>(weight);
      const float all = WarpSum<kKeys>(small ? weight : ToFloat(rounded));
      const float rescale = before == NegativeInfinity() ? 1.0f : exp2f(before - highest);
      __syncwarp();  // all lanes have read the row's state, which one of them replaces
      if (active) {
        Give(Weights(tile, row) + k, small ? FromFloat<R>(0.0f) : rounded);
        if (k == 0) {
          Give(Rescale(tile) + row, rescale);
          Highest()[row] = highest;
          Sum()[row] = sum * rescale + all;
          LeftOut()[row] = left_out * rescale + left;
        }
      }
    }
  }

  // Writes to a place in the shared memory of all blocks that share this split's rows.
  template <typename T>
  GRAFT_DEVICE void Give(T* to, T x) const {
    if constexpr (kClusters) {
      if (s_.cluster > 1) {
        const int32_t first = w_->join * s_.cluster;
        for (int32_t r = 0; r < s_.cluster; ++r) *ClusterMap(to, first + r) = x;
        return;
      }
    }
    *to = x;
  }

  // Turns a tile back: what was stored turned becomes what was projected.
  GRAFT_DEVICE void TurnBack(int32_t tile) const {
    const auto pairs = static_cast<int32_t>(p_.pairs);
    for (int32_t k = warp_; k < kKeys; k += s_.warps) {
      const int32_t position = Notes(tile)[k].position;
      R* row = Tile(tile) + k * TileStride();
      for (int32_t i = lane_; i < w_->mine * pairs; i += kWarp) {
        const int32_t head = i / pairs, pair = i - head * pairs;
        R* slice = row + head * HeadSize();
        const int32_t c = p_.rotary == Rotary::kHalf ? pair : 2 * pair;
        const int32_t partner = TurnOf(p_, c).partner;
        const float x = TurnedFeature(slice, position, c, true);
        const float y = TurnedFeature(slice, position, partner, true);
        slice[c] = FromFloat<R>(x);
        slice[partner] = FromFloat<R>(y);
      }
    }
  }

  // Adds weights times rows of a tile, after what is there by the newest highest scores.
  GRAFT_DEVICE void Add(int32_t tile, float (&sums)[kRowTiles][kPairs][2][4]) const {
    const int32_t g = lane_ / 4;
    float rescale[kRowTiles][2];
    bool changes = false;
#pragma unroll
    for (int32_t m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        rescale[m][i] = Rescale(tile)[16 * m + 8 * i + g];
        changes |= rescale[m][i] != 1.0f;
      }
    }
    if (__any_sync(kAllLanes, changes)) ScaleRows(rescale, sums);
    const int32_t weight_stride = s_.weight_stride / static_cast<int32_t>(sizeof(R));
    const int32_t pairs = w_->columns / 16;
    if constexpr (sizeof(R) == 2) {
      AddMatrix<R>(Weights(tile, 0), weight_stride, Tile(tile), TileStride(), pairs, s_.warps,
                   p_.skip > 0.0f, sums);
    } else {
      AddFloats(Weights(tile, 0), weight_stride, Tile(tile), TileStride(), kKeys, pairs, s_.warps,
                p_.skip > 0.0f, sums);
    }
  }

  const StreamArguments& a_;
  const Problem& p_;
  const StreamShape& s_;
  unsigned char* memory_;
  Work* w_;
  int32_t warp_, lane_;
  // The key that this thread notes next.
  int32_t slot_ = -1, position_ = -1, token_ = -1;
};

template <typename R, int32_t kRowTiles>
__global__ void __launch_bounds__(kStreamWarps* kWarp, 1) StreamKernel(StreamArguments a) {
  StreamBlock<R, kRowTiles>(a).Run();
}

template <typename R>
Status RunStreamOf(const StreamArguments& a, bool followed, Stream stream) {
  LaunchShape shape;
  shape.grid_x = a.shape.blocks();
  shape.threads = a.shape.warps * kWarp;
  shape.shared_bytes = a.shape.bytes;
  shape.cluster = a.shape.cluster * a.shape.joined;
  shape.followed = followed;
  switch (a.shape.row_tiles) {
    case 1:
      return Launch(&StreamKernel<R, 1>, shape, stream, a);
    case 2:
      return Launch(&StreamKernel<R, 2>, shape, stream, a);
    default:
      return Launch(&StreamKernel<R, 4>, shape, stream, a);
  }
}

// `followed`: the next launch on the stream is a dependent one.
inline Status RunStream(const StreamArguments& a, bool followed, Stream stream) {
  switch (a.problem.row_type) {
    case Type::kFloat16:
      return RunStreamOf<Half>(a, followed, stream);
    case Type::kBFloat16:
      return RunStreamOf<BFloat16>(a, followed, stream);
    default:
      return RunStreamOf<float>(a, followed, stream);
  }
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_STREAM_CUH_
