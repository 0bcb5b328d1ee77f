// The devices that a program sees, and the shared memory that kernels may have on each.
#include <map>
#include <mutex>
#include <utility>

#include "state.h"

namespace graft {
namespace cuda {
namespace emulator {
namespace {

// The limits of shared memory that kernels were given, a device.
struct Limits {
  std::mutex mutex;
  std::map<std::pair<const void*, int32_t>, int64_t> shared;
  int64_t set = 0;
};
Limits& KernelLimits() {
  static Limits limits;
  return limits;
}
thread_local int32_t current_device = 0;

}  // namespace

int64_t LimitOf(const void* kernel) {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  const auto at = limits.shared.find({kernel, current_device});
  return at == limits.shared.end() ? kSharedByDefault : at->second;
}

Status CurrentDevice(int32_t* device) {
  *device = current_device;
  return kOk;
}
void SetDevice(int32_t device) { current_device = device; }

Status LargestShared(const void*, int32_t, int64_t* bytes) {
  *bytes = DeviceLimits().shared_per_block;
  return kOk;
}

Status SetSharedLimit(const void* kernel, int64_t bytes) {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  limits.shared[{kernel, current_device}] = bytes;
  ++limits.set;
  return kOk;
}

int64_t SharedLimitsSet() {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  return limits.set;
}

}  // namespace emulator
}  // namespace cuda
}  // namespace graft
