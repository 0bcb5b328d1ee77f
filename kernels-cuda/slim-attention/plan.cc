#include "plan.h"

#include <algorithm>
#include <cmath>

namespace graft {
namespace cuda {
namespace slim_attention {
namespace {

// Rates that orders of the matmuls are compared by, not promises: what one multiprocessor does a
// second with matrix multiplications of 16-bit rows, with multiplications of float32, and what a
// device of 132 moves.
constexpr double kMatrixFlops = 3e12;
constexpr double kPlainFlops = 2e11;
constexpr double kBytes = 4e12;

double TokensOfGroup(const Problem& p) {
  return p.groups > 0 ? static_cast<double>(p.tokens) / static_cast<double>(p.groups) : 0;
}

Cost Sum(double matrix_flops, double plain_flops, double bytes, bool matrix,
         const DeviceLimits& limits) {
  Cost cost;
  cost.flops = matrix_flops + plain_flops;
  cost.bytes = bytes;
  const double rate = limits.multiprocessors;
  cost.seconds = std::max(matrix_flops / (rate * (matrix ? kMatrixFlops : kPlainFlops)) +
                              plain_flops / (rate * kPlainFlops),
                          bytes / (kBytes * rate / 132));
  return cost;
}

// Tokens of a block that reads every key: what is read of the rows, once per that many.
int64_t StreamTokensOf(const Problem& p) {
  const int64_t fit = std::max<int64_t>(1, 64 / std::max<int64_t>(1, p.heads));
  return std::min<int64_t>(kStreamTokens, fit);
}

bool Aligned(const Problem& p) {
  const int64_t vector = 16 / BytesOf(p.row_type);
  return reinterpret_cast<uintptr_t>(p.rows) % 16 == 0 && p.row_stride % vector == 0 &&
         p.block_stride % vector == 0;
}

// Whether W_KV comes in whole panels of 16-bit numbers that can be copied by 16 bytes.
bool HasMatrixWeight(const Problem& p) {
  return p.weight_type != Type::kFloat32 && p.value_size % kPanel == 0 && p.weight_head % 8 == 0 &&
         p.weight_panel % 8 == 0 && p.weight_row % 8 == 0 &&
         reinterpret_cast<uintptr_t>(p.value_weight) % 16 == 0;
}

int64_t Place(int64_t* end, int64_t bytes) {
  const int64_t at = *end;
  *end = RoundUp(at + bytes, 16);
  return at;
}

// Lays out shared memory for `heads` heads of a block, and says whether it fits.
bool LayOut(const Problem& p, const DeviceLimits& limits, int64_t heads, StreamShape* s) {
  const int64_t element = BytesOf(p.row_type), keys = TileKeys(p.row_type);
  const int64_t bytes = heads * p.head_size * element, rows = 16 * s->row_tiles;
  // Eight rows of 16 bytes, or two of 64, must fall into different banks.
  int64_t end = 0;
  s->heads = static_cast<int32_t>(heads);
  s->tile_stride = static_cast<int32_t>(element == 2 ? bytes + 16 : bytes + 64 - bytes % 128);
  s->query_stride = static_cast<int32_t>(bytes + 16);
  s->weight_stride = 48;
  s->turned_stride = static_cast<int32_t>(p.head_size * element +
                                          (element == 2 ? 16 : 64 - p.head_size * 4 % 128));
  const bool turns = p.rotary != Rotary::kNone && !p.rotated;
  Place(&end, kStages * keys * s->tile_stride);
  s->query = static_cast<int32_t>(Place(&end, s->tokens * s->query_stride));
  s->weights = static_cast<int32_t>(Place(&end, 2 * rows * s->weight_stride));
  s->rescale = static_cast<int32_t>(Place(&end, 2 * rows * 4));
  s->state = static_cast<int32_t>(Place(&end, 3 * rows * 4));
  s->scores = static_cast<int32_t>(Place(&end, s->warps * kStreamTokens * keys * 4));
  s->turned = static_cast<int32_t>(Place(&end, turns ? s->warps * keys * s->turned_stride : 0));
  s->keys = static_cast<int32_t>(Place(&end, 8 * keys * 16));
  s->work = static_cast<int32_t>(Place(&end, 256));
  s->bytes = static_cast<int32_t>(std::min<int64_t>(end, 1 << 30));
  return end <= limits.shared_per_block;
}

// What part of a device's time `blocks` of equal work fill, `places` of them at a time.
double Fill(int64_t blocks, int64_t places, const DeviceLimits& limits) {
  const auto some = std::max<int64_t>(1, blocks);
  return static_cast<double>(some) /
         static_cast<double>(CeilDivide(some, places) * limits.multiprocessors);
}

// Clusters of a size that run side by side, one block a multiprocessor; of a size that is no power
// of two, as many blocks as in clusters of the next one.
int64_t ClustersOf(const DeviceLimits& limits, int32_t size) {
  if (size == 1) return limits.multiprocessors;
  int32_t power = 0;
  while (1 << power < size) ++power;
  return std::max(1, (limits.clusters[power] << power) / size);
}

// Whether what the other joined splits send a block fits where its tiles stood.
bool JoinFits(const Problem& p, const DeviceLimits& limits, const StreamShape& s, int32_t joined) {
  if (joined == 1) return true;
  const int64_t pairs = s.heads * p.head_size / 16;
  const int64_t slots = SentSlots(static_cast<int32_t>(pairs), joined);
  const int64_t sent = (joined - 1) * 2 * s.row_tiles * slots * kWarp * 8;
  return limits.major >= 9 && s.cluster * joined <= 8 &&
         sent <= kStages * TileKeys(p.row_type) * s.tile_stride;
}

// The fewest splits whose waves of blocks are nearly as full as any number's, and as many of them
// joined in a cluster as leave them so.
void Split(const Problem& p, const DeviceLimits& limits, const Tuning& tuning, StreamShape* s) {
  const int64_t keys = p.groups > 0 ? KeysOf(p) / p.groups : 0;
  const int64_t maximum =
      std::clamp<int64_t>(CeilDivide(keys, TileKeys(p.row_type)) / kStages, 1, 64);
  // 0: these splits cannot be joined so.
  const auto fill = [&](int64_t splits, int32_t joined) {
    if (splits % joined != 0 || !JoinFits(p, limits, *s, joined)) return 0.0;
    const int32_t size = s->cluster * joined;
    return size * Fill(s->items * splits / joined, ClustersOf(limits, size), limits);
  };
  int64_t splits = 1;
  double enough = 0;
  for (int64_t n = 1; n <= maximum; ++n) enough = std::max(enough, 0.85 * fill(n, 1));
  while (fill(splits, 1) < enough) ++splits;
  if (tuning.splits > 0) splits = tuning.splits, enough = 0.85 * fill(splits, 1);
  int32_t joined = tuning.joined > 0 ? tuning.joined : kJoined;
  const auto takes = [&](int32_t n) {
    return fill(splits, n) > 0 && (tuning.joined > 0 || fill(splits, n) >= enough);
  };
  while (joined > 1 && !takes(joined)) joined /= 2;
  s->splits = static_cast<int32_t>(splits);
  s->joined = joined;
}

// Cuts the matmul of the sums with W_KV so that its blocks are about one wave.
FinishShape ShapeFinish(const Problem& p, const DeviceLimits& limits, const Tuning& tuning) {
  FinishShape f;
  if (!HasMatrixWeight(p)) return f;
  f.matrix = true;
  const int64_t steps = p.width() / 16;
  const int64_t columns = CeilDivide(p.value_size, kContractColumns) * p.heads;
  const int64_t maximum = limits.major < 9 ? 1 : std::min<int64_t>(8, steps);
  const auto blocks = [&](int32_t row_tiles, int64_t cuts) {
    return columns * CeilDivide(p.tokens, 16 * row_tiles) * cuts;
  };
  const auto fill = [&](int32_t row_tiles, int64_t cuts) {
    return Fill(blocks(row_tiles, cuts), limits.multiprocessors, limits);
  };
  double best[3] = {};
  for (const int32_t tiles : {1, 2}) {
    for (int64_t cuts = 1; cuts <= maximum; ++cuts) {
      best[tiles] = std::max(best[tiles], fill(tiles, cuts));
    }
  }
  // More tokens a block read less of W_KV.
  f.row_tiles = p.tokens > 16 && best[2] >= 0.85 * best[1] ? 2 : 1;
  if (tuning.finish_tiles > 0) f.row_tiles = tuning.finish_tiles;
  while (fill(f.row_tiles, f.cuts) < 0.85 * best[f.row_tiles]) ++f.cuts;
  const auto wanted = std::min<int64_t>(maximum, tuning.finish_cuts);
  if (wanted > 0) f.cuts = static_cast<int32_t>(wanted);
  f.blocks = blocks(f.row_tiles, f.cuts);
  const int32_t warps = tuning.warps > 0 ? std::min(tuning.warps, kFinishWarps) : kFinishWarps;
  f.warps = static_cast<int32_t>(std::min<int64_t>(warps, CeilDivide(steps, f.cuts)));
  return f;
}

// Whether the stream kernel can run, and how.
bool ShapeStream(const Problem& p, const DeviceLimits& limits, const Tuning& tuning,
                 StreamShape* shape) {
  if (p.head_size % 16 != 0 || p.head_size > 256 || p.heads > 64 || p.groups < 1) return false;
  if (p.cosine != nullptr && 2 * p.pairs > p.head_size) return false;
  StreamShape s;
  const auto heads = static_cast<int32_t>(p.heads);
  const auto tokens = static_cast<int32_t>(
      std::min<double>(kStreamTokens, std::ceil(std::max(1.0, TokensOfGroup(p)))));
  const auto take = [&](int32_t row_tiles) {
    s.row_tiles = row_tiles;
    s.tokens = std::min(tokens, 16 * row_tiles / heads);
    return s.tokens > 0;
  };
  bool fits = false;
  if (tuning.row_tiles > 0) {
    fits = take(tuning.row_tiles);
  } else {  // the fewest rows that hold all tokens, or as many as there can be
    for (const int32_t row_tiles : {1, 2, 4}) {
      fits = take(row_tiles);
      if (fits && s.tokens == tokens) break;
    }
  }
  if (!fits) return false;
  // The fewest blocks that hold all columns in registers and a tile in shared memory.
  fits = false;
  for (int64_t mine = heads; mine > 0 && !fits; mine = s.cluster >= heads ? 0 : mine - 1) {
    s.cluster = static_cast<int32_t>(CeilDivide(heads, mine));
    if (s.cluster > 8 || (s.cluster > 1 && limits.major < 9)) return false;
    const int64_t pairs = CeilDivide(mine * p.head_size, 16);
    const int64_t need = CeilDivide(pairs, PairsOf(s.row_tiles));
    const int64_t maximum = tuning.warps > 0 ? tuning.warps : kStreamWarps;
    if (need > maximum) continue;
    s.warps = static_cast<int32_t>(std::max<int64_t>(need, std::min<int64_t>(maximum, 4)));
    // All heads at once, where there are warps for it.
    s.warps = static_cast<int32_t>(std::max<int64_t>(s.warps, std::min<int64_t>(maximum, mine)));
    fits = LayOut(p, limits, CeilDivide(heads, s.cluster), &s);
  }
  if (!fits) return false;
  const int64_t each = p.tokens / p.groups;
  s.items = p.sequences == nullptr
                ? p.groups * CeilDivide(each, s.tokens)
                : std::min(p.tokens, (p.tokens + p.groups * (s.tokens - 1)) / s.tokens);
  Split(p, limits, tuning, &s);
  *shape = s;
  return true;
}

}  // namespace

int64_t KeysOf(const Problem& p) {
  return p.sequences != nullptr ? p.shared_length + p.private_length : p.groups * p.positions;
}

Cost CostOfSums(const Problem& p, double keys, const DeviceLimits& limits) {
  const double tokens = TokensOfGroup(p), groups = static_cast<double>(p.groups);
  const double heads = static_cast<double>(p.heads), width = static_cast<double>(p.width());
  const double reads = std::ceil(tokens / static_cast<double>(StreamTokensOf(p)));
  const double scores = 2 * tokens * keys * width;
  const double sums = 2 * tokens * keys * heads * width;
  const double values = 2 * tokens * width * heads * static_cast<double>(p.value_size);
  const double bytes =
      reads * keys * width * static_cast<double>(BytesOf(p.row_type)) + 8 * tokens * heads * width;
  return Sum(groups * (scores + sums), groups * values, groups * bytes,
             p.row_type != Type::kFloat32, limits);
}

Cost CostOfValues(const Problem& p, double keys, const DeviceLimits& limits) {
  const double tokens = TokensOfGroup(p), groups = static_cast<double>(p.groups);
  const double width = static_cast<double>(p.width());
  const double values = static_cast<double>(p.heads * p.value_size);
  const double make = 2 * keys * width * values;
  const double attend = 2 * tokens * keys * (width + values);
  // Each token reads every key and value again, most of it from a cache: counted as a tenth.
  const double bytes =
      (1 + 0.1 * tokens) * keys * (width * static_cast<double>(BytesOf(p.row_type)) + 4 * values);
  return Sum(0, groups * (make + attend), groups * bytes, false, limits);
}

Plan MakePlan(const Problem& p, const DeviceLimits& limits, const Tuning& tuning) {
  Plan plan;
  const bool streams = Aligned(p) && ShapeStream(p, limits, tuning, &plan.stream);
  // A place in the lists has no position of its own by which to turn a row back.
  const bool values = (p.sequences == nullptr || !p.rotated) && KeysOf(p) > 0;
  const double keys = p.groups > 0 ? static_cast<double>(KeysOf(p)) / p.groups : 0;
  bool first_values =
      values && CostOfValues(p, keys, limits).seconds < CostOfSums(p, keys, limits).seconds;
  if (tuning.way >= 0) first_values = values && tuning.way == static_cast<int32_t>(Way::kValues);
  if (first_values) {
    plan.way = Way::kValues;
    plan.value_rows = KeysOf(p);
    plan.workspace = plan.value_rows * p.heads * p.value_size * 4;
  } else if (streams && tuning.way != static_cast<int32_t>(Way::kSimple)) {
    plan.way = Way::kStream;
    plan.finish = ShapeFinish(p, limits, tuning);
    plan.dependent = limits.major >= 9;
    const int64_t rows = p.tokens * plan.stream.parts() * p.heads;
    plan.states = RoundUp(rows * p.width() * 4, 64);
    plan.workspace = plan.states + rows * 4 * 4;
  }
  return plan;
}

int64_t WorkspaceOf(const Problem& problem, const DeviceLimits& limits, const Tuning& tuning) {
  Problem p = problem;
  p.rows = nullptr;  // aligned; otherwise nothing is needed
  return MakePlan(p, limits, tuning).workspace;
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft
