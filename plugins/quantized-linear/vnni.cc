// AVX-512 with VNNI. Compiled without contraction: a product that is rounded is no part of a fused
// multiply-add.
#include "kernel.h"

#if defined(__x86_64__)

#include <cstring>

#include "vectors.h"

namespace graft {
namespace quantized {
namespace {

GRAFT_VNNI bool FindRange(const float* x, int64_t count, float* least, float* greatest) {
  constexpr int kChains = 4;
  __m512 low[kChains], high[kChains];
  for (int c = 0; c < kChains; ++c) low[c] = high[c] = _mm512_setzero_ps();
  __mmask16 nan = 0;
  int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    GRAFT_UNROLL
    for (int c = 0; c < kChains; ++c) {
      const __m512 v = _mm512_loadu_ps(x + i + c * kLanes);
      nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
      low[c] = _mm512_min_ps(low[c], v);
      high[c] = _mm512_max_ps(high[c], v);
    }
  }
  for (; i < count; i += kLanes) {
    const __m512 v = _mm512_maskz_loadu_ps(Lanes(count - i), x + i);
    nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
    low[0] = _mm512_min_ps(low[0], v);
    high[0] = _mm512_max_ps(high[0], v);
  }
  for (int c = 1; c < kChains; ++c) {
    low[0] = _mm512_min_ps(low[0], low[c]);
    high[0] = _mm512_max_ps(high[0], high[c]);
  }
  *least = _mm512_reduce_min_ps(low[0]);
  *greatest = _mm512_reduce_max_ps(high[0]);
  return nan == 0;
}

// An exact quotient is rounded, as ONNX Runtime does it; a product with the inverse would be
// another number.
GRAFT_VNNI inline __m512i Rounded(__m512 v, __m512 scale, __m512 least, __m512 greatest,
                                  __m512i zero) {
  v = _mm512_max_ps(_mm512_div_ps(v, scale), least);  // NaN becomes the least
  return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(v, greatest)), zero);
}

GRAFT_VNNI int32_t Sum(const uint8_t* bytes, int64_t count) {
  constexpr int64_t kBytes = 64;
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += kBytes) {
    const int64_t rest = count - i;
    const __mmask64 lanes = rest >= kBytes ? ~uint64_t{0} : (uint64_t{1} << rest) - 1;
    sum = _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(lanes, bytes + i), ones);
  }
  return _mm512_reduce_add_epi32(sum);
}

GRAFT_VNNI void Quantize(const float* x, int64_t count, float scale, uint8_t zero, uint8_t* to) {
  const __m512 by = _mm512_set1_ps(scale);
  const __m512 least = _mm512_set1_ps(static_cast<float>(0 - zero));
  const __m512 greatest = _mm512_set1_ps(static_cast<float>(255 - zero));
  const __m512i move = _mm512_set1_epi32(zero);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i q = Rounded(_mm512_loadu_ps(x + i), by, least, greatest, move);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(q));
  }
  if (i < count) {
    const __mmask16 lanes = Lanes(count - i);
    const __m512i q = Rounded(_mm512_maskz_loadu_ps(lanes, x + i), by, least, greatest, move);
    _mm_mask_storeu_epi8(to + i, lanes, _mm512_cvtepi32_epi8(q));
  }
}

// Eight rows of eight become columns, `stride` floats apart.
GRAFT_VNNI inline void StoreSquare(const __m256* rows, float* y, int64_t stride) {
  __m256 pairs[8], fours[8];
  GRAFT_UNROLL
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
  GRAFT_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256* p = pairs + 4 * i;
    __m256* f = fours + 4 * i;
    f[0] = _mm256_shuffle_ps(p[0], p[2], 0x44);
    f[1] = _mm256_shuffle_ps(p[0], p[2], 0xee);
    f[2] = _mm256_shuffle_ps(p[1], p[3], 0x44);
    f[3] = _mm256_shuffle_ps(p[1], p[3], 0xee);
  }
  GRAFT_UNROLL
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(y + i * stride, _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x20));
    _mm256_storeu_ps(y + (4 + i) * stride, _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x31));
  }
}

