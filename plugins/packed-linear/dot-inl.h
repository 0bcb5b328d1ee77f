// How four integers of x are multiplied with four of each of sixteen columns, a way for each
// instruction set: exact, in 32 bits.
//
// An Ops has
//   kRows          rows of x whose sums lie in registers
//   kLayout        how integers of x lie
//   kOffset8, 4    added to each integer of W, since one factor has no sign: sums begin with what
//                  that adds to them, subtracted
//   Line           64 bytes of W, made ready
//   Four           four integers of one row of x, on all lanes
#if defined(GRAFT_PACKED_LINEAR_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_DOT_INL_H_
#undef GRAFT_PACKED_LINEAR_DOT_INL_H_
#else
#define GRAFT_PACKED_LINEAR_DOT_INL_H_
#endif

#include <type_traits>

#include "expand-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How integers of a group of rows of x lie, four positions of each row after the other.
enum class Layout {
  kBytes,  // int8
  kPairs,  // int16 in the order 0, 2, 1, 3
  kSplit   // int16, for each group of positions first high bytes, then low ones: 256 high + low
};
constexpr int64_t StepBytes(Layout layout) { return layout == Layout::kPairs ? 8 : 4; }

// Four bytes, or four times two, on all lanes.
HWY_INLINE VI SpreadFour(const char* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return hn::Set(DI(), four);
}

// The low and the high halves of bytes, 0 .. 15.
HWY_INLINE VI LowHalves(VI v) { return hn::And(v, hn::Set(DI(), 0x0f0f0f0f)); }
HWY_INLINE VI HighHalves(VI v) { return LowHalves(hn::ShiftRight<4>(v)); }

// Bytes of 0 .. 15 less 8.
HWY_INLINE VI LessEight(VI v) {
  const hn::Repartition<int8_t, DI> d8;
  return hn::BitCast(DI(), hn::Sub(hn::BitCast(d8, v), hn::Set(d8, int8_t{8})));
}

#undef GRAFT_HAVE_PAIRS
#undef GRAFT_HAVE_DOTS
#define GRAFT_HAVE_PAIRS \
  (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4)

#if GRAFT_HAVE_PAIRS

// A sum as it is here: a compiler that adds up products among themselves first has too few
// registers for them.
template <class V>
HWY_INLINE void Pin(V& v) {
#if HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#else
  asm("" : "+x"(v.raw));
#endif
}

// Products of 16 bits, which x86-64 adds up in pairs. Of bytes 0 to 3 of a lane, the
// even ones are a pair and the odd ones another.
struct PairOps {
  static constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : HWY_TARGET == HWY_AVX2 ? 4 : 2;
  static constexpr Layout kLayout = Layout::kPairs;
  static constexpr int kOffset8 = 0, kOffset4 = 0;

  using DS = hn::Repartition<int16_t, DI>;
  using VS = hn::Vec<DS>;
  struct Line {
    VS even[kLineVectors], odd[kLineVectors];
  };
  struct Four {
    VS even, odd;
  };

  static HWY_INLINE void Ready(VI v, int i, Line* line) {
    const DS ds;
    const VS bytes = hn::BitCast(ds, v);
    line->even[i] = hn::ShiftRight<8>(hn::ShiftLeft<8>(bytes));
    line->odd[i] = hn::ShiftRight<8>(bytes);
  }
  static HWY_INLINE void Ready8(VI v, int i, Line* line) { Ready(v, i, line); }
  static HWY_INLINE void Ready4(VI v, int i, Line* low, Line* high) {
    Ready(LessEight(LowHalves(v)), i, low);
    Ready(LessEight(HighHalves(v)), i, high);
  }
  static HWY_INLINE Four Spread(const char* from) {
    const DS ds;
    return {hn::BitCast(ds, SpreadFour(from)), hn::BitCast(ds, SpreadFour(from + 4))};
  }
  static HWY_INLINE VI Dot(VI sum, const Line& line, int i, const Four& x) {
    VI none = hn::Zero(DI());
    sum = hn::ReorderWidenMulAccumulate(DI(), line.even[i], x.even, sum, none);
    Pin(sum);
    sum = hn::ReorderWidenMulAccumulate(DI(), line.odd[i], x.odd, sum, none);
    Pin(sum);
    return sum;
  }
};

#endif  // GRAFT_HAVE_PAIRS

