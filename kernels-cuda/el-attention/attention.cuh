// Attention over shared rows, enqueued as its plan says.
#ifndef GRAFT_KERNELS_CUDA_EL_ATTENTION_ATTENTION_CUH_
#define GRAFT_KERNELS_CUDA_EL_ATTENTION_ATTENTION_CUH_

#include "../device/launch.cuh"
#include "cluster.cuh"
#include "parts.cuh"
#include "plan.h"
#include "simple.cuh"

namespace graft {
namespace cuda {
namespace el_attention {

template <typename T>
Status EnqueueSimple(const Problem& p, const Plan& plan, const Parts& parts, Stream stream) {
  const auto kernel =
      plan.simple_cut.heads == 1 ? &SimpleKernel<T, 1> : &SimpleKernel<T, kSimpleHeads>;
  return Launch(kernel, plan.simple_shape, stream, p, parts, plan.simple_cut, plan.cluster);
}

template <typename T>
Status EnqueueCluster(const Problem& p, const Plan& plan, const Parts& parts, Stream stream) {
  const ClusterCut& cut = plan.cluster_cut;
  const auto launch = [&](auto kernel) {
    return Launch(kernel, plan.cluster_shape, stream, p, parts, cut);
  };
  switch (cut.warp_columns) {
    case 16:
      return launch(&ClusterKernel<T, 16>);
    case 48:
      return launch(&ClusterKernel<T, 48>);
    case 64:
      return launch(&ClusterKernel<T, 64>);
    case 80:
      return launch(&ClusterKernel<T, 80>);
    default:
      return kBadLaunch;
  }
}

template <typename T>
Status EnqueueAs(const Problem& p, const Plan& plan, void* workspace, Stream stream) {
  const int64_t rows = int64_t{p.tokens} * p.heads;
  Parts parts;
  parts.count = plan.parts;
  parts.rows = static_cast<float*>(workspace);
  parts.lse = parts.rows + plan.parts * rows * p.rows.width;
  Status status = kOk;
  if (plan.cluster) {
    if constexpr (sizeof(T) == 2) status = EnqueueCluster<T>(p, plan, parts, stream);
    parts.first = plan.cluster_cut.parts;
  }
  if (status == kOk && plan.simple) status = EnqueueSimple<T>(p, plan, parts, stream);
  if (status != kOk || plan.parts == 1) return status;
  LaunchShape shape;
  shape.grid_x = rows;
  shape.threads = kMergeThreads;
  return Launch(&MergeKernel<T>, shape, stream, p, parts);
}

// `workspace` holds plan.workspace bytes, 16-byte aligned. Nothing is read from device memory here.
inline Status Enqueue(const Problem& p, const Plan& plan, void* workspace, Stream stream) {
  if (!plan.legal) return kBadLaunch;
  if (p.tokens == 0 || p.heads == 0) return kOk;
  switch (p.rows.type) {
    case Type::kFloat32:
      return EnqueueAs<float>(p, plan, workspace, stream);
    case Type::kFloat16:
      return EnqueueAs<Half>(p, plan, workspace, stream);
    case Type::kBFloat16:
      return EnqueueAs<BFloat16>(p, plan, workspace, stream);
  }
  return kBadLaunch;
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_ATTENTION_CUH_
