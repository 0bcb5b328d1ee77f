// A random call of slim attention: sizes, groups, lists, rows and weights.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_RANDOM_CASE_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_RANDOM_CASE_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "../../../../kernels-cuda/slim-attention/slim_attention.cuh"
#include "typed_array.h"

namespace graft {
namespace gpu {

using namespace cuda::slim_attention;  // NOLINT: the kernel under test
using cuda::kBlockSlots;
using cuda::kPanel;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct TokenGroup {
  int64_t first, tokens, shared_offset, shared, private_offset, private_count;
  bool causal;
  int64_t Position(int64_t i) const {
    return causal ? shared - tokens + i : shared + private_count - 1;
  }
};

class RandomCase {
 protected:
  explicit RandomCase(Trial& trial) : trial_(trial), random_(trial.random) {}

  void Make() {
    RandomSizes();
    RandomGroups();
    RandomRotary();
    RandomRows();
    RandomRest();
  }

  StoreArguments Storing() const {
    return {
        rows_.data(),         p_.row_type,  p_.row_stride, p_.block_stride, p_.slots,
        p_.width(),           from_.data(), p_.type,       store_stride_,   device_write_->data(),
        device_write_->size()};
  }

  int64_t At(int64_t slot) const {
    return slot / kBlockSlots * p_.block_stride + slot % kBlockSlots * p_.row_stride;
  }
  int64_t Weight(int64_t h, int64_t f, int64_t c) const {
    return h * p_.weight_head + c / kPanel * p_.weight_panel + f * p_.weight_row + c % kPanel;
  }
  // Where the row of a key stands, or -1.
  int64_t RowOf(const TokenGroup& g, int64_t token, int64_t j) const {
    if (p_.rotary != Rotary::kNone && j >= p_.angles) return -1;
    if (!pool_) return (&g - groups_.data()) * p_.block_stride + j * p_.row_stride;
    const int64_t slot = j < g.shared
                             ? shared_slots_[static_cast<size_t>(g.shared_offset + j)]
                             : private_slots_[static_cast<size_t>(
                                   g.private_offset + token * g.private_count + j - g.shared)];
    return slot < 0 || slot >= p_.slots ? -1 : At(slot);
  }

  Trial& trial_;
  Random& random_;
  Problem p_;
  bool pool_ = true, store_ = false;
  int64_t max_keys_ = 0, store_stride_ = 0;
  std::vector<TokenGroup> groups_;
  std::vector<int32_t> sequences_, shared_slots_, private_slots_, lengths_, slot_mapping_;
  std::vector<std::pair<int64_t, double>> stored_;  // places of rows that Store brings
  TypedArray rows_, query_, weight_, value_bias_, bias_, cosine_, sine_, output_, from_;
  std::unique_ptr<Array<float>> skipped_;
  std::unique_ptr<Array<int32_t>> device_sequences_, device_shared_, device_private_,
      device_lengths_, device_write_;

 private:
  std::vector<double> Randoms(int64_t count, double maximum) {
    std::vector<double> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(random_.Uniform(-maximum, maximum));
    return list;
  }

  void RandomSizes() {
    p_.row_type = random_.Pick({Type::kFloat32, Type::kFloat16, Type::kBFloat16});
    p_.type = random_.Chance(2) ? Type::kFloat32 : p_.row_type;
    p_.weight_type = random_.Chance(3) ? Type::kFloat32 : p_.row_type;
    p_.heads = random_.Size(1, 9);
    p_.head_size = random_.Chance(4) ? random_.Between(1, 24) : 16 * random_.Size(1, 5);
    if (random_.Chance(30)) p_.heads = random_.Between(10, 70), p_.head_size = 16;
    if (random_.Chance(40)) p_.heads = random_.Between(5, 9), p_.head_size = 256;
    p_.value_size = random_.Chance(20) ? random_.Between(60, 140) : random_.Size(1, 33);
    if (random_.Chance(2)) p_.value_size = 16 * random_.Size(1, 6);
    if (random_.Chance(3)) p_.scale = static_cast<float>(random_.Uniform(0.05, 0.5));
    if (random_.Chance(5)) p_.softcap = static_cast<float>(random_.Uniform(0.5, 8));
    if (random_.Chance(5)) p_.window = random_.Size(1, 40);
    if (random_.Chance(4)) p_.skip = static_cast<float>(std::pow(10, random_.Uniform(-4, -1)));
    trial_.about << "types " << static_cast<int32_t>(p_.row_type) << static_cast<int32_t>(p_.type)
                 << static_cast<int32_t>(p_.weight_type) << ", " << p_.heads << " heads of "
                 << p_.head_size << " and " << p_.value_size << ", softcap " << p_.softcap
                 << ", window " << p_.window << ", skip " << p_.skip;
  }

