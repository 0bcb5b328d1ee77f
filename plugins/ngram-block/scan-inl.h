// The vector code of scan.h, compiled once for each instruction set.
#if defined(GRAFT_NGRAM_BLOCK_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_NGRAM_BLOCK_SCAN_INL_H_
#undef GRAFT_NGRAM_BLOCK_SCAN_INL_H_
#else
#define GRAFT_NGRAM_BLOCK_SCAN_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace ngram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Appends base + (positions of set bits).
HWY_INLINE int64_t Append(uint64_t bits, int64_t base, int64_t found, int32_t* HWY_RESTRICT at) {
  while (bits != 0) {
    at[found++] = static_cast<int32_t>(base + __builtin_ctzll(bits));
    bits &= bits - 1;
  }
  return found;
}

template <class D>
HWY_INLINE uint64_t BitsOf(D d, hn::Mask<D> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Positions in [0, count) where matches(i), by vectors where lanes(d, i) says so.
template <typename T, class Vector, class Scalar>
HWY_INLINE int64_t Search(int64_t count, int32_t* HWY_RESTRICT at, const Vector& vector,
                          const Scalar& scalar) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0, found = 0;
  // Matches are rare: four vectors are tested at once.
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto m0 = vector(d, i), m1 = vector(d, i + lanes);
    const auto m2 = vector(d, i + 2 * lanes), m3 = vector(d, i + 3 * lanes);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(hn::Or(m0, m1), hn::Or(m2, m3))))) continue;
    found = Append(BitsOf(d, m0), i, found, at);
    found = Append(BitsOf(d, m1), i + lanes, found, at);
    found = Append(BitsOf(d, m2), i + 2 * lanes, found, at);
    found = Append(BitsOf(d, m3), i + 3 * lanes, found, at);
  }
  for (; i + lanes <= count; i += lanes) found = Append(BitsOf(d, vector(d, i)), i, found, at);
  for (; i < count; ++i) {
    if (scalar(i)) at[found++] = static_cast<int32_t>(i);
  }
  return found;
}

template <typename T>
int64_t FindToken(const T* tokens, int64_t count, T token, int32_t* at) {
  const auto wanted = hn::Set(hn::ScalableTag<T>(), token);
  return Search<T>(
      count, at, [&](auto d, int64_t i) { return hn::Eq(hn::LoadU(d, tokens + i), wanted); },
      [&](int64_t i) { return tokens[i] == token; });
}

template <typename T>
int64_t FindTwo(const T* tokens, int64_t count, T first, T second, int32_t* at) {
  const auto one = hn::Set(hn::ScalableTag<T>(), first);
  const auto two = hn::Set(hn::ScalableTag<T>(), second);
  return Search<T>(
      count, at,
      [&](auto d, int64_t i) {
        return hn::And(hn::Eq(hn::LoadU(d, tokens + i), one),
                       hn::Eq(hn::LoadU(d, tokens + i + 1), two));
      },
      [&](int64_t i) { return tokens[i] == first && tokens[i + 1] == second; });
}

template <typename T>
int64_t FirstOutside(const T* tokens, int64_t count, T limit) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, T{-1}), high = hn::Set(d, limit);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, tokens + i);
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::And(hn::Gt(v, low), hn::Gt(high, v))))) break;
  }
  while (i < count && tokens[i] >= 0 && tokens[i] < limit) ++i;
  return i;
}

// One instruction set's entries.
constexpr Scanner kScanner = {&FindToken<int32_t>, &FindToken<int64_t>,    &FindTwo<int32_t>,
                              &FindTwo<int64_t>,   &FirstOutside<int32_t>, &FirstOutside<int64_t>};

}  // namespace HWY_NAMESPACE
}  // namespace ngram
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_NGRAM_BLOCK_SCAN_INL_H_
