// Who reads what: groups, positions and slots on the device.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_GROUPS_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_GROUPS_CUH_

#include "../device/number.cuh"
#include "../device/warp.cuh"
#include "problem.h"

namespace graft {
namespace cuda {
namespace el_attention {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

GRAFT_DEVICE float NegativeInfinity() { return __uint_as_float(0xff800000u); }
GRAFT_DEVICE int32_t Clamp(int32_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : x;
}

// One group. Counts are never negative and its tokens are tokens of the problem.
struct Group {
  int32_t first = 0, tokens = 0;
  int32_t shared_offset = 0, shared = 0;
  int32_t private_offset = 0, private_count = 0;
  int32_t second = 0;
  bool causal = false;

  GRAFT_DEVICE int32_t keys() const { return shared + private_count; }
  GRAFT_DEVICE int32_t Position(int32_t token) const {
    return causal ? shared - tokens + token : keys() + second - 1;
  }
};

GRAFT_DEVICE Group ReadGroup(const Lists& lists, int32_t g, int32_t tokens) {
  Group group;
  if (lists.sequences == nullptr) {
    group.first = g * lists.group_tokens;
    group.tokens = lists.group_tokens;
    group.shared_offset = g * lists.group_keys;
    group.shared =
        lists.lengths == nullptr ? lists.group_keys : Clamp(lists.lengths[g], 0, lists.group_keys);
    group.causal = lists.causal;
    return group;
  }
  const int32_t* step = lists.sequences + int64_t{g} * kSequenceColumns;
  group.first = Clamp(step[kSequenceFirstToken], 0, tokens);
  group.tokens = Clamp(step[kSequenceTokens], 0, tokens - group.first);
  group.shared_offset = step[kSequenceSharedOffset];
  group.shared = Clamp(step[kSequenceShared], 0, lists.shared_length);
  group.private_offset = step[kSequencePrivateOffset];
  group.private_count = Clamp(step[kSequencePrivate], 0, lists.private_length);
  group.causal = step[kSequenceCausal] != 0;
  if (lists.second != nullptr) {
    const int32_t* second = lists.second + int64_t{g} * kSequenceColumns;
    group.second = max(second[kSequenceShared], 0) + max(second[kSequencePrivate], 0);
  }
  return group;
}

// The slot of a position, -1 where there is none.
GRAFT_DEVICE int32_t SlotOf(const Lists& lists, const Group& group, int32_t token, int32_t position,
                            int32_t slots) {
  int32_t slot = -1;
  if (lists.sequences == nullptr) {
    slot = group.shared_offset + position;
  } else if (position < group.shared) {
    const int64_t at = int64_t{group.shared_offset} + position;
    if (at >= 0 && at < lists.shared_length) slot = lists.shared_slots[at];
  } else {
    const int64_t at =
        group.private_offset + int64_t{token} * group.private_count + (position - group.shared);
    if (at >= 0 && at < lists.private_length) slot = lists.private_slots[at];
  }
  return slot >= 0 && slot < slots ? slot : -1;
}

GRAFT_DEVICE int64_t ByteOf(const Rows& rows, int32_t slot) {
  const int32_t block = slot / rows.block_slots;
  return block * rows.block_bytes + (slot - block * rows.block_slots) * rows.row_bytes;
}

// The group of a token, or false. All lanes of a warp look for the same one.
GRAFT_DEVICE bool FindGroup(const Lists& lists, int32_t tokens, int32_t token, Group* group) {
  if (lists.sequences == nullptr) {
    const int32_t g = token / lists.group_tokens;
    if (g >= lists.groups) return false;
    *group = ReadGroup(lists, g, tokens);
    return true;
  }
  for (int32_t base = 0; base < lists.groups; base += kWarp) {
    const int32_t g = base + Lane();
    bool holds = false;
    if (g < lists.groups) {
      const Group read = ReadGroup(lists, g, tokens);
      holds = token >= read.first && token < read.first + read.tokens;
    }
    const uint32_t found = __ballot_sync(kAllLanes, holds);
    if (found == 0) continue;
    *group = ReadGroup(lists, base + __ffs(static_cast<int32_t>(found)) - 1, tokens);
    return true;
  }
  return false;
}

// Tile `tile` of `height` rows of a group, rows being [token][head]: its group and first row.
// All lanes of a warp look for the same one.
GRAFT_DEVICE bool FindTile(const Problem& p, int32_t tile, int32_t height, Group* group,
                           int32_t* row) {
  const Lists& lists = p.lists;
  if (lists.sequences == nullptr) {
    const int32_t tiles = (lists.group_tokens * p.heads + height - 1) / height;
    const int32_t g = tile / tiles;
    if (g >= lists.groups) return false;
    *group = ReadGroup(lists, g, p.tokens);
    *row = (tile - g * tiles) * height;
    return true;
  }
  int32_t before = 0;
  for (int32_t base = 0; base < lists.groups; base += kWarp) {
    const int32_t g = base + Lane();
    int32_t tiles = 0;
    if (g < lists.groups) {
      tiles = (ReadGroup(lists, g, p.tokens).tokens * p.heads + height - 1) / height;
    }
    int32_t end = tiles;
#pragma unroll
    for (int32_t step = 1; step < kWarp; step *= 2) {
      const int32_t other = __shfl_up_sync(kAllLanes, end, static_cast<uint32_t>(step));
      if (Lane() >= step) end += other;
    }
    const uint32_t found = __ballot_sync(kAllLanes, before + end > tile);
    if (found != 0) {
      const int32_t lane = __ffs(static_cast<int32_t>(found)) - 1;
      const int32_t start = before + __shfl_sync(kAllLanes, end - tiles, lane);
      *group = ReadGroup(lists, base + lane, p.tokens);
      *row = (tile - start) * height;
      return true;
    }
    before += __shfl_sync(kAllLanes, end, kWarp - 1);
  }
  return false;
}

// From q k^T to a score, for a key that stands `distance` positions before the token.
GRAFT_DEVICE float ScoreOf(const Problem& p, float product, float shift, int32_t head,
                           int32_t distance) {
  float score = p.scale * product + shift;
  if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
  if (p.bias != nullptr) {
    if (Seeded(2)) head = (head + 1) % p.heads;
    const int32_t at = Clamp(distance, 0, p.distances - 1);
    score += p.bias[int64_t{head} * p.distances + at];
  }
  const bool hidden = distance < 0 || (p.window > 0 && distance >= p.window);
  return hidden ? NegativeInfinity() : score;
}

// Writes a number of the output, of either type.
template <typename T>
GRAFT_DEVICE void Put(void* to, Type type, int64_t at, float x) {
  if (type == Type::kFloat32) {
    static_cast<float*>(to)[at] = x;
  } else {
    static_cast<T*>(to)[at] = FromFloat<T>(x);
  }
}

// Writes four, at once where they are aligned.
template <typename T>
GRAFT_DEVICE void PutFour(void* to, Type type, int64_t at, const float (&x)[4]) {
  const bool wide = type == Type::kFloat32;
  if (reinterpret_cast<uintptr_t>(to) % (wide ? 16 : 8) != 0) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) Put<T>(to, type, at + i, x[i]);
  } else if (wide) {
    StoreVector(static_cast<float*>(to) + at, x);
  } else if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint2*>(static_cast<T*>(to) + at) =
        make_uint2(Pack<T>(x[0], x[1]), Pack<T>(x[2], x[3]));
  }
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_GROUPS_CUH_
