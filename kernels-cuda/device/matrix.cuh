// Matrix multiplications of a warp on the tensor cores (sm_80): mma.sync, and ldmatrix that feeds
// it.
//
// Fragments of Multiply, for lane = 4 * g + t, in pairs of neighbouring numbers (first in the lower
// half of the register):
//
//   A 16x16: a[0] = A[g][2t..], a[1] = A[g + 8][2t..], a[2] = A[g][2t + 8..], a[3] = A[g + 8][2t
//   + 8..] B 16x8:  b[0] = B[2t..][g], b[1] = B[2t + 8..][g] D 16x8:  d[0..1] = D[g][2t..], d[2..3]
//   = D[g + 8][2t..], float32
#ifndef GRAFT_KERNELS_CUDA_DEVICE_MATRIX_CUH_
#define GRAFT_KERNELS_CUDA_DEVICE_MATRIX_CUH_

#include "number.cuh"

namespace graft {
namespace cuda {

// d += a b, T being Half or BFloat16. All lanes of the warp take part.
template <typename T>
GRAFT_DEVICE void Multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// Four 8x8 matrices of 16-bit numbers from shared memory. Lane i gives the address of row i % 8 of
// matrix i / 8, 16-byte aligned; r[m] becomes this lane's pair M[lane / 4][2 * (lane % 4)..] of
// matrix m, or with Transposed the pair M[2 * (lane % 4)..][lane / 4].
template <bool Transposed = false>
GRAFT_DEVICE void LoadMatrices(uint32_t (&r)[4], const void* row);

#if defined(__CUDACC__)

template <>
GRAFT_DEVICE void Multiply<Half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
GRAFT_DEVICE void Multiply<BFloat16>(float (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <bool Transposed>
GRAFT_DEVICE void LoadMatrices(uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
  }
}

#else

template <typename T>
GRAFT_DEVICE void Multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Fragments {
    const uint32_t *a, *b;
  } mine{a, b};
  emulator::Together("mma.sync", &mine, [&](const void* const* lanes) {
    const auto of = [&](int32_t lane) { return static_cast<const Fragments*>(lanes[lane]); };
    const int32_t g = emulator::LaneIndex() / 4, t = emulator::LaneIndex() % 4;
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t column = 2 * t + i % 2;
      float sum = 0;
      for (int32_t k = 0; k < 16; k += 2) {
        const uint32_t left = of(4 * g + k % 8 / 2)->a[i / 2 + k / 8 * 2];
        const uint32_t right = of(4 * column + k % 8 / 2)->b[k / 8];
        float x0, x1, y0, y1;
        Unpack<T>(left, &x0, &x1);
        Unpack<T>(right, &y0, &y1);
        sum += x0 * y0 + x1 * y1;
      }
      d[i] += sum;
    }
  });
}
template <bool Transposed>
GRAFT_DEVICE void LoadMatrices(uint32_t (&r)[4], const void* row) {
  emulator::CheckShared("ldmatrix", row, 16, 16);
  emulator::Together("ldmatrix", row, [&](const void* const* rows) {
    const int32_t g = emulator::LaneIndex() / 4, t = emulator::LaneIndex() % 4;
    for (int32_t m = 0; m < 4; ++m) {
      const auto at = [&](int32_t i, int32_t j) {
        return static_cast<uint32_t>(static_cast<const uint16_t*>(rows[8 * m + i])[j]);
      };
      r[m] = Transposed ? at(2 * t, g) | at(2 * t + 1, g) << 16
                        : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
    }
  });
}

#endif

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_MATRIX_CUH_
