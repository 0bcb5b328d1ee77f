// What CUDA variants share: whether a device is supported, its limits, a run's stream, and errors.
//
//   GRAFT_PLUGIN_WITH(graft::cuda::Hooks, MyOp);
//
// and in MyOp::Run: enqueue on StreamOf(context), check what the launch said, return:
//
//   Check(Launch(kernel, shape, StreamOf(context), ...), "MyOp");
//
// Limits() is what the device allows. A library so made loads on any machine: the runtime inside of
// it opens the driver at the first call. Built by another compiler than nvcc, the same source is a
// library for the emulator of kernels-cuda.
#ifndef GRAFT_KIT_CUDA_H_
#define GRAFT_KIT_CUDA_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "device/launch.h"
#include "device/number.h"
#include "graft.h"
#include "graft/countable.h"
#include "graft/cuda_probe.h"
#if defined(GRAFT_PLUGIN_CUDA)
#include "graft/cuda_device.h"
#else
#include "graft/cuda_emulated.h"
#endif

namespace graft {

// Views of tensors as what kernels take: tensor.data<graft::cuda::Half>().
template <>
struct TypeOf<cuda::Half> {
  static constexpr DataType value = kFloat16;
};
template <>
struct TypeOf<cuda::BFloat16> {
  static constexpr DataType value = kBFloat16;
};

namespace cuda {

// Throws graft::Error unless a launch of kernels-cuda went well. `kernel` names it.
inline void Check(Status status, const char* kernel) {
  if (status == kBadLaunch) {
    throw Error(GRAFT_ERROR_INTERNAL,
                Text(kernel, ": planned a launch that no device takes; report this"));
  }
  CheckDevice(status, kernel);
}

// Where a run enqueues its work.
inline Stream StreamOf(const RunContext& context) { return static_cast<Stream>(context.stream()); }

// The type as kernels name it; throws where they have none.
inline Type KernelType(DataType type) {
  if (type == kFloat32) return Type::kFloat32;
  if (type == kFloat16) return Type::kFloat16;
  Require(type == kBFloat16, "found element type ", type, ", need float, float16 or bfloat16");
  return Type::kBFloat16;
}

// The hooks of a CUDA plugin that folds nothing; one that does derives from it and adds Fold.
struct Hooks {
  static int32_t Probe(const graft_device& device, std::string* reason) {
    return Judge(Look(device.id), device.id, reason);
  }
};

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KIT_CUDA_H_
