// One worker: takes items of the plan until none is left.
#if defined(GRAFT_FLASH_DECODE_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_WORKER_INL_H_
#undef GRAFT_FLASH_DECODE_WORKER_INL_H_
#else
#define GRAFT_FLASH_DECODE_WORKER_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "attention.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "packed-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

class Worker {
 public:
  Worker(const Problem& problem, const Plan& plan, char* workspace, int64_t index)
      : problem_(problem),
        plan_(plan),
        workspace_(workspace),
        group_size_(problem.heads / problem.kv_heads),
        key_vectors_(DivideUp(problem.head_size, kLanes)),
        value_vectors_(DivideUp(problem.value_size, kLanes)),
        element_(ElementSize(problem.type)) {
    char* scratch = workspace + plan.worker_offset + static_cast<size_t>(index) * plan.worker_bytes;
    const WorkerLayout layout = LayOutWorker(plan);
    query_ = reinterpret_cast<float*>(scratch + layout.query);
    scores_ = reinterpret_cast<float*>(scratch + layout.scores);
    accumulator_ = reinterpret_cast<float*>(scratch + layout.accumulator);
    maximum_ = reinterpret_cast<float*>(scratch + layout.maximum);
    sums_ = reinterpret_cast<float*>(scratch + layout.sums);
    rescale_ = reinterpret_cast<float*>(scratch + layout.rescale);
    head_ = reinterpret_cast<int64_t*>(scratch + layout.head);
    position_ = reinterpret_cast<int64_t*>(scratch + layout.position);
    low_ = reinterpret_cast<int64_t*>(scratch + layout.low);
    high_ = reinterpret_cast<int64_t*>(scratch + layout.high);
    begun_ = reinterpret_cast<bool*>(scratch + layout.begun);
    packed_keys_ = reinterpret_cast<float*>(scratch + layout.packed_keys);
    key_rows_ = reinterpret_cast<float*>(scratch + layout.key_rows);
    value_rows_ = reinterpret_cast<float*>(scratch + layout.value_rows);
    // Scores that nothing is done to but a softmax are taken times log2(e), and weights as powers
    // of 2.
    base2_ = problem.bias.data == nullptr && problem.mask.data == nullptr &&
             problem.softcap <= 0.0f && problem.scores.data == nullptr;
    scale_ = base2_ ? plan.scale * 1.44269504f : plan.scale;
    masks_ = problem.bias.data != nullptr || problem.mask.data != nullptr;
  }

  void TakeItems() {
    std::atomic<int64_t>* counters = Counters();
    for (;;) {
      const int64_t item = counters[0].fetch_add(1, std::memory_order_relaxed);
      if (item >= plan_.items) break;
      ComputeItem(item);
    }
  }

 private:
  std::atomic<int64_t>* Counters() const {
    return reinterpret_cast<std::atomic<int64_t>*>(workspace_ + plan_.counter_offset);
  }
  float* Partial(int64_t item) const {
    return reinterpret_cast<float*>(workspace_ + plan_.partial_offset) +
           item * static_cast<int64_t>(plan_.partial_floats);
  }

  int64_t HeadOf(int64_t row) const { return head_[row]; }
  int64_t QueryOf(int64_t row) const { return position_[row]; }

  const char* At(const Input& input, int64_t head, int64_t position) const {
    return static_cast<const char*>(input.data) +
           (b_ * input.strides.batch + head * input.strides.head +
            position * input.strides.position) *
               element_;
  }
  char* At(const Output& output, int64_t head, int64_t position) const {
    return static_cast<char*>(output.data) +
           (b_ * output.strides.batch + head * output.strides.head +
            position * output.strides.position) *
               element_;
  }

