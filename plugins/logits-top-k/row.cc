#include "row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "graft/error.h"
#include "graft/type.h"

namespace graft {
namespace top_k {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

bool Better(const Found& a, const Found& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

float JustBelow(float x) { return std::nextafterf(x, kNothing); }

int64_t ElementSize(Type type) { return type == Type::kFloat32 ? 4 : 2; }

}  // namespace

Row::Row(const Problem& problem, const Kernel& kernel, int64_t row)
    : problem_(problem), kernel_(kernel), row_(row) {
  if (problem.bans) problem.bans(row, &banned_);
  if (problem.edit_offsets != nullptr) {
    first_edit_ = problem.edit_offsets[row];
    last_edit_ = problem.edit_offsets[row + 1];
  }
  const size_t max_value = banned_.size() + static_cast<size_t>(last_edit_ - first_edit_);
  const int64_t blocks = (problem.vocab + kBlock - 1) / kBlock;
  starts_.assign(static_cast<size_t>(blocks + 1), 0);
  if (max_value == 0) return;
  size_t size = 16;
  while (size < 2 * max_value) size *= 2;
  slots_.assign(size, 0);
  edited_.reserve(max_value);
  places_.reserve(max_value);
  for (const int32_t token : banned_) places_.push_back(Note(token));
  for (int64_t e = first_edit_; e < last_edit_; ++e) {
    places_.push_back(Note(problem.edit_tokens[e]));
  }
  // By block, so that a pass need not look for them.
  for (const Edited& e : edited_) ++starts_[static_cast<size_t>(e.token / kBlock + 1)];
  for (int64_t b = 0; b < blocks; ++b) {
    starts_[static_cast<size_t>(b + 1)] += starts_[static_cast<size_t>(b)];
  }
  order_.resize(edited_.size());
  std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
  for (const Edited& e : edited_) {
    order_[static_cast<size_t>(next[static_cast<size_t>(e.token / kBlock)]++)] = e.token;
  }
}

int64_t Row::Find(int32_t token) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = static_cast<uint32_t>(token) * 0x9e3779b1u >> 7 & mask;; at = (at + 1) & mask) {
    if (slots_[at] == 0) return -1 - static_cast<int64_t>(at);
    if (edited_[static_cast<size_t>(slots_[at] - 1)].token == token) return slots_[at] - 1;
  }
}

int32_t Row::Note(int32_t token) {
  Require(token >= 0 && token < problem_.vocab, "row ", row_, " has an edit of token ", token,
          ", the vocabulary has ", problem_.vocab);
  const int64_t at = Find(token);
  if (at >= 0) return static_cast<int32_t>(at);
  edited_.push_back({token, Score(token)});
  slots_[static_cast<size_t>(-1 - at)] = static_cast<int32_t>(edited_.size());
  return static_cast<int32_t>(edited_.size() - 1);
}

float Row::Score(int64_t token) const {
  const int64_t at = row_ * problem_.vocab + token;
  if (problem_.type == Type::kFloat32) return static_cast<const float*>(problem_.scores)[at];
  if (problem_.type == Type::kFloat16) {
    return static_cast<const Float16*>(problem_.scores)[at].ToFloat();
  }
  const uint32_t word = uint32_t{static_cast<const uint16_t*>(problem_.scores)[at]} << 16;
  float score;
  std::memcpy(&score, &word, sizeof score);
  return score;
}

const float* Row::Scores(int64_t first, int64_t n, float* copy) const {
  const char* from = static_cast<const char*>(problem_.scores) +
                     (row_ * problem_.vocab + first) * ElementSize(problem_.type);
  const int32_t begin = starts_[static_cast<size_t>(first / kBlock)];
  const int32_t end = starts_[static_cast<size_t>((first + n - 1) / kBlock + 1)];
  if (problem_.type != Type::kFloat32) {
    kernel_.widen(problem_.type, from, n, copy);
  } else if (begin == end) {
    return reinterpret_cast<const float*>(from);
  } else {
    std::memcpy(copy, from, static_cast<size_t>(n) * sizeof *copy);
  }
  for (int32_t i = begin; i < end; ++i) copy[order_[static_cast<size_t>(i)] - first] = kNothing;
  return copy;
}

