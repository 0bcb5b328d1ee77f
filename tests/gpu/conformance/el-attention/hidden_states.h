// Whole attention over hidden states against multi-head attention in float64, whose keys and values
// are made from W_K and W_V and never by the algebra that the kernels use.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_HIDDEN_STATES_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_HIDDEN_STATES_H_

#include <cstring>

#include "../../../../kernels-cuda/el-attention/hidden_states.cuh"
#include "random_call.h"

namespace graft {
namespace gpu {
namespace el_attention {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

// W [depth][heads * size] in panels of 16: of rows [heads][depth / 16][size][16], or of columns
// [heads][size / 16][depth][16].
inline Floats PanelsOf(const Floats& w, int64_t depth, int64_t heads, int64_t size, bool rows) {
  const int64_t panels = cuda::CeilDivide(rows ? depth : size, 16), length = rows ? size : depth;
  Floats list(static_cast<size_t>(heads * panels * length * 16), 0.0f);
  for (int64_t f = 0; f < depth; ++f) {
    for (int64_t g = 0; g < heads; ++g) {
      for (int64_t c = 0; c < size; ++c) {
        const int64_t split = rows ? f : c, other = rows ? c : f;
        list[static_cast<size_t>(((g * panels + split / 16) * length + other) * 16 + split % 16)] =
            w[static_cast<size_t>((f * heads + g) * size + c)];
      }
    }
  }
  return list;
}

// A call: random attention over rows, and the projections around it.
struct HiddenStatesCall {
  RandomCall d;
  el::HiddenStates l;
  Floats key_matrix, value_matrix, key_bias, value_bias, bias, query, key, value, input;
  Floats pool;  // of keys and values
  std::vector<int32_t> slot_mapping, kv_sequences, kv_shared_slots, kv_private_slots,
      kv_slot_mapping;
};

// Distinct slots for some of the tokens to write, -1 or one out of range for the others.
inline std::vector<int32_t> RandomWrites(Random& random, int32_t tokens, int32_t slots) {
  std::vector<int32_t> list, free;
  for (int32_t s = 0; s < slots; ++s) free.push_back(s);
  for (int32_t i = 0; i < tokens; ++i) {
    if (free.empty() || random.Chance(4)) {
      list.push_back(random.Pick({-1, slots}));
      continue;
    }
    const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(free.size()) - 1));
    list.push_back(free[at]);
    free.erase(free.begin() + static_cast<int64_t>(at));
  }
  return list;
}

// Positions after the rows: as many as the sampled groups say, in a pool of their own.
inline void RandomSecond(Random& random, HiddenStatesCall* call) {
  el::HiddenStates& l = call->l;
  int32_t slots = 0;
  for (size_t g = 0; g < call->d.lists.second.size(); g += 8) {
    const int32_t* sampled = call->d.lists.second.data() + g;
    const int32_t step[8] = {sampled[0],
                             sampled[1],
                             static_cast<int32_t>(call->kv_shared_slots.size()),
                             sampled[3],
                             static_cast<int32_t>(call->kv_private_slots.size()),
                             sampled[5],
                             0,
                             0};
    call->kv_sequences.insert(call->kv_sequences.end(), step, step + 8);
    for (int32_t j = 0; j < step[3]; ++j) call->kv_shared_slots.push_back(slots++);
    for (int32_t j = 0; j < step[1] * step[5]; ++j) call->kv_private_slots.push_back(slots++);
  }
  el::KeyPool& pool = l.kv_pool;
  pool.kv_heads = l.kv_heads;
  pool.head_size = l.head_size;
  pool.value_size = l.value_size;
  pool.blocks = slots / 16 + 1;
  pool.block_floats = 16 * l.kv_heads * (l.head_size + l.value_size) + random.Between(0, 5);
  call->pool = Numbers<float>(random, pool.blocks * pool.block_floats, -1.5, 1.5);
  l.key_stride = l.kv_heads * l.head_size + random.Between(0, 3);
  l.value_stride = l.kv_heads * l.value_size + random.Between(0, 3);
  call->key = Numbers<float>(random, l.tokens * l.key_stride, -1.5, 1.5);
  call->value = Numbers<float>(random, l.tokens * l.value_stride, -1.5, 1.5);
  call->kv_slot_mapping = RandomWrites(random, l.tokens, static_cast<int32_t>(pool.blocks) * 16);
}

// Where the key (or value) of a slot stands in the pool of keys and values.
inline size_t KeyAt(const el::KeyPool& pool, int32_t slot, int32_t head, bool value) {
  const int64_t size = value ? pool.value_size : pool.head_size;
  const int64_t area = value ? 16 * pool.kv_heads * pool.head_size : 0;
  return static_cast<size_t>(slot / 16 * pool.block_floats + area + (head * 16 + slot % 16) * size);
}

template <typename T>
HiddenStatesCall RandomHiddenStates(Trial& trial) {
  Random& random = trial.random;
  HiddenStatesCall call;
  do {
    call = HiddenStatesCall();
    call.d = MakeRandomCall<T>(trial);
  } while (call.d.dense || call.d.p.rows.width > 600 || call.d.tuning.warp_columns > 16);
  el::HiddenStates& l = call.l;
  const el::Problem& p = call.d.p;
  l.rows = p.rows;
  l.lists = p.lists;
  l.tokens = p.tokens;
  l.kv_heads = static_cast<int32_t>(random.Size(1, 5));
  l.heads = l.kv_heads * static_cast<int32_t>(random.Between(1, 3));
  l.head_size = static_cast<int32_t>(random.Size(1, 40));
  l.value_size = static_cast<int32_t>(random.Size(1, 40));
  l.distances = p.distances;
  l.softcap = p.softcap;
  l.window = p.window;
  if (random.Chance(2)) l.scale = static_cast<float>(random.Uniform(0.05, 0.5));
  const int64_t width = l.rows.width;
  const double size = 1.7 / std::sqrt(static_cast<double>(width));
  call.key_matrix = Numbers<float>(random, width * l.kv_heads * l.head_size, -size, size);
  call.value_matrix = Numbers<float>(random, width * l.kv_heads * l.value_size, -size, size);
  if (random.Chance(2)) call.key_bias = Numbers<float>(random, l.kv_heads * l.head_size, -1, 1);
  if (random.Chance(2)) {
    call.value_bias = Numbers<float>(random, l.kv_heads * l.value_size, -1, 1);
  }
  call.bias = Numbers<float>(random, int64_t{l.heads} * l.distances, -2, 2);
  l.query_stride = l.heads * l.head_size + random.Between(0, 5);
  call.query = Numbers<float>(random, l.tokens * l.query_stride, -1.5, 1.5);
  if (random.Chance(2)) {
    l.input_stride = width + random.Between(0, 3);
    call.input = Numbers<float>(random, l.tokens * l.input_stride, -1, 1);
    call.slot_mapping = RandomWrites(random, l.tokens, l.rows.slots);
  }
  if (!call.d.lists.second.empty()) RandomSecond(random, &call);
  return call;
}

// What pools hold once the call's rows, keys and values are written.
template <typename T>
void WritePools(const HiddenStatesCall& call, std::vector<T>* rows, Floats* pool) {
  const el::HiddenStates& l = call.l;
  const int32_t kv_slots = static_cast<int32_t>(l.kv_pool.blocks) * 16;
  for (int32_t i = 0; i < l.tokens; ++i) {
    const auto t = static_cast<size_t>(i);
    if (!call.slot_mapping.empty() && call.slot_mapping[t] >= 0 &&
        call.slot_mapping[t] < l.rows.slots) {
      for (int32_t c = 0; c < l.rows.width; ++c) {
        (*rows)[ElementOf<T>(l.rows, call.slot_mapping[t]) + static_cast<size_t>(c)] =
            Narrow<T>(call.input[static_cast<size_t>(i * l.input_stride + c)]);
      }
    }
    if (call.kv_slot_mapping.empty() || call.kv_slot_mapping[t] < 0 ||
        call.kv_slot_mapping[t] >= kv_slots)
      continue;
    for (int32_t g = 0; g < l.kv_heads; ++g) {
      for (int32_t c = 0; c < l.head_size; ++c) {
        (*pool)[KeyAt(l.kv_pool, call.kv_slot_mapping[t], g, false) + static_cast<size_t>(c)] =
            call.key[static_cast<size_t>(i * l.key_stride + g * l.head_size + c)];
      }
      for (int32_t c = 0; c < l.value_size; ++c) {
        (*pool)[KeyAt(l.kv_pool, call.kv_slot_mapping[t], g, true) + static_cast<size_t>(c)] =
            call.value[static_cast<size_t>(i * l.value_stride + g * l.value_size + c)];
      }
    }
  }
}

// x W + b of one row and KV head.
inline Doubles Times(const Doubles& x, const Floats& w, const Floats& b, int32_t heads, int32_t g,
                     int32_t size) {
  Doubles y(static_cast<size_t>(size));
  for (int32_t c = 0; c < size; ++c) {
    double sum = b.empty() ? 0 : b[static_cast<size_t>(g * size + c)];
    for (size_t f = 0; f < x.size(); ++f) {
      sum +=
          x[f] *
          w[(f * static_cast<size_t>(heads) + static_cast<size_t>(g)) * static_cast<size_t>(size) +
            static_cast<size_t>(c)];
    }
    y[static_cast<size_t>(c)] = sum;
  }
  return y;
}

// Keys and values that a token sees, of one KV head, each with its distance.
struct Seen {
  Doubles key, value;
  int32_t distance;
};

template <typename T>
std::vector<Seen> SeenBy(const HiddenStatesCall& call, int32_t token, int32_t g,
                         const std::vector<T>& rows, const Floats& pool) {
  const el::HiddenStates& l = call.l;
  std::vector<Seen> seen;
  const RowPlace at = PlaceOf(call.d, token);
  for (int32_t j = 0; j < at.shared + at.private_count; ++j) {
    const int32_t slot = SlotAt(call.d, at, j), distance = at.position - j;
    if (slot < 0 || distance < 0 || (l.window > 0 && distance >= l.window)) continue;
    Doubles x;
    for (int32_t c = 0; c < l.rows.width; ++c) {
      x.push_back(Wide(rows[ElementOf<T>(l.rows, slot) + static_cast<size_t>(c)]));
    }
    seen.push_back({Times(x, call.key_matrix, call.key_bias, l.kv_heads, g, l.head_size),
                    Times(x, call.value_matrix, call.value_bias, l.kv_heads, g, l.value_size),
                    distance});
  }
  for (size_t s = 0; s < call.kv_sequences.size(); s += 8) {
    const int32_t* step = call.kv_sequences.data() + s;
    if (token < step[0] || token >= step[0] + step[1]) continue;
    for (int32_t j = 0; j < step[3] + step[5]; ++j) {
      const int32_t distance = step[3] + step[5] - 1 - j;
      if (l.window > 0 && distance >= l.window) continue;
      const int32_t slot = j < step[3] ? call.kv_shared_slots[static_cast<size_t>(step[2] + j)]
                                       : call.kv_private_slots[static_cast<size_t>(
                                             step[4] + (token - step[0]) * step[5] + j - step[3])];
      const auto key = pool.begin() + static_cast<int64_t>(KeyAt(l.kv_pool, slot, g, false));
      const auto value = pool.begin() + static_cast<int64_t>(KeyAt(l.kv_pool, slot, g, true));
      seen.push_back(
          {Doubles(key, key + l.head_size), Doubles(value, value + l.value_size), distance});
    }
  }
  return seen;
}

template <typename T>
Doubles HiddenStatesReference(const HiddenStatesCall& call, const std::vector<T>& rows,
                              const Floats& pool) {
  const el::HiddenStates& l = call.l;
  Doubles output;
  const double scale = l.scale != 0 ? l.scale : 1 / std::sqrt(static_cast<double>(l.head_size));
  for (int32_t row = 0; row < l.tokens * l.heads; ++row) {
    const int32_t token = row / l.heads, head = row % l.heads, g = head / (l.heads / l.kv_heads);
    const std::vector<Seen> seen = SeenBy(call, token, g, rows, pool);
    Doubles scores;
    double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const Seen& s : seen) {
      double score = 0;
      for (int32_t c = 0; c < l.head_size; ++c) {
        score += call.query[static_cast<size_t>(token * l.query_stride + head * l.head_size + c)] *
                 s.key[static_cast<size_t>(c)];
      }
      score *= scale;
      if (l.softcap > 0) score = l.softcap * std::tanh(score / l.softcap);
      if (l.distances > 0) {
        score += call.bias[static_cast<size_t>(head * l.distances +
                                               std::min(s.distance, l.distances - 1))];
      }
      scores.push_back(score);
      maximum = std::max(maximum, score);
    }
    for (const double s : scores) sum += std::exp(s - maximum);
    // Keys that count for nothing give NaN, as a softmax does; no keys at all give zeros.
    const RowPlace at = PlaceOf(call.d, token);
    int32_t keys = at.shared + at.private_count;
    for (size_t s = 0; s < call.kv_sequences.size(); s += 8) {
      const int32_t* step = call.kv_sequences.data() + s;
      if (token >= step[0] && token < step[0] + step[1]) keys += step[3] + step[5];
    }
    const double none = keys > 0 ? std::numeric_limits<double>::quiet_NaN() : 0;
    for (int32_t c = 0; c < l.value_size; ++c) {
      double x = seen.empty() ? none : 0;
      for (size_t i = 0; i < seen.size(); ++i) {
        x += std::exp(scores[i] - maximum) / sum * seen[i].value[static_cast<size_t>(c)];
      }
      output.push_back(x);
    }
  }
  return output;
}

