// The operators of flash-decode on a GPU: the signatures of the CPU variant over kernels-cuda.
//
// Lists, lengths and slots stay on the device. Launches are planned from shapes, and an index out
// of range is not followed: such a key is not there, such a slot is not written.
#include "../cached_attention.h"
#include "../flash_decode.h"
#include "flash-decode/flash_decode.cuh"
#include "flash_decode_cuda.h"
#include "graft/cuda.h"

namespace graft {
namespace attention {
namespace {

const std::vector<DataType> kTypes = {kFloat32, kFloat16, kBFloat16};

// Blocks of a launch that only copies: eight a multiprocessor hide the latency of memory.
int64_t CopyBlocks() { return int64_t{cuda::Limits().multiprocessors} * 8; }

// A launch for the problem, whose sizes it can be planned from.
fd::Plan PlanOf(const char* name, const fd::Problem& p) {
  const Size keys = Size(p.keys) + p.shared_length + p.private_length;
  cuda::RequireCountable(name, {p.groups, p.rows, p.heads, Size(p.head_size) + p.value_size});
  cuda::RequireCountable(name, {p.groups, p.rows, p.heads, keys});
  return fd::MakePlan(p, cuda::Limits());
}
// The same of a copy.
fd::StoreProblem Copyable(const char* name, const fd::StoreProblem& p) {
  for (const fd::Copied& c : p.tensors) {
    cuda::RequireCountable(name, {p.batch, p.positions, p.heads, c.size});
  }
  return p;
}

class FlashDecodeCuda : public FlashDecodeBase {
 public:
  static Operator Describe() { return FlashDecodeBase::Describe(kTypes); }

  using FlashDecodeBase::FlashDecodeBase;

  uint64_t Workspace(const WorkspaceContext& context) const {
    const cuda::Type type = cuda::KernelType(context.inputs[kQuery].type());
    const fd::Problem d = DeviceProblem(Bind(context.inputs, context.outputs), type);
    return static_cast<uint64_t>(PlanOf("FlashDecode", d).workspace_bytes);
  }

  void Run(const RunContext& context) const {
    const Problem problem = Bind(context.inputs, context.outputs);
    if (const char* fault = Validate(problem)) {
      throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text("FlashDecode: ", fault));
    }
    const cuda::Type type = cuda::KernelType(context.inputs[kQuery].type());
    const cuda::Stream stream = cuda::StreamOf(context);
    for (const bool past : {true, false}) {
      const fd::StoreProblem present = Copyable("FlashDecode", PresentOf(problem, type, past));
      if (present.tensors[0].to.data == nullptr && present.tensors[1].to.data == nullptr) continue;
      cuda::Check(fd::Store(present, CopyBlocks(), stream), "FlashDecode");
    }
    const fd::Problem d = DeviceProblem(problem, type);
    const fd::Plan plan = PlanOf("FlashDecode", d);
    cuda::Check(fd::Run(d, plan, context.workspace(), stream), "FlashDecode");
  }
};

class CachedAttentionCuda : public CachedAttentionBase {
 public:
  static Operator Describe() { return CachedAttentionBase::Describe("T", kTypes); }

  // A pool has the type of the tensor that it is.
  explicit CachedAttentionCuda(const CreateContext& context) : CachedAttentionBase(context) {
    RequireOnDevice("CachedAttention", "storage", storage_, false);
  }

  uint64_t Workspace(const WorkspaceContext& context) const {
    const cuda::Type type = cuda::KernelType(context.inputs[kQuery].type());
    const fd::Problem d = DeviceProblem(Bind(context.inputs), type);
    return static_cast<uint64_t>(PlanOf("CachedAttention", d).workspace_bytes);
  }

  void Run(const RunContext& context) const {
    CachedProblem problem = Bind(context.inputs);
    problem.output = static_cast<float*>(context.outputs[0].raw());
    const cuda::Type type = cuda::KernelType(context.inputs[kQuery].type());
    const cuda::Stream stream = cuda::StreamOf(context);
    if (problem.key != nullptr) {
      cuda::Check(
          fd::Store(Copyable("CachedAttention", StoreOf(problem, type)), CopyBlocks(), stream),
          "CachedAttention");
    }
    const fd::Problem d = DeviceProblem(problem, type);
    const fd::Plan plan = PlanOf("CachedAttention", d);
    cuda::Check(fd::Run(d, plan, context.workspace(), stream), "CachedAttention");
  }
};

class StoreCacheCuda : public StoreCacheBase {
 public:
  static Operator Describe() { return StoreCacheBase::Describe("T", kTypes); }

  explicit StoreCacheCuda(const CreateContext& context) : StoreCacheBase(context) {
    RequireOnDevice("StoreCache", "storage", storage_, false);
  }

  void Run(const RunContext& context) const {
    const StoreProblem problem = Bind(context.inputs);
    const cuda::Type type = cuda::KernelType(context.inputs[0].type());
    const cuda::Stream stream = cuda::StreamOf(context);
    cuda::Check(fd::Store(Copyable("StoreCache", StoreOf(problem, type)), CopyBlocks(), stream),
                "StoreCache");
    cuda::Check(fd::CountStored(problem.slot_mapping, Size(problem.batch) * problem.positions,
                                problem.pool.slots(), context.outputs[0].data<int32_t>(), stream),
                "StoreCache");
  }
};

}  // namespace
}  // namespace attention
}  // namespace graft

GRAFT_PLUGIN_WITH(graft::cuda::Hooks, graft::attention::FlashDecodeCuda,
                  graft::ForEngine<graft::attention::CachedAttentionCuda>,
                  graft::ForEngine<graft::attention::StoreCacheCuda>);
