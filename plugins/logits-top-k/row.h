// One row of scores: its edited tokens apart, and one pass over all the others.
#ifndef GRAFT_PLUGINS_LOGITS_TOP_K_ROW_H_
#define GRAFT_PLUGINS_LOGITS_TOP_K_ROW_H_

#include <cstdint>
#include <vector>

#include "top_k.h"

namespace graft {
namespace top_k {

// A token that edits or bans name. There are few of them, so each is worked out by itself, and the
// pass sees -inf in its place.
struct Edited {
  int32_t token;
  float score;  // the model's, then after each stage
};

class Row {
 public:
  Row(const Problem& problem, const Kernel& kernel, int64_t row);

  // Reads the row once. Collects in `found` at least the `best` greatest scores of tokens that no
  // edit names, whatever rounding does to them later (`bias` is what will be added), unless
  // `capacity` forbids; with `with_ties` also all that equal the last of them. Sums exponentials
  // when `sum`. Gives false when the row holds NaN or plus infinity: see fault().
  bool Read(int64_t best, bool sum, float bias, Found* found, int64_t capacity, bool with_ties);

  // Writes every score, edited tokens as they are now, to `to` [vocab].
  void CopyTo(float* to) const;

  // log-softmax over everything that Read saw: of the edited tokens at once, of the others by
  // Shifted().
  void TakeLogSoftmax();
  // Applies bans and edits to the edited tokens.
  void Apply();
  // A second log-softmax, of what the edits left, followed by Shifted() as well.
  void Renormalize();

  // What TakeLogSoftmax and Renormalize make of the score of a token that is not edited.
  float Shifted(float score) const {
    for (int i = 0; i < shifts_; ++i) score = score - greatest_[i] - log_[i];
    return score;
  }

  // The greatest score now and log(sum exp(score - greatest)).
  void LogSumExp(float* greatest, float* log) const;

  const std::vector<Edited>& edited() const { return edited_; }
  // Whether an edit left only its own token.
  bool rest_banned() const { return rest_banned_; }
  int64_t count() const { return count_; }
  Fault fault() const;

 private:
  static constexpr int64_t kPart = 4096;  // a copy stays in the nearest cache
  static constexpr int64_t kBlock = 512;  // what is copied for one edited token; divides kPart

  int64_t Find(int32_t token) const;
  int32_t Note(int32_t token);
  void Shift(float greatest, float log);
  // Scores [first, first + n) as floats with -inf at edited tokens: where they lie, or in `copy`.
  // `first` is a multiple of kBlock.
  const float* Scores(int64_t first, int64_t n, float* copy) const;
  // How many scores from `first` on are best taken at once.
  int64_t Stretch(int64_t first) const;
  float Score(int64_t token) const;

  const Problem& problem_;
  const Kernel& kernel_;
  const int64_t row_;
  int64_t first_edit_ = 0, last_edit_ = 0;
  std::vector<int32_t> banned_;
  std::vector<Edited> edited_;
  std::vector<int32_t> places_;  // in edited_, of each ban and each edit
  std::vector<int32_t> slots_;   // open addressing: index into edited_ + 1
  std::vector<int32_t> starts_;  // edited tokens by block: their first in order_
  std::vector<int32_t> order_;
  bool rest_banned_ = false;
  int64_t count_ = 0;
  // Of the tokens that no edit names, before any shift.
  float maximum_ = 0;
  double sum_ = 0;  // of exp(score - reference_)
  float reference_ = 0;
  int shifts_ = 0;
  float greatest_[2], log_[2];
};

}  // namespace top_k
}  // namespace graft

#endif  // GRAFT_PLUGINS_LOGITS_TOP_K_ROW_H_
