#include "row_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "../../flash-decode/tests/stored.h"
#include "dice.h"
#include "row_reference.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using graft::testing::Dice;

// One part of a group: shared positions, own ones, and whether it is causal.
struct Part {
  int64_t shared = 0, private_count = 0;
  bool causal = false;
  int64_t slots(int64_t tokens) const { return shared + tokens * private_count; }
};
struct Shape {
  int64_t tokens = 0;
  Part rows, keys;
};

Part RandomPart(Dice& dice, int64_t maximum) {
  Part part;
  if (dice.Chance(8)) maximum *= 6;
  part.shared = dice.Chance(20) ? 0 : dice.Between(1, maximum);
  part.private_count = dice.Chance(60) ? 0 : dice.Between(1, dice.Chance(20) ? maximum : 20);
  return part;
}

Shape RandomShape(Dice& dice, bool second) {
  Shape s;
  s.tokens = dice.Chance(7) ? dice.Between(1, 60) : dice.Between(1, 5);
  s.rows = RandomPart(dice, 60);
  if (dice.Chance(30)) {  // a prompt
    Part prompt;
    prompt.causal = true;
    prompt.shared = s.tokens + (dice.Chance(50) ? 0 : dice.Between(0, 60));
    const bool in_keys = second && dice.Chance(40);
    s.rows = in_keys ? Part() : prompt;
    if (in_keys) s.keys = prompt;
    return s;
  }
  if (second && dice.Chance(80)) s.keys = RandomPart(dice, 40);
  return s;
}

// Free slots of a pool in the order in which they are handed out.
std::vector<int32_t> FreeSlots(Dice& dice, int64_t blocks) {
  std::vector<int32_t> order, slots;
  for (int64_t b = 0; b < blocks; ++b) order.push_back(static_cast<int32_t>(b));
  dice.Shuffle(order);
  for (int32_t b : order) {
    for (int32_t i = 0; i < kBlockSlots; ++i) {
      slots.push_back(b * static_cast<int32_t>(kBlockSlots) + i);
    }
  }
  if (dice.Chance(30)) dice.Shuffle(slots);
  return slots;
}

// Lists of one part of all groups. Slots that a token writes are its last own position, or its
// place in a prompt; the others are in `filled`.
struct Lists {
  std::vector<int32_t> sequences, shared_slots, private_slots, slot_mapping, filled;
};