int64_t Row::Stretch(int64_t first) const {
  const int64_t left = problem_.vocab - first;
  if (problem_.type != Type::kFloat32) return std::min(kPart, left);
  // A block with edits by itself, or all blocks up to the next one that has any.
  const auto block = static_cast<size_t>(first / kBlock);
  size_t end = block + 1;
  if (starts_[end] == starts_[block]) {
    while (end + 1 < starts_.size() && starts_[end + 1] == starts_[block]) ++end;
  }
  return std::min(static_cast<int64_t>(end - block) * kBlock, left);
}

bool Row::Read(int64_t best, bool sum, float bias, Found* found, int64_t capacity, bool with_ties) {
  const int64_t vocab = problem_.vocab;
  alignas(64) float copy[kPart];
  Pass pass;
  pass.found = found;
  pass.capacity = capacity;

  // The first part bounds the result from below: of its chunks' maxima, `best` are at least as
  // great as the best-th of them.
  const int64_t prefix = std::min(vocab, kPart);
  const float* start = Scores(0, prefix, copy);
  float maxima[kPart / 16];
  int64_t chunks = 0;
  for (const int64_t chunk : {64, 16}) {
    chunks = prefix / chunk;
    if (chunks < 2 * best && chunk == 64 && prefix / 16 > chunks) continue;
    kernel_.chunk_maxima(start, prefix, chunk, maxima);
    break;
  }
  // Rounding may make equal what is not: scores so close below the last are candidates as well.
  const auto slack = [&](float last) {
    const bool exact = !sum && bias == 0 && !with_ties;
    const float shifted = sum ? std::fabs(last - pass.reference) : 0;
    return exact ? 0.0f : 0x1p-21f * (shifted + std::fabs(last) + std::fabs(bias) + 20);
  };
  // A row with NaN is refused below; here it must not upset an order.
  if (std::any_of(maxima, maxima + chunks, [](float x) { return std::isnan(x); })) chunks = 0;
  pass.reference = std::numeric_limits<float>::lowest();
  if (chunks > 0) {
    const float top = *std::max_element(maxima, maxima + chunks);
    if (std::isfinite(top)) pass.reference = top;
  }
  if (best <= 0) {
    pass.threshold = std::numeric_limits<float>::infinity();
  } else if (best <= chunks) {
    std::nth_element(maxima, maxima + best - 1, maxima + chunks, std::greater<float>());
    const float last = maxima[best - 1];
    if (std::isfinite(last)) pass.threshold = JustBelow(last - slack(last));
  }

  const auto go = sum ? kernel_.pass_sum : kernel_.pass;
  for (int64_t first = 0; first < vocab;) {
    const int64_t n = first == 0 ? prefix : Stretch(first);
    const float* x = first == 0 ? start : Scores(first, n, copy);
    for (int64_t done = 0; done < n;) {
      done += go(x + done, n - done, first + done, &pass);
      if (done == n) break;
      // No room: only the best stay, and with them what rounding may yet make their equal.
      std::nth_element(found, found + best - 1, found + pass.count, Better);
      const float last = found[best - 1].value;
      const float threshold = JustBelow(last - slack(last));
      Found* end = std::partition(found + best, found + pass.count,
                                  [&](const Found& f) { return f.value > threshold; });
      pass.threshold = threshold;
      if (pass.count = end - found; pass.count > capacity - 4 * kStrip) {
        // Too many are equal. What comes later in the row loses to its equals.
        std::nth_element(found, found + best - 1, found + pass.count, Better);
        pass.count = best;
        pass.threshold = last;
      }
    }
    first += n;
  }

  count_ = pass.count;
  maximum_ = *std::max_element(pass.maximum, pass.maximum + Pass::kLanes);
  reference_ = pass.reference;
  sum_ = 0;
  for (const float lane : pass.sum) sum_ += lane;
  bool good = sum ? std::isfinite(sum_) && std::isfinite(reference_)
                  : !std::isnan(sum_) && sum_ < std::numeric_limits<double>::infinity();
  for (const Edited& e : edited_) good &= e.score < std::numeric_limits<float>::infinity();
  return good || fault().kind == Fault::kNone;
}

