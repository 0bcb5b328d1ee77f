// The operators LogitsTopK and LogSoftmaxTopK on a GPU: the signatures of the CPU variants over
// kernels-cuda.
//
// What groups, edits, tokens and parents hold stays on the device: where it contradicts itself, a
// group is reported as a fault of kind 3 and has no candidates (see the README).
#include "../signature.h"
#include "graft/cuda.h"
#include "logits-top-k/top_k.cuh"
#include "ngram-block/index.cuh"

namespace graft {
namespace top_k {
namespace {

namespace device = cuda::logits_top_k;
namespace ngram = cuda::ngram_block;

// The elements of an input that must have `count` of them, or nullptr where it is absent.
template <typename T>
const T* Elements(Tensor tensor, const char* name, Size count) {
  if (!tensor.present()) return nullptr;
  Require(tensor.elements() == count, "LogitsTopK: ", name, " has ", tensor.elements(),
          " elements, needed are ", count);
  return tensor.data<T>();
}

int64_t Count(Tensor tensor) { return tensor.present() ? tensor.elements() : 0; }

class LogitsTopKCuda : public LogitsTopKBase {
 public:
  using LogitsTopKBase::LogitsTopKBase;

  uint64_t Workspace(const WorkspaceContext& context) const {
    const device::Problem problem = Bind(context.inputs);
    const Size faults = Size(problem.count) * device::kFaultFields * 4;
    const device::TopKPlan plan = PlanOf(context.inputs, problem, context.outputs[0].dim(1));
    return (faults + plan.workspace).To<uint64_t>();
  }

  void Run(const RunContext& context) const {
    device::Problem problem = Bind(context.inputs);
    const cuda::Stream stream = cuda::StreamOf(context);
    const device::TopKPlan plan = PlanOf(context.inputs, problem, context.outputs[0].dim(1));
    if (ngram_size_ > 0) Advance(context.inputs, &problem, stream);
    auto* faults = reinterpret_cast<int32_t*>(static_cast<unsigned char*>(context.workspace()) +
                                              plan.workspace);
    device::Outputs outputs;
    outputs.scores = context.outputs[0].data<float>();
    outputs.rows = context.outputs[1].data<int32_t>();
    outputs.tokens = context.outputs[2].data<int32_t>();
    outputs.width = context.outputs[0].dim(1);
    outputs.faults = faults;
    cuda::Check(device::TakeTopK(problem, outputs, plan, context.workspace(), stream),
                "LogitsTopK");
    const MutableTensor told = context.outputs[3];
    if (!told.present()) return;
    cuda::Check(device::FirstFault(faults, problem.count, told.data<int32_t>(), stream),
                "LogitsTopK");
  }

 private:
  device::Problem Bind(const Tensors& inputs) const {
    const Tensor scores = inputs[kScores], groups = inputs[kGroups];
    device::Problem p;
    p.scores = scores.raw();
    p.type = cuda::KernelType(scores.type());
    p.vocab = p.stride = scores.dim(-1);
    p.rows = ElementsOf(scores.shape(), scores.rank() - 1);
    Require(p.vocab >= 1, "the scores have ", p.vocab, " tokens a row, needed is 1");
    p.count = p.rows;
    p.k = Size(k_).To<int32_t>();
    p.mode = raw_ ? device::kRaw : device::kLogProbs;
    if (groups.present()) {
      p.count = groups.dim(0);
      p.groups = groups.data<int32_t>();
      p.warpers = Elements<float>(inputs[kWarpers], "warpers", Size(p.count) * kWarperFields);
      p.num_random_numbers = Count(inputs[kRandomNumbers]);
      if (p.num_random_numbers > 0) p.random_numbers = inputs[kRandomNumbers].data<float>();
    }
    p.bias = Elements<float>(inputs[kBias], "bias", p.rows);
    p.num_edits = Count(inputs[kEditTokens]);
    p.edit_offsets = Elements<int32_t>(inputs[kEditOffsets], "edit_offsets", Size(p.rows) + 1);
    p.edit_tokens = Elements<int32_t>(inputs[kEditTokens], "edit_tokens", p.num_edits);
    p.edit_ops = Elements<int32_t>(inputs[kEditOps], "edit_ops", p.num_edits);
    p.edit_values = Elements<float>(inputs[kEditValues], "edit_values", p.num_edits);
    const bool any = p.edit_offsets != nullptr;
    const bool all = p.edit_tokens != nullptr && p.edit_ops != nullptr && p.edit_values != nullptr;
    Require(any ? all : p.num_edits == 0,
            "LogitsTopK: edit_offsets, edit_tokens, edit_ops and edit_values belong together");
    return p;
  }

