// The vector code of kernel.h, compiled once for each instruction set.
#if defined(GRAFT_LOGITS_TOP_K_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_LOGITS_TOP_K_PASS_INL_H_
#undef GRAFT_LOGITS_TOP_K_PASS_INL_H_
#else
#define GRAFT_LOGITS_TOP_K_PASS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "graft/type.h"
#include "hwy/highway.h"
#include "kernel.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace top_k {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = HWY_LANES(float);
constexpr int kVectors = 8;  // of a strip
static_assert(kLanes * kVectors <= kStrip, "a strip is what a pass takes at once");

// exp(x) for x up to 8: relative error below 3e-7 + 1e-7 |x| down to -87, exactly 0 below that (so
// for -inf), NaN for NaN. 2^z = 2^n 2^r, with the coefficients of 2^r fitted for this file.
HWY_INLINE VF Exp(VF x) {
  const DF d;
  const VF z = hn::Mul(x, hn::Set(d, 1.44269504088896341f));
#if HWY_TARGET == HWY_AVX3
  // Two instructions take z apart and put 2^z together, both rounding down: 0 <= r <= 1.
  const VF r{_mm512_reduce_ps(z.raw, _MM_FROUND_TO_NEG_INF)};
  VF y = hn::MulAdd(r, hn::Set(d, 0.00021612916f), hn::Set(d, 0.0012467846f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.009675452f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.055485282f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.24022931f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.69314706f));
#else
  const VF magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are the integer
  const VF shifted = hn::Add(z, magic);
  const VF r = hn::Sub(z, hn::Sub(shifted, magic));
  VF y = hn::MulAdd(r, hn::Set(d, 0.0001535336f), hn::Set(d, 0.0013398875f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.009618437f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.055503324f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.24022648f));
  y = hn::MulAdd(r, y, hn::Set(d, 0.6931472f));
#endif
  y = hn::MulAdd(r, y, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  const __mmask16 kept = _mm512_cmp_ps_mask(z.raw, _mm512_set1_ps(-125.5f), _CMP_NLT_UQ);
  return VF{_mm512_maskz_scalef_ps(kept, y.raw, z.raw)};
#else
  const hn::RebindToUnsigned<DF> du;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127u)));
  return hn::IfThenZeroElse(hn::Lt(z, hn::Set(d, -125.5f)), hn::Mul(y, hn::BitCast(d, exponent)));
#endif
}

// The first n lanes from memory, the others -inf. Through a buffer: a masked load may read them
// all.
HWY_INLINE VF LoadFirst(const float* x, int64_t n) {
  const DF d;
  HWY_ALIGN float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    lanes[i] = i < n ? x[i] : -std::numeric_limits<float>::infinity();
  }
  return hn::Load(d, lanes);
}

HWY_NOINLINE void Collect(const float* x, int64_t n, int64_t token, Pass* pass) {
  const DF d;
  const VF threshold = hn::Set(d, pass->threshold);
  for (int64_t i = 0; i < n; i += kLanes) {
    const VF v = i + kLanes <= n ? hn::LoadU(d, x + i) : LoadFirst(x + i, n - i);
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, hn::Gt(v, threshold), bytes);
    uint64_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    for (; bits != 0; bits &= bits - 1) {
      const int64_t at = i + __builtin_ctzll(bits);
      pass->found[pass->count++] = {x[at], static_cast<int32_t>(token + at)};
    }
  }
}