Fault Row::fault() const {
  for (int64_t t = 0; t < problem_.vocab; ++t) {
    const float score = Score(t);
    if (score < std::numeric_limits<float>::infinity()) continue;
    Fault fault;
    fault.kind = Fault::kBadScore;
    fault.row = row_;
    fault.token = t;
    fault.score = score;
    return fault;
  }
  return {};
}

void Row::CopyTo(float* to) const {
  for (int64_t first = 0; first < problem_.vocab;) {
    const int64_t n = Stretch(first);
    const float* x = Scores(first, n, to + first);
    if (x != to + first) std::memcpy(to + first, x, static_cast<size_t>(n) * sizeof *to);
    first += n;
  }
}

void Row::LogSumExp(float* greatest, float* log) const {
  *greatest = rest_banned_ ? kNothing : Shifted(maximum_);
  for (const Edited& e : edited_) *greatest = std::max(*greatest, e.score);
  *log = 0;
  if (*greatest == kNothing) return;
  double total = 0;
  constexpr size_t kFew = 16, kPart = 256;
  for (size_t i = 0; i < edited_.size(); i += kPart) {
    const size_t n = std::min(kPart, edited_.size() - i);
    float part[kPart];
    for (size_t k = 0; k < n; ++k) {
      part[k] = edited_[i + k].score;
      if (n <= kFew) total += std::exp(static_cast<double>(part[k]) - *greatest);
    }
    if (n > kFew) total += kernel_.exponentials(part, static_cast<int64_t>(n), *greatest, part);
  }
  if (!rest_banned_ && maximum_ != kNothing) {
    double moved = reference_;
    for (int i = 0; i < shifts_; ++i) moved = moved - greatest_[i] - log_[i];
    total += sum_ * std::exp(moved - *greatest);
  }
  *log = static_cast<float>(std::log(total));
}

void Row::Shift(float greatest, float log) {
  if (greatest == kNothing) return;
  for (Edited& e : edited_) e.score = e.score - greatest - log;
  greatest_[shifts_] = greatest;
  log_[shifts_++] = log;
}

void Row::TakeLogSoftmax() {
  float greatest, log;
  LogSumExp(&greatest, &log);
  Shift(greatest, log);
}

void Row::Renormalize() { TakeLogSoftmax(); }

void Row::Apply() {
  const int32_t* place = places_.data();
  for (size_t i = 0; i < banned_.size(); ++i) {
    edited_[static_cast<size_t>(*place++)].score = kNothing;
  }
  for (int64_t e = first_edit_; e < last_edit_; ++e) {
    float& score = edited_[static_cast<size_t>(*place++)].score;
    const float value = problem_.edit_values[e];
    switch (static_cast<Op>(problem_.edit_ops[e])) {
      case Op::kAdd:
        score += value;
        break;
      case Op::kPenalise:
        score = score < 0 ? score * value : score / value;
        break;
      case Op::kBan:
        score = kNothing;
        break;
      case Op::kOnly:
        for (Edited& other : edited_) other.score = kNothing;
        score = value;
        rest_banned_ = true;
        break;
      default:
        Require(false, "row ", row_, " has an edit of kind ", problem_.edit_ops[e],
                ", needed is 0 to 3");
    }
  }
}

}  // namespace top_k
}  // namespace graft