  void RandomGroups() {
    pool_ = !random_.Chance(3);
    p_.groups = random_.Size(1, random_.Chance(8) ? 40 : 4);
    const int64_t tokens = random_.Size(1, random_.Chance(8) ? 20 : 5);
    p_.causal = random_.Chance(3);
    p_.positions = tokens + random_.Size(0, 80);
    for (int64_t i = 0; i < p_.groups; ++i) {
      TokenGroup g = {};
      g.causal = pool_ ? random_.Chance(3) : p_.causal;
      g.first = p_.tokens;
      g.tokens = pool_ ? random_.Size(0, tokens) : tokens;
      p_.tokens += g.tokens;
      g.shared = random_.Size(0, random_.Chance(10) ? 300 : 60);
      if (!pool_) {
        g.shared =
            g.causal ? random_.Between(tokens, p_.positions) : random_.Between(0, p_.positions);
        lengths_.push_back(static_cast<int32_t>(g.shared));
      } else if (g.causal) {
        g.shared += g.tokens;
      } else {
        g.private_count = random_.Size(0, 9);
      }
      g.shared_offset = p_.shared_length + random_.Between(0, 2);
      g.private_offset = p_.private_length;
      p_.shared_length = g.shared_offset + g.shared;
      p_.private_length += g.private_count * g.tokens;
      max_keys_ = std::max(max_keys_, g.shared + g.private_count);
      groups_.push_back(g);
      if (i < 3) {
        trial_.about << " (" << g.tokens << " tokens, " << g.shared << '+' << g.private_count
                     << (g.causal ? " causal)" : ")");
      }
    }
    trial_.about << (pool_ ? " pool" : " contiguous") << ' ' << p_.groups << " groups";
  }

  void RandomRotary() {
    if (p_.head_size < 2 || random_.Chance(2)) return;
    p_.rotary = random_.Pick({Rotary::kHalf, Rotary::kInterleaved});
    p_.rotated = random_.Chance(2);
    p_.pairs = random_.Chance(3) ? random_.Between(1, p_.head_size / 2) : p_.head_size / 2;
    p_.angles = std::max<int64_t>(1, random_.Chance(10) ? max_keys_ - 1 : max_keys_);
    std::vector<double> cosine, sine;
    for (int64_t n = 0; n < p_.angles; ++n) {
      for (int64_t j = 0; j < p_.pairs; ++j) {
        const double angle = static_cast<double>(n) *
                             std::pow(1e4, -static_cast<double>(j) / static_cast<double>(p_.pairs));
        cosine.push_back(std::cos(angle));
        sine.push_back(std::sin(angle));
      }
    }
    cosine_ = TypedArray(trial_, Type::kFloat32, cosine);
    sine_ = TypedArray(trial_, Type::kFloat32, sine);
    p_.cosine = cosine_.floats();
    p_.sine = sine_.floats();
    trial_.about << ", rotary " << static_cast<int32_t>(p_.rotary)
                 << (p_.rotated ? " rotated" : "");
  }

