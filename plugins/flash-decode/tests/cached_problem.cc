#include "cached_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>

#include "stored.h"

namespace graft {
namespace attention {
namespace testing {
namespace {

constexpr int64_t kBand = 256;  // floats before and after the pool
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Hands out slots of a pool: whole blocks in random order, or what is left of them.
class Slots {
 public:
  Slots(int64_t blocks, Dice& random) : random_(random) {
    for (int64_t b = 0; b < blocks; ++b) blocks_.push_back(static_cast<int32_t>(b));
    random_.Shuffle(blocks_);
  }
  // `count` slots, adjacent within blocks; with `scattered`, single ones among many blocks.
  std::vector<int32_t> Take(int64_t count, bool scattered) {
    std::vector<int32_t> slots;
    for (int64_t i = 0; i < count; ++i) slots.push_back(Next());
    if (scattered) random_.Shuffle(slots);
    return slots;
  }
  void NewBlock() { used_ = kBlockSlots; }

 private:
  int32_t Next() {
    if (used_ == kBlockSlots) {
      block_ = blocks_.back();
      blocks_.pop_back();
      used_ = 0;
    }
    return static_cast<int32_t>(block_ * kBlockSlots + used_++);
  }

  Dice& random_;
  std::vector<int32_t> blocks_;
  int32_t block_ = 0;
  int64_t used_ = kBlockSlots;
};

struct Shape {
  int64_t rows, shared, private_count;
  bool causal;
};

Shape RandomShape(Dice& random, int64_t maximum) {
  Shape s;
  s.causal = random.Chance(35);
  s.rows = random.Chance(8) ? random.Between(1, 70) : random.Between(1, 6);
  if (random.Chance(8)) maximum *= 8;
  s.shared = random.Chance(15) ? 0 : random.Between(0, maximum);
  s.private_count =
      s.causal || random.Chance(20) ? 0 : random.Between(1, random.Chance(20) ? maximum : 20);
  if (s.causal) s.shared = s.rows + (random.Chance(50) ? 0 : s.shared);
  return s;
}

}  // namespace

GuardedPool::GuardedPool(const Pool& sizes, int64_t misalign)
    : sizes_(sizes), start_(kBand + misalign) {
  memory_.assign(static_cast<size_t>(sizes.blocks * sizes.block_floats + 2 * kBand + misalign),
                 kNan);
}

Pool GuardedPool::pool() const {
  Pool pool = sizes_;
  pool.data = const_cast<float*>(memory_.data()) + start_;
  return pool;
}

void GuardedPool::Fill(int64_t slot, Dice& random) {
  const Pool p = pool();
  std::vector<float> row;
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    for (const bool value : {false, true}) {
      row.clear();
      for (int64_t f = 0; f < (value ? p.value_size : p.head_size); ++f) {
        row.push_back(random.Float(1.5f));
      }
      Put(p, slot, h, value, row.data(), reinterpret_cast<char*>(p.data));
    }
  }
}

std::vector<float> GuardedPool::Expected(const CachedProblem& problem) const {
  std::vector<float> memory = memory_;
  const Pool& p = sizes_;
  if (problem.key == nullptr) return memory;
  // Written out by the formula of the contract, not by the pool's own functions.
  char* to = reinterpret_cast<char*>(memory.data() + start_);
  for (int64_t t = 0; t < problem.rows; ++t) {
    const int64_t slot = problem.slot_mapping[t];
    if (slot < 0) continue;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      Put(p, slot, h, false, problem.key + t * problem.key_stride + h * p.head_size, to);
      Put(p, slot, h, true, problem.value + t * problem.value_stride + h * p.value_size, to);
    }
  }
  return memory;
}

void Make(uint32_t index, RandomCachedProblem& made, Storage storage) {
  Dice random(index * 7919u + 17u);
  CachedProblem& p = made.problem;
  Pool sizes;
  sizes.storage = storage;
  sizes.kv_heads = random.Between(1, 4);
  p.heads = sizes.kv_heads * (random.Chance(60) ? 1 : random.Between(2, 5));
  sizes.head_size = random.Pick({1, 3, 8, 16, 24, 32, 40, 64, 64, 64, 80, 128});
  sizes.value_size = random.Chance(80) ? sizes.head_size : random.Pick({1, 5, 16, 48, 64, 128});
  // Before and after the layer's area stand those of others, of any size.
  sizes.offset = random.Chance(50) ? 0 : random.Between(1, 2000);
  sizes.block_floats =
      sizes.offset + sizes.floats() + (random.Chance(50) ? 0 : random.Between(1, 2000));

  const bool writes = random.Chance(75);
  std::vector<Shape> shapes;
  const int64_t groups = random.Chance(3) ? 0 : random.Between(1, 3);
  int64_t slots = 0;
  for (int64_t g = 0; g < groups; ++g) {
    shapes.push_back(RandomShape(random, 70));
    slots += shapes.back().shared + shapes.back().rows * shapes.back().private_count;
    p.rows += shapes.back().rows;
  }
  sizes.blocks = slots / kBlockSlots + groups * 2 + random.Between(0, 3);
  made.pool.emplace_back(sizes, random.Between(0, 3));
  GuardedPool& pool = made.pool.back();
  p.pool = pool.pool();

  // Groups in any order of their rows.
  std::vector<int64_t> first(static_cast<size_t>(groups));
  std::vector<int64_t> order(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) order[static_cast<size_t>(g)] = g;
  if (random.Chance(30)) random.Shuffle(order);
  int64_t row = 0;
  for (int64_t g : order) {
    first[static_cast<size_t>(g)] = row;
    row += shapes[static_cast<size_t>(g)].rows;
  }

  Slots free(sizes.blocks, random);
  made.slot_mapping.assign(static_cast<size_t>(p.rows), -1);
  made.shared_slots.assign(static_cast<size_t>(random.Between(0, 3)),
                           -5);  // lists that no step takes
  made.private_slots.assign(static_cast<size_t>(random.Between(0, 3)), 1 << 30);
  for (int64_t g = 0; g < groups; ++g) {
    const Shape& s = shapes[static_cast<size_t>(g)];
    const int64_t row0 = first[static_cast<size_t>(g)];
    const int64_t so = static_cast<int64_t>(made.shared_slots.size());
    const int64_t oo = static_cast<int64_t>(made.private_slots.size());
    made.sequences.insert(
        made.sequences.end(),
        {static_cast<int32_t>(row0), static_cast<int32_t>(s.rows), static_cast<int32_t>(so),
         static_cast<int32_t>(s.shared), static_cast<int32_t>(oo),
         static_cast<int32_t>(s.private_count), s.causal ? 1 : 0, 0});
    const std::vector<int32_t> shared_slots = free.Take(s.shared, random.Chance(30));
    made.shared_slots.insert(made.shared_slots.end(), shared_slots.begin(), shared_slots.end());
    for (int64_t j = 0; j < s.shared; ++j) {
      const int64_t token = j - (s.shared - s.rows);
      const bool fresh = writes && s.causal && token >= 0 && random.Chance(95);
      if (fresh) {
        made.slot_mapping[static_cast<size_t>(row0 + token)] = shared_slots[static_cast<size_t>(j)];
      } else {
        pool.Fill(shared_slots[static_cast<size_t>(j)], random);
      }
    }
    // Own positions: some of a step's slots survive, and each row descends from any of them.
    free.NewBlock();
    std::vector<std::vector<int32_t>> private_slots(static_cast<size_t>(s.private_count));
    for (int64_t j = 0; j < s.private_count; ++j) {
      const std::vector<int32_t> born = free.Take(s.rows, random.Chance(10));
      const bool last = j == s.private_count - 1;
      std::vector<int32_t>& chosen = private_slots[static_cast<size_t>(j)];
      for (int64_t i = 0; i < s.rows; ++i) {
        chosen.push_back(born[static_cast<size_t>(last ? i : random.Between(0, s.rows - 1))]);
      }
      std::vector<int32_t> used = chosen;
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      for (int32_t slot : used) {
        if (last && writes && random.Chance(95)) {
          const int64_t i = std::find(chosen.begin(), chosen.end(), slot) - chosen.begin();
          made.slot_mapping[static_cast<size_t>(row0 + i)] = slot;
        } else {
          pool.Fill(slot, random);
        }
      }
    }
    for (int64_t i = 0; i < s.rows; ++i) {
      for (int64_t j = 0; j < s.private_count; ++j) {
        made.private_slots.push_back(private_slots[static_cast<size_t>(j)][static_cast<size_t>(i)]);
      }
    }
  }
  made.shared_slots.push_back(-7);

  const auto sample = [&random](std::vector<float>& to, int64_t count, float maximum) {
    for (int64_t i = 0; i < count; ++i) to.push_back(random.Float(maximum));
  };
  p.query_stride = p.heads * sizes.head_size + (random.Chance(20) ? random.Between(1, 9) : 0);
  sample(made.query, p.rows * p.query_stride + 1, 1.5f);
  p.query = made.query.data();
  if (writes) {
    p.key_stride = sizes.kv_heads * sizes.head_size + (random.Chance(20) ? 3 : 0);
    p.value_stride = sizes.kv_heads * sizes.value_size + (random.Chance(20) ? 5 : 0);
    sample(made.key, p.rows * p.key_stride + 1, 1.5f);
    sample(made.value, p.rows * p.value_stride + 1, 1.5f);
    p.key = made.key.data();
    p.value = made.value.data();
    p.slot_mapping = made.slot_mapping.data();
  }
  if (random.Chance(30)) {
    p.distances = random.Chance(50) ? random.Between(1, 20) : random.Between(1, 300);
    const bool by_row = p.rows > 0 && random.Chance(40);
    if (by_row) p.bias_stride = p.heads * p.distances;
    sample(made.bias, (by_row ? p.rows : 1) * p.heads * p.distances, 3.0f);
    if (p.distances > 2 && random.Chance(20)) {
      made.bias[static_cast<size_t>(random.Between(1, p.distances - 1))] = -kInfinity;
    }
    p.bias = made.bias.data();
  }
  Dice apart(index);  // so that the other numbers are those of a problem without sinks
  if (apart.Chance(30)) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const float kFar[] = {0.0f, 30.0f, -40.0f, 1e6f, -kInfinity};
      made.sinks.push_back(apart.Chance(50) ? apart.Float(3.0f) : kFar[apart.Between(0, 4)]);
    }
    p.sinks = made.sinks.data();
  }
  if (random.Chance(30)) p.scale = 0.01f + std::fabs(random.Float(0.5f));
  if (random.Chance(15)) p.softcap = 1.0f + std::fabs(random.Float(20.0f));
  if (random.Chance(25)) p.window = random.Between(1, random.Chance(50) ? 10 : 120);
  made.output.assign(static_cast<size_t>(p.rows * p.heads * sizes.value_size + 2 * kOutputBand),
                     kNan);
  p.output = made.output.data() + kOutputBand;
  p.sequences = made.sequences.data();
  p.groups = groups;
  p.shared_slots = made.shared_slots.data();
  p.shared_length = static_cast<int64_t>(made.shared_slots.size());
  p.private_slots = made.private_slots.data();
  p.private_length = static_cast<int64_t>(made.private_slots.size());

  std::vector<Isa> isas;
  for (Isa isa : kIsas) {
    if (Supports(isa)) isas.push_back(isa);
  }
  made.tuning.isa =
      isas[static_cast<size_t>(random.Between(0, static_cast<int64_t>(isas.size()) - 1))];
  if (random.Chance(40)) made.tuning.parts = random.Between(1, 9);
  if (random.Chance(40)) made.tuning.head_chunk = random.Between(1, 4);
  if (random.Chance(40)) made.tuning.row_chunk = random.Between(1, 40);
  if (random.Chance(60)) made.tuning.serial_cost = 0;
  made.threads = static_cast<int>(random.Between(1, 4));

  std::ostringstream text;
  text << "problem " << index << ": heads " << p.heads << "/" << sizes.kv_heads << " of "
       << sizes.head_size << "/" << sizes.value_size << ", area at " << sizes.offset << " of "
       << sizes.block_floats << ", bias " << p.distances << (p.bias_stride > 0 ? " a row" : "")
       << ", softcap " << p.softcap << ", window " << p.window << ", sinks " << (p.sinks != nullptr)
       << ", writes " << writes << ", isa " << static_cast<int>(made.tuning.isa) << ", parts "
       << made.tuning.parts << ", head chunk " << made.tuning.head_chunk << ", row chunk "
       << made.tuning.row_chunk << ", serial " << made.tuning.serial_cost << ", threads "
       << made.threads << ", storage " << static_cast<int>(storage) << "; groups";
  for (const Shape& s : shapes) {
    text << " (" << s.rows << " rows, " << s.shared << " shared, " << s.private_count << " own"
         << (s.causal ? ", causal)" : ")");
  }
  made.description = text.str();
}

