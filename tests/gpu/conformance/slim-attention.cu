// Slim attention against float64: keys in a pool or one after the other, every way and cut.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "slim-attention/random_case.h"

namespace graft {
namespace gpu {
namespace {

class Case : public RandomCase {
 public:
  explicit Case(Trial& trial) : RandomCase(trial) {}

  void Run() {
    Make();
    cuda::DeviceLimits limits;
    if (random_.Chance(6)) limits.major = 8;  // no clusters, no dependent launch
    Tuning tuning;
    tuning.way = static_cast<int32_t>(random_.Between(-1, 2));
    if (random_.Chance(3)) tuning.way = static_cast<int32_t>(Way::kStream);
    if (random_.Chance(2)) tuning.splits = random_.Pick({1, 2, 2, 3, 4, 4, 5, 6, 8});
    tuning.row_tiles = random_.Pick({0, 0, 1, 2, 4});
    tuning.warps = random_.Pick({0, 1, 1, 2, 4});
    tuning.joined = random_.Pick({0, 1, 2, 4});
    tuning.finish_tiles = random_.Pick({0, 1, 2});
    tuning.finish_cuts = random_.Pick({0, 1, 2, 3, 8});
    const Plan plan = MakePlan(p_, limits, tuning);
    trial_.about << " way " << static_cast<int32_t>(plan.way);
    if (plan.way == Way::kStream) {
      trial_.about << " (" << plan.stream.row_tiles << " row tiles, " << plan.stream.warps
                   << " warps, cluster " << plan.stream.cluster << " of " << plan.stream.heads
                   << " heads, " << plan.stream.tokens << " tokens, " << plan.stream.splits
                   << " splits by " << plan.stream.joined << ", " << plan.stream.items
                   << " items, finish ";
      if (plan.finish.matrix) {
        trial_.about << "of " << plan.finish.row_tiles << " row tiles, " << plan.finish.warps
                     << " warps, cut in " << plan.finish.cuts << ')';
      } else {
        trial_.about << "simple)";
      }
    }
    if (plan.workspace > WorkspaceOf(p_, limits, tuning)) trial_.Fail("workspace is too small");
    Array<char> workspace(trial_, plan.workspace);
    if (store_) trial_.Expect(Store(Storing(), nullptr));
    trial_.Expect(cuda::slim_attention::Run(p_, plan, workspace.data(), nullptr));
    Compare();
  }

 private:
  // A key's row, turned by its position or as it was projected.
  std::vector<double> Row(int64_t at, int64_t position, bool turned) const {
    std::vector<double> row;
    for (int64_t c = 0; c < p_.width(); ++c) row.push_back(RowNumber(at + c));
    if (p_.rotary == Rotary::kNone || turned == p_.rotated) return row;
    for (int64_t h = 0; h < p_.heads; ++h) {
      for (int64_t j = 0; j < p_.pairs; ++j) {
        const bool half = p_.rotary == Rotary::kHalf;
        double& a = row[static_cast<size_t>(h * p_.head_size + (half ? j : 2 * j))];
        double& b = row[static_cast<size_t>(h * p_.head_size + (half ? j + p_.pairs : 2 * j + 1))];
        const double cosine = cosine_[position * p_.pairs + j];
        const double sine = (turned ? 1 : -1) * sine_[position * p_.pairs + j];
        const double x = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = x;
      }
    }
    return row;
  }
  double RowNumber(int64_t at) const {
    const double x = rows_[at];
    if (!std::isnan(x)) return x;
    for (const auto& [place, number] : stored_) {
      if (place == at) return number;
    }
    return x;
  }