template <typename T>
void ConformHiddenStatesAs(Trial& trial) {
  HiddenStatesCall call = RandomHiddenStates<T>(trial);
  el::HiddenStates& l = call.l;
  std::vector<T> x = MakeRows<T>(trial.random, call.d);
  const Array<T> rows(trial, x, call.d.shift);
  const Array<float> pool(trial, call.pool), query(trial, call.query), key(trial, call.key),
      value(trial, call.value), input(trial, call.input), key_bias(trial, call.key_bias),
      value_bias(trial, call.value_bias), bias(trial, call.bias),
      key_weight(trial, PanelsOf(call.key_matrix, l.rows.width, l.kv_heads, l.head_size, true)),
      value_weight(trial,
                   PanelsOf(call.value_matrix, l.rows.width, l.kv_heads, l.value_size, false)),
      output(trial, int64_t{l.tokens} * l.heads * l.value_size);
  const Array<int32_t> sequences(trial, call.d.lists.sequences),
      shared_slots(trial, call.d.lists.shared_slots),
      private_slots(trial, call.d.lists.private_slots), slot_mapping(trial, call.slot_mapping),
      kv_sequences(trial, call.kv_sequences), kv_shared_slots(trial, call.kv_shared_slots),
      kv_private_slots(trial, call.kv_private_slots), kv_slot_mapping(trial, call.kv_slot_mapping);
  const auto given = [](const auto& array) { return array.size() > 0 ? array.data() : nullptr; };
  l.rows.data = rows.data();
  l.lists.sequences = sequences.data();
  l.lists.shared_slots = shared_slots.data();
  l.lists.private_slots = private_slots.data();
  l.query = query.data();
  l.key_weight = key_weight.data();
  l.value_weight = value_weight.data();
  l.key_bias = given(key_bias);
  l.value_bias = given(value_bias);
  l.bias = given(bias);
  l.input = given(input);
  l.slot_mapping = given(slot_mapping);
  if (!call.kv_sequences.empty()) {
    l.kv_pool.data = pool.data();
    l.kv_lists.groups = l.lists.groups;
    l.kv_lists.sequences = kv_sequences.data();
    l.kv_lists.shared_slots = kv_shared_slots.data();
    l.kv_lists.private_slots = kv_private_slots.data();
    l.kv_lists.shared_length = static_cast<int32_t>(call.kv_shared_slots.size());
    l.kv_lists.private_length = static_cast<int32_t>(call.kv_private_slots.size());
    l.key = given(key);
    l.value = given(value);
    l.kv_slot_mapping = given(kv_slot_mapping);
  }
  l.output = output.data();
  const cuda::DeviceLimits& limits = call.d.limits;
  const el::HiddenStatesPlan plan = el::MakeHiddenStatesPlan(l, limits, call.d.tuning);
  const Array<unsigned char> workspace(trial, plan.total);
  trial.about << "hidden states: groups " << l.lists.groups << " tokens " << l.tokens << " heads "
              << l.heads << "/" << l.kv_heads << " of " << l.head_size << "/" << l.value_size
              << " width " << l.rows.width << " keys " << l.lists.shared_length << "+"
              << l.lists.private_length << " after " << call.kv_shared_slots.size() << "+"
              << call.kv_private_slots.size() << " window " << l.window << " distances "
              << l.distances << " softcap " << l.softcap << " biases " << call.key_bias.size()
              << " " << call.value_bias.size() << " type " << static_cast<int>(l.rows.type);
  trial.Expect(el::Enqueue(l, plan, limits, workspace.data(), nullptr, call.d.tuning));

  WritePools(call, &x, &call.pool);
  const auto bits = [](const auto& list) {
    std::vector<uint8_t> bytes(list.size() * sizeof(list[0]));
    if (!bytes.empty()) std::memcpy(bytes.data(), list.data(), bytes.size());
    return bytes;
  };
  trial.ExpectSame("bytes of rows", bits(rows.Read()), bits(x));
  trial.ExpectSame("bytes of keys and values", bits(pool.Read()), bits(call.pool));
  trial.Expect("output", output.Read(), HiddenStatesReference(call, x, call.pool),
               ToleranceOf(l.rows.type));
}

inline void ConformHiddenStates(Trial& trial) {
  switch (trial.random.Between(0, 2)) {
    case 0:
      return ConformHiddenStatesAs<float>(trial);
    case 1:
      return ConformHiddenStatesAs<cuda::Half>(trial);
    default:
      return ConformHiddenStatesAs<cuda::BFloat16>(trial);
  }
}

}  // namespace el_attention
}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_EL_ATTENTION_HIDDEN_STATES_H_
