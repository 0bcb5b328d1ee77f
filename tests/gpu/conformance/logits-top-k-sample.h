// Samples against their definition in float64: the warpers by sorting, then the running sum.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_LOGITS_TOP_K_SAMPLE_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_LOGITS_TOP_K_SAMPLE_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "../check.h"

namespace graft {
namespace gpu {

// The tokens of a row that may be sampled, and whether a border lies so near a token that rounding
// decides which side it is on.
struct Warped {
  std::vector<double> row;  // -inf where not
  bool near = false;
};

inline Warped WarpRow(std::vector<double> row, const int32_t* group, const float* warper) {
  constexpr double kOut = -std::numeric_limits<double>::infinity(), kNear = 2e-5;
  const float temperature = warper[0], top_p = warper[1], min_p = warper[2], typical = warper[3];
  const auto keep = static_cast<size_t>(std::max(group[6], 1));
  Warped out;
  if (temperature != 0 && temperature != 1) {
    for (double& x : row) x /= temperature;
  }
  // By score, then by token.
  const auto order = [&] {
    std::vector<size_t> list;
    for (size_t t = 0; t < row.size(); ++t) {
      if (row[t] > kOut) list.push_back(t);
    }
    std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    return list;
  };
  const auto shares = [&](const std::vector<size_t>& list) {
    std::vector<double> p;
    double sum = 0;
    for (const size_t t : list) sum += std::exp(row[t] - row[list[0]]);
    for (const size_t t : list) p.push_back(std::exp(row[t] - row[list[0]]) / sum);
    return p;
  };
  std::vector<size_t> list = order();
  const auto top_k = static_cast<size_t>(std::max<int64_t>(group[5], static_cast<int64_t>(keep)));
  if (group[5] > 0 && list.size() > top_k) {
    const double least = row[list[top_k - 1]];
    for (const size_t t : list) {
      if (row[t] != least && std::abs(row[t] - least) < kNear) out.near = true;
      if (row[t] < least) row[t] = kOut;
    }
    list = order();
  }
  if (top_p > 0 && top_p < 1 && list.size() > keep) {
    // Of equals the lower tokens go first.
    std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) {
      return row[a] != row[b] ? row[a] > row[b] : a > b;
    });
    const std::vector<double> p = shares(list);
    double gone = 0;
    for (size_t i = list.size(); i > keep; --i) {
      gone += p[i - 1];
      if (std::abs(gone - (1 - static_cast<double>(top_p))) < kNear) out.near = true;
      if (gone > 1 - static_cast<double>(top_p)) break;
      // Scores that rounding may put in another order stand at the border.
      if (i > 1 && row[list[i - 2]] != row[list[i - 1]] &&
          row[list[i - 2]] - row[list[i - 1]] < kNear) {
        out.near = true;
      }
      row[list[i - 1]] = kOut;
    }
    list = order();
  }
  if (min_p > 0 && list.size() > keep) {
    const double top = row[list[0]];
    for (size_t i = keep; i < list.size(); ++i) {
      const double weight = std::exp(row[list[i]] - top);
      if (std::abs(weight - static_cast<double>(min_p)) < kNear) out.near = true;
      if (weight < static_cast<double>(min_p)) row[list[i]] = kOut;
    }
    list = order();
  }
  if (typical > 0 && typical < 1 && !list.empty()) {
    std::vector<double> p = shares(list);
    double entropy = 0;
    for (const double share : p) entropy -= share > 0 ? share * std::log(share) : 0;
    struct Near {
      double distance, share;
      size_t token;
    };
    std::vector<Near> all;
    for (size_t i = 0; i < list.size(); ++i) {
      all.push_back({std::abs(-std::log(p[i]) - entropy), p[i], list[i]});
    }
    std::sort(all.begin(), all.end(), [](const Near& a, const Near& b) {
      return a.distance != b.distance ? a.distance < b.distance : a.token < b.token;
    });
    size_t last = 0;
    for (double total = 0; last + 1 < all.size(); ++last) {
      total += all[last].share;
      if (std::abs(total - static_cast<double>(typical)) < kNear) out.near = true;
      if (total >= static_cast<double>(typical)) break;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const double apart = std::abs(all[i].distance - all[last].distance);
      if (i != last && apart != 0 && apart < 2 * kNear) out.near = true;
      // Two distances on either side of the entropy are equal up to rounding only.
      if (i > 0 && all[i].distance != all[i - 1].distance &&
          all[i].distance - all[i - 1].distance < 2 * kNear) {
        out.near = true;
      }
      if (i >= keep && all[i].distance > all[last].distance) row[all[i].token] = kOut;
    }
  }
  out.row = std::move(row);
  return out;
}