Lists MakeLists(Dice& dice, const std::vector<Shape>& shapes, const std::vector<int64_t>& first,
                int64_t tokens, int64_t blocks, bool writes, Part Shape::*part) {
  Lists lists;
  std::vector<int32_t> free = FreeSlots(dice, blocks);
  const auto take = [&free] {
    const int32_t slot = free.back();
    free.pop_back();
    return slot;
  };
  lists.slot_mapping.assign(static_cast<size_t>(tokens), -1);
  lists.shared_slots.assign(static_cast<size_t>(dice.Between(0, 2)),
                            -5);  // lists that no step takes
  lists.private_slots.assign(static_cast<size_t>(dice.Between(0, 2)), 1 << 30);
  for (size_t g = 0; g < shapes.size(); ++g) {
    const Part& s = shapes[g].*part;
    const int64_t rows = shapes[g].tokens, row0 = first[g];
    for (int64_t value : {row0, rows, static_cast<int64_t>(lists.shared_slots.size()), s.shared,
                          static_cast<int64_t>(lists.private_slots.size()), s.private_count,
                          int64_t{s.causal ? 1 : 0}, int64_t{0}}) {
      lists.sequences.push_back(static_cast<int32_t>(value));
    }
    for (int64_t j = 0; j < s.shared; ++j) {
      const int32_t slot = take();
      lists.shared_slots.push_back(slot);
      const int64_t token = j - (s.shared - rows);
      if (writes && s.causal && token >= 0 && dice.Chance(90)) {
        lists.slot_mapping[static_cast<size_t>(row0 + token)] = slot;
      } else {
        lists.filled.push_back(slot);
      }
    }
    // Own positions: a token descends from any of those that were born at a position.
    std::vector<std::vector<int32_t>> private_slots(static_cast<size_t>(s.private_count));
    for (int64_t j = 0; j < s.private_count; ++j) {
      std::vector<int32_t> born;
      for (int64_t i = 0; i < rows; ++i) born.push_back(take());
      const bool last = j == s.private_count - 1;
      for (int64_t i = 0; i < rows; ++i) {
        private_slots[static_cast<size_t>(j)].push_back(
            born[static_cast<size_t>(last ? i : dice.Between(0, rows - 1))]);
        if (last && writes && dice.Chance(90)) {
          lists.slot_mapping[static_cast<size_t>(row0 + i)] = born[static_cast<size_t>(i)];
        } else {
          lists.filled.push_back(born[static_cast<size_t>(i)]);
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < s.private_count; ++j) {
        lists.private_slots.push_back(
            private_slots[static_cast<size_t>(j)][static_cast<size_t>(i)]);
      }
    }
  }
  lists.shared_slots.push_back(-7);
  return lists;
}

void MakeWeights(Dice& dice, RandomProblem& made) {
  Problem& p = made.problem;
  const float size = 1.7f / std::sqrt(static_cast<float>(p.pool.width));
  if (p.kind == RowKind::kHiddenStates) {
    dice.Fill(made.key_matrix, p.pool.width * p.kv_heads * p.head_size, size);
    made.key_panels = RowPanels(made.key_matrix, p.pool.width, p.kv_heads, p.head_size);
    p.key_weight = made.key_panels.data();
    if (dice.Chance(30)) {
      dice.Fill(made.key_bias, p.kv_heads * p.head_size, 0.5f);
      p.key_bias = made.key_bias.data();
    }
  }
  dice.Fill(made.value_matrix, p.pool.width * p.kv_heads * p.value_size, size);
  made.value_panels = ColumnPanels(made.value_matrix, p.pool.width, p.kv_heads, p.value_size);
  p.value_weight = made.value_panels.data();
  if (dice.Chance(40)) {
    dice.Fill(made.value_bias, p.kv_heads * p.value_size, 0.5f);
    p.value_bias = made.value_bias.data();
  }
}

void MakeRotary(Dice& dice, int64_t positions, RandomProblem& made) {
  Problem& p = made.problem;
  if (p.kind != RowKind::kKeys || p.head_size < 2 || dice.Chance(40)) return;
  p.rotary = dice.Chance(50) ? Rotary::kHalf : Rotary::kInterleaved;
  p.rotated = dice.Chance(50);
  p.pairs = dice.Chance(70) ? p.head_size / 2 : dice.Between(1, p.head_size / 2);
  p.positions = positions + dice.Between(0, 2);
  for (int64_t i = 0; i < p.positions * p.pairs; ++i) {
    const float angle = dice.Float(3.0f);
    made.cosine.push_back(std::cos(angle));
    made.sine.push_back(std::sin(angle));
  }
  p.cosine = made.cosine.data();
  p.sine = made.sine.data();
}

// Distances: any, or falling off as in ALiBi (Press et al. 2022).
void MakeScores(Dice& dice, RandomProblem& made) {
  Problem& p = made.problem;
  if (dice.Chance(30)) {
    p.distances = dice.Chance(50) ? dice.Between(1, 20) : dice.Between(1, 200);
    const bool slopes = dice.Chance(40);
    for (int64_t h = 0; h < p.heads; ++h) {
      const float slope =
          std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(p.heads));
      for (int64_t d = 0; d < p.distances; ++d) {
        made.bias.push_back(slopes ? -slope * static_cast<float>(d) : dice.Float(3.0f));
      }
    }
    if (p.distances > 2 && dice.Chance(20)) {
      made.bias[static_cast<size_t>(dice.Between(1, p.distances - 1))] = -kInfinity;
    }
    p.bias = made.bias.data();
  }
  if (dice.Chance(30)) p.scale = 0.01f + std::fabs(dice.Float(0.5f));
  if (dice.Chance(15)) p.softcap = 1.0f + std::fabs(dice.Float(20.0f));
  if (dice.Chance(25)) p.window = dice.Between(1, dice.Chance(50) ? 10 : 120);
}

