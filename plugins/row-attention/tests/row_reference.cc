#include "row_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "../../flash-decode/tests/stored.h"

namespace graft {
namespace row_attention {
namespace testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr int64_t kGroup = 64;  // numbers of int8 with one scale

int64_t GroupsOf(const RowPool& p) {
  return p.storage == Storage::kInt8 ? (p.width + kGroup - 1) / kGroup : 0;
}

int64_t RowByte(const RowPool& p, int64_t slot) {
  const int64_t numbers = p.width * attention::testing::BytesOf(p.storage);
  const int64_t row = GroupsOf(p) > 0 ? GroupsOf(p) * 4 + (numbers + 3) / 4 * 4 : numbers;
  return (slot / 16 * p.block_floats + p.offset) * 4 + slot % 16 * row;
}

// Turns a head by the angles of its position, direction -1 turns it back.
void Turn(const Problem& p, int64_t position, double direction, double* x) {
  for (int64_t j = 0; j < p.pairs; ++j) {
    const double c = p.cosine[position * p.pairs + j];
    const double s = direction * p.sine[position * p.pairs + j];
    double& a = p.rotary == Rotary::kHalf ? x[j] : x[2 * j];
    double& b = p.rotary == Rotary::kHalf ? x[j + p.pairs] : x[2 * j + 1];
    const double turned = a * c - b * s;
    b = b * c + a * s;
    a = turned;
  }
}

// Keys and values of one position, all heads.
struct Position {
  std::vector<double> key, value;
};

Position FromRow(const RandomProblem& made, const char* rows, int64_t slot, int64_t position) {
  const Problem& p = made.problem;
  Position at;
  std::vector<double> x = RowOf(p, rows, slot);
  if (p.kind == RowKind::kHiddenStates) {
    at.key = Project(x, made.key_matrix, p.key_bias, p.kv_heads * p.head_size, 0,
                     p.kv_heads * p.head_size);
  } else {
    at.key = x;
    for (int64_t h = 0; h < p.heads && p.rotary != Rotary::kNone; ++h) {
      double* head = (p.rotated ? x : at.key).data() + h * p.head_size;
      Turn(p, position, p.rotated ? -1.0 : 1.0, head);
    }
  }
  at.value = Project(x, made.value_matrix, p.value_bias, p.kv_heads * p.value_size, 0,
                     p.kv_heads * p.value_size);
  return at;
}

Position FromKeys(const Problem& p, const char* keys, int64_t slot) {
  Position at;
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    for (const bool value : {false, true}) {
      const std::vector<double> row = attention::testing::Get(p.kv_pool, slot, h, value, keys);
      std::vector<double>& to = value ? at.value : at.key;
      to.insert(to.end(), row.begin(), row.end());
    }
  }
  return at;
}

void Attend(const Problem& p, const float* query, int64_t head,
            const std::vector<const Position*>& seen, double* to) {
  const int64_t h = head / (p.heads / p.kv_heads);
  const double scale =
      p.scale != 0.0f ? p.scale : 1.0 / std::sqrt(static_cast<double>(p.head_size));
  const int64_t count = static_cast<int64_t>(seen.size());
  std::vector<double> scores(seen.size(), -kInfinity);
  double highest = -kInfinity;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t distance = count - 1 - j;
    if (p.window > 0 && distance >= p.window) continue;
    double dot = 0.0;
    for (int64_t c = 0; c < p.head_size; ++c) {
      dot += static_cast<double>(query[c]) *
             seen[static_cast<size_t>(j)]->key[static_cast<size_t>(h * p.head_size + c)];
    }
    double score = scale * dot;
    if (p.softcap > 0.0f) score = p.softcap * std::tanh(score / p.softcap);
    if (p.bias != nullptr) {
      score += p.bias[head * p.distances + std::min(distance, p.distances - 1)];
    }
    scores[static_cast<size_t>(j)] = score;
    highest = std::max(highest, score);
  }
  double sum = 0.0;
  for (int64_t j = 0; j < count; ++j) {
    const double weight = std::exp(scores[static_cast<size_t>(j)] - highest);
    if (weight == 0.0) continue;
    sum += weight;
    for (int64_t i = 0; i < p.value_size; ++i) {
      to[i] +=
          weight * seen[static_cast<size_t>(j)]->value[static_cast<size_t>(h * p.value_size + i)];
    }
  }
  for (int64_t i = 0; i < p.value_size && count > 0; ++i) to[i] /= sum;
}

}  // namespace

void PutRow(const RowPool& p, int64_t slot, const float* from, char* memory) {
  char* at = memory + RowByte(p, slot);
  if (p.storage != Storage::kInt8) {
    attention::testing::Encode(p.storage, from, p.width, at);
    return;
  }
  char* numbers = at + GroupsOf(p) * 4;
  for (int64_t g = 0; g < GroupsOf(p); ++g) {
    const int64_t count = std::min(kGroup, p.width - g * kGroup);
    const float scale =
        attention::testing::Encode(p.storage, from + g * kGroup, count, numbers + g * kGroup);
    std::memcpy(at + g * 4, &scale, 4);
  }
  for (int64_t f = p.width; f % 4 != 0; ++f) numbers[f] = 0;
}

