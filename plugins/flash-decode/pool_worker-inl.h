// One worker of a call over a pool: writes new keys and values, then takes attention tasks until
// none is left.
#if defined(GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#undef GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#else
#define GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "cached.h"
#include "cached_plan.h"
#include "hwy/highway.h"
#include "listed-inl.h"
#include "memory-inl.h"
#include "packed-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

class CachedWorker {
 public:
  CachedWorker(const CachedProblem& problem, const CachedPlan& plan, char* workspace, int64_t index)
      : problem_(problem),
        pool_(problem.pool),
        plan_(plan),
        workspace_(workspace),
        groups_(reinterpret_cast<const CachedGroup*>(workspace + plan.group_offset)),
        key_vectors_(DivideUp(problem.pool.head_size, kLanes)),
        value_vectors_(DivideUp(problem.pool.value_size, kLanes)),
        // Weights are powers of 2 where nothing is done to scores but a softmax.
        base2_(problem.bias == nullptr && problem.softcap <= 0.0f) {
    char* scratch = workspace + plan.worker_offset + static_cast<size_t>(index) * plan.worker_bytes;
    const CachedWorkerLayout layout = LayOutCachedWorker(plan);
    query_ = reinterpret_cast<float*>(scratch + layout.query);
    accumulator_ = reinterpret_cast<float*>(scratch + layout.accumulator);
    maximum_ = reinterpret_cast<float*>(scratch + layout.maximum);
    sums_ = reinterpret_cast<float*>(scratch + layout.sums);
    rescale_ = reinterpret_cast<float*>(scratch + layout.rescale);
    scores_ = reinterpret_cast<float*>(scratch + layout.scores);
    low_ = reinterpret_cast<int64_t*>(scratch + layout.low);
    high_ = reinterpret_cast<int64_t*>(scratch + layout.high);
    for (int i = 0; i < 2; ++i) {
      tiles_[i].key_offsets = reinterpret_cast<int64_t*>(scratch + layout.key_offsets[i]);
      tiles_[i].value_offsets = reinterpret_cast<int64_t*>(scratch + layout.value_offsets[i]);
    }
    key_rows_ = reinterpret_cast<float*>(scratch + layout.key_rows);
    value_rows_ = reinterpret_cast<float*>(scratch + layout.value_rows);
    packed_keys_ = reinterpret_cast<float*>(scratch + layout.packed_keys);
    scale_ = base2_ ? plan.scale * 1.44269504f : plan.scale;
  }

  void Work(CachedStage stage) {
    WriteAll();
    packed_ = stage == CachedStage::kManyRows;
    const int64_t begin = packed_ ? 0 : plan_.many_items;
    const int64_t end = packed_ ? plan_.many_items : plan_.items;
    std::atomic<int64_t>& taken = Counters()[packed_ ? kTakenManyItems : kTakenFewItems];
    int64_t g = 0;
    for (;;) {
      const int64_t item = begin + taken.fetch_add(1, std::memory_order_relaxed);
      if (item >= end) break;
      // Tasks do not stand in the order of their groups.
      while (item < groups_[g].first_item || item >= groups_[g].first_item + groups_[g].items()) {
        if (++g == problem_.groups) g = 0;
      }
      ComputeItem(groups_[g], item - groups_[g].first_item);
    }
  }

 private:
  std::atomic<int64_t>* Counters() const {
    return reinterpret_cast<std::atomic<int64_t>*>(workspace_ + plan_.counter_offset);
  }