void FillRow(Dice& dice, RandomProblem& made, int64_t slot) {
  const RowPool& pool = made.problem.pool;
  std::vector<float> row;
  for (int64_t f = 0; f < pool.width; ++f) row.push_back(dice.Float(1.5f));
  PutRow(pool, slot, row.data(), made.rows.data() + made.rows_start);
}

void FillKeys(Dice& dice, RandomProblem& made, int64_t slot) {
  const attention::Pool& pool = made.problem.kv_pool;
  std::vector<float> row;
  for (int64_t h = 0; h < pool.kv_heads; ++h) {
    for (const bool value : {false, true}) {
      row.clear();
      for (int64_t f = 0; f < (value ? pool.value_size : pool.head_size); ++f) {
        row.push_back(dice.Float(1.5f));
      }
      attention::testing::Put(pool, slot, h, value, row.data(), reinterpret_cast<char*>(pool.data));
    }
  }
}

void RandomTuning(Dice& dice, RandomProblem& made) {
  std::vector<Isa> isas;
  for (Isa isa : kIsas) {
    if (attention::Supports(isa)) isas.push_back(isa);
  }
  made.tuning.isa =
      isas[static_cast<size_t>(dice.Between(0, static_cast<int64_t>(isas.size()) - 1))];
  if (dice.Chance(40)) made.tuning.parts = dice.Between(1, 9);
  if (dice.Chance(40)) made.tuning.row_chunk = dice.Between(1, 40);
  if (dice.Chance(60)) made.tuning.prompt = dice.Between(0, 1);
  if (dice.Chance(60)) made.tuning.serial_cost = 0;
  made.threads = static_cast<int>(dice.Between(1, 3));
}

std::string Describe(uint32_t index, const RandomProblem& made, const std::vector<Shape>& shapes) {
  const Problem& p = made.problem;
  std::ostringstream text;
  text << "problem " << index << ": kind " << static_cast<int>(p.kind) << ", width " << p.pool.width
       << ", heads " << p.heads << "/" << p.kv_heads << " of " << p.head_size << "/" << p.value_size
       << ", storage " << static_cast<int>(p.pool.storage) << "/"
       << static_cast<int>(p.kv_pool.storage) << ", biases " << (p.key_bias != nullptr)
       << (p.value_bias != nullptr) << ", distances " << p.distances << ", softcap " << p.softcap
       << ", window " << p.window << ", rotary " << static_cast<int>(p.rotary)
       << (p.rotated ? " rotated" : "") << ", writes " << (p.slot_mapping != nullptr) << ", second "
       << (p.kv_sequences != nullptr) << ", isa " << static_cast<int>(made.tuning.isa) << ", parts "
       << made.tuning.parts << ", row chunk " << made.tuning.row_chunk << ", prompt "
       << made.tuning.prompt << ", serial " << made.tuning.serial_cost << ", threads "
       << made.threads << "; groups";
  const auto part = [&text](const Part& s) {
    text << s.shared << "+" << s.private_count << (s.causal ? " causal" : "");
  };
  for (const Shape& s : shapes) {
    text << " (" << s.tokens << " tokens, rows ";
    part(s.rows);
    text << ", keys ";
    part(s.keys);
    text << ")";
  }
  return text.str();
}

}  // namespace

std::vector<float> RowPanels(const std::vector<float>& w, int64_t width, int64_t heads,
                             int64_t size) {
  const int64_t panels = (width + 15) / 16;
  std::vector<float> packed(static_cast<size_t>(heads * panels * size * 16), 0.0f);
  for (int64_t f = 0; f < width; ++f) {
    for (int64_t g = 0; g < heads; ++g) {
      for (int64_t c = 0; c < size; ++c) {
        packed[static_cast<size_t>(((g * panels + f / 16) * size + c) * 16 + f % 16)] =
            w[static_cast<size_t>(f * heads * size + g * size + c)];
      }
    }
  }
  return packed;
}

std::vector<float> ColumnPanels(const std::vector<float>& w, int64_t width, int64_t heads,
                                int64_t size) {
  const int64_t panels = (size + 15) / 16;
  std::vector<float> packed(static_cast<size_t>(heads * panels * width * 16), 0.0f);
  for (int64_t f = 0; f < width; ++f) {
    for (int64_t g = 0; g < heads; ++g) {
      for (int64_t i = 0; i < size; ++i) {
        packed[static_cast<size_t>(((g * panels + i / 16) * width + f) * 16 + i % 16)] =
            w[static_cast<size_t>(f * heads * size + g * size + i)];
      }
    }
  }
  return packed;
}

