// What a CUDA library says of machines: scores and words, without a GPU.
#include "graft/cuda_probe.h"

#include <gtest/gtest.h>

#include <string>

namespace graft::cuda {
namespace {

std::string Reason(const Found& found, int32_t id) {
  std::string reason;
  const int32_t score = Judge(found, id, &reason);
  EXPECT_EQ(score == 0, !reason.empty());
  return score > 0 ? "supported" : reason;
}

Found With(int32_t driver, int32_t devices, int32_t major, int32_t minor,
           const std::string& problem = "") {
  Found found;
  found.driver = driver;
  found.devices = devices;
  found.major = major;
  found.minor = minor;
  found.problem = problem;
  return found;
}

const std::string kOther = ", or use the plugin's CPU variant";

TEST(CudaProbe, DevicesOfUse) {
  EXPECT_EQ(Reason(With(13000, 1, 8, 0), 0), "supported");
  EXPECT_EQ(Reason(With(13000, 1, 8, 9), 0), "supported");
  EXPECT_EQ(Reason(With(13020, 8, 9, 0), 7), "supported");
  EXPECT_EQ(Reason(With(14000, 1, 12, 1), 0), "supported");
}

TEST(CudaProbe, NoDriver) {
  EXPECT_EQ(Reason(With(0, 0, 0, 0), 0),
            "found no NVIDIA driver (libcuda.so.1), need release 580 or later; install one, or "
            "mount the host's into the container" +
                kOther);
}

TEST(CudaProbe, OldDriver) {
  EXPECT_EQ(Reason(With(12090, 1, 9, 0), 0),
            "found an NVIDIA driver for CUDA 12.9, need CUDA 13.0; install driver release 580 or "
            "later" +
                kOther);
}

TEST(CudaProbe, DriverThatDoesNotAnswer) {
  EXPECT_EQ(Reason(With(13000, 1, 9, 0, "cudaErrorUnknown: unknown error"), 0),
            "found an NVIDIA driver for CUDA 13.0 that does not answer: cudaErrorUnknown: unknown "
            "error; see what nvidia-smi says" +
                kOther);
}

TEST(CudaProbe, NoSuchDevice) {
  for (const int32_t id : {-1, 2}) {
    EXPECT_EQ(Reason(With(13000, 2, 9, 0), id),
              "found 2 CUDA devices, need number " + std::to_string(id) +
                  " counted from 0; see nvidia-smi -L and CUDA_VISIBLE_DEVICES" + kOther);
  }
}

TEST(CudaProbe, OldDevice) {
  EXPECT_EQ(Reason(With(13000, 2, 7, 5), 1),
            "found compute capability 7.5 on device 1, need 8.0 or later (Ampere); choose another "
            "device" +
                kOther);
}

}  // namespace
}  // namespace graft::cuda