std::vector<double> Compute(const CachedProblem& p, const float* pool) {
  const Pool& sizes = p.pool;
  // Rows as they are stored, each read once.
  std::map<std::tuple<int64_t, int64_t, bool>, std::vector<double>> rows_of;
  const auto row_of = [&](int64_t slot, int64_t head, bool value) {
    std::vector<double>& row = rows_of[{slot, head, value}];
    if (row.empty()) row = Get(sizes, slot, head, value, reinterpret_cast<const char*>(pool));
    return row.data();
  };
  const int64_t group_heads = p.heads / sizes.kv_heads;
  const double scale =
      p.scale != 0.0f ? p.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_size));
  std::vector<double> output(static_cast<size_t>(p.rows * p.heads * sizes.value_size));
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* step = p.sequences + g * 8;
    const int64_t rows = step[1], shared = step[3], private_count = step[5];
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = step[0] + i;
      const int64_t seen = step[6] != 0 ? shared - rows + i + 1 : shared + private_count;
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t h = head / group_heads;
        std::vector<double> scores(static_cast<size_t>(seen));
        std::vector<const double*> values(static_cast<size_t>(seen));
        double highest = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < seen; ++j) {
          const int64_t slot = j < shared
                                   ? p.shared_slots[step[2] + j]
                                   : p.private_slots[step[4] + i * private_count + j - shared];
          const double* key = row_of(slot, h, false);
          values[static_cast<size_t>(j)] = row_of(slot, h, true);
          const int64_t distance = seen - 1 - j;
          double& score = scores[static_cast<size_t>(j)];
          if (p.window > 0 && distance >= p.window) {
            score = -std::numeric_limits<double>::infinity();
            continue;
          }
          double dot = 0.0;
          for (int64_t f = 0; f < sizes.head_size; ++f) {
            dot += static_cast<double>(p.query[row * p.query_stride + head * sizes.head_size + f]) *
                   key[f];
          }
          score = scale * dot;
          if (p.softcap > 0.0f) score = p.softcap * std::tanh(score / p.softcap);
          if (p.bias != nullptr) {
            score += p.bias[row * p.bias_stride + head * p.distances +
                            std::min(distance, p.distances - 1)];
          }
          highest = std::max(highest, score);
        }
        double* to = output.data() + (row * p.heads + head) * sizes.value_size;
        double sum = 0.0;
        if (p.sinks != nullptr) {
          highest = std::max(highest, static_cast<double>(p.sinks[head]));
          sum = std::exp(p.sinks[head] - highest);
        }
        for (int64_t j = 0; j < seen; ++j) {
          const double weight = std::exp(scores[static_cast<size_t>(j)] - highest);
          if (weight == 0.0) continue;
          sum += weight;
          for (int64_t f = 0; f < sizes.value_size; ++f) {
            to[f] += weight * values[static_cast<size_t>(j)][f];
          }
        }
        for (int64_t f = 0; f < sizes.value_size && seen > 0; ++f) to[f] /= sum;
      }
    }
  }
  return output;
}

}  // namespace testing
}  // namespace attention
}  // namespace graft