void Make(uint32_t index, RandomProblem& made, bool all_storages) {
  Dice dice(index * 7919u + 31u);
  Problem& p = made.problem;
  const bool keys = dice.Chance(25);
  const bool second = !keys && dice.Chance(40), writes = dice.Chance(75);
  p.kind = keys ? RowKind::kKeys : RowKind::kHiddenStates;
  p.kv_heads = dice.Between(1, 4);
  p.heads = p.kv_heads * (keys || dice.Chance(65) ? 1 : dice.Between(2, 4));
  p.head_size = dice.Pick({1, 3, 8, 16, 24, 32, 64});
  p.value_size = dice.Chance(75) ? p.head_size : dice.Pick({1, 5, 16, 48, 80});
  p.pool.width = keys ? p.heads * p.head_size : dice.Pick({1, 7, 16, 32, 40, 64, 96, 128, 200});
  p.pool.storage = dice.Chance(60)   ? Storage::kFloat32
                   : dice.Chance(50) ? Storage::kFloat16
                                     : Storage::kBfloat16;
  if (all_storages) {
    if (index % 3 == 0) p.pool.storage = Storage::kInt8;
    p.kv_pool.storage = attention::testing::kStorages[index % 4];
  }
  std::vector<Shape> shapes;
  const int64_t groups = dice.Chance(3) ? 0 : dice.Between(1, 3);
  int64_t slots = 0, kv_slots = 0, positions = 1;
  for (int64_t g = 0; g < groups; ++g) {
    shapes.push_back(RandomShape(dice, second));
    const Shape& s = shapes.back();
    slots += s.rows.slots(s.tokens);
    kv_slots += s.keys.slots(s.tokens);
    positions = std::max(positions, s.rows.shared + s.rows.private_count);
    p.tokens += s.tokens;
  }
  p.groups = groups;
  // Groups in any order of their tokens.
  std::vector<size_t> order;
  for (size_t g = 0; g < shapes.size(); ++g) order.push_back(g);
  if (dice.Chance(30)) dice.Shuffle(order);
  std::vector<int64_t> first(shapes.size());
  int64_t row = 0;
  for (size_t g : order) {
    first[g] = row;
    row += shapes[g].tokens;
  }

  p.pool.blocks = slots / kBlockSlots + 1 + dice.Between(0, 2);
  p.pool.offset = dice.Chance(50) ? 0 : dice.Between(0, 40);
  p.pool.block_floats = p.pool.offset + p.pool.area_floats() + (dice.Chance(50) ? 0 : 16);
  made.rows_start = kBand + 4 * dice.Between(0, 3);
  made.rows.assign(
      static_cast<size_t>(made.rows_start + p.pool.blocks * p.pool.block_floats * 4 + kBand),
      static_cast<char>(0xFF));
  p.pool.data = reinterpret_cast<float*>(made.rows.data() + made.rows_start);
  MakeWeights(dice, made);
  MakeRotary(dice, positions, made);
  MakeScores(dice, made);

  Lists lists = MakeLists(dice, shapes, first, p.tokens, p.pool.blocks, writes, &Shape::rows);
  for (int32_t slot : lists.filled) FillRow(dice, made, slot);
  made.sequences = lists.sequences;
  made.shared_slots = lists.shared_slots;
  made.private_slots = lists.private_slots;
  made.slot_mapping = lists.slot_mapping;
  p.sequences = made.sequences.data();
  p.shared_slots = made.shared_slots.data();
  p.shared_length = static_cast<int64_t>(made.shared_slots.size());
  p.private_slots = made.private_slots.data();
  p.private_length = static_cast<int64_t>(made.private_slots.size());
  if (writes) {
    p.input_stride = p.pool.width + (dice.Chance(20) ? 3 : 0);
    dice.Fill(made.input, p.tokens * p.input_stride + 1, 1.5f);
    p.input = made.input.data();
    p.slot_mapping = made.slot_mapping.data();
  }

  if (second) {
    p.kv_pool.blocks = kv_slots / kBlockSlots + 1 + dice.Between(0, 2);
    p.kv_pool.kv_heads = p.kv_heads;
    p.kv_pool.head_size = p.head_size;
    p.kv_pool.value_size = p.value_size;
    p.kv_pool.offset = dice.Chance(50) ? 0 : dice.Between(0, 40);
    p.kv_pool.block_floats = p.kv_pool.offset + p.kv_pool.floats() + (dice.Chance(50) ? 0 : 7);
    made.keys_start = kBand;
    made.keys.assign(static_cast<size_t>(2 * kBand + p.kv_pool.blocks * p.kv_pool.block_floats * 4),
                     static_cast<char>(0xFF));
    p.kv_pool.data = reinterpret_cast<float*>(made.keys.data() + made.keys_start);
    const bool kv_slot_mappings = dice.Chance(75);
    lists =
        MakeLists(dice, shapes, first, p.tokens, p.kv_pool.blocks, kv_slot_mappings, &Shape::keys);
    for (int32_t slot : lists.filled) FillKeys(dice, made, slot);
    made.kv_sequences = lists.sequences;
    made.kv_shared_slots = lists.shared_slots;
    made.kv_private_slots = lists.private_slots;
    made.kv_slot_mapping = lists.slot_mapping;
    p.kv_sequences = made.kv_sequences.data();
    p.kv_shared_slots = made.kv_shared_slots.data();
    p.kv_shared_length = static_cast<int64_t>(made.kv_shared_slots.size());
    p.kv_private_slots = made.kv_private_slots.data();
    p.kv_private_length = static_cast<int64_t>(made.kv_private_slots.size());
    if (kv_slot_mappings) {
      p.key_stride = p.kv_heads * p.head_size + (dice.Chance(20) ? 3 : 0);
      p.value_stride = p.kv_heads * p.value_size + (dice.Chance(20) ? 5 : 0);
      dice.Fill(made.key, p.tokens * p.key_stride + 1, 1.5f);
      dice.Fill(made.value, p.tokens * p.value_stride + 1, 1.5f);
      p.key = made.key.data();
      p.value = made.value.data();
      p.kv_slot_mapping = made.kv_slot_mapping.data();
    }
  }
  if (p.key != nullptr) {
    // Keys and values of a prompt's tokens are those of its rows.
    const std::vector<char> memory = ExpectedRows(made);
    for (size_t g = 0; g < shapes.size(); ++g) {
      if (!shapes[g].rows.causal || shapes[g].rows.shared != shapes[g].tokens) continue;
      for (int64_t i = 0; i < shapes[g].tokens; ++i) {
        const int64_t slot = made.shared_slots[static_cast<size_t>(made.sequences[g * 8 + 2] + i)];
        const std::vector<double> x = RowOf(p, memory.data() + made.rows_start, slot);
        const auto write = [&](const std::vector<float>& w, const float* bias, int64_t columns,
                               float* to) {
          const std::vector<double> y = Project(x, w, bias, columns, 0, columns);
          for (int64_t c = 0; c < columns; ++c) {
            to[c] = static_cast<float>(y[static_cast<size_t>(c)]);
          }
        };
        write(made.key_matrix, p.key_bias, p.kv_heads * p.head_size,
              made.key.data() + (first[g] + i) * p.key_stride);
        write(made.value_matrix, p.value_bias, p.kv_heads * p.value_size,
              made.value.data() + (first[g] + i) * p.value_stride);
      }
    }
  }

  p.query_stride = p.heads * p.head_size + (dice.Chance(20) ? dice.Between(1, 9) : 0);
  dice.Fill(made.query, p.tokens * p.query_stride + 1, 1.5f);
  p.query = made.query.data();
  made.output.assign(static_cast<size_t>(p.tokens * p.heads * p.value_size + 2 * kOutputBand),
                     kNan);
  p.output = made.output.data() + kOutputBand;
  if (dice.Chance(30)) {
    made.skipped.assign(static_cast<size_t>(p.tokens * p.heads + 1), kNan);
    p.skipped = made.skipped.data();
  }
  RandomTuning(dice, made);
  made.description = Describe(index, made, shapes);
}

}  // namespace testing
}  // namespace row_attention
}  // namespace graft