std::vector<char> ExpectedRows(const RandomProblem& made) {
  std::vector<char> memory = made.rows;
  const Problem& p = made.problem;
  for (int64_t t = 0; t < p.tokens && p.slot_mapping != nullptr; ++t) {
    if (p.slot_mapping[t] < 0) continue;
    PutRow(p.pool, p.slot_mapping[t], p.input + t * p.input_stride,
           memory.data() + made.rows_start);
  }
  return memory;
}

std::vector<char> ExpectedKeys(const RandomProblem& made) {
  std::vector<char> memory = made.keys;
  const Problem& p = made.problem;
  if (p.kv_slot_mapping == nullptr) return memory;
  char* to = memory.data() + made.keys_start;
  for (int64_t t = 0; t < p.tokens; ++t) {
    const int64_t slot = p.kv_slot_mapping[t];
    if (slot < 0) continue;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      attention::testing::Put(p.kv_pool, slot, h, false, p.key + t * p.key_stride + h * p.head_size,
                              to);
      attention::testing::Put(p.kv_pool, slot, h, true,
                              p.value + t * p.value_stride + h * p.value_size, to);
    }
  }
  return memory;
}

std::vector<double> RowOf(const Problem& p, const char* rows, int64_t slot) {
  std::vector<double> x;
  const char* at = rows + RowByte(p.pool, slot);
  const char* numbers = at + GroupsOf(p.pool) * 4;
  for (int64_t f = 0; f < p.pool.width; ++f) {
    float scale = 1.0f;
    if (GroupsOf(p.pool) > 0) std::memcpy(&scale, at + f / kGroup * 4, 4);
    x.push_back(scale * attention::testing::Decode(p.pool.storage, numbers, f));
  }
  return x;
}

std::vector<double> Project(const std::vector<double>& x, const std::vector<float>& w,
                            const float* bias, int64_t columns, int64_t first, int64_t count) {
  std::vector<double> y(static_cast<size_t>(count), 0.0);
  for (size_t f = 0; f < x.size(); ++f) {
    const float* row = w.data() + static_cast<int64_t>(f) * columns + first;
    for (int64_t c = 0; c < count; ++c) y[static_cast<size_t>(c)] += x[f] * row[c];
  }
  for (int64_t c = 0; c < count && bias != nullptr; ++c) {
    y[static_cast<size_t>(c)] += bias[first + c];
  }
  return y;
}

std::vector<double> Compute(const RandomProblem& made, const char* rows, const char* keys) {
  const Problem& p = made.problem;
  std::vector<double> output(static_cast<size_t>(p.tokens * p.heads * p.value_size));
  std::map<std::pair<int64_t, int64_t>, Position> of_rows;  // by slot and position
  std::map<int64_t, Position> of_keys;
  const auto from_row = [&](int64_t slot, int64_t position) {
    const std::pair<int64_t, int64_t> at(slot, p.rotary != Rotary::kNone ? position : 0);
    const auto found = of_rows.find(at);
    if (found != of_rows.end()) return &found->second;
    return &(of_rows[at] = FromRow(made, rows, slot, position));
  };
  const auto from_keys = [&](int64_t slot) {
    const auto found = of_keys.find(slot);
    if (found != of_keys.end()) return &found->second;
    return &(of_keys[slot] = FromKeys(p, keys, slot));
  };
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* s = p.sequences + g * 8;
    for (int64_t i = 0; i < s[1]; ++i) {
      std::vector<const Position*> seen;
      const int64_t shared = s[6] != 0 ? s[3] - s[1] + i + 1 : s[3];
      for (int64_t j = 0; j < shared; ++j) seen.push_back(from_row(p.shared_slots[s[2] + j], j));
      for (int64_t j = 0; j < s[5]; ++j) {
        seen.push_back(from_row(p.private_slots[s[4] + i * s[5] + j], shared + j));
      }
      if (p.kv_sequences != nullptr) {
        const int32_t* b = p.kv_sequences + g * 8;
        const int64_t after = b[6] != 0 ? b[3] - b[1] + i + 1 : b[3];
        for (int64_t j = 0; j < after; ++j) seen.push_back(from_keys(p.kv_shared_slots[b[2] + j]));
        for (int64_t j = 0; j < b[5]; ++j) {
          seen.push_back(from_keys(p.kv_private_slots[b[4] + i * b[5] + j]));
        }
      }
      const int64_t token = s[0] + i;
      for (int64_t head = 0; head < p.heads; ++head) {
        Attend(p, p.query + token * p.query_stride + head * p.head_size, head, seen,
               output.data() + (token * p.heads + head) * p.value_size);
      }
    }
  }
  return output;
}

}  // namespace testing
}  // namespace row_attention
}  // namespace graft