template <bool kSum>
HWY_INLINE int64_t PassOver(const float* HWY_RESTRICT x, int64_t n, int64_t base, Pass* pass) {
  const DF d;
  VF maximum = hn::Load(d, pass->maximum);
  VF sum = hn::Load(d, pass->sum);
  VF reference = hn::Set(d, pass->reference);
  VF ceiling = hn::Add(reference, hn::Set(d, 8.0f));
  const VF threshold = hn::Set(d, pass->threshold);
  constexpr int64_t kTake = kLanes * kVectors;
  int64_t i = 0;
  for (; i < n && pass->count + kTake <= pass->capacity; i += kTake) {
    VF v0, v1, v2, v3, v4, v5, v6, v7;
    const float* p = x + i;
    const int64_t left = n - i;
    if (HWY_LIKELY(left >= kTake)) {
      v0 = hn::LoadU(d, p);
      v1 = hn::LoadU(d, p + kLanes);
      v2 = hn::LoadU(d, p + 2 * kLanes);
      v3 = hn::LoadU(d, p + 3 * kLanes);
      v4 = hn::LoadU(d, p + 4 * kLanes);
      v5 = hn::LoadU(d, p + 5 * kLanes);
      v6 = hn::LoadU(d, p + 6 * kLanes);
      v7 = hn::LoadU(d, p + 7 * kLanes);
    } else {
      const auto load = [&](int64_t k) {
        const int64_t rest = left - k * kLanes;
        return rest >= kLanes ? hn::LoadU(d, p + k * kLanes) : LoadFirst(p + k * kLanes, rest);
      };
      v0 = load(0);
      v1 = load(1);
      v2 = load(2);
      v3 = load(3);
      v4 = load(4);
      v5 = load(5);
      v6 = load(6);
      v7 = load(7);
    }
    const VF high = hn::Max(hn::Max(hn::Max(v0, v1), hn::Max(v2, v3)),
                            hn::Max(hn::Max(v4, v5), hn::Max(v6, v7)));
    maximum = hn::Max(maximum, high);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(high, threshold)))) {
      Collect(p, left < kTake ? left : kTake, base + i, pass);
    }
    if (kSum) {
      if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(high, ceiling)))) {
        const VF raised = hn::MaxOfLanes(d, high);
        sum = hn::Mul(sum, Exp(hn::Sub(reference, raised)));
        reference = raised;
        ceiling = hn::Add(reference, hn::Set(d, 8.0f));
      }
      const VF e0 = hn::Add(Exp(hn::Sub(v0, reference)), Exp(hn::Sub(v1, reference)));
      const VF e1 = hn::Add(Exp(hn::Sub(v2, reference)), Exp(hn::Sub(v3, reference)));
      const VF e2 = hn::Add(Exp(hn::Sub(v4, reference)), Exp(hn::Sub(v5, reference)));
      const VF e3 = hn::Add(Exp(hn::Sub(v6, reference)), Exp(hn::Sub(v7, reference)));
      sum = hn::Add(sum, hn::Add(hn::Add(e0, e1), hn::Add(e2, e3)));
    } else {
      // Missing lanes of the last vector are -inf, which hides nothing that matters.
      sum = hn::Add(sum, hn::Add(hn::Add(hn::Add(v0, v1), hn::Add(v2, v3)),
                                 hn::Add(hn::Add(v4, v5), hn::Add(v6, v7))));
    }
  }
  hn::Store(maximum, d, pass->maximum);
  hn::Store(sum, d, pass->sum);
  pass->reference = hn::GetLane(reference);
  return i < n ? i : n;
}

inline int64_t PassWithSum(const float* x, int64_t n, int64_t base, Pass* pass) {
  return PassOver<true>(x, n, base, pass);
}
inline int64_t PassWithout(const float* x, int64_t n, int64_t base, Pass* pass) {
  return PassOver<false>(x, n, base, pass);
}

inline void ChunkMaxima(const float* x, int64_t n, int64_t chunk, float* maxima) {
  const DF d;
  for (int64_t c = 0; c < n / chunk; ++c) {
    VF high = hn::LoadU(d, x + c * chunk);
    for (int64_t i = kLanes; i < chunk; i += kLanes) {
      high = hn::Max(high, hn::LoadU(d, x + c * chunk + i));
    }
    maxima[c] = hn::GetLane(hn::MaxOfLanes(d, high));
  }
}

inline double Exponentials(const float* x, int64_t n, float shift, float* to) {
  const DF d;
  const VF base = hn::Set(d, shift);
  double total = 0;
  // Blocks short enough for sums in float, whose total is kept in double.
  for (int64_t block = 0; block < n; block += 64 * kLanes) {
    const int64_t end = n - block < 64 * kLanes ? n : block + 64 * kLanes;
    VF sum = hn::Zero(d);
    int64_t i = block;
    for (; i + kLanes <= end; i += kLanes) {
      const VF e = Exp(hn::Sub(hn::LoadU(d, x + i), base));
      hn::StoreU(e, d, to + i);
      sum = hn::Add(sum, e);
    }
    if (i < end) {
      HWY_ALIGN float last[kLanes];
      const VF e = Exp(hn::Sub(LoadFirst(x + i, end - i), base));
      hn::Store(e, d, last);
      std::memcpy(to + i, last, static_cast<size_t>(end - i) * sizeof *to);
      sum = hn::Add(sum, e);
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return total;
}

inline void Widen(Type type, const void* from, int64_t n, float* to) {
  const DF d;
  int64_t i = 0;
  if (type == Type::kBFloat16) {
    const hn::Rebind<uint16_t, DF> narrow;
    const hn::RebindToUnsigned<DF> wide;
    const auto* bits = static_cast<const uint16_t*>(from);
    for (; i + kLanes <= n; i += kLanes) {
      const auto word = hn::PromoteTo(wide, hn::LoadU(narrow, bits + i));
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(word)), d, to + i);
    }
    for (; i < n; ++i) {
      const uint32_t word = uint32_t{bits[i]} << 16;
      std::memcpy(to + i, &word, sizeof word);
    }
    return;
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  const hn::Rebind<hwy::float16_t, DF> half;
  const auto* values = static_cast<const hwy::float16_t*>(from);
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, values + i)), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = static_cast<const Float16*>(from)[i].ToFloat();
}

// One instruction set's entries.
constexpr Kernel kKernel = {&PassWithSum, &PassWithout, &ChunkMaxima, &Exponentials, &Widen};

}  // namespace HWY_NAMESPACE
}  // namespace top_k
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_LOGITS_TOP_K_PASS_INL_H_
