// What a launch is, in plain C++: no CUDA header is needed to plan one or to test the plan.
#ifndef GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_H_

#include <cstdint>

struct CUstream_st;

namespace graft {
namespace cuda {

using Stream = CUstream_st*;  // cudaStream_t, CUstream

// Blocks of a cluster: 1, 2, 4 or 8.
constexpr int32_t kClusterSizes = 4;

// What kernels are planned for. The defaults are an H100's and an H200's.
struct DeviceLimits {
  int32_t multiprocessors = 132;
  int32_t major = 9, minor = 0;           // compute capability
  int64_t shared_per_block = 227 * 1024;  // bytes that one block may have
  int64_t shared_per_processor = 228 * 1024;
  int64_t l2_bytes = int64_t{50} << 20;
  // Clusters of 1, 2, 4 and 8 blocks that run at once where a block takes a whole multiprocessor.
  // Fewer than multiprocessors would hold where groups of these are uneven; 0 before 9.0.
  int32_t clusters[kClusterSizes] = {132, 66, 32, 16};
};

constexpr int32_t kWarp = 32;
constexpr int32_t kMaxThreads = 1024;  // of a block
constexpr int64_t kMaxGridX = 2147483647;
constexpr int64_t kMaxGridYZ = 65535;
constexpr int64_t kSharedByDefault = 48 * 1024;

// Element types of tensors.
enum class Type : int32_t { kFloat32, kFloat16, kBFloat16 };

constexpr int64_t BytesOf(Type type) { return type == Type::kFloat32 ? 4 : 2; }

struct LaunchShape {
  int64_t grid_x = 1, grid_y = 1, grid_z = 1;  // blocks
  int32_t threads = 1;                         // of a block, all along x
  int64_t shared_bytes = 0;                    // dynamic shared memory of a block
  int32_t cluster = 1;  // blocks along x that share memory; above 1 needs 9.0
  // Programmatic dependent launch (9.0): a dependent launch may begin while the one before it on
  // the stream still runs; its threads call WaitForLaunch before they touch what that one reads or
  // writes. The one before is `followed`: the next launch on its stream is dependent.
  bool dependent = false;
  bool followed = false;
};

// Codes of a launch: kOk, a CUDA runtime error (its positive number), or kBadLaunch for a shape
// that no device takes, which never reaches the driver.
using Status = int32_t;
constexpr Status kOk = 0;
constexpr Status kBadLaunch = -1;

constexpr bool IsLegal(const LaunchShape& s) {
  return s.grid_x >= 1 && s.grid_x <= kMaxGridX && s.grid_y >= 1 && s.grid_y <= kMaxGridYZ &&
         s.grid_z >= 1 && s.grid_z <= kMaxGridYZ && s.threads >= 1 && s.threads <= kMaxThreads &&
         s.shared_bytes >= 0 && s.cluster >= 1 && s.cluster <= 8 && s.grid_x % s.cluster == 0;
}

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDivide(a, b) * b; }

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_DEVICE_LAUNCH_H_