// Checks the samples of a group whose rows are `rows` after bans and edits.
inline void CheckSamples(Trial& trial, const int32_t* group, const float* warper,
                         const std::vector<float>& random_numbers, const std::vector<float>& bias,
                         std::vector<std::vector<double>> rows, int64_t width, const float* scores,
                         const int32_t* out_rows, const int32_t* out_tokens) {
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  const bool beams = (group[4] & 1) != 0;
  bool near = false;
  double top = kOut, sum = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    Warped warped = WarpRow(std::move(rows[r]), group, warper);
    near = near || warped.near;
    double greatest = kOut, total = 0;
    for (const double x : warped.row) greatest = std::max(greatest, x);
    for (const double x : warped.row) total += x > kOut ? std::exp(x - greatest) : 0;
    for (double& x : warped.row) {
      if (x == kOut) continue;
      if ((group[4] & 2) != 0) x -= greatest + std::log(total);
      if (!bias.empty()) x += bias[static_cast<size_t>(group[0]) + r];
      top = std::max(top, x);
    }
    rows[r] = std::move(warped.row);
  }
  if (near) return;  // what may be sampled depends on rounding
  for (const auto& row : rows) {
    for (const double x : row) sum += x > kOut ? std::exp(x - top) : 0;
  }
  const double whole = sum;
  for (int64_t i = 0; i < width; ++i) {
    const std::string place = "sample " + std::to_string(i);
    if (i >= group[2] || sum <= 0) {
      if (out_rows[i] != -1 || out_tokens[i] != -1 || scores[i] != -INFINITY) {
        return trial.Fail(place + " is not empty");
      }
      continue;
    }
    const int64_t r = out_rows[i] - group[0], t = out_tokens[i];
    if (r < 0 || r >= group[1] || t < 0 ||
        rows[static_cast<size_t>(r)][static_cast<size_t>(t)] == kOut) {
      return trial.Fail(place + " is row " + std::to_string(out_rows[i]) + " token " +
                        std::to_string(t) + ", which cannot be sampled");
    }
    double before = 0, own = 0;
    for (int64_t row = 0; row <= r; ++row) {
      const auto& values = rows[static_cast<size_t>(row)];
      for (int64_t token = 0; token < (row < r ? static_cast<int64_t>(values.size()) : t);
           ++token) {
        const double x = values[static_cast<size_t>(token)];
        before += x > kOut ? std::exp(x - top) : 0;
      }
    }
    double& value = rows[static_cast<size_t>(r)][static_cast<size_t>(t)];
    own = std::exp(value - top);
    const double u = random_numbers[static_cast<size_t>(group[7] + i)], border = 2e-5;
    if (u < before / sum - border || u > (before + own) / sum + border) {
      return trial.Fail(place + " of " + std::to_string(u) + " is token " + std::to_string(t) +
                        ", which has " + std::to_string(before / sum) + " to " +
                        std::to_string((before + own) / sum));
    }
    const double want = beams ? value : value - top - std::log(whole);
    if (!(std::abs(want - static_cast<double>(scores[i])) <= 1e-4 + 1e-4 * std::abs(want))) {
      return trial.Fail(place + " has score " + std::to_string(scores[i]) + ", float64 gives " +
                        std::to_string(want));
    }
    if (beams) {
      value = kOut;
      sum = 0;
      for (const auto& row : rows) {
        for (const double x : row) sum += x > kOut ? std::exp(x - top) : 0;
      }
    }
  }
}

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_LOGITS_TOP_K_SAMPLE_H_
