#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "row.h"

namespace graft {
namespace top_k {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// A token that can still be sampled. weight is exp(value - greatest value).
struct Item {
  float value;
  int32_t token;
  double weight;
};

bool Better(const Item& a, const Item& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}
bool Earlier(const Item& a, const Item& b) { return a.token < b.token; }

// Top-p takes the lower tokens of equals away first.
bool BetterForTopP(const Item& a, const Item& b) {
  return a.value != b.value ? a.value > b.value : a.token > b.token;
}

// A probability as PyTorch's softmax of float32 has it, which decides at a boundary.
double Share(double weight, double sum) {
  return static_cast<double>(static_cast<float>(weight) * (1 / static_cast<float>(sum)));
}

// The number that is written as x is: 0.6 for the float32 that is nearest to it. 0 < x < 1.
double Decimal(float x) {
  for (double scale = 10; scale < 1e22; scale *= 10) {
    const double wide = std::round(x * scale) / scale;
    if (static_cast<float>(wide) == x) return wide;
  }
  return static_cast<double>(x);
}

// The warpers, on the tokens of one row that are not banned, in their order.
class Warper {
 public:
  Warper(const Kernel& kernel, const Group& group, std::vector<Item>* items)
      : kernel_(kernel), group_(group), items_(*items) {}

  void Apply() {
    keep_ = std::max<int64_t>(group_.min_keep, 1);
    if (group_.top_k > 0) TopK(std::max(group_.top_k, keep_));
    if (group_.top_p > 0 && group_.top_p < 1) TopP(group_.top_p);
    if (group_.min_p > 0) MinP(group_.min_p);
    if (group_.typical_p > 0 && group_.typical_p < 1) TypicalP(group_.typical_p);
  }

  // Weights of all items; gives their sum.
  double Weigh() {
    greatest_ = kNothing;
    for (const Item& item : items_) greatest_ = std::max(greatest_, item.value);
    double sum = 0;
    if (items_.size() < 2048) {
      for (Item& item : items_) {
        sum += item.weight = std::exp(static_cast<double>(item.value - greatest_));
      }
      return sum;
    }
    std::vector<float> values(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) values[i] = items_[i].value;
    kernel_.exponentials(values.data(), static_cast<int64_t>(values.size()), greatest_,
                         values.data());
    for (size_t i = 0; i < items_.size(); ++i) sum += items_[i].weight = values[i];
    return sum;
  }

  float greatest() const { return greatest_; }

 private:
  int64_t size() const { return static_cast<int64_t>(items_.size()); }

  // The k-th best item.
  Item Worst(int64_t k) const {
    std::vector<Item> order = items_;
    std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), Better);
    return order[static_cast<size_t>(k - 1)];
  }

  // Retains what may stay, in its order.
  template <typename Stays>
  void Keep(const Stays& stays) {
    items_.erase(std::remove_if(items_.begin(), items_.end(),
                                [&](const Item& item) { return !stays(item); }),
                 items_.end());
  }

  // Scores below the k-th best go; those equal to it stay.
  void TopK(int64_t k) {
    if (size() <= k) return;
    const float least = Worst(k).value;
    Keep([&](const Item& item) { return item.value >= least; });
  }

  // Tokens go, worst first, while the probability gone is at most 1 - mass, all in float32.
  void TopP(float mass) {
    const double sum = Weigh();
    if (size() <= keep_) return;
    const auto most = static_cast<float>(1 - Decimal(mass));
    const auto& Better = BetterForTopP;
    // A selection by weight, in linear time: [0, low) stay, [high, end) go, between them is open.
    std::vector<Item> order = items_;
    std::nth_element(order.begin(), order.begin() + (keep_ - 1), order.end(), Better);
    auto low = order.begin() + keep_, high = order.end();
    double gone = 0;
    while (high - low > 32) {
      Item pivot[] = {*low, low[(high - low) / 2], high[-1]};
      std::sort(pivot, pivot + 3, Better);
      const auto middle =
          std::partition(low, high, [&](const Item& item) { return !Better(pivot[1], item); });
      double worse = 0;
      for (auto item = middle; item != high; ++item) worse += Share(item->weight, sum);
      if (static_cast<float>(gone + worse) > most) {
        low = middle;
      } else {
        gone += worse;
        high = middle;
      }
    }
    std::sort(low, high, Better);
    for (; high > low; --high) {
      gone += Share(high[-1].weight, sum);
      if (static_cast<float>(gone) > most) break;
    }
    const Item last = *std::max_element(order.begin(), high, Better);
    Keep([&](const Item& item) { return !Better(last, item); });
  }

  // Tokens below `least` times the best probability go.
  void MinP(float least) {
    const double sum = Weigh();
    if (size() <= keep_) return;
    const Item last = Worst(keep_);
    const float border = least * static_cast<float>(Share(1, sum));
    Keep([&](const Item& item) {
      return static_cast<float>(Share(item.weight, sum)) >= border || !Better(last, item);
    });
  }