// A part of a tile whose rows lie side by side.
template <int kRows>
GRAFT_VNNI inline void StoreTransposed(const __m512* rows, int64_t columns, float* y,
                                       int64_t stride) {
  if (kRows == 8 && columns == kLanes) {
    __m256 half[8];
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) half[r] = _mm512_castps512_ps256(rows[r]);
    StoreSquare(half, y, stride);
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) half[r] = _mm512_extractf32x8_ps(rows[r], 1);
    StoreSquare(half, y + 8 * stride, stride);
    return;
  }
  alignas(64) float part[kRows][kLanes];
  for (int r = 0; r < kRows; ++r) _mm512_store_ps(part[r], rows[r]);
  for (int64_t j = 0; j < columns; ++j) {
    for (int r = 0; r < kRows; ++r) y[j * stride + r] = part[r][j];
  }
}

template <int kRows, int kPanels>
GRAFT_VNNI __attribute__((noinline)) void RunTile(const Tile& t) {
  __m512i sum[kPanels][kRows];
  GRAFT_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    const __m512i start = _mm512_loadu_si512(t.start + p * kPanelColumns);
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) sum[p][r] = start;
  }
  if (t.column_stride == 1) {
    // What is stored at the end is far from the nearest caches, and waiting for it takes as long as
    // many products.
    GRAFT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) __builtin_prefetch(t.y[p] + r * t.row_stride, 1, 3);
    }
  }
  const uint8_t* x = t.x;
  const int8_t* w = t.weight;
  const int64_t x_stride = t.x_stride, panel_bytes = t.panel_bytes;
  for (int64_t k = 0; k < t.steps; ++k, x += kDepthStep, w += kPanelColumns * kDepthStep) {
    __m512i v[kPanels];
    GRAFT_UNROLL
    for (int p = 0; p < kPanels; ++p) v[p] = _mm512_loadu_si512(w + p * panel_bytes);
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * x_stride, sizeof four);
      const __m512i q = _mm512_set1_epi32(four);
      GRAFT_UNROLL
      for (int p = 0; p < kPanels; ++p) sum[p][r] = _mm512_dpbusd_epi32(sum[p][r], q, v[p]);
    }
  }
  RangeOf range;
  GRAFT_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    const int64_t first = p * kPanelColumns;
    const __mmask16 lanes = Lanes(t.columns - first);
    const __m512 scale = _mm512_loadu_ps(t.scales + first);
    const __m512 bias =
        t.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, t.bias + first);
    __m512 y[kRows];
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      __m512i i = sum[p][r];
      if (t.zeros != nullptr) {
        const __m512i zeros = _mm512_loadu_si512(t.zeros + first);
        i = _mm512_sub_epi32(i, _mm512_mullo_epi32(zeros, _mm512_set1_epi32(t.row_sums[r])));
      }
      y[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(i), scale);
      if (t.bias != nullptr) y[r] = _mm512_add_ps(y[r], bias);
      if (t.gelu) y[r] = Gelu(y[r]);
      if (t.range != nullptr) range.Include(y[r], lanes);
    }
    if (t.column_stride != 1) {
      StoreTransposed<kRows>(y, t.columns - first < kLanes ? t.columns - first : kLanes, t.y[p],
                             t.column_stride);
      continue;
    }
    GRAFT_UNROLL
    for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(t.y[p] + r * t.row_stride, lanes, y[r]);
  }
  if (t.range != nullptr) range.Join(t.range);
}

template <int kRows>
void RunRows(const Tile& t) {
  switch (t.panels) {
    case 1:
      return RunTile<kRows, 1>(t);
    case 2:
      return RunTile<kRows, 2>(t);
    default:
      return RunTile<kRows, 3>(t);
  }
}

void RunAny(const Tile& t) {
  static_assert(kTileRows == 8 && kTilePanels == 3, "a case for each");
  switch (t.rows) {
    case 1:
      return RunRows<1>(t);
    case 2:
      return RunRows<2>(t);
    case 3:
      return RunRows<3>(t);
    case 4:
      return RunRows<4>(t);
    case 5:
      return RunRows<5>(t);
    case 6:
      return RunRows<6>(t);
    case 7:
      return RunRows<7>(t);
    default:
      return RunRows<8>(t);
  }
}

constexpr Kernel kKernel = {&FindRange, &Quantize, &Sum, &RunAny, &NormaliseVnni};

bool CpuHasVnni() {
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const Kernel* VnniKernel() {
  static const bool runs = CpuHasVnni();
  return runs ? &kKernel : nullptr;
}

}  // namespace quantized
}  // namespace graft

#else

namespace graft {
namespace quantized {

const Kernel* VnniKernel() { return nullptr; }

}  // namespace quantized
}  // namespace graft

#endif
