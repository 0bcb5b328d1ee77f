#include "slim_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "dice.h"
#include "fold.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using graft::testing::Dice;

// Reflects every row of m at random planes, which leaves singular values as they are.
void Reflect(Dice& dice, std::vector<double>& m, int64_t rows, int64_t columns, int times) {
  for (int t = 0; t < times; ++t) {
    std::vector<double> normal = dice.Matrix(1, columns, 1.0);
    double square = 0;
    for (double x : normal) square += x * x;
    for (int64_t i = 0; i < rows; ++i) {
      double dot = 0;
      for (int64_t c = 0; c < columns; ++c) dot += m[i * columns + c] * normal[c];
      for (int64_t c = 0; c < columns; ++c) m[i * columns + c] -= 2 * dot / square * normal[c];
    }
  }
}

// A d x e matrix whose singular values lie between 1 and condition.
std::vector<double> Conditioned(Dice& dice, int64_t d, int64_t e, double condition) {
  std::vector<double> m(static_cast<size_t>(d * e), 0.0);
  for (int64_t i = 0; i < d; ++i) m[i * e + i] = std::exp(dice.Real(0, std::log(condition)));
  Reflect(dice, m, d, e, 4);
  std::vector<double> turned(m.size());
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t c = 0; c < e; ++c) turned[c * d + i] = m[i * e + c];
  }
  Reflect(dice, turned, e, d, 4);
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t c = 0; c < e; ++c) m[i * e + c] = turned[c * d + i];
  }
  return m;
}

std::vector<double> Product(const std::vector<double>& x, const std::vector<double>& w,
                            const std::vector<double>& bias) {
  const size_t columns = w.size() / x.size();
  std::vector<double> y(columns, 0.0);
  for (size_t f = 0; f < x.size(); ++f) {
    for (size_t c = 0; c < columns; ++c) y[c] += x[f] * w[f * columns + c];
  }
  for (size_t c = 0; c < bias.size(); ++c) y[c] += bias[c];
  return y;
}

std::vector<float> Narrow(const std::vector<double>& x) {
  return std::vector<float>(x.begin(), x.end());
}

// Turns the heads of a key as the graph does before the scores.
void Turn(const Layer& layer, int64_t position, std::vector<double>& key) {
  for (int64_t h = 0; h < layer.heads && layer.pairs > 0; ++h) {
    double* head = key.data() + h * layer.head_size;
    for (int64_t j = 0; j < layer.pairs; ++j) {
      const double c = layer.cosine[static_cast<size_t>(position * layer.pairs + j)];
      const double s = layer.sine[static_cast<size_t>(position * layer.pairs + j)];
      const bool half = layer.problem.rotary == Rotary::kHalf;
      double& a = head[half ? j : 2 * j];
      double& b = head[half ? j + layer.pairs : 2 * j + 1];
      const double turned = a * c - b * s;
      b = b * c + a * s;
      a = turned;
    }
  }
}

// The weights that the kernel is given, and those that the stored rows are made with.
struct Folded {
  std::vector<double> row_weight, row_bias;  // empty weight: rows are inputs
};

