// Whether a CUDA library can run on a device, judged from what was found: without CUDA's headers,
// so that every answer is tested on any machine.
#ifndef GRAFT_KIT_CUDA_PROBE_H_
#define GRAFT_KIT_CUDA_PROBE_H_

#include <cstdint>
#include <string>

#include "graft/error.h"

namespace graft::cuda {

// The least that graft's CUDA libraries run on.
inline constexpr int32_t kNeededDriver = 13000;  // as CUDA counts: 13.0
inline constexpr const char* kNeededRelease = "580";
inline constexpr int32_t kNeededMajor = 8;  // compute capability 8.0

// What a machine has.
struct Found {
  int32_t driver = 0;   // newest CUDA that the driver supports, 13000 for 13.0; 0: no driver
  int32_t devices = 0;  // that the driver shows
  int32_t major = 0, minor = 0;  // compute capability of the device asked for
  std::string problem;           // what the driver says when it does not start or answer
};

// A score as graft_plugin.probe gives it, for device `id`; 0 with what was found, what is needed
// and the fix in *reason.
inline int32_t Judge(const Found& found, int32_t id, std::string* reason) {
  const auto version = [](int32_t cuda) { return Text(cuda / 1000, ".", cuda % 1000 / 10); };
  const std::string other = ", or use the plugin's CPU variant";
  if (found.driver == 0) {
    *reason = Text("found no NVIDIA driver (libcuda.so.1), need release ", kNeededRelease,
                   " or later; install one, or mount the host's into the container", other);
  } else if (found.driver < kNeededDriver) {
    *reason = Text("found an NVIDIA driver for CUDA ", version(found.driver), ", need CUDA ",
                   version(kNeededDriver), "; install driver release ", kNeededRelease, " or later",
                   other);
  } else if (!found.problem.empty()) {
    *reason = Text("found an NVIDIA driver for CUDA ", version(found.driver),
                   " that does not answer: ", found.problem, "; see what nvidia-smi says", other);
  } else if (id < 0 || id >= found.devices) {
    *reason = Text("found ", found.devices, " CUDA devices, need number ", id,
                   " counted from 0; see nvidia-smi -L and CUDA_VISIBLE_DEVICES", other);
  } else if (found.major < kNeededMajor) {
    *reason = Text("found compute capability ", found.major, ".", found.minor, " on device ", id,
                   ", need ", kNeededMajor, ".0 or later (Ampere); choose another device", other);
  } else {
    return 50;
  }
  return 0;
}

}  // namespace graft::cuda

#endif  // GRAFT_KIT_CUDA_PROBE_H_
