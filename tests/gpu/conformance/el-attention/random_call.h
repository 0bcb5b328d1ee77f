// Random calls of attention over shared rows: sizes, lists and rows. The conformance tests of the
// kernel and of whole attention over hidden states both use them.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_RANDOM_CALL_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_RANDOM_CALL_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../../../kernels-cuda/el-attention/attention.cuh"
#include "../../check.h"
#include "../../memory.h"

namespace graft {
namespace gpu {
namespace el_attention {

using cuda::Type;
namespace el = cuda::el_attention;

// Lists of a call, on the host.
struct HostLists {
  std::vector<int32_t> sequences, shared_slots, private_slots, second, lengths;
};

// A call as it is sampled: sizes, and how each thing lies in memory.
struct RandomCall {
  el::Problem p;
  el::Tuning tuning;
  cuda::DeviceLimits limits;
  HostLists lists;
  bool dense = false;
  int64_t row_gap = 0, block_gap = 0, query_gap = 0, output_gap = 0, shift = 0;
};

// Tokens of a prompt or beams of a request.
struct GroupSize {
  int32_t tokens, shared, private_count, second;
  bool causal;
};

inline void RandomTuning(Random& random, bool cluster, RandomCall* d) {
  d->tuning.simple = !cluster;
  if (random.Chance(2)) d->tuning.parts = static_cast<int32_t>(random.Between(1, 3));
  if (random.Chance(3)) d->tuning.heads = static_cast<int32_t>(random.Between(1, 8));
  if (!cluster) return;
  if (!random.Chance(4)) d->tuning.splits = random.Pick({1, 1, 2, 4});
  d->tuning.warp_columns = random.Chance(20) ? random.Pick({48, 64, 80}) : 16;
}

// A device: what it has at most changes how a call is cut, and never what comes out.
inline cuda::DeviceLimits RandomLimits(Random& random) {
  cuda::DeviceLimits limits;
  if (random.Chance(2)) limits.clusters[2] = static_cast<int32_t>(random.Between(0, 32));
  if (random.Chance(2)) limits.clusters[3] = static_cast<int32_t>(random.Between(0, 16));
  if (random.Chance(4)) {
    limits.multiprocessors = static_cast<int32_t>(random.Between(1, 40));
    limits.clusters[0] = limits.multiprocessors;
    limits.clusters[1] = limits.multiprocessors / 2;
  }
  if (random.Chance(8)) {
    limits.major = 8;
    for (int32_t i = 1; i < cuda::kClusterSizes; ++i) limits.clusters[i] = 0;
  }
  return limits;
}

inline void RandomScores(Random& random, RandomCall* d) {
  el::Problem& p = d->p;
  p.scale = static_cast<float>(random.Uniform(0.5, 4) / std::sqrt(p.rows.width));
  if (random.Chance(5)) p.softcap = static_cast<float>(random.Uniform(1, 20));
  if (random.Chance(3)) p.window = static_cast<int32_t>(random.Size(1, 100));
  if (random.Chance(3)) p.distances = static_cast<int32_t>(random.Size(1, 150));
}

inline void RandomDense(Random& random, bool cluster, RandomCall* d) {
  el::Lists& lists = d->p.lists;
  lists.groups = static_cast<int32_t>(random.Size(1, 3));
  lists.group_tokens = static_cast<int32_t>(random.Size(1, cluster ? 12 : 5));
  lists.group_keys = static_cast<int32_t>(random.Size(0, cluster ? 200 : 90));
  lists.causal = random.Chance(3);
  d->p.tokens = lists.groups * lists.group_tokens;
  d->p.rows.slots = lists.groups * lists.group_keys;
  d->p.rows.block_slots = std::max(1, lists.group_keys);
  if (random.Chance(2)) {
    for (int32_t g = 0; g < lists.groups; ++g) {
      d->lists.lengths.push_back(static_cast<int32_t>(random.Between(0, lists.group_keys)));
    }
  }
}

inline void RandomLists(Random& random, bool cluster, RandomCall* d) {
  el::Lists& lists = d->p.lists;
  lists.groups = static_cast<int32_t>(random.Size(1, random.Chance(20) ? 40 : 4));
  const bool many = lists.groups > 4;
  std::vector<GroupSize> sizes;
  int32_t slots = 0;
  const bool second = random.Chance(3), owns = random.Chance(2);
  for (int32_t g = 0; g < lists.groups; ++g) {
    GroupSize s{};
    s.causal = random.Chance(4);
    s.tokens = static_cast<int32_t>(random.Size(many ? 0 : 1, many ? 2 : cluster ? 10 : 4));
    s.shared = static_cast<int32_t>(random.Size(0, many ? 20 : cluster ? 150 : 80));
    s.private_count = s.causal || !owns ? 0 : static_cast<int32_t>(random.Size(0, many ? 4 : 40));
    s.second = second && !s.causal ? static_cast<int32_t>(random.Between(0, 9)) : 0;
    slots += s.shared + s.tokens * s.private_count;
    sizes.push_back(s);
  }
  d->p.rows.slots =
      static_cast<int32_t>(cuda::RoundUp(slots + random.Between(0, 20), cuda::kBlockSlots));
  d->p.rows.block_slots = cuda::kBlockSlots;
  std::vector<int32_t> free(static_cast<size_t>(d->p.rows.slots));
  for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int32_t>(i);
  for (size_t i = free.size(); i > 1; --i) {
    std::swap(free[i - 1],
              free[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))]);
  }
  const auto take = [&] {
    const int32_t slot = free.back();
    free.pop_back();
    // A slot outside of the pool is a key that is not there.
    return random.Chance(40) ? random.Pick({-1, d->p.rows.slots, -100000, 1 << 30}) : slot;
  };
  std::vector<int32_t> firsts;
  int32_t tokens = 0;
  for (const GroupSize& s : sizes) firsts.push_back(tokens), tokens += s.tokens;
  d->p.tokens = tokens;
  const bool backwards = random.Chance(3);
  for (int32_t i = 0; i < lists.groups; ++i) {
    const auto g = static_cast<size_t>(backwards ? lists.groups - 1 - i : i);
    const GroupSize& s = sizes[g];
    if (random.Chance(4)) d->lists.shared_slots.push_back(-5);  // taken by no group
    const int32_t step[8] = {firsts[g],
                             s.tokens,
                             static_cast<int32_t>(d->lists.shared_slots.size()),
                             s.shared,
                             static_cast<int32_t>(d->lists.private_slots.size()),
                             s.private_count,
                             s.causal ? 1 : 0,
                             0};
    d->lists.sequences.insert(d->lists.sequences.end(), step, step + 8);
    const int32_t after[8] = {firsts[g], s.tokens, 0, s.second / 2, 0, s.second - s.second / 2,
                              0,         0};
    if (second) d->lists.second.insert(d->lists.second.end(), after, after + 8);
    for (int32_t j = 0; j < s.shared; ++j) d->lists.shared_slots.push_back(take());
    for (int32_t j = 0; j < s.tokens * s.private_count; ++j)
      d->lists.private_slots.push_back(take());
  }
  lists.shared_length = static_cast<int32_t>(d->lists.shared_slots.size());
  lists.private_length = static_cast<int32_t>(d->lists.private_slots.size());
}

template <typename T>
RandomCall MakeRandomCall(Trial& trial) {
  Random& random = trial.random;
  RandomCall d;
  el::Problem& p = d.p;
  const bool cluster = sizeof(T) == 2 && !random.Chance(3);
  p.rows.type = sizeof(T) == 4                       ? Type::kFloat32
                : std::is_same<T, cuda::Half>::value ? Type::kFloat16
                                                     : Type::kBFloat16;
  RandomTuning(random, cluster, &d);
  d.limits = RandomLimits(random);
  p.heads = static_cast<int32_t>(random.Size(1, 20));
  if (cluster) {
    const int32_t wide = 8 * d.tuning.warp_columns, maximum = d.tuning.warp_columns > 48 ? 2 : 4;
    p.rows.width =
        static_cast<int32_t>(8 * random.Between(1, wide / 8 * random.Between(1, maximum)));
    if (d.tuning.warp_columns > 16) p.rows.width = std::max(p.rows.width, wide - 8);
  } else {
    p.rows.width =
        static_cast<int32_t>(random.Chance(50) ? random.Between(1000, 3000) : random.Size(1, 300));
  }
  d.dense = random.Chance(2);
  const bool small = !cluster || d.tuning.warp_columns == 16;
  if (d.dense) {
    RandomDense(random, cluster && small, &d);
  } else {
    RandomLists(random, cluster && small, &d);
  }
  RandomScores(random, &d);
  // Whole vectors of 16 bytes where the cluster kernel is to run, anything elsewhere.
  const int64_t unit = cluster && !random.Chance(10) ? 8 : 1;
  d.row_gap = unit * random.Size(0, 3), d.block_gap = unit * random.Size(0, 3);
  d.query_gap = unit * random.Size(0, 3), d.output_gap = unit * random.Size(0, 3);
  d.shift = unit * random.Size(0, 3);
  p.rows.row_bytes = (p.rows.width + d.row_gap) * static_cast<int64_t>(sizeof(T));
  p.rows.block_bytes =
      p.rows.block_slots * p.rows.row_bytes + d.block_gap * static_cast<int64_t>(sizeof(T));
  p.query_stride = p.rows.width + d.query_gap;
  p.output_stride = p.rows.width + d.output_gap;
  p.output_type = random.Chance(2) ? Type::kFloat32 : p.rows.type;
  return d;
}

// One row: its group, and how far it sees.
struct RowPlace {
  int32_t position = -1, shared = 0, private_count = 0;
  int32_t shared_at = 0, own_at = 0;
};

inline RowPlace PlaceOf(const RandomCall& d, int32_t token) {
  const el::Lists& lists = d.p.lists;
  RowPlace at;
  if (d.dense) {
    const int32_t g = token / lists.group_tokens;
    at.shared =
        d.lists.lengths.empty() ? lists.group_keys : d.lists.lengths[static_cast<size_t>(g)];
    at.shared_at = g * lists.group_keys;
    at.position =
        lists.causal ? at.shared - lists.group_tokens + token % lists.group_tokens : at.shared - 1;
    return at;
  }
  for (int32_t g = 0; g < lists.groups; ++g) {
    const int32_t* step = d.lists.sequences.data() + 8 * g;
    if (token < step[0] || token >= step[0] + step[1]) continue;
    at.shared = step[3], at.private_count = step[5];
    at.shared_at = step[2], at.own_at = step[4] + (token - step[0]) * step[5];
    const int32_t* after = d.lists.second.empty() ? nullptr : d.lists.second.data() + 8 * g;
    at.position = step[6] != 0 ? step[3] - step[1] + token - step[0]
                               : step[3] + step[5] + (after ? after[3] + after[5] : 0) - 1;
  }
  return at;
}

inline int32_t SlotAt(const RandomCall& d, const RowPlace& at, int32_t j) {
  if (d.dense) return at.shared_at + j;
  const int32_t slot = j < at.shared
                           ? d.lists.shared_slots[static_cast<size_t>(at.shared_at + j)]
                           : d.lists.private_slots[static_cast<size_t>(at.own_at + j - at.shared)];
  return slot < d.p.rows.slots ? slot : -1;
}

template <typename T>
size_t ElementOf(const el::Rows& rows, int32_t slot) {
  return static_cast<size_t>(
      (slot / rows.block_slots * rows.block_bytes + slot % rows.block_slots * rows.row_bytes) /
      static_cast<int64_t>(sizeof(T)));
}

// Numbers in rows of `width`, with NaN in the gaps.
template <typename T>
std::vector<T> Spread(Random& random, int64_t count, int64_t width, int64_t stride) {
  std::vector<T> list(static_cast<size_t>(count * stride),
                      Narrow<T>(std::numeric_limits<double>::quiet_NaN()));
  for (int64_t i = 0; i < count * width; ++i) {
    list[static_cast<size_t>(i / width * stride + i % width)] = Narrow<T>(random.Uniform(-1, 1));
  }
  return list;
}

// NaN in whatever slot no list names: every slot is written, then others are spoilt.
template <typename T>
std::vector<T> MakeRows(Random& random, const RandomCall& d) {
  const el::Rows& rows = d.p.rows;
  const auto nan = Narrow<T>(std::numeric_limits<double>::quiet_NaN());
  const int64_t blocks = cuda::CeilDivide(rows.slots, rows.block_slots);
  std::vector<T> list(
      static_cast<size_t>(blocks * rows.block_bytes / static_cast<int64_t>(sizeof(T))), nan);
  std::vector<bool> named(static_cast<size_t>(rows.slots), false);
  for (int32_t token = 0; token < d.p.tokens; ++token) {
    const RowPlace at = PlaceOf(d, token);
    for (int32_t j = 0; j < at.shared + at.private_count; ++j) {
      const int32_t slot = SlotAt(d, at, j);
      if (slot >= 0) named[static_cast<size_t>(slot)] = true;
    }
  }
  for (int32_t slot = 0; slot < rows.slots; ++slot) {
    if (!named[static_cast<size_t>(slot)]) continue;
    for (int32_t c = 0; c < rows.width; ++c) {
      list[ElementOf<T>(rows, slot) + static_cast<size_t>(c)] = Narrow<T>(random.Uniform(-1, 1));
    }
  }
  return list;
}

}  // namespace el_attention
}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_RANDOM_CALL_H_
