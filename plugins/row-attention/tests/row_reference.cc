#include "row_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace graft {
namespace row_attention {
namespace testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t RowByte(const RowPool& p, int64_t slot) {
  const int64_t bytes = p.storage == Storage::kFloat32 ? 4 : 2;
  return (slot / 16 * p.block_floats + p.offset) * 4 + slot % 16 * p.width * bytes;
}

int64_t KeyFloat(const attention::Pool& p, int64_t slot, int64_t h) {
  return slot / 16 * p.block_floats + p.offset + (h * 16 + slot % 16) * p.head_size;
}
int64_t ValueFloat(const attention::Pool& p, int64_t slot, int64_t h) {
  return slot / 16 * p.block_floats + p.offset + p.kv_heads * 16 * p.head_size +
         (h * 16 + slot % 16) * p.value_size;
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

Position FromKeys(const Problem& p, const float* keys, int64_t slot) {
  Position at;
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    const float* key = keys + KeyFloat(p.kv_pool, slot, h);
    const float* value = keys + ValueFloat(p.kv_pool, slot, h);
    at.key.insert(at.key.end(), key, key + p.head_size);
    at.value.insert(at.value.end(), value, value + p.value_size);
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

double Rounded(Storage storage, float value, uint32_t* bits) {
  if (storage == Storage::kFloat32) {
    if (bits != nullptr) std::memcpy(bits, &value, 4);
    return value;
  }
  // Significant bits, and the exponent of the smallest normal number.
  const int digits = storage == Storage::kFloat16 ? 11 : 8;
  const int least = storage == Storage::kFloat16 ? -14 : -126;
  int exponent = 0;
  std::frexp(static_cast<double>(value), &exponent);
  const int unit = std::max(exponent - 1, least) - (digits - 1);
  const double units = std::nearbyint(std::ldexp(static_cast<double>(value), -unit));
  const double rounded = std::ldexp(units, unit);
  if (bits != nullptr) {
    const uint32_t sign = std::signbit(value) ? 1u : 0u;
    const double magnitude = std::fabs(rounded);
    const int bias = 1 - least;
    uint32_t rest = 0;
    if (magnitude < std::ldexp(1.0, least)) {
      rest = static_cast<uint32_t>(std::ldexp(magnitude, digits - 1 - least));
    } else {
      const double fraction = std::frexp(magnitude, &exponent);
      rest = static_cast<uint32_t>(exponent - 1 + bias) << (digits - 1);
      rest |= static_cast<uint32_t>(std::ldexp(fraction, digits)) - (1u << (digits - 1));
    }
    *bits = sign << 15 | rest;
  }
  return rounded;
}

double FromBits(Storage storage, const char* at) {
  if (storage == Storage::kFloat32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  const int digits = storage == Storage::kFloat16 ? 11 : 8;
  const int least = storage == Storage::kFloat16 ? -14 : -126;
  const int field = (bits & 0x7FFF) >> (digits - 1);
  const int fraction = bits & ((1 << (digits - 1)) - 1);
  if (field == (storage == Storage::kFloat16 ? 31 : 255)) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : kInfinity;
  }
  const double magnitude =
      field == 0 ? std::ldexp(fraction, least - digits + 1)
                 : std::ldexp(fraction + (1 << (digits - 1)), field - 1 + least - digits + 1);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<char> ExpectedRows(const RandomProblem& made) {
  std::vector<char> memory = made.rows;
  const Problem& p = made.problem;
  for (int64_t t = 0; t < p.tokens && p.slot_mapping != nullptr; ++t) {
    if (p.slot_mapping[t] < 0) continue;
    char* at = memory.data() + made.rows_start + RowByte(p.pool, p.slot_mapping[t]);
    for (int64_t f = 0; f < p.pool.width; ++f) {
      uint32_t bits = 0;
      Rounded(p.pool.storage, p.input[t * p.input_stride + f], &bits);
      const int64_t size = p.pool.storage == Storage::kFloat32 ? 4 : 2;
      std::memcpy(at + f * size, &bits, static_cast<size_t>(size));
    }
  }
  return memory;
}

std::vector<char> ExpectedKeys(const RandomProblem& made) {
  std::vector<char> memory = made.keys;
  const Problem& p = made.problem;
  if (p.kv_slot_mapping == nullptr) return memory;
  const auto write = [&](int64_t at, const float* from, int64_t size) {
    std::memcpy(memory.data() + made.keys_start + at * 4, from, static_cast<size_t>(size) * 4);
  };
  for (int64_t t = 0; t < p.tokens; ++t) {
    const int64_t slot = p.kv_slot_mapping[t];
    if (slot < 0) continue;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      write(KeyFloat(p.kv_pool, slot, h), p.key + t * p.key_stride + h * p.head_size, p.head_size);
      write(ValueFloat(p.kv_pool, slot, h), p.value + t * p.value_stride + h * p.value_size,
            p.value_size);
    }
  }
  return memory;
}

std::vector<double> RowOf(const Problem& p, const char* rows, int64_t slot) {
  std::vector<double> x;
  const int64_t size = p.pool.storage == Storage::kFloat32 ? 4 : 2;
  for (int64_t f = 0; f < p.pool.width; ++f) {
    x.push_back(FromBits(p.pool.storage, rows + RowByte(p.pool, slot) + f * size));
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
    return &(of_keys[slot] = FromKeys(p, reinterpret_cast<const float*>(keys), slot));
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