  // One token of a group against float64, by equations 1.2 and 1.6: values first.
  void CompareToken(const TokenGroup& g, int64_t i, const std::vector<double>& output,
                    const std::vector<float>& skipped, Tolerance allowed) {
    const int64_t token = g.first + i;
    std::vector<std::vector<double>> keys, raw;
    std::vector<int64_t> distances;
    for (int64_t j = 0; j < g.shared + g.private_count; ++j) {
      const int64_t distance = g.Position(i) - j, at = RowOf(g, i, j);
      if (at < 0 || distance < 0 || (p_.window > 0 && distance >= p_.window)) continue;
      keys.push_back(Row(at, j, true));
      raw.push_back(Row(at, j, false));
      distances.push_back(distance);
    }
    const double scale =
        p_.scale != 0 ? p_.scale : 1 / std::sqrt(static_cast<double>(p_.head_size));
    for (int64_t h = 0; h < p_.heads; ++h) {
      std::vector<double> weights;
      double highest = -kInfinity, sum = 0, below = 0;
      for (size_t k = 0; k < keys.size(); ++k) {
        double score = 0;
        for (int64_t c = 0; c < p_.head_size; ++c) {
          score += query_[token * p_.query_stride + h * p_.head_size + c] *
                   keys[k][static_cast<size_t>(h * p_.head_size + c)];
        }
        score *= scale;
        if (p_.softcap > 0) score = p_.softcap * std::tanh(score / p_.softcap);
        if (p_.bias != nullptr) {
          score += bias_[h * p_.distances + std::min(distances[k], p_.distances - 1)];
        }
        weights.push_back(score);
        highest = std::max(highest, score);
      }
      for (double& w : weights) sum += w = highest == -kInfinity ? 0 : std::exp(w - highest);
      for (double& w : weights) {
        w /= sum;
        if (w < p_.skip * 1.05) below += w;
      }
      const double left_out =
          p_.skipped != nullptr
              ? static_cast<double>(skipped[static_cast<size_t>(token * p_.heads + h)])
              : 0;
      if (!(left_out >= 0) || left_out > below * 1.05 + 1e-6) {
        trial_.Fail("skipped is " + std::to_string(left_out) + ", at most " +
                    std::to_string(below) + " has too little probability");
      }
      for (int64_t c = 0; c < p_.value_size; ++c) {
        double want = 0, largest = 0;
        for (size_t k = 0; k < keys.size(); ++k) {
          double value = 0;
          for (int64_t f = 0; f < p_.width(); ++f) {
            value += raw[k][static_cast<size_t>(f)] * weight_[Weight(h, f, c)];
          }
          want += weights[k] * value;
          largest = std::max(largest, std::abs(value));
        }
        if (p_.value_bias != nullptr) want += value_bias_[h * p_.value_size + c];
        if (sum == 0) want = g.shared + g.private_count > 0 ? kNaN : 0;
        Tolerance tolerance = allowed;
        tolerance.absolute += 1.01 * left_out * largest;
        trial_.Expect(
            "output of token " + std::to_string(token) + " head " + std::to_string(h) + " column " +
                std::to_string(c) + ",",
            std::vector<Exact>{
                {output[static_cast<size_t>(token * p_.output_stride + h * p_.value_size + c)]}},
            {want}, tolerance);
      }
    }
  }

  // A number that is as wide as its reference.
  struct Exact {
    double x;
    friend double Wide(Exact e) { return e.x; }
  };

  void Compare() {
    const std::vector<double> output = output_.Read();
    const std::vector<float> skipped = skipped_ ? skipped_->Read() : std::vector<float>();
    const Tolerance allowed = ToleranceOf(p_.row_type);
    for (const TokenGroup& g : groups_) {
      for (int64_t i = 0; i < g.tokens && !trial_.failed(); ++i) {
        CompareToken(g, i, output, skipped, allowed);
      }
    }
    for (int64_t i = 0; i < static_cast<int64_t>(output.size()); ++i) {
      if (i % p_.output_stride >= p_.heads * p_.value_size &&
          !std::isnan(output[static_cast<size_t>(i)])) {
        trial_.Fail("a gap between rows of the output was written");
      }
    }
  }
};

void Conform(Trial& trial) { Case(trial).Run(); }

GRAFT_CONFORM("slim-attention", Conform);

}  // namespace
}  // namespace gpu
}  // namespace graft