  void ComputeItem(int64_t item) {
    const int64_t split = item % plan_.splits;
    const int64_t group = item / plan_.splits;
    // The last rows of a causal problem see the most keys: the longest tasks go first.
    const int64_t chunk = plan_.row_chunks - 1 - group % plan_.row_chunks;
    const int64_t head = group / plan_.row_chunks;
    b_ = head / problem_.kv_heads;
    g_ = head % problem_.kv_heads;
    row0_ = chunk * plan_.row_chunk;
    rows_ = std::min(plan_.row_chunk, plan_.rows - row0_);
    copies_ = chunk == 0;

    StartRows();
    const int64_t begin = split * plan_.split_keys;
    const int64_t end = std::min(plan_.keys, begin + plan_.split_keys);
    if (problem_.scores.data != nullptr) {
      ComputeWithScores();
      return;
    }
    for (int64_t j = begin, stop; j < end; j = stop) {
      stop = TileEnd(j, end);
      const int64_t first = std::max(j, lowest_);
      const int64_t last = std::min(stop, highest_);
      if (first < last) {
        if (plan_.packed) {
          StepPacked(first, last - first);
          CopyKeys(j, stop);
          CopyValues(j, stop);
        } else {
          StepRows(first, last - first, j, stop);
        }
      } else if (copies_) {
        CopyKeys(j, stop);
        CopyValues(j, stop);
      } else if (j >= highest_) {
        break;
      }
    }
    if (plan_.streamed) hwy::FlushStream();
    if (plan_.splits == 1) {
      for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
        rows = std::min(kBatchRows, rows_ - r0);
        // Many rows are written as soon as they have seen their last key.
        if (!plan_.packed || LastKey(r0, rows) < 0) WriteBatch(r0, rows);
      }
      return;
    }
    StorePartial(item);
    // Whoever finishes a group last merges it; the others' stores happen before its load.
    const int64_t finished = Counters()[1 + group].fetch_add(1, std::memory_order_acq_rel) + 1;
    if (finished == plan_.splits) MergeGroup(group);
  }

  // The end of the tile that begins at j: no tile holds keys of both past and fresh.
  int64_t TileEnd(int64_t j, int64_t end) const {
    const int64_t stop = std::min(j + plan_.tile, end);
    return j < problem_.past ? std::min(stop, problem_.past) : stop;
  }

  // Reads the rows' queries, scaled, and the range of keys that each may see.
  void StartRows() {
    const int64_t valid = ValidKeys(problem_, b_);
    const int64_t offset =
        problem_.diagonal == DiagonalFrom::kPast ? problem_.past : valid - problem_.queries;
    lowest_ = every_high_ = std::numeric_limits<int64_t>::max();
    highest_ = every_low_ = 0;
    if (rows_ == 0) return;
    // A packed product takes queries where they lie, if all rows are equally far apart; the scale
    // then goes into the keys while they are packed.
    const Strides& s = problem_.query.strides;
    const bool even = group_size_ == 1 || s.head == problem_.queries * s.position;
    const bool in_place = plan_.packed && even && s.feature == 1 && problem_.type == Type::kFloat32;
    queries_ = {query_, plan_.key_stride};
    key_scale_ = 1.0f;
    if (in_place) {
      queries_.first = reinterpret_cast<const float*>(At(
          problem_.query, g_ * group_size_ + row0_ / problem_.queries, row0_ % problem_.queries));
      queries_.stride = s.position;
      key_scale_ = scale_;
    }
    int64_t head = g_ * group_size_ + row0_ / problem_.queries;
    int64_t query = row0_ % problem_.queries;
    for (int64_t r = 0; r < rows_; ++r) {
      head_[r] = head;
      position_[r] = query;
      const int64_t position = query + offset;
      if (++query == problem_.queries) {
        query = 0;
        ++head;
      }
      int64_t low = 0;
      int64_t high = std::min(valid, problem_.key_limit);
      if (problem_.causal) high = std::max<int64_t>(0, std::min(high, position + 1));
      if (problem_.window > 0) low = std::max(low, position - problem_.window + 1);
      if (low < high) {
        lowest_ = std::min(lowest_, low);
        highest_ = std::max(highest_, high);
      } else {
        low = high = 0;
      }
      low_[r] = low;
      high_[r] = high;
      every_low_ = std::max(every_low_, low);
      every_high_ = std::min(every_high_, high);
      if (!in_place) {
        LoadRow(problem_.type, At(problem_.query, HeadOf(r), QueryOf(r)),
                problem_.query.strides.feature, problem_.head_size, plan_.key_stride, scale_,
                query_ + r * plan_.key_stride);
      }
      maximum_[r] = kNegativeInfinity;
    }
    std::memset(sums_, 0, static_cast<size_t>(rows_ * kLanes) * sizeof(float));
    if (plan_.packed) {
      std::memset(begun_, 0, static_cast<size_t>(PackedBlocks(rows_)));
    } else {
      std::memset(accumulator_, 0, static_cast<size_t>(rows_ * plan_.value_stride) * sizeof(float));
    }
  }

  // Positions j .. j+count-1 as rows of floats: of past or of fresh, where they lie if they are
  // floats in full vectors, else through `scratch`, with `stride` floats a row.
  Rows RowsOf(const Input& past, const Input& fresh, int64_t j, int64_t count, int64_t size,
              int64_t stride, bool gather, float* scratch) const {
    const bool old = j < problem_.past;
    const Input& input = old ? past : fresh;
    const char* from = At(input, g_, old ? j : j - problem_.past);
    const Strides& s = input.strides;
    if (!gather && InPlace(input, size)) {
      return {from, s.position, problem_.type == Type::kFloat16};
    }
    for (int64_t k = 0; k < count; ++k) {
      LoadRow(problem_.type, from + k * s.position * element_, s.feature, size, stride, 1.0f,
              scratch + k * stride);
    }
    return {scratch, stride, false};
  }
  // Whether rows can be read where they lie.
  bool InPlace(const Input& input, int64_t size) const {
    return size % kLanes == 0 && input.strides.feature == 1 &&
           (problem_.type == Type::kFloat32 || GRAFT_HALF_IN_HARDWARE);
  }

  // Loads one word of each cache line of a tile that comes from memory. The products load from many
  // instructions, each in strides of several rows, which no prefetcher follows past a page; this
  // one instruction it follows. Prefetch instructions, measured, make things worse.
  void Fetch(const Input& past, const Input& fresh, int64_t j, int64_t count, int64_t size) const {
    const Input& input = j < problem_.past ? past : fresh;
    if (!plan_.fetched || !InPlace(input, size)) return;
    const char* row = At(input, g_, j < problem_.past ? j : j - problem_.past);
    int64_t bytes = size * element_;
    const int64_t stride = input.strides.position * element_;
    if (stride == bytes) {
      bytes *= count;
      count = 1;
    }
    for (; count > 0; --count, row += stride) {
#pragma GCC unroll 1
      for (int64_t i = 0; i < bytes; i += 64) {
        (void)*reinterpret_cast<const volatile uint8_t*>(row + i);
      }
    }
  }

  Rows Keys(int64_t j, int64_t count, bool gather) const {
    return RowsOf(problem_.past_key, problem_.key, j, count, problem_.head_size, plan_.key_stride,
                  gather, key_rows_);
  }
  Rows Values(int64_t j, int64_t count, bool gather) const {
    return RowsOf(problem_.past_value, problem_.value, j, count, problem_.value_size,
                  plan_.value_stride, gather, value_rows_);
  }

  // From products to scores, for one row and keys j .. j+count-1.
  void AdjustScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
    MaskScores(r, j, count, scores);
  }
  void MaskScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    const int64_t columns = std::min(count, problem_.key_limit - j);
    if (masks_ && columns > 0) {
      if (problem_.mask_after_bias) BiasScores(r, j, columns, scores);
      if (problem_.mask.data != nullptr) {
        const Strides& s = problem_.mask.strides;
        const uint8_t* mask = static_cast<const uint8_t*>(problem_.mask.data) + b_ * s.batch +
                              HeadOf(r) * s.head + QueryOf(r) * s.position + j * s.feature;
        ApplyMask(mask, s.feature, columns, problem_.mask_fill, scores);
      }
      if (!problem_.mask_after_bias) BiasScores(r, j, columns, scores);
    }
    ApplyLimits(low_[r] - j, high_[r] - j, count, scores);
  }
  void BiasScores(int64_t r, int64_t j, int64_t count, float* scores) const {
    if (problem_.bias.data == nullptr) return;
    const int64_t feature = problem_.bias.strides.feature;
    ApplyBias(problem_.type, At(problem_.bias, HeadOf(r), QueryOf(r)) + j * feature * element_,
              feature, count, scores);
  }

  // Values for weights that are known. A value whose key no row gives any weight may hold anything:
  // zeros stand in for it.
  Rows WeightedValues(int64_t j, int64_t count, bool gather, const float* weights,
                      int64_t weight_stride) {
    if (!masks_) return Values(j, count, gather);
    int64_t unused = 0;
    for (int64_t k = 0; k < count; ++k) {
      bool used = false;
      for (int64_t r = 0; r < rows_ && !used; ++r) used = weights[r * weight_stride + k] != 0.0f;
      unused_[k] = !used;
      unused += used ? 0 : 1;
    }
    if (unused == 0) return Values(j, count, gather);
    const Rows rows = Values(j, count, true);
    for (int64_t k = 0; k < count; ++k) {
      if (!unused_[k]) continue;
      std::memset(value_rows_ + k * plan_.value_stride, 0,
                  static_cast<size_t>(plan_.value_stride) * sizeof(float));
    }
    return rows;
  }

  // Where the rows of present go while they are read, or nowhere when they must be copied
  // afterwards: rows that are gathered, no whole vectors of keys, or a target that is not made of
  // full lines.
  CopyTarget Passing(const Output& present, Rows rows, const float* gathered, int64_t j,
                     int64_t count, int64_t size) const {
    CopyTarget none{nullptr, 0};
    if (!copies_ || !plan_.streamed || present.data == nullptr) return none;
    if (rows.first == gathered || count % kLanes != 0) return none;
    char* to = At(present, g_, j);
    const int64_t stride = present.strides.position;
    const bool lines = reinterpret_cast<uintptr_t>(to) % 64 == 0 && stride * element_ % 64 == 0 &&
                       size * element_ % 64 == 0;
    if (!lines || to == rows.first) return none;
    return {to, stride};
  }

  // One step of a few rows over keys j .. j+count-1. It also copies copy_begin .. copy_end-1.
  void StepRows(int64_t j, int64_t count, int64_t copy_begin, int64_t copy_end) {
    const bool whole = j == copy_begin && j + count == copy_end;
    CopyTarget copied{nullptr, 0};
    const Rows keys = Keys(j, count, false);
    if (whole)
      copied = Passing(problem_.present_key, keys, key_rows_, j, count, problem_.head_size);
    if (copied.first == nullptr) {
      Fetch(problem_.past_key, problem_.key, j, count, problem_.head_size);
    }
    DotTile(query_, plan_.key_stride, rows_, keys, count, key_vectors_, copied, scores_,
            plan_.score_stride);
    // The values are on their way while the weights are computed.
    Fetch(problem_.past_value, problem_.value, j, count, problem_.value_size);
    if (copies_ && copied.first == nullptr) CopyKeys(copy_begin, copy_end);
    for (int64_t r = 0; r < rows_; ++r) {
      float* scores = scores_ + r * plan_.score_stride;
      AdjustScores(r, j, count, scores);
      rescale_[r] = Take(maximum_[r], sums_ + r * kLanes, count, scores);
    }
    const Rows values = WeightedValues(j, count, false, scores_, plan_.score_stride);
    copied.first = nullptr;
    if (whole) {
      copied = Passing(problem_.present_value, values, value_rows_, j, count, problem_.value_size);
    }
    AddWeightedTile(scores_, plan_.score_stride, rows_, values, count, value_vectors_, copied,
                    rescale_, accumulator_, plan_.value_stride);
    if (copies_ && copied.first == nullptr) CopyValues(copy_begin, copy_end);
  }

  // One step of many rows. Scores of all rows first, then all weighted values, so that one packed
  // tile at a time lives in the nearest cache.
  void StepPacked(int64_t j, int64_t count) {
    const bool half = problem_.type == Type::kFloat16;
    PackKeys(Keys(j, count, half).Of<float>(), count, problem_.head_size, key_scale_, packed_keys_);
    const bool all = SeenByAll(j, count);
    const bool plain = all && !masks_ && problem_.softcap <= 0.0f && count % kLanes == 0;
    for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
      rows = std::min(kBatchRows, rows_ - r0);
      const int64_t seen = all ? count : SeenBy(r0, rows, j, count);
      float* scores = scores_ + r0 * plan_.score_stride;
      // Weights that nobody computes below count as "not used" when masked values are dropped.
      if (masks_ && seen < count) {
        std::memset(scores, 0, static_cast<size_t>(rows * plan_.score_stride) * sizeof(float));
      }
      if (seen == 0) continue;
      ForBlocks(r0, rows, [&](int64_t first, int64_t height, int64_t) {
        const int64_t columns = all ? count : SeenBy(first, height, j, count);
        if (columns == 0) return;
        Product(queries_.first + first * queries_.stride, queries_.stride, height, packed_keys_,
                kMaxTile, problem_.head_size, DivideUp(columns, kLanes), nullptr,
                scores_ + first * plan_.score_stride, plan_.score_stride);
      });
      for (int64_t r = 0; r < rows && !plain; ++r) {
        AdjustScores(r0 + r, j, seen, scores + r * plan_.score_stride);
      }
      for (int64_t r = 0; r < rows; r += kLanes) {
        const int64_t part = std::min(kLanes, rows - r);
        float* tile = scores + r * plan_.score_stride;
        if (base2_) {
          TakeTiles<true>(part, seen, tile, plan_.score_stride, maximum_ + r0 + r,
                          sums_ + (r0 + r) * kLanes, rescale_ + r0 + r);
        } else {
          TakeTiles<false>(part, seen, tile, plan_.score_stride, maximum_ + r0 + r,
                           sums_ + (r0 + r) * kLanes, rescale_ + r0 + r);
        }
      }
    }
    // Rows that stand far apart share few sets of the nearest cache: those are gathered.
    const Input& input = j < problem_.past ? problem_.past_value : problem_.value;
    const bool gather = half || input.strides.position != problem_.value_size;
    const RowsOfType<float> values =
        WeightedValues(j, count, gather, scores_, plan_.score_stride).Of<float>();
    for (int64_t r0 = 0, rows; r0 < rows_; r0 += rows) {
      rows = std::min(kBatchRows, rows_ - r0);
      ForBlocks(r0, rows, [&](int64_t first, int64_t height, int64_t block) {
        const int64_t seen = all ? count : SeenBy(first, height, j, count);
        if (seen == 0) return;
        Product(scores_ + first * plan_.score_stride, plan_.score_stride, height, values.first,
                values.stride, seen, value_vectors_, begun_[block] ? rescale_ + first : nullptr,
                accumulator_ + first * plan_.value_stride, plan_.value_stride);
        begun_[block] = true;
      });
      // Written at once, finished rows are in the nearest cache, and stores wait behind products.
      const int64_t last = LastKey(r0, rows);
      if (plan_.splits == 1 && last >= j && last < j + count) WriteBatch(r0, rows);
    }
  }

  // The last key that any of these rows sees, or -1.
  int64_t LastKey(int64_t r0, int64_t rows) const {
    return *std::max_element(high_ + r0, high_ + r0 + rows) - 1;
  }

  // Writes output of up to kBatchRows rows from their finished state.
  void WriteBatch(int64_t r0, int64_t rows) {
    const DF d;
    HWY_ALIGN float sums[kLanes];
    for (int64_t first = r0, part; first < r0 + rows; first += part) {
      part = std::min(kLanes, r0 + rows - first);
      hn::Store(JoinLanes(
                    [&](int64_t r) {
                      return hn::Load(d, sums_ + (first + std::min(r, part - 1)) * kLanes);
                    },
                    Sum()),
                d, sums);
      for (int64_t r = 0; r < part; ++r) {
        WriteRow(first + r, {maximum_[first + r], sums[r]},
                 accumulator_ + (first + r) * plan_.value_stride);
      }
    }
  }

  // Cuts a batch of rows into blocks of equal height: one of one or two rows would leave the
  // arithmetic units waiting. Calls body(first row, rows, index of the block).
  template <class Body>
  void ForBlocks(int64_t r0, int64_t rows, const Body& body) const {
    const int64_t blocks = DivideUp(rows, kBlockRows);
    const int64_t height = rows / blocks;
    const int64_t low = blocks - (rows - blocks * height);  // blocks of this height, not one more
    const int64_t index = r0 / kBatchRows * kBatchBlocks;
    for (int64_t block = 0, next; block < blocks; ++block, r0 = next) {
      next = r0 + height + (block < low ? 0 : 1);
      body(r0, next - r0, index + block);
    }
  }

  // Whether every row sees every key of j .. j+count-1.
  bool SeenByAll(int64_t j, int64_t count) const {
    return every_low_ <= j && every_high_ >= j + count;
  }

  float Take(float& maximum, float* sums, int64_t count, float* scores) const {
    return base2_ ? TakeTile<true>(maximum, sums, count, scores)
                  : TakeTile<false>(maximum, sums, count, scores);
  }

  // How many of the keys j .. j+count-1, from the first on, any of these rows may see.
  int64_t SeenBy(int64_t r0, int64_t rows, int64_t j, int64_t count) const {
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t high = 0;
    for (int64_t r = r0; r < r0 + rows; ++r) {
      low = std::min(low, low_[r]);
      high = std::max(high, high_[r]);
    }
    if (low >= j + count || high <= j) return 0;
    return std::min(high - j, count);
  }

  void CopyKeys(int64_t begin, int64_t end) {
    CopyPositions(problem_.past_key, problem_.key, problem_.present_key, problem_.head_size, begin,
                  end);
  }
  void CopyValues(int64_t begin, int64_t end) {
    CopyPositions(problem_.past_value, problem_.value, problem_.present_value, problem_.value_size,
                  begin, end);
  }

  // Writes positions begin .. end-1 of present.
  void CopyPositions(const Input& past, const Input& fresh, const Output& present, int64_t size,
                     int64_t begin, int64_t end) const {
    if (present.data == nullptr || !copies_) return;
    const int64_t old_end = std::min(end, problem_.past);
    if (begin < old_end && past.data != present.data) {
      CopyRows(past, begin, old_end - begin, size, present, begin);
    }
    const int64_t first = std::max(begin, problem_.past);
    if (first < end) CopyRows(fresh, first - problem_.past, end - first, size, present, first);
  }

  void CopyRows(const Input& input, int64_t from, int64_t count, int64_t size,
                const Output& present, int64_t to) const {
    const Strides& s = input.strides;
    if (s.feature == 1 && s.position == size && present.strides.position == size) {
      CopyBytes(At(input, g_, from), At(present, g_, to),
                static_cast<size_t>(count * size * element_), plan_.streamed);
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      CopyRow(element_, At(input, g_, from + j), s.feature, size, At(present, g_, to + j));
    }
  }

  OnlineRow State(int64_t r) const {
    const DF d;
    return {maximum_[r], hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums_ + r * kLanes)))};
  }

  // Writes output of row r from its finished state.
  void WriteRow(int64_t r, const OnlineRow& row, float* accumulator) {
    char* to = At(problem_.output, HeadOf(r), QueryOf(r));
    float factor = 1.0f / row.sum;
    if (row.maximum == kNegativeInfinity && row.sum == 0.0f) {
      // No key has any weight. Without a single key the products are empty sums: zeros.
      const bool zeros = problem_.zero_masked_rows || plan_.keys == 0;
      std::memset(accumulator, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      factor = zeros ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    StoreRow(problem_.type, accumulator, factor, problem_.value_size, to,
             problem_.output.strides.feature);
  }

  void StorePartial(int64_t item) {
    float* partial = Partial(item);
    for (int64_t r = 0; r < rows_; ++r) {
      const OnlineRow row = State(r);
      partial[2 * r] = row.maximum;
      partial[2 * r + 1] = row.sum;
    }
    std::memcpy(partial + 2 * plan_.row_chunk, accumulator_,
                static_cast<size_t>(rows_ * plan_.value_stride) * sizeof(float));
  }

  // Joins the splits of a group by log-sum-exp: each split's sum and accumulator count relative to
  // its own maximum. Dao et al.: Flash-Decoding for long-context inference, 2023.
  void MergeGroup(int64_t group) {
    const DF d;
    const int64_t first = group * plan_.splits;
    for (int64_t r = 0; r < rows_; ++r) {
      OnlineRow total{kNegativeInfinity, 0.0f};
      for (int64_t s = 0; s < plan_.splits; ++s) {
        const float maximum = Partial(first + s)[2 * r];
        if (maximum > total.maximum) total.maximum = maximum;
      }
      const float base = total.maximum == kNegativeInfinity ? 0.0f : total.maximum;
      float* sum = accumulator_;
      std::memset(sum, 0, static_cast<size_t>(plan_.value_stride) * sizeof(float));
      for (int64_t s = 0; s < plan_.splits; ++s) {
        const float* partial = Partial(first + s);
        // A split that saw no key of this row has nothing to add.
        if (partial[2 * r] == kNegativeInfinity && partial[2 * r + 1] == 0.0f) continue;
        const float weight = base2_ ? PowerOfNonPositive<true>(partial[2 * r] - base)
                                    : PowerOfNonPositive<false>(partial[2 * r] - base);
        total.sum += weight * partial[2 * r + 1];
        const float* accumulator = partial + 2 * plan_.row_chunk + r * plan_.value_stride;
        const VF factor = hn::Set(d, weight);
        for (int64_t i = 0; i < value_vectors_; ++i) {
          const VF a = hn::LoadU(d, accumulator + i * kLanes);
          hn::StoreU(hn::MulAdd(factor, a, hn::LoadU(d, sum + i * kLanes)), d, sum + i * kLanes);
        }
      }
      WriteRow(r, total, sum);
    }
  }

  // Stores count scores of row r, from key j on, into the output for scores.
  void WriteScores(int64_t r, int64_t j, int64_t count, float factor, const float* scores) {
    const int64_t feature = problem_.scores.strides.feature;
    StoreRow(problem_.type, scores, factor, count,
             At(problem_.scores, HeadOf(r), QueryOf(r)) + j * feature * element_, feature);
  }

  // A few rows with all their scores kept, because the caller wants them.
  void ComputeWithScores() {
    const ScoresStage stage = problem_.scores_stage;
    for (int64_t j = 0, count; j < plan_.keys; j += count) {
      count = TileEnd(j, plan_.keys) - j;
      DotTile(query_, plan_.key_stride, rows_, Keys(j, count, false), count, key_vectors_,
              CopyTarget{nullptr, 0}, scores_ + j, plan_.score_stride);
      CopyKeys(j, j + count);
      CopyValues(j, j + count);
      for (int64_t r = 0; r < rows_; ++r) {
        float* scores = scores_ + r * plan_.score_stride + j;
        if (stage == ScoresStage::kProduct) WriteScores(r, j, count, 1.0f, scores);
        if (problem_.softcap > 0.0f) ApplySoftcap(problem_.softcap, count, scores);
        if (stage == ScoresStage::kSoftcapped) WriteScores(r, j, count, 1.0f, scores);
        MaskScores(r, j, count, scores);
        if (stage == ScoresStage::kMasked) WriteScores(r, j, count, 1.0f, scores);
      }
    }
    if (plan_.streamed) hwy::FlushStream();
    if (plan_.keys > 0) {
      for (int64_t r = 0; r < rows_; ++r) {
        float* scores = scores_ + r * plan_.score_stride;
        ApplyLimits(0, plan_.keys, plan_.keys, scores);
        TakeTile<false>(maximum_[r], sums_ + r * kLanes, plan_.keys, scores);
        rescale_[r] = 1.0f;
        if (stage == ScoresStage::kProbabilities) WriteProbabilities(r, scores);
      }
    }
    const int64_t end = std::min(plan_.keys, highest_);
    for (int64_t j = 0, count; j < end; j += count) {
      count = TileEnd(j, end) - j;
      const Rows values = WeightedValues(j, count, false, scores_ + j, plan_.score_stride);
      AddWeightedTile(scores_ + j, plan_.score_stride, rows_, values, count, value_vectors_,
                      CopyTarget{nullptr, 0}, rescale_, accumulator_, plan_.value_stride);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      WriteRow(r, State(r), accumulator_ + r * plan_.value_stride);
    }
  }

  void WriteProbabilities(int64_t r, const float* weights) {
    const OnlineRow row = State(r);
    float factor = 1.0f / row.sum;
    if (row.maximum == kNegativeInfinity && row.sum == 0.0f) {
      factor = problem_.zero_masked_rows ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    WriteScores(r, 0, plan_.keys, factor, weights);
  }

  const Problem& problem_;
  const Plan& plan_;
  char* workspace_;
  const int64_t group_size_;
  const int64_t key_vectors_;
  const int64_t value_vectors_;
  const int64_t element_;
  bool masks_;
  bool base2_;
  float scale_;

  // Of the current item.
  int64_t b_, g_, row0_, rows_;
  bool copies_;
  RowsOfType<float> queries_;       // what a packed product reads
  float key_scale_;                 // what packed keys are multiplied by
  int64_t lowest_, highest_;        // keys that some row may see
  int64_t every_low_, every_high_;  // keys that every row sees

  float* query_;           // [row_chunk][key_stride], scaled
  float* scores_;          // [row_chunk][score_stride]
  float* accumulator_;     // [row_chunk][value_stride]
  float* maximum_;         // [row_chunk], of the scores seen so far
  float* sums_;            // [row_chunk][kLanes], of the weights relative to it
  float* rescale_;         // [row_chunk]
  int64_t* head_;          // [row_chunk], of the query
  int64_t* position_;      // [row_chunk], of the query
  int64_t* low_;           // [row_chunk]
  int64_t* high_;          // [row_chunk]
  bool* begun_;            // [PackedBlocks(row_chunk)], blocks whose accumulators hold something
  float* packed_keys_;     // [key_stride][kMaxTile]
  float* key_rows_;        // [tile][key_stride]
  float* value_rows_;      // [tile][value_stride]
  float* zero_row_;        // [value_stride]
  bool unused_[kMaxTile];  // keys of a tile that no row gives any weight
};

// Entry of this target: runs worker `index` of the plan.
void RunWorker(const Problem& problem, const Plan& plan, char* workspace, int64_t index) {
  Worker(problem, plan, workspace, index).TakeItems();
}

// Entries for tests, in place: exp(x) and 2^x, x <= 0, and tanh(x).
void ExpForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(ExpOfNonPositive(d, hn::LoadU(d, values + i)), d, values + i);
  }
}
void Exp2ForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(Exp2OfNonPositive(d, hn::LoadU(d, values + i)), d, values + i);
  }
}
void TanhForTest(float* values, int64_t count) {
  const DF d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(Tanh(d, hn::LoadU(d, values + i)), d, values + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_WORKER_INL_H_
