// Kernels that do nothing but matrix multiplications, as fast as the tensor cores take them: by
// wgmma (sm_90a), and by mma.sync, whose operands stay in registers.
#ifndef GRAFT_TESTS_GPU_PEAK_CUH_
#define GRAFT_TESTS_GPU_PEAK_CUH_

#include "../../kernels-cuda/device/launch.cuh"
#include "../../kernels-cuda/device/matrix.cuh"

namespace graft {
namespace peak {

using cuda::BFloat16;

// mma.sync: each warp adds `passes` times A B^T to its own 64 x 64 numbers, A and B being 64 x 16.
constexpr int32_t kSide = 64, kDepth = 16;
constexpr int32_t kRowTiles = kSide / 16, kColumnTiles = kSide / 8;
constexpr int32_t kWarpThreads = 256;

__global__ void __launch_bounds__(kWarpThreads, 1)
    MultiplyByWarps(const uint32_t* a, const uint32_t* b, float* out, int32_t passes) {
  constexpr int32_t kPairs = kDepth / 2;  // of a row
  const auto lane = static_cast<int32_t>(threadIdx.x % cuda::kWarp);
  const int32_t g = lane / 4, t = lane % 4;
  uint32_t left[kRowTiles][4], right[kColumnTiles][2];
  float sums[kRowTiles][kColumnTiles][4] = {};
#pragma unroll
  for (int32_t i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int32_t r = 0; r < 4; ++r) {
      left[i][r] = a[(16 * i + g + r % 2 * 8) * kPairs + t + r / 2 * 4];
    }
  }
#pragma unroll
  for (int32_t j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int32_t r = 0; r < 2; ++r) right[j][r] = b[(8 * j + g) * kPairs + t + r * 4];
  }
#pragma unroll 1
  for (int32_t pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (int32_t j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int32_t i = 0; i < kRowTiles; ++i) {
        cuda::Multiply<BFloat16>(sums[i][j], left[i], right[j]);
      }
    }
  }
  const int64_t warp =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x / cuda::kWarp) + threadIdx.x / cuda::kWarp;
  float* to = out + warp * kSide * kSide;
#pragma unroll
  for (int32_t i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int32_t j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int32_t r = 0; r < 4; ++r) {
        to[(16 * i + g + r / 2 * 8) * kSide + 8 * j + 2 * t + r % 2] = sums[i][j][r];
      }
    }
  }
}

#if defined(__CUDACC__)

// wgmma: each block computes `passes` times C = A B^T, A being 128 x 256 and B 256 x 256, both in
// shared memory; each of its two warpgroups has 64 rows.
constexpr int32_t kGroupThreads = 128, kGroups = 2;
constexpr int32_t kM = 64, kN = 256, kK = 256;
constexpr int32_t kTileK = 64, kTiles = kK / kTileK;  // 128 bytes of a row
constexpr int32_t kRowBytes = 2 * kTileK;
constexpr int32_t kTileABytes = kM * kRowBytes, kTileBBytes = kN * kRowBytes;
constexpr int32_t kGroupABytes = kTiles * kTileABytes, kBBytes = kTiles * kTileBBytes;
constexpr int32_t kAlignment = 1024;  // of what is swizzled
constexpr int32_t kSharedBytes = kGroups * kGroupABytes + kBBytes + kAlignment;

// How an operand lies in shared memory, and what its descriptors say of that. All of them give the
// same numbers; the probe takes the first whose answer is right.
struct Layout {
  bool swizzled;  // by 128 bytes; else core matrices of 8 x 16 bytes, those of a column first
  uint64_t left, right;            // descriptors without their addresses
  uint32_t left_step, right_step;  // from 16 columns to the next, in units of 16 bytes
};

// Byte of a row's column within an operand of `rows` rows.
GRAFT_BOTH int32_t ByteOf(bool swizzled, int32_t rows, int32_t row, int32_t column) {
  const int32_t tile = column / kTileK * rows * kRowBytes;
  const int32_t piece = column % kTileK / 8, in_piece = column % 8 * 2;
  if (swizzled) return tile + row * kRowBytes + (piece ^ row % 8) * 16 + in_piece;
  return tile + (piece * (rows / 8) + row / 8) * 128 + row % 8 * 16 + in_piece;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// d = a b^T, added to d unless `first`. 64 x 256 numbers over a warpgroup.
__device__ __forceinline__ void MultiplyGroup(float (&d)[128], uint64_t a, uint64_t b,
                                              int32_t more) {
#define GRAFT_8(i)                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
      "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "
      "%125, %126, %127}, %128, %129, p, 1, 1, 0, 0;\n"
      "}\n"
      : GRAFT_8(0), GRAFT_8(8), GRAFT_8(16), GRAFT_8(24), GRAFT_8(32), GRAFT_8(40), GRAFT_8(48),
        GRAFT_8(56), GRAFT_8(64), GRAFT_8(72), GRAFT_8(80), GRAFT_8(88), GRAFT_8(96), GRAFT_8(104),
        GRAFT_8(112), GRAFT_8(120)
      : "l"(a), "l"(b), "r"(more));
#undef GRAFT_8
}

#endif

__global__ void __launch_bounds__(kGroups* kGroupThreads, 1)
    MultiplyByGroups(const BFloat16* a, const BFloat16* b, float* out, Layout layout,
                     int32_t passes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(cuda::SharedMemory()));
  const uint32_t begin = (shared + kAlignment - 1) / kAlignment * kAlignment;
  unsigned char* memory = cuda::SharedMemory() + (begin - shared);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kGroups * kM * kK; i += blockDim.x) {
    const int32_t row = i / kK % kM, group = i / kK / kM;
    *reinterpret_cast<BFloat16*>(memory + group * kGroupABytes +
                                 ByteOf(layout.swizzled, kM, row, i % kK)) = a[i];
  }
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kN * kK; i += blockDim.x) {
    *reinterpret_cast<BFloat16*>(memory + kGroups * kGroupABytes +
                                 ByteOf(layout.swizzled, kN, i / kK, i % kK)) = b[i];
  }
  // Ordinary stores, which the tensor cores read by another way.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  // One value in all lanes of a warp, and the compiler knows.
  const int32_t group =
      __shfl_sync(0xffffffff, static_cast<int32_t>(threadIdx.x) / kGroupThreads, 0);
  const auto encode = [](uint32_t address) {
    return static_cast<uint64_t>((address & 0x3ffff) >> 4);
  };
  const uint64_t left = layout.left | encode(begin + static_cast<uint32_t>(group * kGroupABytes));
  const uint64_t right =
      layout.right | encode(begin + static_cast<uint32_t>(kGroups * kGroupABytes));
  float sums[kM * kN / kGroupThreads] = {};
#pragma unroll 1
  for (int32_t pass = 0; pass < passes; ++pass) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int32_t tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int32_t step = 0; step < kTileK / 16; ++step) {
        MultiplyGroup(sums, left + tile * (kTileABytes / 16) + step * layout.left_step,
                      right + tile * (kTileBBytes / 16) + step * layout.right_step, tile + step);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  const auto thread = static_cast<int32_t>(threadIdx.x) % kGroupThreads;
  const int32_t row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  float* to = out + (static_cast<int64_t>(blockIdx.x) * kGroups + group) * kM * kN;
#pragma unroll
  for (int32_t i = 0; i < kM * kN / kGroupThreads; ++i) {
    to[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + column + i % 2] = sums[i];
  }
#endif
}

#endif

}  // namespace peak
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_PEAK_CUH_
