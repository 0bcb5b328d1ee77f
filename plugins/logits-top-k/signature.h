// The signatures of the operators, the same for every device: their parameters, attributes and
// shapes.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_SIGNATURE_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graft.h"

namespace graft {
namespace top_k {

class LogitsTopKBase {
 public:
  enum Input : uint64_t {
    kScores,
    kGroups,
    kWarpers,
    kBias,
    kEditOffsets,
    kEditTokens,
    kEditOps,
    kEditValues,
    kRandomNumbers,
    kTokens,
    kParents,
    kIndex
  };
  static constexpr int64_t kGroupFields = 8, kWarperFields = 4;

  static Operator Describe() {
    return Operator("LogitsTopK", "candidates of a search from the scores of a decoding step")
        .TypeVariable("T", {kFloat32, kFloat16, kBFloat16})
        .Input("scores", "T")
        .OptionalInput("groups", kInt32)
        .OptionalInput("warpers", kFloat32)
        .OptionalInput("bias", kFloat32)
        .OptionalInput("edit_offsets", kInt32)
        .OptionalInput("edit_tokens", kInt32)
        .OptionalInput("edit_ops", kInt32)
        .OptionalInput("edit_values", kFloat32)
        .OptionalInput("random_numbers", kFloat32)
        .OptionalInput("tokens", kInt32)
        .OptionalInput("parents", kInt32)
        .OptionalInput("index", kUInt8)
        .Output("candidate_scores", kFloat32)
        .Output("candidate_rows", kInt32)
        .Output("candidate_tokens", kInt32)
        .OptionalOutput("fault", kInt32)
        .Int("k", 1)
        .String("mode", "log_probs")
        .Int("ngram_size", 0);
  }

  explicit LogitsTopKBase(const CreateContext& context)
      : k_(context.Int("k")), ngram_size_(context.Int("ngram_size")) {
    Require(k_ >= 1, "LogitsTopK: k is ", k_, ", needed is 1 or more");
    Require(ngram_size_ >= 0, "LogitsTopK: ngram_size is ", ngram_size_,
            ", needed is 0 (none) or more");
    const std::string mode = context.String("mode");
    Require(mode == "log_probs" || mode == "raw", "LogitsTopK: mode is ", mode,
            ", needed is log_probs or raw");
    raw_ = mode == "raw";
  }

  void Infer(InferContext& context) const {
    Require(context.InputRank(kScores) >= 2, "LogitsTopK: scores have rank ",
            context.InputRank(kScores), ", needed is rows by vocabulary");
    Dim count;
    if (context.HasInput(kGroups)) {
      Require(
          context.InputRank(kGroups) == 2 && Fits(context.InputDim(kGroups, 1), Dim(kGroupFields)),
          "LogitsTopK: groups are not [groups, ", kGroupFields, "]");
      count = context.InputDim(kGroups, 0);
    } else {
      count = context.InputDim(kScores, 0);
      for (int32_t axis = 1; axis + 1 < context.InputRank(kScores); ++axis) {
        count = count * context.InputDim(kScores, axis);
      }
    }
    context.SetOutput(0, kFloat32, {count, Dim(k_)});
    context.SetOutput(1, kInt32, {count, Dim(k_)});
    context.SetOutput(2, kInt32, {count, Dim(k_)});
    context.SetOutput(3, kInt32, {Dim(4)});
  }

 protected:
  int64_t k_;
  int64_t ngram_size_;
  bool raw_;  // the mode of rows that no group states
};

// LogSoftmax and TopK along the last axis, in one pass: the values and indices of ONNX's TopK.
class LogSoftmaxTopKBase {
 public:
  static Operator Describe() {
    return Operator("LogSoftmaxTopK", "the greatest log-probabilities along the last axis")
        .Input("x", kFloat32)
        .Input("k", kInt64)
        .Output("values", kFloat32)
        .Output("indices", kInt64);
  }

  explicit LogSoftmaxTopKBase(const CreateContext& context) {
    const Tensor k = context.Constant(1);
    if (!k.present() || k.elements() != 1) return;
    k_ = k.data<int64_t>()[0];
    Require(k_ >= 0, "LogSoftmaxTopK: k is ", k_, ", needed is 0 or more");
  }

  void Infer(InferContext& context) const {
    const int32_t rank = context.InputRank(0);
    Require(rank >= 1, "LogSoftmaxTopK: x is a scalar, needed is an axis");
    std::vector<Dim> dims;
    for (int32_t axis = 0; axis + 1 < rank; ++axis) dims.push_back(context.InputDim(0, axis));
    const Dim vocab = context.InputDim(0, -1);
    Require(!vocab.known() || k_ <= vocab.value(), "LogSoftmaxTopK: k is ", k_,
            ", the last axis has ", vocab.value());
    dims.push_back(k_ < 0 ? Dim() : Dim(k_));
    context.SetOutput(0, kFloat32, dims.data(), rank);
    context.SetOutput(1, kInt64, dims.data(), rank);
  }

 protected:
  int64_t k_ = -1;
};

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_SIGNATURE_H_