  // Rows that lists name; everything else is NaN.
  void RandomRows() {
    const int64_t vector = 16 / cuda::BytesOf(p_.row_type);
    const bool aligned = !random_.Chance(5);
    const auto stride = [&](int64_t least) {
      const int64_t wide = least + random_.Size(0, 20);
      return aligned ? cuda::RoundUp(wide, vector) : wide;
    };
    p_.row_stride = stride(p_.width());
    const int64_t needed = p_.shared_length + p_.private_length;
    p_.slots = cuda::RoundUp(needed + 1, kBlockSlots);
    p_.block_stride = stride((pool_ ? kBlockSlots : p_.positions) * p_.row_stride);
    const int64_t blocks = pool_ ? p_.slots / kBlockSlots : p_.groups;
    std::vector<double> rows(static_cast<size_t>(blocks * p_.block_stride), kNaN);
    const auto fill = [&](int64_t at) {
      for (int64_t c = 0; c < p_.width(); ++c) {
        rows[static_cast<size_t>(at + c)] = random_.Uniform(-1, 1);
      }
    };
    if (pool_) {
      std::vector<int32_t> free;
      for (int64_t s = 0; s < p_.slots; ++s) free.push_back(static_cast<int32_t>(s));
      for (size_t i = free.size() - 1; i > 0; --i) {
        std::swap(free[i], free[static_cast<size_t>(random_.Between(0, static_cast<int64_t>(i)))]);
      }
      const auto take = [&]() -> int32_t {
        if (random_.Chance(60)) {
          return random_.Pick({-1, static_cast<int32_t>(p_.slots), 2147483647, -2147483647});
        }
        const int32_t slot = free.back();
        free.pop_back();
        fill(At(slot));
        return slot;
      };
      for (int64_t j = 0; j < p_.shared_length; ++j) shared_slots_.push_back(take());
      for (int64_t j = 0; j < p_.private_length; ++j) private_slots_.push_back(take());
      RandomStore(&rows);
    } else {
      for (const TokenGroup& g : groups_) {
        const int64_t index = &g - groups_.data();
        for (int64_t j = 0; j < g.shared; ++j) fill(index * p_.block_stride + j * p_.row_stride);
      }
      p_.shared_length = p_.private_length = 0;
    }
    rows_ = TypedArray(trial_, p_.row_type, rows,
                       aligned ? vector * random_.Between(0, 1) : random_.Between(0, 3));
    p_.rows = rows_.data();
    if (pool_) {
      for (const TokenGroup& g : groups_) {
        for (const int64_t x : {g.first, g.tokens, g.shared_offset, g.shared, g.private_offset,
                                g.private_count, int64_t{g.causal ? 1 : 0}, int64_t{0}}) {
          sequences_.push_back(static_cast<int32_t>(x));
        }
      }
      device_sequences_ = std::make_unique<Array<int32_t>>(trial_, sequences_);
      device_shared_ = std::make_unique<Array<int32_t>>(trial_, shared_slots_);
      device_private_ = std::make_unique<Array<int32_t>>(trial_, private_slots_);
      p_.sequences = device_sequences_->data();
      p_.shared_slots = device_shared_->data();
      p_.private_slots = device_private_->data();
    } else {
      device_lengths_ = std::make_unique<Array<int32_t>>(trial_, lengths_);
      p_.lengths = device_lengths_->data();
    }
  }