Folded Fold(Dice& dice, double condition, Layer& made) {
  Problem& p = made.problem;
  Folded out;
  const int64_t d = made.width, e = made.kv_heads * made.head_size;
  const int64_t values = made.kv_heads * made.value_size;
  fold::Matrix key{made.key_weight.data(), d, e}, value{made.value_weight.data(), d, values};
  std::vector<double> keys, folded, bias;
  if (made.kept == Kept::kInputs) {
    p.pool.width = d;
  } else {
    int64_t base_columns = e;
    out.row_weight = made.key_weight;
    if (made.kept == Kept::kBase) {
      base_columns = d + dice.Between(0, 12);
      out.row_weight = Conditioned(dice, d, base_columns, condition);
    } else if (made.pairs > 0 || p.softcap > 0 || dice.Chance(20)) {
      // A bias that is turned, or under a softcap, does not cancel in the softmax: keys carry it.
      out.row_bias = made.key_bias;
    }
    p.pool.width = base_columns;
    const fold::Matrix base{out.row_weight.data(), d, base_columns};
    const fold::Inverse inverse(base);
    if (!inverse.fault().empty()) throw std::runtime_error(inverse.fault());
    folded = inverse.Times(value);
    value = {folded.data(), base_columns, values};
    if (made.kept == Kept::kBase) {
      keys = inverse.Times(key);
      key = {keys.data(), base_columns, e};
    }
  }
  bias = fold::FoldBias(out.row_bias.empty() ? nullptr : out.row_bias.data(), value,
                        made.value_bias.empty() ? nullptr : made.value_bias.data());
  made.folded_value_bias = Narrow(bias);
  made.value_panels = Narrow(fold::ColumnPanels(value, made.kv_heads));
  p.value_weight = made.value_panels.data();
  if (!made.value_bias.empty() || !out.row_bias.empty() || dice.Chance(20)) {
    p.value_bias = made.folded_value_bias.data();
  }
  if (made.kept != Kept::kKeys) {
    made.key_panels = Narrow(fold::RowPanels(key, made.kv_heads));
    p.key_weight = made.key_panels.data();
    // Without a softcap it cancels in the softmax.
    if (!made.key_bias.empty() && (p.softcap > 0 || dice.Chance(50))) {
      made.folded_key_bias = Narrow(made.key_bias);
      p.key_bias = made.folded_key_bias.data();
    }
  }
  return out;
}

struct Group {
  int64_t tokens, shared, private_count;
  bool causal;
};

Group RandomGroup(Dice& dice) {
  Group g{dice.Chance(6) ? dice.Between(1, 40) : dice.Between(1, 4), 0, 0, dice.Chance(30)};
  g.shared = dice.Chance(8) ? dice.Between(0, 300) : dice.Between(0, 50);
  if (g.causal) {
    g.shared = g.tokens + (dice.Chance(50) ? 0 : g.shared);
  } else {
    g.private_count = dice.Chance(40) ? 0 : dice.Between(1, 12);
  }
  if (g.shared + g.private_count == 0) g.private_count = 1;
  return g;
}