// What the instructions for dot products of bytes have in common: W as bytes, x as bytes.
struct ByteOps {
  static constexpr Layout kLayout = Layout::kBytes;
  using Line = VI[kLineVectors];
  using Four = VI;
  static HWY_INLINE Four Spread(const char* from) { return SpreadFour(from); }
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define GRAFT_HAVE_DOTS 1

// VNNI. Bytes of W have no sign. The instruction by name: what else is compiled here must run
// without it.
struct DotOps : ByteOps {
  static constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
  static constexpr int kOffset8 = 128, kOffset4 = 8;

  static HWY_INLINE void Ready8(VI v, int i, Line* line) {
    (*line)[i] = hn::Xor(v, hn::Set(DI(), static_cast<int32_t>(0x80808080u)));
  }
  static HWY_INLINE void Ready4(VI v, int i, Line* low, Line* high) {
    (*low)[i] = LowHalves(v);
    (*high)[i] = HighHalves(v);
  }
  static HWY_INLINE VI Dot(VI sum, const Line& line, int i, const Four& x) {
#if HWY_TARGET == HWY_AVX3
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(line[i].raw), "v"(x.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(line[i].raw), "x"(x.raw));
#endif
    return sum;
  }
};

#elif HWY_ARCH_ARM_A64
#define GRAFT_HAVE_DOTS 1

// SDOT, of Armv8.2 and later.
struct DotOps : ByteOps {
  static constexpr int kRows = 5;
  static constexpr int kOffset8 = 0, kOffset4 = 0;

  static HWY_INLINE void Ready8(VI v, int i, Line* line) { (*line)[i] = v; }
  static HWY_INLINE void Ready4(VI v, int i, Line* low, Line* high) {
    (*low)[i] = LessEight(LowHalves(v));
    (*high)[i] = LessEight(HighHalves(v));
  }
  static HWY_INLINE VI Dot(VI sum, const Line& line, int i, const Four& x) {
    asm(".arch armv8.2-a+dotprod+crypto\n\tsdot %0.4s, %1.16b, %2.16b"
        : "+w"(sum.raw)
        : "w"(line[i].raw), "w"(x.raw));
    return sum;
  }
};

#else
#define GRAFT_HAVE_DOTS 0
#endif

#if !GRAFT_HAVE_PAIRS

// Any CPU: byte by byte in lanes of 32 bits.
struct LaneOps : ByteOps {
  static constexpr int kRows = 2;
  static constexpr int kOffset8 = 0, kOffset4 = 0;
  struct Four {
    int32_t bytes[4];
  };

  static HWY_INLINE void Ready8(VI v, int i, Line* line) { (*line)[i] = v; }
  static HWY_INLINE void Ready4(VI v, int i, Line* low, Line* high) {
    (*low)[i] = LessEight(LowHalves(v));
    (*high)[i] = LessEight(HighHalves(v));
  }
  static HWY_INLINE Four Spread(const char* from) {
    signed char bytes[4];
    std::memcpy(bytes, from, sizeof bytes);
    return {{bytes[0], bytes[1], bytes[2], bytes[3]}};
  }
  static HWY_INLINE VI Dot(VI sum, const Line& line, int i, const Four& x) {
    const VI v = line[i];
    sum =
        hn::Add(sum, hn::Mul(hn::ShiftRight<24>(hn::ShiftLeft<24>(v)), hn::Set(DI(), x.bytes[0])));
    sum =
        hn::Add(sum, hn::Mul(hn::ShiftRight<24>(hn::ShiftLeft<16>(v)), hn::Set(DI(), x.bytes[1])));
    sum = hn::Add(sum, hn::Mul(hn::ShiftRight<24>(hn::ShiftLeft<8>(v)), hn::Set(DI(), x.bytes[2])));
    return hn::Add(sum, hn::Mul(hn::ShiftRight<24>(v), hn::Set(DI(), x.bytes[3])));
  }
};
using PlainOps = LaneOps;

#else
using PlainOps = PairOps;
#endif

// The same for x of sixteen bits, a byte after the other.
template <class Bytes>
struct SplitOps : Bytes {
  static constexpr Layout kLayout = Layout::kSplit;
};
template <class Ops>
using WideOps = std::conditional_t<Ops::kLayout == Layout::kPairs, Ops, SplitOps<Ops>>;

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_DOT_INL_H_
