// Slim attention against float64: keys in a pool or one after the other, every way and cut.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "../../../kernels-cuda/slim-attention/slim_attention.cuh"
#include "../check.h"
#include "../memory.h"

namespace graft {
namespace gpu {
namespace {

using namespace cuda::slim_attention;  // NOLINT: the kernel under test
using cuda::Type;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Numbers of a type that is drawn: rounded to it here, and on the device.
class Numbers {
 public:
  Numbers() = default;
  Numbers(Trial& trial, Type type, std::vector<double> values, int64_t shift = 0) : type_(type) {
    if (type == Type::kFloat32) Make<float>(trial, values, shift, &floats_);
    if (type == Type::kFloat16) Make<cuda::Half>(trial, values, shift, &halves_);
    if (type == Type::kBFloat16) Make<cuda::BFloat16>(trial, values, shift, &bfloats_);
  }
  void* data() const {
    if (type_ == Type::kFloat32) return floats_ ? floats_->data() : nullptr;
    if (type_ == Type::kFloat16) return halves_->data();
    return bfloats_->data();
  }
  const float* floats() const { return static_cast<const float*>(data()); }
  // What was written to the array since.
  std::vector<double> Read() const {
    std::vector<double> all;
    const auto widen = [&](const auto& list) {
      for (const auto x : list) all.push_back(Wide(x));
    };
    if (type_ == Type::kFloat32) widen(floats_->Read());
    if (type_ == Type::kFloat16) widen(halves_->Read());
    if (type_ == Type::kBFloat16) widen(bfloats_->Read());
    return all;
  }
  double operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }

 private:
  template <typename T>
  void Make(Trial& trial, const std::vector<double>& values, int64_t shift,
            std::unique_ptr<Array<T>>* array) {
    std::vector<T> narrow;
    for (const double x : values) {
      narrow.push_back(Narrow<T>(x));
      values_.push_back(Wide(narrow.back()));
    }
    *array = std::make_unique<Array<T>>(trial, narrow, shift);
  }

  Type type_ = Type::kFloat32;
  std::vector<double> values_;
  std::unique_ptr<Array<float>> floats_;
  std::unique_ptr<Array<cuda::Half>> halves_;
  std::unique_ptr<Array<cuda::BFloat16>> bfloats_;
};

struct TokenGroup {
  int64_t first, tokens, shared_offset, shared, private_offset, private_count;
  bool causal;
  int64_t Position(int64_t i) const {
    return causal ? shared - tokens + i : shared + private_count - 1;
  }
};

class Case {
 public:
  explicit Case(Trial& trial) : trial_(trial), random_(trial.random) {}

  void Run() {
    DrawSizes();
    DrawGroups();
    DrawRotary();
    DrawRows();
    DrawRest();
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
        trial_.about << "plain)";
      }
    }
    if (plan.workspace > WorkspaceOf(p_, limits, tuning)) trial_.Fail("workspace is too small");
    Array<char> workspace(trial_, plan.workspace);
    if (store_) trial_.Expect(Store(Storing(), nullptr));
    trial_.Expect(cuda::slim_attention::Run(p_, plan, workspace.data(), nullptr));
    Compare();
  }

 private:
  std::vector<double> Draw(int64_t count, double most) {
    std::vector<double> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(random_.Uniform(-most, most));
    return list;
  }

  void DrawSizes() {
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

  void DrawGroups() {
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
      most_ = std::max(most_, g.shared + g.private_count);
      groups_.push_back(g);
      if (i < 3) {
        trial_.about << " (" << g.tokens << " tokens, " << g.shared << '+' << g.private_count
                     << (g.causal ? " causal)" : ")");
      }
    }
    trial_.about << (pool_ ? " pool" : " contiguous") << ' ' << p_.groups << " groups";
  }

