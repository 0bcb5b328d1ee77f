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

// Launches that stand right before and after a call's, on the same stream.
struct Neighbours {
  bool before = false;  // the one before is followed: the first of the call is dependent
  bool after = false;   // the one after is dependent: the last of the call is followed
};

// The launches of one call, one after the other, each dependent on the one before where the device
// knows that.
class Chain {
 public:
  Chain(const Plan& plan, Neighbours neighbours)
      : plan_(plan), neighbours_(neighbours), left_(plan.launches()) {}

  LaunchShape Next(LaunchShape shape) {
    shape.dependent = first_ ? neighbours_.before : plan_.chained;
    shape.followed = --left_ == 0 ? neighbours_.after : plan_.chained;
    first_ = false;
    return shape;
  }

 private:
  const Plan& plan_;
  const Neighbours neighbours_;
  int32_t left_;
  bool first_ = true;
};

template <typename T>
Status EnqueueSimple(const Problem& p, const Plan& plan, const Parts& parts,
                     const LaunchShape& shape, Stream stream) {
  const auto kernel =
      plan.simple_cut.heads == 1 ? &SimpleKernel<T, 1> : &SimpleKernel<T, kSimpleHeads>;
  return Launch(kernel, shape, stream, p, parts, plan.simple_cut, plan.cluster);
}

template <typename T>
Status EnqueueCluster(const Problem& p, const Plan& plan, const Parts& parts,
                      const LaunchShape& shape, Stream stream) {
  const ClusterCut& cut = plan.cluster_cut;
  const auto launch = [&](auto kernel) { return Launch(kernel, shape, stream, p, parts, cut); };
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
Status EnqueueAs(const Problem& p, const Plan& plan, void* workspace, Stream stream,
                 Neighbours neighbours) {
  const int64_t rows = int64_t{p.tokens} * p.heads;
  Chain chain(plan, neighbours);
  Parts parts;
  parts.count = plan.parts;
  parts.rows = static_cast<float*>(workspace);
  parts.lse = parts.rows + plan.parts * rows * p.rows.width;
  Status status = kOk;
  if (plan.cluster) {
    const LaunchShape shape = chain.Next(plan.cluster_shape);
    if constexpr (sizeof(T) == 2) status = EnqueueCluster<T>(p, plan, parts, shape, stream);
    parts.first = plan.cluster_cut.parts;
  }
  if (status == kOk && plan.simple) {
    status = EnqueueSimple<T>(p, plan, parts, chain.Next(plan.simple_shape), stream);
  }
  if (status != kOk || plan.parts == 1) return status;
  LaunchShape shape;
  shape.grid_x = rows;
  shape.threads = kMergeThreads;
  return Launch(&MergeKernel<T>, chain.Next(shape), stream, p, parts);
}

// `workspace` holds plan.workspace bytes, 16-byte aligned. Nothing is read from device memory here.
inline Status Enqueue(const Problem& p, const Plan& plan, void* workspace, Stream stream,
                      Neighbours neighbours = Neighbours()) {
  if (p.tokens == 0 || p.heads == 0) return kOk;
  if (!plan.legal) return kBadLaunch;
  switch (p.rows.type) {
    case Type::kFloat32:
      return EnqueueAs<float>(p, plan, workspace, stream, neighbours);
    case Type::kFloat16:
      return EnqueueAs<Half>(p, plan, workspace, stream, neighbours);
    case Type::kBFloat16:
      return EnqueueAs<BFloat16>(p, plan, workspace, stream, neighbours);
  }
  return kBadLaunch;
}

}  // namespace el_attention
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EL_ATTENTION_ATTENTION_CUH_