  // Takes part in writing this call's keys and values and returns when all are written. Only tasks
  // that run already are waited for, so a host that runs tasks one after the other does not hang.
  void WriteAll() {
    if (plan_.writes == 0) return;
    std::atomic<int64_t>* counters = Counters();
    for (;;) {
      const int64_t chunk = counters[kNextWrite].fetch_add(1, std::memory_order_relaxed);
      if (chunk >= plan_.writes) break;
      const int64_t end = std::min(problem_.rows, (chunk + 1) * plan_.write_rows);
      for (int64_t row = chunk * plan_.write_rows; row < end; ++row) WriteRow(row);
      counters[kFinishedWrites].fetch_add(1, std::memory_order_acq_rel);
    }
    for (int spin = 0; counters[kFinishedWrites].load(std::memory_order_acquire) < plan_.writes;) {
      if (++spin < 1000) {
        hwy::Pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void WriteRow(int64_t row) const {
    const int32_t slot = problem_.write[row];
    if (slot < 0) return;
    CopyHeads(problem_.key + row * problem_.key_stride, pool_.head_size,
              pool_.data + pool_.KeyOffset(slot));
    CopyHeads(problem_.value + row * problem_.value_stride, pool_.value_size,
              pool_.data + pool_.ValueOffset(slot));
  }
  void CopyHeads(const float* from, int64_t size, float* to) const {
    for (int64_t h = 0; h < pool_.kv_heads; ++h) {
      std::memcpy(to + h * kBlockSlots * size, from + h * size,
                  static_cast<size_t>(size) * sizeof(float));
    }
  }

  void ComputeItem(const CachedGroup& group, int64_t item) {
    group_ = &group;
    const int64_t part = item % group.parts;
    const int64_t unit = item / group.parts;
    // The last rows of a prompt see the most keys: the longest tasks go first.
    const int64_t chunk = group.row_chunks - 1 - unit / group.head_chunks;
    row0_ = chunk * group.row_chunk;
    rows_ = std::min(group.row_chunk, group.rows - row0_);
    head0_ = unit % group.head_chunks * group.head_chunk;
    heads_ = std::min(group.head_chunk, pool_.kv_heads - head0_);
    head_rows_ = rows_ * plan_.group_heads;

    StartRows();
    const int64_t begin = std::max(group.PartBegin(part), lowest_);
    const int64_t end = std::min(group.PartBegin(part + 1), highest_);
    Tile* tile = &tiles_[0];
    Tile* next = &tiles_[1];
    if (begin < end) List(begin, end, *tile);
    for (int64_t j = begin; j < end; std::swap(tile, next)) {
      j += tile->count;
      if (j < end) List(j, end, *next);
      if (packed_ && tile->lists == 1) {
        StepPacked(*tile);
      } else {
        Step(*tile, j < end ? next : nullptr);
      }
    }
    if (group.parts == 1) {
      for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
        WriteOutput(q, State(q), accumulator_ + q * plan_.value_stride);
      }
      return;
    }
    StorePartial(part);
    // Whoever finishes a head chunk last merges it; the others' stores happen before its load.
    std::atomic<int64_t>& finished = Counters()[kCachedCounters + group.first_unit + unit];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == group.parts) Merge();
  }

  // Reads the queries, scaled, and the range of positions that each row sees. Query rows stand as
  // [KV head][row][query head of the KV head].
  void StartRows() {
    const CachedGroup& group = *group_;
    lowest_ = std::numeric_limits<int64_t>::max();
    highest_ = 0;
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t position = group.position(row0_ + i);
      low_[i] = problem_.window > 0 ? std::max<int64_t>(0, position - problem_.window + 1) : 0;
      high_[i] = position + 1;
      lowest_ = std::min(lowest_, low_[i]);
      highest_ = std::max(highest_, high_[i]);
    }
    float* to = query_;
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t i = 0; i < rows_; ++i) {
        const float* from = problem_.query + (group.first + row0_ + i) * problem_.query_stride +
                            (head0_ + h) * plan_.group_heads * pool_.head_size;
        for (int64_t n = 0; n < plan_.group_heads; ++n, to += plan_.key_stride) {
          LoadRow(Type::kFloat32, from + n * pool_.head_size, 1, pool_.head_size, plan_.key_stride,
                  scale_, to);
        }
      }
    }
    const int64_t count = heads_ * head_rows_;
    for (int64_t q = 0; q < count; ++q) maximum_[q] = kNegativeInfinity;
    std::memset(sums_, 0, static_cast<size_t>(count * kLanes) * sizeof(float));
    std::memset(accumulator_, 0, static_cast<size_t>(count * plan_.value_stride) * sizeof(float));
  }

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
  // What to ask for while something else is computed, if it is read where it lies.
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

  // Positions of one step. Shared ones serve all rows of a KV head at once, own ones each row its
  // own.
  struct Tile {
    int64_t begin, count;
    int64_t lists;         // 1, or one a row
    int64_t padded;        // length of a list
    int64_t* key_offsets;  // [kSharedTile] or [rows][kOwnTile]
    int64_t* value_offsets;
  };

  // Lists the tile that begins at position j.
  void List(int64_t j, int64_t end, Tile& tile) const {
    const CachedGroup& group = *group_;
    tile.begin = j;
    if (j < group.shared_count) {
      const int64_t most = packed_ ? kMaxTile : kSharedTile;
      tile.count = std::min(most, std::min(end, group.shared_count) - j);
      tile.lists = 1;
      tile.padded = most;
      ListSlots(group.shared + j, tile.count, most, tile.key_offsets, tile.value_offsets);
      return;
    }
    tile.count = std::min(kOwnTile, end - j);
    tile.lists = rows_;
    tile.padded = kOwnTile;
    const int64_t m = group.own_count;
    const int32_t* own = group.own + row0_ * m + (j - group.shared_count);
    for (int64_t i = 0; i < rows_; ++i) {
      // A shared tile before this one asks for its first kSharedTile entries.
      ListSlots(own + i * m, tile.count, i + 1 < rows_ ? kOwnTile : kSharedTile,
                tile.key_offsets + i * kOwnTile, tile.value_offsets + i * kOwnTile);
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

  // One tile, for all KV heads of the task. While one head is computed, memory is asked for the
  // next head, or for the next tile after the last. All rows of a tile come before the next tile,
  // so that rows that share slots find them in the nearest cache.
  void Step(const Tile& tile, const Tile* next) {
    const int64_t rows = rows_ / tile.lists;
    for (int64_t h = 0; h < heads_; ++h) {
      const Tile* later = h + 1 < heads_ ? &tile : next;
      const int64_t later_head = head0_ + (h + 1 < heads_ ? h + 1 : 0);
      for (int64_t i = 0; i < tile.lists; ++i) {
        ListedRows keys{nullptr, nullptr}, values{nullptr, nullptr};
        if (later != nullptr) {
          keys = Later(later->key_offsets + i * tile.padded, later_head, pool_.head_size);
          values = Later(later->value_offsets + i * tile.padded, later_head, pool_.value_size);
        }
        StepRows(h, i * rows, rows, tile, keys, values);
      }
    }
  }

  // One shared tile of many rows, for all KV heads of the task: keys are packed for a
  // register-tiled product. Scores of all rows first, then all weighted values, so that one packed
  // tile at a time lives in the nearest cache.
  void StepPacked(const Tile& tile) {
    for (int64_t h = 0; h < heads_; ++h) StepPackedHead(h, tile);
  }
  void StepPackedHead(int64_t h, const Tile& tile) {
    const int64_t first = h * head_rows_;
    const int64_t head = head0_ + h;
    PackTile(head, tile);
    for (int64_t r0 = 0, rows; r0 < head_rows_; r0 += rows) {
      rows = std::min(kBatchRows, head_rows_ - r0);
      float* scores = scores_ + r0 * kMaxTile;
      const int64_t seen = SeenBy(r0 + rows - 1, tile);
      if (seen == 0) continue;
      ForBlocks(r0, rows, [&](int64_t r, int64_t height) {
        const int64_t columns = SeenBy(r + height - 1, tile);
        if (columns == 0) return;
        Product(query_ + (first + r) * plan_.key_stride, plan_.key_stride, height, packed_keys_,
                kMaxTile, pool_.head_size, DivideUp(columns, kLanes), nullptr,
                scores_ + r * kMaxTile, kMaxTile);
      });
      for (int64_t r = 0; r < rows; ++r) {
        AdjustScores(h, r0 + r, tile.begin, seen, scores + r * kMaxTile);
      }
      for (int64_t r = 0; r < rows; r += kLanes) {
        TakeRows(first + r0 + r, std::min(kLanes, rows - r), seen, scores + r * kMaxTile,
                 rescale_ + r0 + r);
      }
    }
    for (int64_t r0 = 0, rows; r0 < head_rows_; r0 += rows) {
      rows = std::min(kBatchRows, head_rows_ - r0);
      ForBlocks(r0, rows, [&](int64_t r, int64_t height) {
        const int64_t seen = SeenBy(r + height - 1, tile);
        if (seen == 0) return;
        Product(scores_ + r * kMaxTile, kMaxTile, height, value_rows_, plan_.value_stride, seen,
                value_vectors_, rescale_ + r, accumulator_ + (first + r) * plan_.value_stride,
                plan_.value_stride);
      });
    }
  }

  // Turns the scores of up to kLanes rows into weights.
  void TakeRows(int64_t first, int64_t rows, int64_t count, float* scores, float* rescale) {
    float* sums = sums_ + first * kLanes;
    if (base2_) {
      TakeTiles<true>(rows, count, scores, kMaxTile, maximum_ + first, sums, rescale);
    } else {
      TakeTiles<false>(rows, count, scores, kMaxTile, maximum_ + first, sums, rescale);
    }
  }

  // Transposes the keys of a tile and gathers its values.
  void PackTile(int64_t head, const Tile& tile) {
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
      PackKeys(rows, count, size, 1.0f, packed_keys_ + k);
    }
    const float* values = pool_.data + head * kBlockSlots * pool_.value_size;
    for (int64_t k = 0; k < tile.count; ++k) {
      LoadRow(Type::kFloat32, values + tile.value_offsets[k], 1, pool_.value_size,
              plan_.value_stride, 1.0f, value_rows_ + k * plan_.value_stride);
    }
  }

  // How many keys of a tile, from the first on, query row r of a KV head and those before it see.
  int64_t SeenBy(int64_t r, const Tile& tile) const {
    const int64_t high = high_[r / plan_.group_heads] - tile.begin;
    return std::max<int64_t>(0, std::min(high, tile.count));
  }

  // Cuts a batch of rows into blocks of equal height: one of one or two rows would leave the
  // arithmetic units waiting. Calls body(first row, rows).
  template <class Body>
  static void ForBlocks(int64_t r0, int64_t rows, const Body& body) {
    const int64_t blocks = DivideUp(rows, kBlockRows);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = rows * block / blocks;
      body(r0 + first, rows * (block + 1) / blocks - first);
    }
  }

  // From products to scores: query row r of KV head h over positions j .. j+count-1.
  void AdjustScores(int64_t h, int64_t r, int64_t j, int64_t count, float* scores) const {
    const int64_t i = r / plan_.group_heads;
    if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
    if (problem_.bias != nullptr) {
      AddDistanceBias((head0_ + h) * plan_.group_heads + r % plan_.group_heads, high_[i] - 1 - j,
                      count, scores);
    }
    ApplyLimits(low_[i] - j, high_[i] - j, count, scores);
  }

  // One step of the online softmax: rows `row` .. `row + rows - 1` of KV head h over a tile.
  void StepRows(int64_t h, int64_t row, int64_t rows, const Tile& tile, ListedRows later_keys,
                ListedRows later_values) {
    const int64_t j = tile.begin;
    const int64_t count = tile.count;
    const int64_t at = tile.lists > 1 ? row * tile.padded : 0;
    const int64_t first = h * head_rows_ + row * plan_.group_heads;
    const int64_t queries = rows * plan_.group_heads;
    const int64_t head = head0_ + h;
    DotListed(query_ + first * plan_.key_stride, plan_.key_stride, queries,
              Keys(tile.key_offsets + at, head, count), count, key_vectors_, later_keys, scores_,
              kMaxTile);
    for (int64_t q = 0; q < queries; ++q) {
      float* scores = scores_ + q * kMaxTile;
      AdjustScores(h, row * plan_.group_heads + q, j, count, scores);
      float& maximum = maximum_[first + q];
      float* sums = sums_ + (first + q) * kLanes;
      rescale_[q] = base2_ ? TakeTile<true>(maximum, sums, count, scores)
                           : TakeTile<false>(maximum, sums, count, scores);
    }
    AddWeightedListed(scores_, kMaxTile, queries, Values(tile.value_offsets + at, head, count),
                      count, value_vectors_, later_values, rescale_,
                      accumulator_ + first * plan_.value_stride, plan_.value_stride);
  }

  // Adds the bias of one query head; the first key is `distance` before the query.
  void AddDistanceBias(int64_t head, int64_t distance, int64_t count, float* scores) const {
    const float* bias = problem_.bias + head * problem_.distances;
    for (int64_t k = 0; k < count; ++k) {
      // A key that a causal row does not see has a negative distance.
      const int64_t d = std::max<int64_t>(0, std::min(distance - k, problem_.distances - 1));
      scores[k] = bias[d] == kNegativeInfinity ? kNegativeInfinity : scores[k] + bias[d];
    }
  }

  OnlineRow State(int64_t q) const {
    const DF d;
    return {maximum_[q], hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums_ + q * kLanes)))};
  }

  // Writes the output of query row q of this task from its finished state.
  void WriteOutput(int64_t q, const OnlineRow& state, float* accumulator) const {
    const int64_t n = q % plan_.group_heads;
    const int64_t i = q / plan_.group_heads % rows_;
    const int64_t h = q / head_rows_;
    const int64_t head = (head0_ + h) * plan_.group_heads + n;
    const int64_t row = group_->first + row0_ + i;
    float factor = 1.0f / state.sum;
    if (state.maximum == kNegativeInfinity && state.sum == 0.0f) {
      // No key has any weight. Without a single key the products are empty sums: zeros.
      std::memset(accumulator, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      factor = group_->keys() == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    const int64_t stride =
        problem_.output_stride != 0 ? problem_.output_stride : problem_.heads * pool_.value_size;
    StoreRow(Type::kFloat32, accumulator, factor, pool_.value_size,
             problem_.output + row * stride + head * pool_.value_size, 1);
    if (problem_.lse != nullptr) {
      // A maximum of -inf stays: the logarithm of the sum is -inf, or 0 at most.
      const float maximum = base2_ ? state.maximum * 0.693147181f : state.maximum;
      problem_.lse[row * problem_.heads + head] = maximum + std::log(state.sum);
    }
  }

  // Sums and states of a part, of all heads of the group.
  float* PartSums(int64_t part) const {
    const int64_t floats = group_->rows * problem_.heads * (2 + plan_.value_stride);
    return reinterpret_cast<float*>(workspace_ + plan_.partial_offset) + group_->first_partial +
           part * floats;
  }
  float* PartStates(int64_t part) const {
    return PartSums(part) + group_->rows * problem_.heads * plan_.value_stride;
  }

  void StorePartial(int64_t part) const {
    const int64_t first = head0_ * head_rows_;
    float* states = PartStates(part) + 2 * first;
    for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
      const OnlineRow state = State(q);
      states[2 * q] = state.maximum;
      states[2 * q + 1] = state.sum;
    }
    std::memcpy(PartSums(part) + first * plan_.value_stride, accumulator_,
                static_cast<size_t>(heads_ * head_rows_ * plan_.value_stride) * sizeof(float));
  }

  // Joins the parts by log-sum-exp: each part's sum and accumulator count relative to its own
  // maximum. Dao et al.: Flash-Decoding for long-context inference, 2023.
  void Merge() {
    const DF d;
    const int64_t first = head0_ * head_rows_;
    float* sum = accumulator_;
    for (int64_t q = 0; q < heads_ * head_rows_; ++q) {
      OnlineRow total{kNegativeInfinity, 0.0f};
      for (int64_t part = 0; part < group_->parts; ++part) {
        total.maximum = std::max(total.maximum, PartStates(part)[2 * (first + q)]);
      }
      const float base = total.maximum == kNegativeInfinity ? 0.0f : total.maximum;
      std::memset(sum, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      for (int64_t part = 0; part < group_->parts; ++part) {
        const float* state = PartStates(part) + 2 * (first + q);
        // A part that saw no key of this row has nothing to add.
        if (state[0] == kNegativeInfinity && state[1] == 0.0f) continue;
        const float weight = base2_ ? PowerOfNonPositive<true>(state[0] - base)
                                    : PowerOfNonPositive<false>(state[0] - base);
        total.sum += weight * state[1];
        const float* accumulator = PartSums(part) + (first + q) * plan_.value_stride;
        const VF factor = hn::Set(d, weight);
        for (int64_t i = 0; i < value_vectors_; ++i) {
          const VF a = hn::LoadU(d, accumulator + i * kLanes);
          hn::StoreU(hn::MulAdd(factor, a, hn::LoadU(d, sum + i * kLanes)), d, sum + i * kLanes);
        }
      }
      WriteOutput(q, total, sum);
    }
  }

  const CachedProblem& problem_;
  const Pool& pool_;
  const CachedPlan& plan_;
  char* workspace_;
  const CachedGroup* groups_;
  const int64_t key_vectors_;
  const int64_t value_vectors_;
  const bool base2_;
  float scale_;

  bool packed_;  // whether this worker's tasks are of many rows

  // Of the current task.
  const CachedGroup* group_;
  int64_t row0_, rows_;       // tokens
  int64_t head0_, heads_;     // KV heads
  int64_t head_rows_;         // query rows of a KV head
  int64_t lowest_, highest_;  // positions that some row may see

  float* query_;                   // [query rows][key_stride], scaled
  float* accumulator_;             // [query rows][value_stride]
  float* maximum_;                 // [query rows], of the scores seen so far
  float* sums_;                    // [query rows][kLanes], of the weights relative to it
  float* rescale_;                 // [query rows of a KV head]
  float* scores_;                  // [query rows of a KV head][kMaxTile]
  int64_t* low_;                   // [rows]
  int64_t* high_;                  // [rows]
  Tile tiles_[2];                  // the one that is computed, and the one after it
  float* key_rows_;                // [kSharedTile][key_stride]
  float* value_rows_;              // [kMaxTile][value_stride]
  float* packed_keys_;             // [key_stride][kMaxTile]
  int64_t gathered_[kSharedTile];  // offsets of rows in scratch
};

// Entry of this target: runs worker `index` of the plan.
void RunCachedWorker(const CachedProblem& problem, const CachedPlan& plan, char* workspace,
                     int64_t index, CachedStage stage) {
  CachedWorker(problem, plan, workspace, index).Work(stage);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_POOL_WORKER_INL_H_
