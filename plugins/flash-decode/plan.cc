#include "plan.h"

#include <algorithm>
#include <cmath>

namespace graft {
namespace attention {
namespace {

constexpr int64_t kVector = 16;  // floats of the widest vector, to which scratch rows are padded

// From how many rows on a packed matmul beats one pass over the keys a row.
constexpr int64_t kPackedRows = 16;

// Rows of a task where there are many: enough that packing a tile of keys is a small share, few
// enough that their state stays in the second-level cache.
constexpr int64_t kMaxRows = 192;
constexpr int64_t kFewestRows = 48;

// A range of keys shorter than this is not worth a merge.
constexpr int64_t kFewestSplitKeys = 128;

// A cautious guess of nanoseconds of one thread: bytes moved at 10 GB/s, and arithmetic at 50
// GFLOP/s. It only decides whether waking other threads, some microseconds, can pay.
constexpr double kNanosecondsPerByte = 0.1;
constexpr double kNanosecondsPerFlop = 0.02;
constexpr double kSerialNanoseconds = 8000;

// From this size on keys and values come from memory, and present leaves the caches before it is
// read again: the second-level cache of one core.
constexpr int64_t kStreamedBytes = 1 << 20;

// The share of `threads` that is busy when `items` equal items are handed out.
double Efficiency(int64_t items, int64_t threads) {
  return static_cast<double>(items) / static_cast<double>(DivideUp(items, threads) * threads);
}

// Keys of a step. A packed tile feeds whole registers. For few rows a step has costs of its own, so
// it takes 8 KiB of keys, but only a page where keys come from memory: prefetchers stop at its end.
int64_t ChooseTile(const Plan& plan, int64_t element) {
  if (plan.packed) return kMaxTile;
  const int64_t row = std::max(plan.key_stride, plan.value_stride) * element;
  const int64_t tile = (plan.fetched ? 4096 : 8192) / row / kVector * kVector;
  return std::min(kMaxTile, std::max(kVector, tile));
}

int64_t ChooseRowChunk(const Plan& plan, int64_t heads, int64_t threads) {
  if (!plan.packed) return plan.rows;
  int64_t chunks = DivideUp(plan.rows, kMaxRows);
  while (Efficiency(heads * chunks, threads) < 0.9 && plan.rows / (chunks + 1) >= kFewestRows) {
    ++chunks;
  }
  return RoundUp(DivideUp(plan.rows, chunks), kBatchRows);
}

int64_t ChooseSplits(const Plan& plan, int64_t groups, int64_t threads) {
  if (threads == 1) return 1;
  const int64_t max_value = std::max<int64_t>(1, plan.keys / kFewestSplitKeys);
  int64_t best = 1;
  for (int64_t splits = 1; splits <= max_value; ++splits) {
    const int64_t items = groups * splits;
    if (Efficiency(items, threads) > Efficiency(groups * best, threads)) best = splits;
    // Threads do not run equally fast: several items each let the fast ones take over.
    if (items >= 4 * threads && Efficiency(items, threads) >= 0.9) return splits;
    if (items >= 16 * threads) break;
  }
  return best;
}

}  // namespace

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning) {
  Plan plan{};
  threads = std::max<int64_t>(1, threads);
  const int64_t heads = problem.batch * problem.kv_heads;
  plan.rows = problem.kv_heads == 0 ? 0 : problem.heads / problem.kv_heads * problem.queries;
  plan.keys = problem.past + problem.fresh;
  plan.scale = problem.scale != 0.0f ? problem.scale
                                     : 1.0f / std::sqrt(static_cast<float>(problem.head_size));
  plan.key_stride = RoundUp(problem.head_size, kVector);
  plan.value_stride = RoundUp(problem.value_size, kVector);

  const bool scores = problem.scores.data != nullptr;
  const int64_t packed_rows = tuning.packed_rows > 0 ? tuning.packed_rows : kPackedRows;
  plan.packed = !scores && plan.rows >= packed_rows;
  const int64_t copied =
      (problem.present_key.data != nullptr ? plan.keys * problem.head_size : 0) +
      (problem.present_value.data != nullptr ? plan.keys * problem.value_size : 0);
  const int64_t element = ElementSize(problem.type);
  const int64_t present_bytes = heads * copied * element;
  const int64_t streamed_bytes =
      tuning.streamed_bytes >= 0 ? tuning.streamed_bytes : kStreamedBytes;
  plan.streamed = present_bytes >= streamed_bytes;
  const int64_t row_bytes = (problem.head_size + problem.value_size) * element;
  plan.fetched = heads * plan.keys * row_bytes >= streamed_bytes;
  plan.tile = ChooseTile(plan, element);

  const double sizes = static_cast<double>(problem.head_size + problem.value_size);
  const double bytes =
      static_cast<double>(heads * plan.keys) * sizes * static_cast<double>(element) +
      static_cast<double>(present_bytes);
  const double flops = 2.0 * static_cast<double>(heads * plan.rows * plan.keys) * sizes;
  const double cost = bytes * kNanosecondsPerByte + flops * kNanosecondsPerFlop;
  const double serial =
      tuning.serial_cost >= 0 ? static_cast<double>(tuning.serial_cost) : kSerialNanoseconds;
  if (cost < serial) threads = 1;

  plan.row_chunk = tuning.row_chunk > 0
                       ? tuning.row_chunk
                       : ChooseRowChunk(plan, std::max<int64_t>(1, heads), threads);
  if (scores) plan.row_chunk = std::min(plan.row_chunk, kScoreRows);
  plan.row_chunk = std::max<int64_t>(1, std::min(plan.row_chunk, plan.rows));
  // Without queries there is present to write all the same.
  plan.row_chunks = std::max<int64_t>(1, DivideUp(plan.rows, plan.row_chunk));
  plan.groups = heads * plan.row_chunks;

  int64_t splits = tuning.splits > 0
                       ? tuning.splits
                       : ChooseSplits(plan, std::max<int64_t>(1, plan.groups), threads);
  if (scores) splits = 1;
  splits = std::max<int64_t>(1, std::min(splits, DivideUp(plan.keys, plan.tile)));
  plan.split_keys = RoundUp(DivideUp(plan.keys, splits), plan.tile);
  plan.splits = plan.keys == 0 ? 1 : DivideUp(plan.keys, plan.split_keys);
  plan.items = plan.groups * plan.splits;
  plan.workers = std::max<int64_t>(1, std::min(threads, plan.items));
  // With a vector of room: the last tile may begin anywhere and is written in full vectors.
  plan.score_stride = scores ? RoundUp(plan.keys + kVector, kMaxTile) : kMaxTile;

  size_t offset = 0;
  const auto take = [&offset](size_t bytes_needed) {
    const size_t at = offset;
    offset += (bytes_needed + 63) / 64 * 64;
    return at;
  };
  plan.counter_count = 1 + static_cast<size_t>(plan.splits > 1 ? plan.groups : 0);
  plan.counter_offset = take(plan.counter_count * sizeof(int64_t));
  plan.partial_floats =
      static_cast<size_t>(RoundUp(plan.row_chunk * (2 + plan.value_stride), kVector));
  plan.partial_offset = take(
      plan.splits > 1 ? static_cast<size_t>(plan.items) * plan.partial_floats * sizeof(float) : 0);
  // Workers' scratch starts on pages of its own, so that no two threads write one cache line.
  plan.worker_bytes = LayOutWorker(plan).total;
  plan.worker_offset = take(static_cast<size_t>(plan.workers) * plan.worker_bytes);
  plan.total_bytes = offset;
  return plan;
}

WorkerLayout LayOutWorker(const Plan& plan) {
  WorkerLayout layout{};
  size_t offset = 0;
  const auto take = [&offset](int64_t count, size_t size) {
    const size_t at = offset;
    offset += (static_cast<size_t>(count) * size + 63) / 64 * 64;
    return at;
  };
  layout.query = take(plan.row_chunk * plan.key_stride, sizeof(float));
  layout.scores = take(plan.row_chunk * plan.score_stride, sizeof(float));
  layout.accumulator = take(plan.row_chunk * plan.value_stride, sizeof(float));
  layout.maximum = take(plan.row_chunk, sizeof(float));
  layout.sums = take(plan.row_chunk * kVector, sizeof(float));
  layout.rescale = take(plan.row_chunk, sizeof(float));
  layout.head = take(plan.row_chunk, sizeof(int64_t));
  layout.position = take(plan.row_chunk, sizeof(int64_t));
  layout.low = take(plan.row_chunk, sizeof(int64_t));
  layout.high = take(plan.row_chunk, sizeof(int64_t));
  layout.begun = take(plan.packed ? PackedBlocks(plan.row_chunk) : 0, sizeof(bool));
  layout.packed_keys = take(plan.packed ? plan.key_stride * kMaxTile : 0, sizeof(float));
  layout.key_rows = take(plan.tile * plan.key_stride, sizeof(float));
  layout.value_rows = take(plan.tile * plan.value_stride, sizeof(float));
  layout.total = offset;
  return layout;
}

}  // namespace attention
}  // namespace graft
