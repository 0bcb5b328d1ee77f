// flash-decode against float64: every cache, type, mask and plan.
#include "../../../kernels-cuda/flash-decode/flash_decode.cuh"
#include "../../../kernels-cuda/flash-decode/store.cuh"
#include "flash-decode-maker.h"

namespace graft {
namespace gpu {
namespace flash_decode {
namespace {

// Holds outputs against the formula in float64, one loop a line of it.
template <typename T>
void Compare(Trial& trial, Case<T>& c, const Array<T>& output, const Array<T>* scores,
             const Array<float>* lse) {
  const fd::Problem& p = c.p;
  std::vector<double> want(c.output->data.size(), std::nan(""));
  std::vector<double> want_scores(c.scores != nullptr ? c.scores->data.size() : 0, std::nan(""));
  std::vector<double> want_lse;
  double slack = 0;
  const bool pool = p.sequences != nullptr;
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const auto& row = c.rows[r];
    const int64_t batch = pool ? 0 : row.group;
    const int64_t place = pool ? static_cast<int64_t>(r) : row.row;
    const int64_t keys = pool ? row.keys : p.places == fd::Places::kContiguous ? p.keys : row.keys;
    for (int64_t head = 0; head < p.heads; ++head) {
      const int64_t h = head / (p.heads / p.kv_heads);
      std::vector<double> weights;
      std::vector<bool> hidden;
      double maximum = kLowest, sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const auto spot = c.find(row, j, false);
        double dot = 0;
        for (int64_t d = 0; d < p.head_size && spot.batch >= 0; ++d) {
          dot += Wide(c.query->data[c.query->At(batch, head, place, d)]) *
                 Wide(spot.tensor->data[spot.tensor->At(spot.batch, h, spot.position, d)]);
        }
        bool gone;
        std::vector<double> stages;
        weights.push_back(c.ScoreOf(row, head, j, dot, &gone, &stages));
        hidden.push_back(gone);
        maximum = std::max(maximum, weights.back());
        if (c.scores != nullptr && p.scores_stage != fd::ScoresStage::kProbabilities) {
          want_scores[c.scores->At(batch, head, place, j)] =
              stages[static_cast<size_t>(p.scores_stage)];
        }
      }
      bool weightless = maximum == kLowest;
      // float32 cannot resolve the differences of large scores better; the largest all are one.
      if (std::abs(maximum) > 64 && std::abs(maximum) < 1e6) {
        slack = std::max(slack, std::abs(maximum) * 2.5e-7);
      }
      for (double& w : weights) sum += w = weightless ? 0 : std::exp(w - maximum);
      const bool keyless = pool ? row.keys == 0 : p.keys == 0;
      const double lost = p.zero_masked_rows || p.clear_nan || keyless ? 0 : std::nan("");
      if (p.clear_nan && std::isnan(sum)) weightless = true;
      for (double& w : weights) w = weightless ? lost : w / sum;
      want_lse.push_back(weightless ? kLowest : maximum + std::log(sum));
      for (int64_t d = 0; d < p.value_size; ++d) {
        double total = weightless ? lost : 0;
        for (int64_t j = 0; j < keys && !weightless; ++j) {
          if (hidden[static_cast<size_t>(j)]) continue;
          const auto spot = c.find(row, j, true);
          total += weights[static_cast<size_t>(j)] *
                   Wide(spot.tensor->data[spot.tensor->At(spot.batch, h, spot.position, d)]);
        }
        want[c.output->At(batch, head, place, d)] = total;
      }
      for (int64_t j = 0; j < keys; ++j) {
        if (c.scores == nullptr || p.scores_stage != fd::ScoresStage::kProbabilities) break;
        want_scores[c.scores->At(batch, head, place, j)] = weights[static_cast<size_t>(j)];
      }
    }
  }
  Tolerance tolerance = ToleranceOf(p.type);
  tolerance.absolute += 3 * slack;
  trial.Expect("output", output.Read(), want, tolerance);
  if (scores != nullptr) {
    // What the type cannot hold is infinite in it.
    for (double& w : want_scores) {
      const double rounded = Wide(Narrow<T>(w));
      if (std::isinf(rounded)) w = rounded;
    }
    trial.Expect("scores", scores->Read(), want_scores, tolerance);
  }
  if (lse != nullptr) {
    trial.Expect("lse", lse->Read(), want_lse, {1e-5 + 3 * slack, 1e-4});
  }
}

// Runs the problem by a plan that may be forced, and compares.
template <typename T>
void Launch(Trial& trial, Case<T>& c) {
  Random& random = trial.random;
  fd::Problem& p = c.p;
  Array<T> output(trial, static_cast<int64_t>(c.output->data.size()), random.Between(0, 3));
  p.output = {output.data(), c.output->strides};
  std::unique_ptr<Array<T>> scores;
  if (c.wants_scores) {
    scores = std::make_unique<Array<T>>(trial, static_cast<int64_t>(c.scores->data.size()), 1);
    p.scores = {scores->data(), c.scores->strides};
  }
  const int64_t all_rows = static_cast<int64_t>(c.rows.size());
  std::unique_ptr<Array<float>> lse;
  if (random.Chance(2)) {
    lse = std::make_unique<Array<float>>(trial, all_rows * p.heads);
    p.lse = lse->data();
  }
  fd::Tuning tuning;
  if (random.Chance(3)) tuning.path = fd::Path::kSimple;
  if (random.Chance(2)) tuning.tile_tokens = static_cast<int32_t>(random.Between(1, 16));
  if (random.Chance(2)) {
    tuning.splits = random.Chance(12) ? static_cast<int32_t>(random.Between(33, 80))
                                      : random.Pick({1, 2, 2, 3, 4, 4, 5, 8, 8});
  }
  tuning.join = random.Pick({fd::JoinBy::kChosen, fd::JoinBy::kCluster, fd::JoinBy::kLaunch});
  if (random.Chance(2)) tuning.stages = random.Pick({2, 3, 4});
  if (random.Chance(2)) tuning.max_blocks = random.Between(1, 9);
  cuda::DeviceLimits limits;
  if (random.Chance(3)) limits.multiprocessors = 20;
  if (random.Chance(6)) limits.major = 8;  // neither clusters nor dependent launches
  const fd::Plan plan = fd::MakePlan(p, limits, tuning);
  trial.about << "type " << static_cast<int>(p.type) << " places " << static_cast<int>(p.places)
              << " groups " << p.groups << " rows " << p.rows << " heads " << p.heads << '/'
              << p.kv_heads << " of " << p.head_size << '/' << p.value_size << " keys " << p.keys
              << " past " << p.past << " prefix " << p.prefix << " shared " << p.shared_length
              << " own " << p.private_length << " causal " << p.causal << " window " << p.window
              << " diagonal " << p.diagonal << " softcap " << p.softcap << " bias "
              << (c.bias != nullptr) << " mask " << (c.mask != nullptr) << " fill " << p.mask_fill
              << " after " << p.mask_after_bias << " clear " << p.clear_nan << " distances "
              << p.distances << " limit " << p.key_limit << " scores " << c.wants_scores
              << " | fast " << plan.fast << " tile rows " << plan.tile_rows << " tokens "
              << plan.cut.tile_tokens << " splits " << plan.cut.splits
              << (plan.cut.clustered ? " of a cluster" : "") << " stages " << plan.cut.stages
              << " blocks " << plan.attend.grid_x;
  Array<unsigned char> workspace(trial, plan.workspace_bytes);
  trial.Expect(fd::Run(p, plan, workspace.data(), nullptr));
  Compare(trial, c, output, scores.get(), lse.get());
}

// Copies into a cache: every element of what is named, and nothing else.
template <typename T>
void ConformStore(Trial& trial) {
  Random& random = trial.random;
  fd::StoreProblem p;
  p.type = kType<T>;
  p.batch = random.Between(1, 3);
  p.heads = random.Between(1, 3);
  p.positions = random.Between(0, 9);
  p.block_slots = random.Pick({1, 4, 16});
  const bool listed = random.Chance(2);
  const int64_t blocks = (p.batch * p.positions + 20) / p.block_slots + 1;
  p.slots = blocks * p.block_slots;
  p.first_position = listed ? 0 : random.Between(0, 3);
  std::vector<int32_t> slots(static_cast<size_t>(p.slots)), slot_mapping;
  std::iota(slots.begin(), slots.end(), 0);
  for (size_t i = slots.size(); i > 1; --i) {
    std::swap(slots[i - 1],
              slots[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))]);
  }
  for (int64_t i = 0; i < p.batch * p.positions; ++i) {
    slot_mapping.push_back(random.Chance(5)
                               ? random.Pick({-1, static_cast<int32_t>(p.slots), 1 << 30})
                               : slots[static_cast<size_t>(i)]);
  }
  Array<int32_t> list(trial, slot_mapping, 1);
  if (listed) p.slot_mapping = list.data();
  trial.about << "store: type " << static_cast<int>(p.type) << " batch " << p.batch << " heads "
              << p.heads << " positions " << p.positions << " first " << p.first_position
              << " listed " << listed << " slots " << p.block_slots;
  std::unique_ptr<Array<T>> from[2], to[2];
  std::vector<double> want[2];
  for (int side = 0; side < 2; ++side) {
    fd::Copied& c = p.tensors[side];
    c.size = random.Pick({1, 8, 20, 64, 72, 300});
    const Layout<T> layout(random, true), target(random, false);
    Tensor<T> source({p.batch, p.heads, p.positions, c.size}, layout.order, layout.gap, Nan<T>());
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t s = 0; s < p.positions; ++s) Randomize(random, source, b, s);
    }
    Tensor<T> cache({listed ? blocks : p.batch, p.heads,
                     listed ? p.block_slots : p.first_position + p.positions, c.size},
                    target.order, target.gap, Nan<T>());
    want[side].assign(cache.data.size(), std::nan(""));
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t s = 0; s < p.positions; ++s) {
        const int64_t slot = slot_mapping[static_cast<size_t>(b * p.positions + s)];
        if (listed && (slot < 0 || slot >= p.slots)) continue;
        for (int64_t h = 0; h < p.heads; ++h) {
          for (int64_t d = 0; d < c.size; ++d) {
            want[side][listed ? cache.At(slot / p.block_slots, h, slot % p.block_slots, d)
                              : cache.At(b, h, p.first_position + s, d)] =
                Wide(source.data[source.At(b, h, s, d)]);
          }
        }
      }
    }
    from[side] = std::make_unique<Array<T>>(trial, source.data, layout.shift);
    to[side] = std::make_unique<Array<T>>(trial, cache.data, target.shift);
    c.from = {from[side]->data(), source.strides};
    c.to = {to[side]->data(), cache.strides};
  }
  trial.Expect(fd::Store(p, random.Between(1, 20), nullptr));
  for (int side = 0; side < 2; ++side) trial.Expect("cache", to[side]->Read(), want[side], {0, 0});
  Array<int32_t> stored(trial, 1);
  trial.Expect(fd::CountStored(list.data(), list.size(), p.slots, stored.data(), nullptr));
  int32_t count = 0;
  for (const int32_t slot : slot_mapping) count += slot >= 0 && slot < p.slots ? 1 : 0;
  trial.ExpectSame("stored", stored.Read(), {count});
}

template <typename T>
void ConformAs(Trial& trial) {
  if (trial.random.Chance(8)) return ConformStore<T>(trial);
  Case<T> made;
  Maker<T>(trial, made).Make();
  Launch(trial, made);
}

void Conform(Trial& trial) {
  switch (trial.random.Between(0, 2)) {
    case 0:
      return ConformAs<float>(trial);
    case 1:
      return ConformAs<cuda::Half>(trial);
    default:
      return ConformAs<cuda::BFloat16>(trial);
  }
}

GRAFT_CONFORM("flash-decode", Conform);

}  // namespace
}  // namespace flash_decode
}  // namespace gpu
}  // namespace graft