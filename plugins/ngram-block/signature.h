// The signature of NGramBlock, the same for every device: its parameters, attributes and shapes.
#ifndef GRAFT_PLUGINS_NGRAM_BLOCK_SIGNATURE_H_
#define GRAFT_PLUGINS_NGRAM_BLOCK_SIGNATURE_H_

#include <cstdint>

#include "graft.h"

namespace graft {
namespace ngram {

class NGramBlockBase {
 public:
  enum Input : uint64_t { kScores, kTokens, kLengths, kParents, kIndex };

  // Where no other node reads the scores, bans are written into them, and nothing is copied.
  static constexpr InPlace kInPlace{kScores, 0};

  static Operator Describe() {
    return Operator("NGramBlock", "bans tokens that would repeat an n-gram of their row")
        .TypeVariable("T", {kFloat32, kFloat16, kBFloat16})
        .TypeVariable("I", {kInt32, kInt64})
        .Input("scores", "T")
        .Input("tokens", "I")
        .OptionalInput("lengths", {kInt32, kInt64})
        .OptionalInput("parents", kInt32)
        .OptionalInput("index", kUInt8)
        .Output("output", "T")
        .Int("ngram_size", 0)
        .Required()
        .Int("pad_token_id", -1);
  }

  explicit NGramBlockBase(const CreateContext& context)
      : n_(context.Int("ngram_size")), pad_(context.Int("pad_token_id")) {
    Require(n_ >= 1, "NGramBlock: ngram_size is ", n_, ", needed is 1 or more");
  }

  void Infer(InferContext& context) const {
    Require(context.InputRank(kScores) >= 2, "NGramBlock: scores have rank ",
            context.InputRank(kScores), ", needed is rows by vocabulary");
    Require(context.InputRank(kTokens) == 2, "NGramBlock: tokens have rank ",
            context.InputRank(kTokens), ", needed is rows by length");
    context.SetOutputLike(0, kScores);
  }

 protected:
  int64_t n_;
  int64_t pad_;
};

}  // namespace ngram
}  // namespace graft

#endif  // GRAFT_PLUGINS_NGRAM_BLOCK_SIGNATURE_H_