  void DrawRotary() {
    if (p_.head_size < 2 || random_.Chance(2)) return;
    p_.rotary = random_.Pick({Rotary::kHalf, Rotary::kInterleaved});
    p_.rotated = random_.Chance(2);
    p_.pairs = random_.Chance(3) ? random_.Between(1, p_.head_size / 2) : p_.head_size / 2;
    p_.angles = std::max<int64_t>(1, random_.Chance(10) ? most_ - 1 : most_);
    std::vector<double> cosine, sine;
    for (int64_t n = 0; n < p_.angles; ++n) {
      for (int64_t j = 0; j < p_.pairs; ++j) {
        const double angle = static_cast<double>(n) *
                             std::pow(1e4, -static_cast<double>(j) / static_cast<double>(p_.pairs));
        cosine.push_back(std::cos(angle));
        sine.push_back(std::sin(angle));
      }
    }
    cosine_ = Numbers(trial_, Type::kFloat32, cosine);
    sine_ = Numbers(trial_, Type::kFloat32, sine);
    p_.cosine = cosine_.floats();
    p_.sine = sine_.floats();
    trial_.about << ", rotary " << static_cast<int32_t>(p_.rotary) << (p_.rotated ? " kept" : "");
  }

  // Rows that lists name; everything else is NaN.
  void DrawRows() {
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
      for (int64_t j = 0; j < p_.shared_length; ++j) shared_.push_back(take());
      for (int64_t j = 0; j < p_.private_length; ++j) own_.push_back(take());
      DrawStore(&rows);
    } else {
      for (const TokenGroup& g : groups_) {
        const int64_t index = &g - groups_.data();
        for (int64_t j = 0; j < g.shared; ++j) fill(index * p_.block_stride + j * p_.row_stride);
      }
      p_.shared_length = p_.private_length = 0;
    }
    rows_ = Numbers(trial_, p_.row_type, rows,
                    aligned ? vector * random_.Between(0, 1) : random_.Between(0, 3));
    p_.rows = rows_.data();
    if (pool_) {
      for (const TokenGroup& g : groups_) {
        for (const int64_t x : {g.first, g.tokens, g.shared_offset, g.shared, g.private_offset,
                                g.private_count, int64_t{g.causal ? 1 : 0}, int64_t{0}}) {
          steps_.push_back(static_cast<int32_t>(x));
        }
      }
      device_steps_ = std::make_unique<Array<int32_t>>(trial_, steps_);
      device_shared_ = std::make_unique<Array<int32_t>>(trial_, shared_);
      device_own_ = std::make_unique<Array<int32_t>>(trial_, own_);
      p_.sequences = device_steps_->data();
      p_.shared_slots = device_shared_->data();
      p_.private_slots = device_own_->data();
    } else {
      device_lengths_ = std::make_unique<Array<int32_t>>(trial_, lengths_);
      p_.lengths = device_lengths_->data();
    }
  }

  // Some rows arrive by Store, in the types of the call: they become NaN in the pool until then.
  void DrawStore(std::vector<double>* rows) {
    store_ = random_.Chance(2);
    if (!store_) return;
    store_stride_ = p_.width() + random_.Size(0, 5);
    std::vector<double> from;
    const auto bring = [&](int32_t slot) {
      const auto begin = rows->begin() + static_cast<std::ptrdiff_t>(At(slot));
      from.insert(from.end(), begin, begin + static_cast<std::ptrdiff_t>(p_.width()));
      from.resize(write_.size() * static_cast<size_t>(store_stride_), kNaN);
    };
    for (const int32_t slot : shared_) {
      if (slot < 0 || slot >= p_.slots || !random_.Chance(8)) continue;
      write_.push_back(slot);
      bring(slot);
      for (int64_t c = 0; c < p_.width(); ++c) {
        // What is drawn in the type that it arrives in may round again on its way in: it must be
        // the number that the reference reads.
        double& x =
            from[(write_.size() - 1) * static_cast<size_t>(store_stride_) + static_cast<size_t>(c)];
        x = Round(x);
        (*rows)[static_cast<size_t>(At(slot) + c)] = kNaN;
        stored_.push_back({At(slot) + c, x});
      }
    }
    for (const int32_t stray : {int32_t{-1}, static_cast<int32_t>(p_.slots)}) {
      write_.push_back(stray);
      from.resize(write_.size() * static_cast<size_t>(store_stride_), 7.0);
    }
    from_ = Numbers(trial_, p_.type, from);
    device_write_ = std::make_unique<Array<int32_t>>(trial_, write_);
  }
  double Round(double x) const {
    if (p_.row_type == Type::kFloat16) return Wide(Narrow<cuda::Half>(x));
    if (p_.row_type == Type::kBFloat16) return Wide(Narrow<cuda::BFloat16>(x));
    return Wide(Narrow<float>(x));
  }
  StoreArguments Storing() const {
    return {
        rows_.data(),         p_.row_type,  p_.row_stride, p_.block_stride, p_.slots,
        p_.width(),           from_.data(), p_.type,       store_stride_,   device_write_->data(),
        device_write_->size()};
  }

  void DrawRest() {
    p_.query_stride = p_.width() + random_.Size(0, 9);
    std::vector<double> query(static_cast<size_t>(p_.tokens * p_.query_stride), kNaN);
    for (int64_t t = 0; t < p_.tokens; ++t) {
      for (int64_t c = 0; c < p_.width(); ++c) {
        query[static_cast<size_t>(t * p_.query_stride + c)] = random_.Uniform(-1.5, 1.5);
      }
    }
    query_ = Numbers(trial_, p_.type, query, random_.Between(0, 3));
    p_.query = query_.data();

    // Panels as the fold of the plugin makes them, or a matrix as it is drawn in papers.
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
        weight_ =
            Numbers(trial_, p_.weight_type, weight, random_.Chance(6) ? random_.Between(1, 3) : 0);
      }
    }
    p_.value_weight = weight_.data();
    if (random_.Chance(2)) {
      value_bias_ = Numbers(trial_, Type::kFloat32, Draw(p_.heads * p_.value_size, 1));
      p_.value_bias = value_bias_.floats();
    }
    if (random_.Chance(3)) {
      p_.distances = random_.Size(1, 80);
      std::vector<double> bias = Draw(p_.heads * p_.distances, 2);
      if (random_.Chance(3)) {
        for (double& x : bias) x = random_.Chance(6) ? -kInfinity : x;
      }
      bias_ = Numbers(trial_, Type::kFloat32, bias);
      p_.bias = bias_.floats();
    }
    p_.output_stride = p_.heads * p_.value_size + random_.Size(0, 5);
    output_ = Numbers(trial_, p_.type,
                      std::vector<double>(static_cast<size_t>(p_.tokens * p_.output_stride), kNaN),
                      random_.Between(0, 3));
    p_.output = output_.data();
    if (p_.skip > 0 || random_.Chance(3)) {
      skipped_ = std::make_unique<Array<float>>(trial_, p_.tokens * p_.heads);
      p_.skipped = skipped_->data();
    }
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
    const int64_t slot =
        j < g.shared
            ? shared_[static_cast<size_t>(g.shared_offset + j)]
            : own_[static_cast<size_t>(g.private_offset + token * g.private_count + j - g.shared)];
    return slot < 0 || slot >= p_.slots ? -1 : At(slot);
  }

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

  Trial& trial_;
  Random& random_;
  Problem p_;
  bool pool_ = true, store_ = false;
  int64_t most_ = 0, store_stride_ = 0;
  std::vector<TokenGroup> groups_;
  std::vector<int32_t> steps_, shared_, own_, lengths_, write_;
  std::vector<std::pair<int64_t, double>> stored_;  // places of rows that Store brings
  Numbers rows_, query_, weight_, value_bias_, bias_, cosine_, sine_, output_, from_;
  std::unique_ptr<Array<float>> skipped_;
  std::unique_ptr<Array<int32_t>> device_steps_, device_shared_, device_own_, device_lengths_,
      device_write_;
};

void Conform(Trial& trial) { Case(trial).Run(); }

GRAFT_CONFORM("slim-attention", Conform);

}  // namespace
}  // namespace gpu
}  // namespace graft