void MakeRotary(Dice& dice, int64_t positions, Layer& made) {
  Problem& p = made.problem;
  if (made.kept != Kept::kKeys || made.head_size < 2 || dice.Chance(40)) return;
  made.pairs = dice.Chance(70) ? made.head_size / 2 : dice.Between(1, made.head_size / 2);
  p.rotary = dice.Chance(50) ? Rotary::kHalf : Rotary::kInterleaved;
  p.rotated = dice.Chance(50);
  for (int64_t n = 0; n < positions; ++n) {
    for (int64_t j = 0; j < made.pairs; ++j) {
      const double angle = static_cast<double>(n) *
                           std::pow(1e4, -static_cast<double>(j) / static_cast<double>(made.pairs));
      made.cosine.push_back(static_cast<float>(std::cos(angle)));
      made.sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  p.cosine = made.cosine.data();
  p.sine = made.sine.data();
  p.positions = positions;
  p.pairs = made.pairs;
}

void MakeScores(Dice& dice, Layer& made) {
  Problem& p = made.problem;
  if (dice.Chance(35)) {
    p.distances = dice.Between(1, 80);
    const bool slopes = dice.Chance(50);
    for (int64_t h = 0; h < made.heads; ++h) {
      for (int64_t n = 0; n < p.distances; ++n) {
        const double slope = std::exp2(-8.0 * static_cast<double>(h + 1) / made.heads);
        made.bias.push_back(
            static_cast<float>(slopes ? -slope * static_cast<double>(n) : dice.Real(-2, 2)));
      }
    }
    p.bias = made.bias.data();
  }
  if (dice.Chance(30)) p.scale = static_cast<float>(dice.Real(0.05, 0.6));
  if (dice.Chance(15)) p.softcap = static_cast<float>(dice.Real(1, 20));
  if (dice.Chance(20)) p.window = dice.Between(1, 60);
  if (made.kept == Kept::kKeys && dice.Chance(40)) {
    p.skip = static_cast<float>(std::pow(10.0, dice.Real(-5, -1)));
  }
}

void MakeTuning(Dice& dice, Layer& made) {
  std::vector<Isa> isas;
  for (Isa isa : kIsas) {
    if (attention::Supports(isa)) isas.push_back(isa);
  }
  made.tuning.isa =
      isas[static_cast<size_t>(dice.Between(0, static_cast<int64_t>(isas.size()) - 1))];
  if (dice.Chance(40)) made.tuning.parts = dice.Between(1, 6);
  if (dice.Chance(40)) made.tuning.row_chunk = dice.Between(1, 30);
  if (dice.Chance(60)) made.tuning.prompt = dice.Between(0, 1);
  if (dice.Chance(60)) made.tuning.serial_cost = 0;
  made.threads = static_cast<int>(dice.Between(1, 3));
}

}  // namespace

void Make(uint32_t index, double condition, Layer& made) {
  Dice dice(index * 6151u + 3u);
  Problem& p = made.problem;
  made.kept = dice.Chance(60) ? Kept::kKeys : dice.Chance(60) ? Kept::kInputs : Kept::kBase;
  made.kv_heads = dice.Between(1, 4);
  const bool grouped = made.kept != Kept::kKeys && dice.Chance(30);
  made.heads = made.kv_heads * (grouped ? dice.Between(2, 3) : 1);
  made.head_size = dice.Pick({1, 4, 8, 16, 17, 32});
  made.value_size = dice.Chance(75) ? made.head_size : dice.Pick({1, 5, 16, 24, 40});
  const int64_t e = made.kv_heads * made.head_size;
  // Keys can be inverted where the weight is square or wide; inputs may be of any width.
  made.width = made.kept == Kept::kKeys ? (dice.Chance(60) ? e : dice.Between(1, e))
                                        : dice.Pick({1, 6, 16, 24, 40, 64});
  made.key_weight = made.kept == Kept::kKeys
                        ? Conditioned(dice, made.width, e, condition)
                        : dice.Matrix(made.width, e, 1 / std::sqrt(double(made.width)));
  made.value_weight =
      dice.Matrix(made.width, made.kv_heads * made.value_size, 1 / std::sqrt(double(made.width)));
  if (dice.Chance(50)) made.key_bias = dice.Matrix(1, e, 0.5);
  if (dice.Chance(50)) {
    made.value_bias = dice.Matrix(1, made.kv_heads * made.value_size, 0.5);
  }

  std::vector<Group> groups;
  int64_t slots = 0, positions = 1;
  for (int64_t g = dice.Between(1, 3); g > 0; --g) {
    groups.push_back(RandomGroup(dice));
    slots += groups.back().shared + groups.back().tokens * groups.back().private_count;
    positions = std::max(positions, groups.back().shared + groups.back().private_count);
    p.tokens += groups.back().tokens;
  }
  MakeRotary(dice, positions, made);
  MakeScores(dice, made);
  const Folded rows = Fold(dice, condition, made);

  p.pool.blocks = slots / kBlockSlots + 1 + dice.Between(0, 1);
  p.pool.offset = dice.Chance(50) ? 0 : dice.Between(1, 40);
  p.pool.block_floats = p.pool.offset + p.pool.area_floats();
  made.pool.assign(static_cast<size_t>(p.pool.blocks * p.pool.block_floats), kNan);
  p.pool.data = made.pool.data();
  std::vector<int32_t> free;
  for (int64_t s = 0; s < p.pool.slots(); ++s) free.push_back(static_cast<int32_t>(s));
  if (dice.Chance(50)) {
    std::mt19937 shuffle(index);
    std::shuffle(free.begin(), free.end(), shuffle);
  }
  made.inputs.resize(free.size());
  made.positions.resize(free.size());
  made.slot_mapping.assign(static_cast<size_t>(p.tokens), -1);
  made.rows.assign(static_cast<size_t>(p.tokens * p.pool.width), kNan);
  const bool writes = dice.Chance(75);
  // Takes a slot for a position; token is whose new row it is, or -1.
  const auto take = [&](int64_t position, int64_t token) {
    const int32_t slot = free.back();
    free.pop_back();
    std::vector<double>& x = made.inputs[static_cast<size_t>(slot)];
    x = dice.Matrix(1, made.width, 1.0);
    made.positions[static_cast<size_t>(slot)] = position;
    std::vector<double> row = x;
    if (!rows.row_weight.empty()) row = Product(x, rows.row_weight, rows.row_bias);
    if (p.rotated) Turn(made, position, row);
    float* to = p.pool.data + p.pool.RowOffset(slot) / 4;
    if (writes && token >= 0) {
      made.slot_mapping[static_cast<size_t>(token)] = slot;
      to = made.rows.data() + token * p.pool.width;
    }
    for (int64_t f = 0; f < p.pool.width; ++f) to[f] = static_cast<float>(row[size_t(f)]);
    return slot;
  };
  int64_t token = 0;
  std::ostringstream text;
  for (const Group& g : groups) {
    for (int64_t value : {token, g.tokens, static_cast<int64_t>(made.shared_slots.size()), g.shared,
                          static_cast<int64_t>(made.private_slots.size()), g.private_count,
                          int64_t{g.causal ? 1 : 0}, int64_t{0}}) {
      made.sequences.push_back(static_cast<int32_t>(value));
    }
    for (int64_t j = 0; j < g.shared; ++j) {
      const int64_t i = j - (g.shared - g.tokens);
      made.shared_slots.push_back(take(j, g.causal && i >= 0 ? token + i : -1));
    }
    for (int64_t i = 0; i < g.tokens; ++i) {
      for (int64_t j = 0; j < g.private_count; ++j) {
        made.private_slots.push_back(take(g.shared + j, j == g.private_count - 1 ? token + i : -1));
      }
    }
    token += g.tokens;
    text << " (" << g.tokens << " tokens, " << g.shared << "+" << g.private_count
         << (g.causal ? " causal)" : ")");
  }
  p.sequences = made.sequences.data();
  p.groups = static_cast<int64_t>(groups.size());
  p.shared_slots = made.shared_slots.data();
  p.shared_length = static_cast<int64_t>(made.shared_slots.size());
  p.private_slots = made.private_slots.data();
  p.private_length = static_cast<int64_t>(made.private_slots.size());
  if (writes) {
    p.input = made.rows.data();
    p.input_stride = p.pool.width;
    p.slot_mapping = made.slot_mapping.data();
  }
  p.kind = made.kept == Kept::kKeys ? RowKind::kKeys : RowKind::kHiddenStates;
  p.heads = made.heads;
  p.kv_heads = made.kv_heads;
  p.head_size = made.head_size;
  p.value_size = made.value_size;
  for (int64_t i = 0; i < p.tokens * made.heads * made.head_size; ++i) {
    made.query.push_back(static_cast<float>(dice.Normal()));
  }
  p.query = made.query.data();
  p.query_stride = made.heads * made.head_size;
  made.output.assign(static_cast<size_t>(p.tokens * made.heads * made.value_size + 2 * kOutputBand),
                     kNan);
  p.output = made.output.data() + kOutputBand;
  if (p.skip > 0 || dice.Chance(20)) {
    made.skipped.assign(static_cast<size_t>(p.tokens * made.heads + 1), kNan);
    p.skipped = made.skipped.data();
  }
  MakeTuning(dice, made);

  std::ostringstream all;
  all << "layer " << index << ": caches " << static_cast<int>(made.kept) << ", width " << made.width
      << ", row " << p.pool.width << ", heads " << made.heads << "/" << made.kv_heads << " of "
      << made.head_size << "/" << made.value_size << ", biases " << !made.key_bias.empty()
      << !made.value_bias.empty() << ", rotary " << static_cast<int>(p.rotary) << " x "
      << made.pairs << (p.rotated ? " rotated" : "") << ", distances " << p.distances
      << ", softcap " << p.softcap << ", window " << p.window << ", skip " << p.skip << ", writes "
      << writes << ", isa " << static_cast<int>(made.tuning.isa) << ", parts " << made.tuning.parts
      << ", row chunk " << made.tuning.row_chunk << ", prompt " << made.tuning.prompt
      << ", threads " << made.threads << "; groups" << text.str();
  made.description = all.str();
}

Answer Compute(const Layer& layer) {
  const Problem& p = layer.problem;
  const int64_t group_heads = layer.heads / layer.kv_heads;
  const double scale =
      p.scale != 0.0f ? p.scale : 1.0 / std::sqrt(static_cast<double>(layer.head_size));
  std::vector<std::vector<double>> keys(layer.inputs.size()), values(layer.inputs.size());
  for (size_t s = 0; s < layer.inputs.size(); ++s) {
    if (layer.inputs[s].empty()) continue;
    keys[s] = Product(layer.inputs[s], layer.key_weight, layer.key_bias);
    Turn(layer, layer.positions[s], keys[s]);
    values[s] = Product(layer.inputs[s], layer.value_weight, layer.value_bias);
  }
  Answer answer;
  answer.output.assign(static_cast<size_t>(p.tokens * p.heads * p.value_size), 0.0);
  answer.below_skip.assign(static_cast<size_t>(p.tokens * p.heads), 0.0);
  answer.largest.assign(static_cast<size_t>(p.tokens * p.heads), 0.0);
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* s = p.sequences + g * 8;
    for (int64_t i = 0; i < s[1]; ++i) {
      std::vector<size_t> seen;
      const int64_t shared = s[6] != 0 ? s[3] - s[1] + i + 1 : s[3];
      for (int64_t j = 0; j < shared; ++j) seen.push_back(size_t(p.shared_slots[s[2] + j]));
      for (int64_t j = 0; j < s[5]; ++j)
        seen.push_back(size_t(p.private_slots[s[4] + i * s[5] + j]));
      const int64_t count = static_cast<int64_t>(seen.size());
      for (int64_t h = 0; h < p.heads; ++h) {
        const int64_t at = (s[0] + i) * p.heads + h, kv = h / group_heads;
        const float* query = p.query + (s[0] + i) * p.query_stride + h * p.head_size;
        std::vector<double> scores(seen.size(), -kInfinity);
        double highest = -kInfinity, sum = 0;
        for (int64_t j = 0; j < count; ++j) {
          const int64_t distance = count - 1 - j;
          if (p.window > 0 && distance >= p.window) continue;
          double score = 0;
          for (int64_t c = 0; c < p.head_size; ++c) {
            score += query[c] * keys[seen[size_t(j)]][size_t(kv * p.head_size + c)];
          }
          score *= scale;
          if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
          if (p.bias != nullptr) {
            score += p.bias[h * p.distances + std::min(distance, p.distances - 1)];
          }
          scores[size_t(j)] = score;
          highest = std::max(highest, score);
        }
        for (double score : scores) sum += std::exp(score - highest);
        for (int64_t j = 0; j < count; ++j) {
          const double weight = std::exp(scores[size_t(j)] - highest) / sum;
          if (weight < p.skip) answer.below_skip[size_t(at)] += weight;
          for (int64_t c = 0; c < p.value_size; ++c) {
            const double value = values[seen[size_t(j)]][size_t(kv * p.value_size + c)];
            const double bias = p.value_bias != nullptr ? p.value_bias[kv * p.value_size + c] : 0;
            answer.output[size_t(at * p.value_size + c)] += weight * value;
            answer.largest[size_t(at)] =
                std::max(answer.largest[size_t(at)], std::fabs(value - bias));
          }
        }
      }
    }
  }
  return answer;
}

}  // namespace testing
}  // namespace row_attention
}  // namespace graft
