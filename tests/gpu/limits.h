// What memory of the device can do at most.
#ifndef GRAFT_TESTS_GPU_LIMITS_H_
#define GRAFT_TESTS_GPU_LIMITS_H_

#include <cstdint>

#include "clock.h"

namespace graft {
namespace gpu {

// GB/s of a copy of `bytes` within the device, read and written bytes both counted: the faster of
// the runtime's copy and a kernel's, each the median of 21. 0 on the emulator.
double CopyBandwidth(const Facts& facts, int64_t bytes);

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_LIMITS_H_
