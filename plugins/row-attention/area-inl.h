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
#include "row_attention.h"
#include "stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace row_attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Numbers that share a scale.
constexpr int64_t kScaleGroup = GRAFT_CACHE_SCALE_GROUP;

// Reads a row as floats, and fills up to `padded` with zeros.
HWY_INLINE void ReadRow(Storage storage, const char* from, int64_t width, int64_t padded,
                        float* HWY_RESTRICT to) {
  using attention::HWY_NAMESPACE::LoadNumbers;
  using attention::HWY_NAMESPACE::LoadStored;
  if (storage != Storage::kInt8) return LoadStored(storage, from, width, padded, 1.0f, to);
  const int64_t groups = (width + kScaleGroup - 1) / kScaleGroup;
  const int8_t* numbers = reinterpret_cast<const int8_t*>(from + groups * 4);
  for (int64_t g = 0; g < groups; ++g) {
    float scale;
    std::memcpy(&scale, from + g * 4, sizeof(scale));
    const int64_t begin = g * kScaleGroup;
    const bool last = g + 1 == groups;
    LoadNumbers(numbers + begin, last ? width - begin : kScaleGroup,
                last ? padded - begin : kScaleGroup, scale, to + begin);
  }
}

// Writes a row, each number rounded once.
HWY_INLINE void WriteRow(Storage storage, const float* from, int64_t width, char* to) {
  using attention::HWY_NAMESPACE::StoreInt8;
  using attention::HWY_NAMESPACE::StoreStored;
  if (storage != Storage::kInt8) {
    StoreStored(storage, from, 1, width, to);
    return;
  }
  const int64_t groups = (width + kScaleGroup - 1) / kScaleGroup;
  int8_t* numbers = reinterpret_cast<int8_t*>(to + groups * 4);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * kScaleGroup;
    const int64_t count = width - begin < kScaleGroup ? width - begin : kScaleGroup;
    const float scale = StoreInt8(from + begin, 1, count, numbers + begin);
    std::memcpy(to + g * 4, &scale, sizeof(scale));
  }
  for (int64_t i = width; i % 4 != 0; ++i) numbers[i] = 0;
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