  // Some rows arrive by Store, in the types of the call: they become NaN in the pool until then.
  void RandomStore(std::vector<double>* rows) {
    store_ = random_.Chance(2);
    if (!store_) return;
    store_stride_ = p_.width() + random_.Size(0, 5);
    std::vector<double> from;
    const auto bring = [&](int32_t slot) {
      const auto begin = rows->begin() + static_cast<std::ptrdiff_t>(At(slot));
      from.insert(from.end(), begin, begin + static_cast<std::ptrdiff_t>(p_.width()));
      from.resize(slot_mapping_.size() * static_cast<size_t>(store_stride_), kNaN);
    };
    for (const int32_t slot : shared_slots_) {
      if (slot < 0 || slot >= p_.slots || !random_.Chance(8)) continue;
      slot_mapping_.push_back(slot);
      bring(slot);
      for (int64_t c = 0; c < p_.width(); ++c) {
        // What is sampled in the type that it arrives in may round again on its way in: it must be
        // the number that the reference reads.
        double& x = from[(slot_mapping_.size() - 1) * static_cast<size_t>(store_stride_) +
                         static_cast<size_t>(c)];
        x = Round(x);
        (*rows)[static_cast<size_t>(At(slot) + c)] = kNaN;
        stored_.push_back({At(slot) + c, x});
      }
    }
    for (const int32_t stray : {int32_t{-1}, static_cast<int32_t>(p_.slots)}) {
      slot_mapping_.push_back(stray);
      from.resize(slot_mapping_.size() * static_cast<size_t>(store_stride_), 7.0);
    }
    from_ = TypedArray(trial_, p_.type, from);
    device_write_ = std::make_unique<Array<int32_t>>(trial_, slot_mapping_);
  }
  double Round(double x) const {
    if (p_.row_type == Type::kFloat16) return Wide(Narrow<cuda::Half>(x));
    if (p_.row_type == Type::kBFloat16) return Wide(Narrow<cuda::BFloat16>(x));
    return Wide(Narrow<float>(x));
  }
  void RandomRest() {
    p_.query_stride = p_.width() + random_.Size(0, 9);
    std::vector<double> query(static_cast<size_t>(p_.tokens * p_.query_stride), kNaN);
    for (int64_t t = 0; t < p_.tokens; ++t) {
      for (int64_t c = 0; c < p_.width(); ++c) {
        query[static_cast<size_t>(t * p_.query_stride + c)] = random_.Uniform(-1.5, 1.5);
      }
    }
    query_ = TypedArray(trial_, p_.type, query, random_.Between(0, 3));
    p_.query = query_.data();

    // Panels as the fold of the plugin makes them, or a matrix as papers write it.
    const int64_t panels = cuda::CeilDivide(p_.value_size, kPanel);
    if (random_.Chance(2)) {
      p_.weight_row = kPanel;
      p_.weight_panel = p_.width() * kPanel;
      p_.weight_head = panels * p_.weight_panel;
    } else {
      p_.weight_head = p_.value_size;
      p_.weight_panel = kPanel;
      p_.weight_row = p_.heads * p_.value_size + 8 * random_.Size(0, 2) + random_.Size(0, 1);
    }
    int64_t size = 0;
    for (const bool write : {false, true}) {
      std::vector<double> weight(write ? static_cast<size_t>(size) : 0, kNaN);
      for (int64_t h = 0; h < p_.heads; ++h) {
        for (int64_t f = 0; f < p_.width(); ++f) {
          for (int64_t c = 0; c < p_.value_size; ++c) {
            size = std::max(size, Weight(h, f, c) + 1);
            if (write) {
              weight[static_cast<size_t>(Weight(h, f, c))] =
                  random_.Uniform(-2, 2) / std::sqrt(static_cast<double>(p_.width()));
            }
          }
        }
      }
      if (write) {
        weight_ = TypedArray(trial_, p_.weight_type, weight,
                             random_.Chance(6) ? random_.Between(1, 3) : 0);
      }
    }
    p_.value_weight = weight_.data();
    if (random_.Chance(2)) {
      value_bias_ = TypedArray(trial_, Type::kFloat32, Randoms(p_.heads * p_.value_size, 1));
      p_.value_bias = value_bias_.floats();
    }
    if (random_.Chance(3)) {
      p_.distances = random_.Size(1, 80);
      std::vector<double> bias = Randoms(p_.heads * p_.distances, 2);
      if (random_.Chance(3)) {
        for (double& x : bias) x = random_.Chance(6) ? -kInfinity : x;
      }
      bias_ = TypedArray(trial_, Type::kFloat32, bias);
      p_.bias = bias_.floats();
    }
    p_.output_stride = p_.heads * p_.value_size + random_.Size(0, 5);
    output_ =
        TypedArray(trial_, p_.type,
                   std::vector<double>(static_cast<size_t>(p_.tokens * p_.output_stride), kNaN),
                   random_.Between(0, 3));
    p_.output = output_.data();
    if (p_.skip > 0 || random_.Chance(3)) {
      skipped_ = std::make_unique<Array<float>>(trial_, p_.tokens * p_.heads);
      p_.skipped = skipped_->data();
    }
  }
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_SLIM_ATTENTION_RANDOM_CASE_H_
