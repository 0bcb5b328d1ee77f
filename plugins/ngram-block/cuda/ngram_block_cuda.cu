// The operator NGramBlock on a GPU: the signature of the CPU variant over kernels-cuda.
//
// Tokens, lengths and parents stay on the device, so nothing about them can be an error here: what
// is out of range is not followed (see the README).
#include "../signature.h"
#include "graft/cuda.h"
#include "ngram-block/copy.cuh"
#include "ngram-block/index.cuh"
#include "ngram-block/scan.cuh"

namespace graft {
namespace ngram {
namespace {

namespace device = cuda::ngram_block;

class NGramBlockCuda : public NGramBlockBase {
 public:
  using NGramBlockBase::NGramBlockBase;

  void Run(const RunContext& context) const {
    const Tensor scores = context.inputs[kScores], tokens = context.inputs[kTokens];
    const Tensor lengths = context.inputs[kLengths], memory = context.inputs[kIndex];
    const Tensor parents = context.inputs[kParents];
    const MutableTensor output = context.outputs[0];
    const Size vocab = scores.dim(-1), count = tokens.dim(0);
    Require(scores.elements() == count * vocab, "NGramBlock: scores have ", scores.elements(),
            " elements, needed are ", count, " rows of ", vocab);
    Require(!lengths.present() || lengths.elements() == count,
            "NGramBlock: lengths are not one a row");
    device::Rows rows;
    rows.tokens = tokens.raw();
    rows.wide_tokens = tokens.type() == kInt64;
    rows.stride = rows.columns = tokens.dim(1);
    rows.rows = count;
    rows.lengths = lengths.present() ? lengths.raw() : nullptr;
    rows.wide_lengths = lengths.present() && lengths.type() == kInt64;
    rows.pad = pad_;
    const device::Scores to{output.raw(), cuda::KernelType(scores.type()), vocab, vocab};

    device::IndexView index;
    if (memory.present()) {
      Require(pad_ < 0, "NGramBlock: pad_token_id is ", pad_,
              " beside an index, whose rows have no pads; give lengths");
      Require(parents.present() && parents.elements() == count,
              "NGramBlock: an index needs parents, one a row");
      // The index is memory that the host lends for writing, like a cache.
      Require(device::MakeIndexView(const_cast<void*>(memory.raw()), memory.elements(), n_, &index),
              "the n-gram index has ", memory.elements(), " bytes; needed are ",
              device::kIndexLeastBytes, " to 2^34, from an address that is a multiple of ",
              device::kIndexAlignment);
    } else {
      Require(!parents.present(),
              "NGramBlock: parents are given without an index; give both or neither");
    }
    const cuda::DeviceLimits& limits = cuda::Limits();
    const cuda::Stream stream = cuda::StreamOf(context);
    cuda::RequireCountable("NGramBlock", {count, vocab});
    cuda::RequireCountable("NGramBlock", {count, rows.columns});
    const int64_t bytes = count * vocab * cuda::BytesOf(to.type);
    // Eight blocks a multiprocessor hide the latency of memory.
    cuda::Check(device::CopyScores(scores.raw(), output.raw(), bytes,
                                   int64_t{limits.multiprocessors} * 8, stream),
                "NGramBlock");
    if (count == 0) return;
    if (memory.present()) {
      const device::IndexPlan plan = device::PlanIndex(count, rows.columns);
      const device::Step step{rows, parents.data<int32_t>(), vocab};
      cuda::Check(device::AdvanceIndex(index, step, plan, stream), "NGramBlock");
      return cuda::Check(device::BanFromIndex(index, to, count, plan, stream), "NGramBlock");
    }
    if (rows.columns < n_) return;  // no row is as long as one n-gram
    const device::ScanPlan plan =
        device::PlanScan(count, rows.columns, n_, rows.wide_tokens, limits);
    cuda::Check(device::BanByScan(to, rows, n_, plan, stream), "NGramBlock");
  }
};

}  // namespace
}  // namespace ngram
}  // namespace graft

GRAFT_PLUGIN_WITH(graft::cuda::Hooks, graft::ngram::NGramBlockCuda);
