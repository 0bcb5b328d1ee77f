// Attention over shared rows, and whole attention over hidden states: random problems against
// float64.
#include "el-attention/hidden_states.h"
#include "el-attention/random_call.h"

namespace graft {
namespace gpu {
namespace el_attention {
namespace {

template <typename T>
void Reference(const RandomCall& d, const std::vector<T>& rows, const std::vector<T>& query,
               const std::vector<float>& shift, const std::vector<float>& bias,
               std::vector<double>* output, std::vector<double>* lse) {
  const el::Problem& p = d.p;
  for (int32_t row = 0; row < p.tokens * p.heads; ++row) {
    const RowPlace at = PlaceOf(d, row / p.heads);
    std::vector<double> scores;
    std::vector<size_t> from;
    for (int32_t j = 0; j < at.shared + at.private_count; ++j) {
      const int32_t slot = SlotAt(d, at, j), distance = at.position - j;
      if (slot < 0 || distance < 0 || (p.window > 0 && distance >= p.window)) continue;
      from.push_back(ElementOf<T>(p.rows, slot));
      double dot = 0;
      for (int32_t c = 0; c < p.rows.width; ++c) {
        dot += Wide(query[static_cast<size_t>(row * p.query_stride + c)]) *
               Wide(rows[from.back() + static_cast<size_t>(c)]);
      }
      double score = dot * p.scale;
      if (!shift.empty()) score += shift[static_cast<size_t>(row)];
      if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
      if (!bias.empty()) {
        score += bias[static_cast<size_t>(row % p.heads * p.distances +
                                          std::min(distance, p.distances - 1))];
      }
      scores.push_back(score);
    }
    double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const double s : scores) maximum = std::max(maximum, s);
    for (const double s : scores) sum += std::exp(s - maximum);
    lse->push_back(scores.empty() ? -std::numeric_limits<double>::infinity()
                                  : maximum + std::log(sum));
    for (int32_t c = 0; c < p.rows.width; ++c) {
      double x = 0;
      for (size_t i = 0; i < scores.size(); ++i) {
        x += std::exp(scores[i] - maximum) / sum * Wide(rows[from[i] + static_cast<size_t>(c)]);
      }
      output->push_back(x);
    }
  }
}

template <typename T, typename Output>
void Check(Trial& trial, RandomCall& d) {
  Random& random = trial.random;
  el::Problem& p = d.p;
  const int64_t rows = int64_t{p.tokens} * p.heads;
  const std::vector<T> x = MakeRows<T>(random, d);
  const std::vector<T> q = Spread<T>(random, rows, p.rows.width, p.query_stride);
  const std::vector<float> shifts =
      random.Chance(3) ? Numbers<float>(random, rows, -1, 1) : std::vector<float>();
  const std::vector<float> biases = Numbers<float>(random, int64_t{p.heads} * p.distances, -2, 2);

  const Array<T> data(trial, x, d.shift), query(trial, q, d.shift);
  const Array<float> shift(trial, shifts), bias(trial, biases);
  const Array<int32_t> sequences(trial, d.lists.sequences),
      shared_slots(trial, d.lists.shared_slots), private_slots(trial, d.lists.private_slots),
      second(trial, d.lists.second), lengths(trial, d.lists.lengths);
  const Array<Output> output(trial, rows * p.output_stride, d.shift);
  const Array<float> lse(trial, rows);
  p.rows.data = data.data();
  p.query = query.data();
  p.output = output.data();
  p.lse = lse.data();
  p.shift = shifts.empty() ? nullptr : shift.data();
  p.bias = biases.empty() ? nullptr : bias.data();
  if (!d.dense) {
    p.lists.sequences = sequences.data();
    p.lists.shared_slots = shared_slots.data();
    p.lists.private_slots = private_slots.data();
    if (!d.lists.second.empty()) p.lists.second = second.data();
  } else if (!d.lists.lengths.empty()) {
    p.lists.lengths = lengths.data();
  }
  const el::Plan plan = el::MakePlan(p, d.limits, d.tuning);
  const Array<unsigned char> workspace(trial, plan.workspace);
  trial.about << (plan.cluster ? "cluster " : "") << (plan.simple ? "simple " : "") << "columns "
              << plan.cluster_cut.warp_columns << " x " << plan.cluster_cut.columns << " splits "
              << plan.cluster_cut.splits << " parts " << plan.cluster_cut.parts << "+"
              << plan.simple_cut.parts << (d.dense ? " dense" : " lists") << " groups "
              << p.lists.groups << " tokens " << p.tokens << " heads " << p.heads << " keys "
              << p.lists.group_keys << "/" << p.lists.shared_length << "+" << p.lists.private_length
              << " width " << p.rows.width << " window " << p.window << " distances " << p.distances
              << " softcap " << p.softcap << " type " << static_cast<int>(p.rows.type) << " to "
              << static_cast<int>(p.output_type);
  trial.Expect(el::Enqueue(p, plan, workspace.data(), nullptr));

  std::vector<double> want, want_lse;
  Reference(d, x, q, shifts, biases, &want, &want_lse);
  const std::vector<Output> all = output.Read();
  std::vector<Output> got;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < p.output_stride; ++c) {
      const Output value = all[static_cast<size_t>(r * p.output_stride + c)];
      if (c < p.rows.width) got.push_back(value);
      if (c >= p.rows.width && !std::isnan(Wide(value)))
        trial.Fail("a gap between rows was written");
    }
  }
  const Tolerance tolerance = ToleranceOf(p.rows.type);
  trial.Expect("output", got, want, tolerance);
  trial.Expect("lse", lse.Read(), want_lse, ToleranceOf(Type::kFloat32));
}

template <typename T>
void ConformAs(Trial& trial) {
  RandomCall d = MakeRandomCall<T>(trial);
  if (d.p.output_type == Type::kFloat32) {
    Check<T, float>(trial, d);
  } else {
    Check<T, T>(trial, d);
  }
}

void Conform(Trial& trial) {
  if (trial.random.Chance(4)) return ConformHiddenStates(trial);
  switch (trial.random.Between(0, 4)) {
    case 0:
      return ConformAs<float>(trial);
    case 1:
    case 2:
      return ConformAs<cuda::Half>(trial);
    default:
      return ConformAs<cuda::BFloat16>(trial);
  }
}
GRAFT_CONFORM("el-attention", Conform);

}  // namespace
}  // namespace el_attention
}  // namespace gpu
}  // namespace graft