  // Tokens whose information lies nearest the row's entropy stay, up to a probability.
  void TypicalP(float mass) {
    const double sum = Weigh();
    double entropy = 0;
    for (const Item& item : items_) {
      if (item.weight > 0) entropy -= item.weight / sum * std::log(item.weight / sum);
    }
    struct Typical {
      double distance;
      Item item;
    };
    std::vector<Typical> all;
    all.reserve(items_.size());
    for (const Item& item : items_) {
      // Scores beyond all limits have no information; NaN would upset the order.
      const double distance = std::fabs(-std::log(item.weight / sum) - entropy);
      all.push_back(
          {std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance, item});
    }
    std::sort(all.begin(), all.end(), [](const Typical& a, const Typical& b) {
      return a.distance != b.distance ? a.distance < b.distance : Earlier(a.item, b.item);
    });
    size_t last = 0;
    for (double total = 0; last + 1 < all.size(); ++last) {
      total += Share(all[last].item.weight, sum);
      if (static_cast<float>(total) >= mass) break;
    }
    items_.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      if (static_cast<int64_t>(i) < keep_ || all[i].distance <= all[last].distance) {
        items_.push_back(all[i].item);
      }
    }
    std::sort(items_.begin(), items_.end(), Earlier);
  }

  const Kernel& kernel_;
  const Group& group_;
  std::vector<Item>& items_;
  int64_t keep_ = 1;
  float greatest_ = kNothing;
};

// What may be sampled from one row, by token, with everything but the weights.
Fault Possible(const Problem& problem, const Kernel& kernel, const Group& group, int64_t at,
               std::vector<Item>* items) {
  const float bias = problem.bias != nullptr ? problem.bias[at] : 0;
  Row row(problem, kernel, at);
  // The best `wanted` are enough where top-k follows; a token that an edit names is not in the
  // pass.
  const bool few = group.top_k > 0;
  const int64_t wanted = few ? std::min(std::max(group.top_k, group.min_keep), problem.vocab) : 0;
  const int64_t capacity = few ? problem.vocab + kStrip : kStrip;
  const std::unique_ptr<Found[]> found(new Found[static_cast<size_t>(capacity)]);
  if (!row.Read(wanted, group.log_softmax, 0, found.get(), capacity, true)) return row.fault();
  if (group.log_softmax) row.TakeLogSoftmax();
  row.Apply();

  const bool cool = group.temperature != 0 && group.temperature != 1;
  const auto put = [&](float score, int32_t token) {
    if (cool) score /= group.temperature;
    if (score > kNothing) items->push_back({score, token, 0});
  };
  if (!row.rest_banned() && few) {
    for (int64_t i = 0; i < row.count(); ++i) put(row.Shifted(found[i].value), found[i].token);
  } else if (!row.rest_banned()) {
    std::vector<float> scores(static_cast<size_t>(problem.vocab));
    row.CopyTo(scores.data());
    items->reserve(scores.size());
    for (int64_t t = 0; t < problem.vocab; ++t) {
      put(row.Shifted(scores[static_cast<size_t>(t)]), static_cast<int32_t>(t));
    }
  }
  // The pass found tokens in their order; the edited ones go between them.
  const auto edited = static_cast<int64_t>(items->size());
  for (const Edited& e : row.edited()) put(e.score, e.token);
  std::sort(items->begin() + edited, items->end(), Earlier);
  std::inplace_merge(items->begin(), items->begin() + edited, items->end(), Earlier);
  Warper warper(kernel, group, items);
  warper.Apply();
  if (group.normalize && !items->empty()) {
    const auto log = static_cast<float>(std::log(warper.Weigh()));
    for (Item& item : *items) item.value = item.value - warper.greatest() - log;
  }
  if (bias != 0) {
    for (Item& item : *items) item.value += bias;
  }
  return {};
}

}  // namespace

Fault SampleGroup(const Problem& problem, const Kernel& kernel, const Group& group,
                  std::vector<Candidate>* sampled) {
  std::vector<Item> items, row;
  std::vector<size_t> ends;  // of each row's items
  for (int64_t r = group.first; r < group.first + group.count; ++r) {
    row.clear();
    const Fault fault = Possible(problem, kernel, group, r, &row);
    if (fault.kind != Fault::kNone) return fault;
    items.insert(items.end(), row.begin(), row.end());
    ends.push_back(items.size());
  }
  Warper all(kernel, group, &items);
  double sum = all.Weigh();
  const auto log = static_cast<float>(std::log(sum));
  for (int64_t k = 0; k < group.k && !items.empty(); ++k) {
    // The first item at which the running sum exceeds u times the whole.
    const double target = static_cast<double>(group.random_numbers[k]) * sum;
    double running = 0;
    size_t at = items.size();
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].weight == 0) continue;
      at = i;
      if ((running += items[i].weight) > target) break;
    }
    if (at == items.size()) break;  // nothing possible is left
    const auto row_of = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    Candidate candidate{static_cast<int32_t>(group.first + row_of), items[at].token,
                        items[at].value};
    if (group.log_softmax) {
      // Summed again, since a difference would lose what is small.
      items[at].weight = 0;
      sum = 0;
      for (const Item& item : items) sum += item.weight;
    } else {
      candidate.score = candidate.score - all.greatest() - log;
    }
    sampled->push_back(candidate);
  }
  return {};
}

}  // namespace top_k
}  // namespace graft
