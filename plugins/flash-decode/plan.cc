#include "plan.h"

#include <algorithm>
#include <cmath>

#include "graft/checked.h"

namespace graft {
namespace attention {
namespace {

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
double Efficiency(Size items, int64_t threads) {
  return static_cast<double>(items) / static_cast<double>(RoundUp(items, threads));
}

// Keys of a step. A packed tile feeds whole registers. For few rows a step has costs of its own, so
// it takes 8 KiB of keys, but only a page where keys come from memory: prefetchers stop at its end.
int64_t ChooseTile(const Plan& plan, int64_t element) {
  if (plan.packed) return kMaxTile;
  const Size row = Size(std::max(plan.key_stride, plan.value_stride)) * element;
  const int64_t tile = Size(plan.fetched ? 4096 : 8192) / row / kScratchVector * kScratchVector;
  return std::min(kMaxTile, std::max(kScratchVector, tile));
}

int64_t ChooseRowChunk(const Plan& plan, int64_t heads, int64_t threads) {
  if (!plan.packed) return plan.rows;
  int64_t chunks = DivideUp(Size(plan.rows), kMaxRows);
  while (Efficiency(Size(heads) * chunks, threads) < 0.9 &&
         plan.rows / (chunks + 1) >= kFewestRows) {
    ++chunks;
  }
  return RoundUp(DivideUp(Size(plan.rows), chunks), kBatchRows);
}

int64_t ChooseSplits(const Plan& plan, int64_t groups, int64_t threads) {
  if (threads == 1) return 1;
  const int64_t max_value = std::max<int64_t>(1, plan.keys / kFewestSplitKeys);
  int64_t best = 1;
  for (int64_t splits = 1; splits <= max_value; ++splits) {
    const Size items = Size(groups) * splits;
    if (Efficiency(items, threads) > Efficiency(Size(groups) * best, threads)) best = splits;
    // Threads do not run equally fast: several items each let the fast ones take over.
    if (items / 4 >= threads && Efficiency(items, threads) >= 0.9) return splits;
    if (items / 16 >= threads) break;
  }
  return best;
}

}  // namespace

Plan MakePlan(const Problem& problem, int64_t threads, const Tuning& tuning) {
  if (const char* fault = ValidateSizes(problem)) {
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("attention: ", fault));
  }
  Plan plan{};
  threads = std::max<int64_t>(1, threads);
  const Size heads = Size(problem.batch) * problem.kv_heads;
  const Size keys = Size(problem.past) + problem.fresh;
  plan.rows = Size(problem.heads / problem.kv_heads) * problem.queries;
  plan.keys = keys;
  plan.scale = problem.scale != 0.0f ? problem.scale
                                     : 1.0f / std::sqrt(static_cast<float>(problem.head_size));
  plan.key_stride = RoundUp(Size(problem.head_size), kScratchVector);
  plan.value_stride = RoundUp(Size(problem.value_size), kScratchVector);

  const bool scores = problem.scores.data != nullptr;
  const int64_t packed_rows = tuning.packed_rows > 0 ? tuning.packed_rows : kPackedRows;
  plan.packed = !scores && plan.rows >= packed_rows;
  Size copied = 0;  // numbers of a head
  if (problem.present_key.data != nullptr) copied += keys * problem.head_size;
  if (problem.present_value.data != nullptr) copied += keys * problem.value_size;
  const int64_t element = ElementSize(problem.type);
  const Size present_bytes = heads * copied * element;
  const int64_t streamed_bytes =
      tuning.streamed_bytes >= 0 ? tuning.streamed_bytes : kStreamedBytes;
  plan.streamed = present_bytes >= streamed_bytes;
  const Size features = Size(problem.head_size) + problem.value_size;
  plan.fetched = heads * keys * features * element >= streamed_bytes;
  plan.tile = ChooseTile(plan, element);

  const double sizes = static_cast<double>(features);
  const double bytes = static_cast<double>(heads * keys) * sizes * static_cast<double>(element) +
                       static_cast<double>(present_bytes);
  const double flops = 2.0 * static_cast<double>(heads * plan.rows * keys) * sizes;
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
  plan.row_chunks = std::max<int64_t>(1, DivideUp(Size(plan.rows), plan.row_chunk));
  plan.groups = heads * plan.row_chunks;

  int64_t splits = tuning.splits > 0
                       ? tuning.splits
                       : ChooseSplits(plan, std::max<int64_t>(1, plan.groups), threads);
  if (scores) splits = 1;
  splits = std::max<int64_t>(1, std::min<int64_t>(splits, DivideUp(keys, plan.tile)));
  plan.split_keys = RoundUp(DivideUp(keys, splits), plan.tile);
  plan.splits = keys == 0 ? 1 : int64_t{DivideUp(keys, plan.split_keys)};
  const Size items = Size(plan.groups) * plan.splits;
  plan.items = items;
  plan.workers = std::max<int64_t>(1, std::min<int64_t>(threads, items));
  // With a vector of room: the last tile may begin anywhere and is written in full vectors.
  plan.score_stride = scores ? int64_t{RoundUp(keys + kScratchVector, kMaxTile)} : kMaxTile;

  Scratch scratch;
  plan.counter_count = (Size(plan.splits > 1 ? plan.groups : 0) + 1).To<size_t>();
  plan.counter_offset = scratch.Take(plan.counter_count, sizeof(int64_t));
  const Size partial = RoundUp((Size(plan.value_stride) + 2) * plan.row_chunk, kScratchVector);
  plan.partial_floats = partial.To<size_t>();
  plan.partial_offset = scratch.Take(plan.splits > 1 ? items * partial : Size(0), sizeof(float));
  // Workers' scratch starts on pages of its own, so that no two threads write one cache line.
  plan.worker_bytes = LayOutWorker(plan).total;
  plan.worker_offset = scratch.Take(plan.workers, plan.worker_bytes);
  plan.total_bytes = scratch.bytes();
  return plan;
}

WorkerLayout LayOutWorker(const Plan& plan) {
  WorkerLayout layout{};
  Scratch scratch;
  const Size rows = plan.row_chunk, packed = plan.packed ? 1 : 0;
  layout.query = scratch.Take(rows * plan.key_stride, sizeof(float));
  layout.scores = scratch.Take(rows * plan.score_stride, sizeof(float));
  layout.accumulator = scratch.Take(rows * plan.value_stride, sizeof(float));
  layout.maximum = scratch.Take(rows, sizeof(float));
  layout.sums = scratch.Take(rows * kScratchVector, sizeof(float));
  layout.rescale = scratch.Take(rows, sizeof(float));
  layout.head = scratch.Take(rows, sizeof(int64_t));
  layout.position = scratch.Take(rows, sizeof(int64_t));
  layout.low = scratch.Take(rows, sizeof(int64_t));
  layout.high = scratch.Take(rows, sizeof(int64_t));
  layout.begun = scratch.Take(packed * PackedBlocks(plan.row_chunk), sizeof(bool));
  layout.overflown = scratch.Take(rows, sizeof(bool));
  layout.packed_keys = scratch.Take(packed * plan.key_stride * kMaxTile, sizeof(float));
  layout.key_rows = scratch.Take(Size(plan.tile) * plan.key_stride, sizeof(float));
  layout.value_rows = scratch.Take(Size(plan.tile) * plan.value_stride, sizeof(float));
  layout.mean = scratch.Take(plan.value_stride, sizeof(float));
  layout.total = scratch.bytes();
  return layout;
}

}  // namespace attention
}  // namespace graft