  device::TopKPlan PlanOf(const Tensors& inputs, const device::Problem& problem,
                          int64_t width) const {
    cuda::RequireCountable("LogitsTopK", {problem.rows, Size(problem.vocab) + 1});
    cuda::RequireCountable("LogitsTopK", {problem.count, width});
    device::Shape shape;
    shape.rows = problem.rows;
    shape.vocab = problem.vocab;
    shape.groups = problem.count;
    // How many rows a group has stands on the device; most often it is the same for all.
    shape.group_rows = problem.count > 0 ? cuda::CeilDivide(problem.rows, problem.count) : 1;
    shape.width = width;
    shape.samples = inputs[kRandomNumbers].present();
    shape.named = problem.edit_offsets != nullptr || ngram_size_ > 0;
    shape.type = problem.type;
    return device::PlanTopK(shape, cuda::Limits());
  }

  // Grows the index of n-grams by this step's tokens.
  void Advance(const Tensors& inputs, device::Problem* problem, cuda::Stream stream) const {
    const Tensor tokens = inputs[kTokens], memory = inputs[kIndex];
    const auto* parents = Elements<int32_t>(inputs[kParents], "parents", problem->rows);
    Require(memory.present() && parents != nullptr && tokens.present() && tokens.rank() == 2 &&
                tokens.dim(0) == problem->rows,
            "LogitsTopK: ngram_size needs tokens [rows, new], parents [rows] and an index");
    // The index is memory that the host lends for writing, like a cache.
    Require(ngram::MakeIndexView(const_cast<void*>(memory.raw()), memory.elements(), ngram_size_,
                                 &problem->index),
            "the n-gram index has ", memory.elements(), " bytes; needed are ",
            ngram::kIndexLeastBytes, " to 2^34, from an address that is a multiple of ",
            ngram::kIndexAlignment);
    ngram::Step step;
    step.rows.tokens = tokens.raw();
    step.rows.stride = step.rows.columns = tokens.dim(1);
    step.rows.rows = problem->rows;
    step.parents = parents;
    step.vocab = problem->vocab;
    cuda::RequireCountable("LogitsTopK", {problem->rows, step.rows.columns});
    const ngram::IndexPlan plan = ngram::PlanIndex(problem->rows, step.rows.columns);
    cuda::Check(ngram::AdvanceIndex(problem->index, step, plan, stream), "LogitsTopK");
  }
};

class LogSoftmaxTopKCuda : public LogSoftmaxTopKBase {
 public:
  using LogSoftmaxTopKBase::LogSoftmaxTopKBase;

  uint64_t Workspace(const WorkspaceContext& context) const {
    const Tensor x = context.inputs[0];
    const int64_t k = context.outputs[0].dim(-1);
    const int64_t rows = x.dim(-1) == 0 ? 0 : x.elements() / x.dim(-1);
    if (rows == 0 || k == 0) return 0;
    return static_cast<uint64_t>(device::TopKWorkspace(PlanOf(rows, x.dim(-1), k), rows, k));
  }

  // k is what the shape of the outputs says: the input may lie on the device.
  void Run(const RunContext& context) const {
    const Tensor x = context.inputs[0];
    const int64_t vocab = x.dim(-1), k = context.outputs[0].dim(-1);
    if (k == 0 || x.elements() == 0) return;
    const int64_t rows = x.elements() / vocab;
    Require(k <= vocab, "LogSoftmaxTopK: k is ", k, ", the last axis has ", vocab);
    cuda::Check(
        device::LogSoftmaxTopK(x.data<float>(), rows, vocab, k, context.outputs[0].data<float>(),
                               context.outputs[1].data<int64_t>(), PlanOf(rows, vocab, k),
                               context.workspace(), cuda::StreamOf(context)),
        "LogSoftmaxTopK");
  }

 private:
  static device::TopKPlan PlanOf(int64_t rows, int64_t vocab, int64_t k) {
    cuda::RequireCountable("LogSoftmaxTopK", {rows, Size(vocab) + 1});
    device::Shape shape;
    shape.rows = shape.groups = rows;
    shape.vocab = vocab;
    shape.width = k;
    return device::PlanTopK(shape, cuda::Limits());
  }
};

}  // namespace
}  // namespace top_k
}  // namespace graft

GRAFT_PLUGIN_WITH(graft::cuda::Hooks, graft::ForEngine<graft::top_k::LogitsTopKCuda>,
                  graft::top_k::LogSoftmaxTopKCuda);
