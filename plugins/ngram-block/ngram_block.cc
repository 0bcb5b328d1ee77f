// The operator NGramBlock: scores with minus infinity where a token would repeat an n-gram of its
// row. Stateless over whole rows of tokens, or over new tokens and an index of the host's.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "graft.h"
#include "index.h"
#include "scan.h"
#include "signature.h"

namespace {

namespace ngram = graft::ngram;

class NGramBlock : public ngram::NGramBlockBase {
 public:
  explicit NGramBlock(const graft::CreateContext& context)
      : NGramBlockBase(context), scanner_(*ngram::FindScanner(graft::Isa::kBest)) {}

  void Run(const graft::RunContext& context) const {
    const graft::Tensor tokens = context.inputs[kTokens];
    if (tokens.type() == graft::kInt32) {
      RunOn<int32_t>(context, tokens);
    } else {
      RunOn<int64_t>(context, tokens);
    }
  }

 private:
  // The part of each row that counts.
  template <typename T>
  struct Rows {
    const T* tokens;
    int64_t stride;
    graft::Tensor lengths;
    int64_t pad;

    int64_t Length(int64_t row) const {
      if (!lengths.present()) return stride;
      return lengths.type() == graft::kInt32 ? lengths.data<int32_t>()[row]
                                             : lengths.data<int64_t>()[row];
    }
    // [first, last) without the pads at either end.
    void Trim(int64_t row, int64_t* first, int64_t* last) const {
      *first = 0;
      *last = Length(row);
      if (pad < 0) return;
      const T* at = tokens + row * stride;
      while (*first < *last && at[*first] == pad) ++*first;
      while (*first < *last && at[*last - 1] == pad) --*last;
    }
  };

  template <typename T>
  void RunOn(const graft::RunContext& context, graft::Tensor tokens) const {
    const graft::Tensor scores = context.inputs[kScores];
    const graft::MutableTensor output = context.outputs[0];
    const graft::Size vocab = scores.dim(-1), rows = tokens.dim(0);
    graft::Require(scores.elements() == rows * vocab, "NGramBlock: scores have ", scores.elements(),
                   " elements, needed are ", rows, " rows of ", vocab);
    const Rows<T> input{tokens.data<T>(), tokens.dim(1), context.inputs[kLengths], pad_};
    Check(input, rows, vocab);

    const graft::Tensor index_memory = context.inputs[kIndex];
    if (!index_memory.present()) {
      graft::Require(!context.inputs[kParents].present(),
                     "NGramBlock: parents are given without an index; give both or neither");
      return ForRows(context, scores, output, rows, [&](int64_t row, const auto& ban) {
        int64_t first, last;
        input.Trim(row, &first, &last);
        ngram::ForEachRepeat(scanner_, input.tokens + row * input.stride + first, last - first, n_,
                             ban);
      });
    }
    graft::Require(pad_ < 0, "NGramBlock: pad_token_id is ", pad_,
                   " beside an index, whose rows have no pads; give lengths");
    const graft::Tensor parents = context.inputs[kParents];
    graft::Require(parents.present() && parents.elements() == rows,
                   "NGramBlock: an index needs parents, one a row");
    // The index is memory that the host lends for writing, like a cache.
    ngram::Index index(const_cast<void*>(index_memory.raw()), index_memory.elements(), n_);
    index.Advance(parents.data<int32_t>(), input.tokens, input.stride, rows,
                  [&](int64_t row) { return input.Length(row); });
    ForRows(context, scores, output, rows, [&](int64_t row, const auto& ban) {
      // Tokens of earlier steps were held against the vocabulary of that time.
      index.ForEachBanned(row, [&](int64_t token) {
        graft::Require(graft::HoldsIndex(vocab, token), "NGramBlock: row ", row, " holds token ",
                       token, ", the vocabulary has ", vocab);
        ban(token);
      });
    });
  }

  // Every token that counts is an id of the vocabulary, every length within its row.
  template <typename T>
  void Check(const Rows<T>& input, int64_t rows, int64_t vocab) const {
    graft::Require(!input.lengths.present() || input.lengths.elements() == rows,
                   "NGramBlock: lengths are not one a row");
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t length = input.Length(row);
      graft::Require(length >= 0 && length <= input.stride, "NGramBlock: row ", row, " has length ",
                     length, ", needed is 0 to ", input.stride);
      int64_t first, last;
      input.Trim(row, &first, &last);
      const T* at = input.tokens + graft::Size(row) * input.stride;
      const graft::Size outside = ngram::Outside(scanner_, &at[first], last - first, vocab);
      const int64_t bad = outside + first;
      if (bad < last) {
        throw graft::Error(GRAFT_ERROR_INVALID_ARGUMENT,
                           graft::Text("NGramBlock: row ", row, " holds token ", at[bad],
                                       " at position ", bad, ", the vocabulary has ", vocab));
      }
    }
  }

  // Copies scores and sets to minus infinity what for_banned(row, ban) names.
  template <typename ForBanned>
  void ForRows(const graft::RunContext& context, graft::Tensor scores, graft::MutableTensor output,
               int64_t rows, const ForBanned& for_banned) const {
    const auto element = static_cast<int64_t>(graft::BytesOf(scores.type()));
    const int64_t line_bytes = graft::Size(scores.dim(-1)) * element;
    const char* from = static_cast<const char*>(scores.raw());
    char* to = static_cast<char*>(output.raw());
    // Sign, exponent of ones, no fraction: the same bits for every type.
    const uint16_t narrow = scores.type() == graft::kFloat16 ? 0xfc00 : 0xff80;
    const uint32_t wide = 0xff800000;
    // About 40 microseconds of copying a task.
    const int64_t chunk =
        std::max<int64_t>(1, (int64_t{1} << 19) / std::max<int64_t>(1, line_bytes));
    context.ParallelFor(static_cast<uint64_t>((rows + chunk - 1) / chunk), [&](uint64_t task) {
      const int64_t begin = static_cast<int64_t>(task) * chunk;
      const int64_t end = std::min(rows, begin + chunk);
      if (from != to) {
        std::memcpy(to + begin * line_bytes, from + begin * line_bytes,
                    static_cast<size_t>((end - begin) * line_bytes));
      }
      for (int64_t row = begin; row < end; ++row) {
        char* line = to + row * line_bytes;
        if (element == 2) {
          for_banned(row, [&](int64_t token) { std::memcpy(line + token * 2, &narrow, 2); });
        } else {
          for_banned(row, [&](int64_t token) { std::memcpy(line + token * 4, &wide, 4); });
        }
      }
    });
  }

  const ngram::Scanner& scanner_;
};

}  // namespace

GRAFT_PLUGIN(NGramBlock);
