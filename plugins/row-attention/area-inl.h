// Rows between the pool and floats: what the storage types hold, and the turns of rotary positions.
#if defined(GRAFT_ROW_ATTENTION_AREA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_ROW_ATTENTION_AREA_INL_H_
#undef GRAFT_ROW_ATTENTION_AREA_INL_H_
#else
#define GRAFT_ROW_ATTENTION_AREA_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "hwy/highway.h"
#include "memory-inl.h"
#include "row_attention.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of the bfloat16 nearest to value, ties to even.
HWY_INLINE uint16_t ToBrain(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  if ((word & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(word >> 16 | 0x40u);
  return static_cast<uint16_t>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
}

// Reads a row as floats, and fills up to `padded` with zeros.
HWY_INLINE void ReadRow(Storage storage, const char* from, int64_t width, int64_t padded,
                        float* HWY_RESTRICT to) {
  using attention::HWY_NAMESPACE::LoadRow;
  switch (storage) {
    case Storage::kFloat32:
      return LoadRow(attention::Type::kFloat32, from, 1, width, padded, 1.0f, to);
    case Storage::kFloat16:
      return LoadRow(attention::Type::kFloat16, from, 1, width, padded, 1.0f, to);
    case Storage::kBfloat16:
      break;
  }
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto word = hn::PromoteTo(du, hn::LoadU(dh, bits + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(word)), d, to + i);
  }
  for (; i < width; ++i) {
    const uint32_t word = static_cast<uint32_t>(bits[i]) << 16;
    std::memcpy(to + i, &word, sizeof(word));
  }
  for (; i < padded; ++i) to[i] = 0.0f;
}

// Writes a row, each number rounded once.
HWY_INLINE void WriteRow(Storage storage, const float* from, int64_t width, char* to) {
  using attention::HWY_NAMESPACE::StoreRow;
  switch (storage) {
    case Storage::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
      return;
    case Storage::kFloat16:
      StoreRow(attention::Type::kFloat16, from, 1.0f, width, to, 1);
      return;
    case Storage::kBfloat16:
      break;
  }
  uint16_t* bits = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < width; ++i) bits[i] = ToBrain(from[i]);
}

// Turns one head's key by the angles of its position, or back with `direction` -1.
HWY_INLINE void Turn(Rotary rotary, int64_t pairs, const float* HWY_RESTRICT cosine,
                     const float* HWY_RESTRICT sine, float direction, int64_t size,
                     const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
  if (rotary == Rotary::kHalf) {
    for (int64_t j = 0; j < pairs; ++j) {
      const float s = direction * sine[j];
      to[j] = from[j] * cosine[j] - from[j + pairs] * s;
      to[j + pairs] = from[j + pairs] * cosine[j] + from[j] * s;
    }
  } else {
    for (int64_t j = 0; j < pairs; ++j) {
      const float s = direction * sine[j];
      to[2 * j] = from[2 * j] * cosine[j] - from[2 * j + 1] * s;
      to[2 * j + 1] = from[2 * j + 1] * cosine[j] + from[2 * j] * s;
    }
  }
  for (int64_t j = 2 * pairs; j < size; ++j) to[j] = from[j];
}

}  // namespace HWY_NAMESPACE
}  // namespace row_attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_ROW_ATTENTION_AREA_INL_H_
