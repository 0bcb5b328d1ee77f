// Groups, their keys and scores: what all kernels of slim attention see of a problem.
#ifndef GRAFT_KERNELS_CUDA_SLIM_ATTENTION_KEYS_CUH_
#define GRAFT_KERNELS_CUDA_SLIM_ATTENTION_KEYS_CUH_

#include "../device/number.cuh"
#include "../device/warp.cuh"
#include "plan.h"

namespace graft {
namespace cuda {
namespace slim_attention {

// Clusters come with sm_90; before it every block is alone, and plans know.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kClusters = true;
#else
constexpr bool kClusters = false;
#endif

constexpr float kLog2E = 1.44269504f;

GRAFT_DEVICE float NegativeInfinity() { return -__int_as_float(0x7f800000); }

GRAFT_DEVICE int64_t WidthOf(const Problem& p) { return p.heads * p.head_size; }

// One number of a tensor whose type is known at run time only.
GRAFT_DEVICE float ReadAs(const void* from, Type type, int64_t i) {
  if (type == Type::kFloat16) return ToFloat(static_cast<const Half*>(from)[i]);
  if (type == Type::kBFloat16) return ToFloat(static_cast<const BFloat16*>(from)[i]);
  return static_cast<const float*>(from)[i];
}
GRAFT_DEVICE void WriteAs(void* to, Type type, int64_t i, float x) {
  if (type == Type::kFloat16) {
    static_cast<Half*>(to)[i] = FromFloat<Half>(x);
  } else if (type == Type::kBFloat16) {
    static_cast<BFloat16*>(to)[i] = FromFloat<BFloat16>(x);
  } else {
    static_cast<float*>(to)[i] = x;
  }
}

// Tokens that see the same rows. Positions 0 .. shared - 1 are the same for all of them, then
// follow `private_slots` a token.
struct Group {
  int64_t index;
  int64_t first, tokens;
  int64_t shared_offset, shared;
  int64_t private_offset, private_count;
  bool causal;

  GRAFT_DEVICE int64_t keys() const { return shared + private_count; }
  GRAFT_DEVICE int64_t Position(int64_t token) const {
    return causal ? shared - tokens + token : keys() - 1;
  }
};

// Tokens of a group, cut to those that the call has.
GRAFT_DEVICE int64_t TokensOf(const Problem& p, int64_t index) {
  if (p.sequences == nullptr) return p.tokens / p.groups;
  const int32_t* step = p.sequences + index * kSequenceColumns;
  const int64_t first = step[kSequenceFirstToken];
  if (first < 0 || first >= p.tokens) return 0;
  return max(int64_t{0}, min(int64_t{step[kSequenceTokens]}, p.tokens - first));
}

GRAFT_DEVICE Group GroupAt(const Problem& p, int64_t index) {
  Group g;
  g.index = index;
  g.tokens = TokensOf(p, index);
  if (p.sequences == nullptr) {
    g.first = index * g.tokens;
    g.shared_offset = 0;
    g.shared = p.lengths == nullptr ? p.positions
                                    : max(int64_t{0}, min(int64_t{p.lengths[index]}, p.positions));
    g.private_offset = g.private_count = 0;
    g.causal = p.causal;
    return g;
  }
  const int32_t* step = p.sequences + index * kSequenceColumns;
  g.first = step[kSequenceFirstToken];
  g.shared_offset = step[kSequenceSharedOffset];
  g.shared = max(0, step[kSequenceShared]);
  g.private_offset = step[kSequencePrivateOffset];
  g.private_count = max(0, step[kSequencePrivate]);
  g.causal = step[kSequenceCausal] != 0;
  return g;
}

// The slot of a shared position, or of an own one (position g.shared + j) of a token of the group;
// of contiguous rows the position itself. Below 0: there is none.
GRAFT_DEVICE int64_t SharedSlot(const Problem& p, const Group& g, int64_t j) {
  if (p.sequences == nullptr) return j;
  const int64_t at = g.shared_offset + j;
  return at < 0 || at >= p.shared_length ? -1 : p.shared_slots[at];
}
GRAFT_DEVICE int64_t PrivateSlot(const Problem& p, const Group& g, int64_t token, int64_t j) {
  const int64_t at = g.private_offset + token * g.private_count + j;
  return at < 0 || at >= p.private_length ? -1 : p.private_slots[at];
}

// Where the row of a slot stands, in elements from the first; below 0: not there.
GRAFT_DEVICE int64_t RowOfSlot(const Problem& p, const Group& g, int64_t slot) {
  if (p.sequences == nullptr) return g.index * p.block_stride + slot * p.row_stride;
  if (slot < 0 || slot >= p.slots) return -1;
  return slot / kBlockSlots * p.block_stride + slot % kBlockSlots * p.row_stride;
}
GRAFT_DEVICE bool HasAngle(const Problem& p, int64_t position) {
  return p.rotary == Rotary::kNone || position < p.angles;
}

// Whether a query sees a key that is `distance` positions before it.
GRAFT_DEVICE bool Sees(const Problem& p, int64_t distance) {
  return distance >= 0 && (p.window <= 0 || distance < p.window);
}

GRAFT_DEVICE float ScaleOf(const Problem& p) {
  return p.scale != 0.0f ? p.scale : rsqrtf(static_cast<float>(p.head_size));
}

// From q k^T to the score.
GRAFT_DEVICE float Score(const Problem& p, int64_t head, int64_t distance, float scaled) {
  if (p.softcap > 0.0f) scaled = p.softcap * tanhf(scaled / p.softcap);
  if (p.bias != nullptr) {
    scaled += p.bias[head * p.distances + min(distance, p.distances - 1)];
  }
  return scaled;
}

// Feature c of a head within its rotary embedding.
struct Turn {
  bool turns;       // or it stays as it is
  bool first;       // of its pair
  int32_t partner;  // feature that it turns with
  int32_t pair;
};
GRAFT_DEVICE Turn TurnOf(const Problem& p, int32_t c) {
  const auto pairs = static_cast<int32_t>(p.pairs);
  if (p.rotary == Rotary::kNone || c >= 2 * pairs) return {false, false, c, 0};
  if (p.rotary == Rotary::kInterleaved) return {true, c % 2 == 0, c ^ 1, c / 2};
  const bool first = c < pairs;
  return {true, first, first ? c + pairs : c - pairs, first ? c : c - pairs};
}

// x turned with its partner y by the angle of a position, or back by it.
GRAFT_DEVICE float Turned(const Problem& p, const Turn& turn, int64_t position, bool back, float x,
                          float y) {
  const int64_t at = position * p.pairs + turn.pair;
  const float by = turn.first == back ? p.sine[at] : -p.sine[at];
  return x * p.cosine[at] + y * by;
}

}  // namespace slim_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_SLIM_ATTENTION_KEYS_CUH_
