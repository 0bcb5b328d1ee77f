// flash-decode against float64: every cache, type, mask and plan.
//
// Whatever a kernel must not read is NaN: gaps between rows, slots that no list names, positions
// beyond a length, keys that masks take from every row.
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "../../../kernels-cuda/flash-decode/flash_decode.cuh"
#include "../../../kernels-cuda/flash-decode/store.cuh"
#include "../check.h"
#include "../memory.h"

namespace graft {
namespace gpu {
namespace {

namespace fd = cuda::flash_decode;
using cuda::Type;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// A tensor [batch, head, position, feature] with gaps, of NaN until it is set.
template <typename T>
struct Tensor {
  fd::Strides strides;
  int64_t sizes[4] = {0, 0, 0, 0};
  std::vector<T> data;

  // Axes from the outermost on, as `order` names them; `gap` numbers behind each innermost run.
  Tensor(const int64_t (&size)[4], const char* order, int64_t gap, T fill) {
    int64_t* steps[4] = {&strides.batch, &strides.head, &strides.position, &strides.feature};
    int64_t step = 1;
    for (int i = 3; i >= 0; --i) {
      const int axis = static_cast<int>(std::string("bhsd").find(order[i]));
      *steps[axis] = step;
      step *= std::max<int64_t>(1, size[axis]);
      if (i == 3) step += gap;
    }
    std::copy(size, size + 4, sizes);
    data.assign(static_cast<size_t>(step), fill);
  }
  size_t At(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return static_cast<size_t>(b * strides.batch + h * strides.head + s * strides.position +
                               d * strides.feature);
  }
};

template <typename T>
T Nan() {
  return Narrow<T>(std::numeric_limits<double>::quiet_NaN());
}

template <typename T>
struct Case {
  fd::Problem p;
  std::vector<std::unique_ptr<Tensor<T>>> tensors;
  std::vector<std::unique_ptr<Array<T>>> arrays;
  std::vector<std::unique_ptr<Array<int32_t>>> lists;

  // Group and row within it of every row, in the order of the output's rows, and what it sees.
  struct Row {
    int64_t group, row, position, keys, shared;
  };
  std::vector<Row> rows;
  int64_t valid = 0;
  // Where key (or value) j of a row stands: a tensor, and batch and position in it; -1: nowhere.
  struct Spot {
    const Tensor<T>* tensor;
    int64_t batch, position;
  };
  std::function<Spot(const Row&, int64_t j, bool value)> find;
  std::vector<int64_t> lengths;
};

template <typename T>
constexpr Type kType = std::is_same_v<T, float>        ? Type::kFloat32
                       : std::is_same_v<T, cuda::Half> ? Type::kFloat16
                                                       : Type::kBFloat16;

template <typename T>
void Draw(Random& random, Tensor<T>& t, int64_t b, int64_t s) {
  for (int64_t h = 0; h < t.sizes[1]; ++h) {
    for (int64_t d = 0; d < t.sizes[3]; ++d)
      t.data[t.At(b, h, s, d)] = Narrow<T>(random.Uniform(-1.5, 1.5));
  }
}

// Where a cache begins and how its rows are spaced: aligned to 16 bytes or to nothing.
template <typename T>
struct Layout {
  const char* order;
  int64_t gap, shift;
  Layout(Random& random, bool strided) {
    const bool aligned = !random.Chance(4);
    const int64_t words = 16 / static_cast<int64_t>(sizeof(T));
    order = random.Pick({"bhsd", "bshd"});
    if (strided && random.Chance(12)) order = "bhds";
    gap = random.Chance(2) ? 0 : random.Between(1, 3) * (aligned ? words : 1);
    shift = random.Chance(2) ? 0 : random.Between(1, 3) * (aligned ? words : 1);
  }
};

template <typename T>
class Maker {
 public:
  explicit Maker(Trial& trial) : trial_(trial), random_(trial.random) {}

  void Run() {
    DrawShape();
    switch (p().places) {
      case fd::Places::kContiguous:
        MakeContiguous();
        break;
      case fd::Places::kBlockTable:
        MakeTable();
        break;
      case fd::Places::kIndirection:
        MakeIndirection();
        break;
      case fd::Places::kPool:
        MakePool();
        break;
    }
    DrawScoring();
    MakeRows();
    Launch();
  }

 private:
  fd::Problem& p() { return c_.p; }

  void DrawShape() {
    p().type = kType<T>;
    p().places =
        random_.Pick({fd::Places::kContiguous, fd::Places::kContiguous, fd::Places::kBlockTable,
                      fd::Places::kIndirection, fd::Places::kPool, fd::Places::kPool});
    p().groups = random_.Between(1, 3);
    p().kv_heads = random_.Between(1, 2);
    const int64_t group_heads = random_.Chance(8)   ? random_.Between(9, 20)
                                : random_.Chance(2) ? 1
                                                    : random_.Between(2, 5);
    p().heads = p().kv_heads * group_heads;
    p().rows = random_.Chance(8) ? random_.Between(7, 20) : random_.Between(1, 5);
    p().head_size =
        random_.Chance(6) ? random_.Between(1, 70) : random_.Pick({8, 16, 24, 40, 64, 64, 72, 128});
    p().value_size = random_.Chance(4) ? random_.Pick({8, 16, 24, 48, 64, 13, 136}) : p().head_size;
    if (random_.Chance(25)) p().head_size = p().value_size = random_.Pick({160, 200, 256});
    if (random_.Chance(40)) p().value_size = 520;
    p().keys = random_.Chance(20)  ? 0
               : random_.Chance(6) ? random_.Between(100, 300)
                                   : random_.Between(1, 90);
    if (p().heads * p().rows * p().keys > 6000) p().keys = random_.Between(1, 40);
  }

  // Rows of groups, positions and lengths of everything but a pool.
  void DrawLengths(bool from_start) {
    const bool lengths = random_.Chance(2);
    p().diagonal = from_start && !random_.Chance(3) ? random_.Between(0, p().keys) : -1;
    std::vector<int32_t> list32;
    for (int64_t g = 0; g < p().groups; ++g) {
      c_.lengths.push_back(lengths ? random_.Between(0, p().keys) : p().keys);
      list32.push_back(static_cast<int32_t>(c_.lengths.back()));
      for (int64_t i = 0; i < p().rows; ++i) {
        const int64_t length = c_.lengths.back();
        const bool beams = p().places == fd::Places::kIndirection;
        c_.rows.push_back({g, i,
                           beams               ? length - 1
                           : p().diagonal >= 0 ? p().diagonal + i
                                               : length - p().rows + i,
                           length, beams ? std::min(p().prefix, length) : length});
      }
    }
    if (!lengths) return;
    if (random_.Chance(2)) {
      lengths64_ = std::make_unique<Array<int64_t>>(trial_, c_.lengths);
      p().lengths64 = lengths64_->data();
    } else {
      p().lengths32 = List(list32);
    }
  }

  void MakeContiguous() {
    p().past = random_.Chance(2) ? p().keys : random_.Between(0, p().keys);
    const Layout<T> old(random_, true), fresh(random_, true);
    const auto make = [&](const Layout<T>& layout, int64_t positions, int64_t size, fd::Input* to) {
      Tensor<T>* t = New({p().groups, p().kv_heads, positions, size}, layout);
      for (int64_t b = 0; b < p().groups; ++b) {
        for (int64_t s = 0; s < positions; ++s) Draw(random_, *t, b, s);
      }
      if (positions > 0) *to = Upload(*t, layout);
      return t;
    };
    Tensor<T>* k = make(old, p().past, p().head_size, &p().key);
    Tensor<T>* v = make(old, p().past, p().value_size, &p().value);
    Tensor<T>* fk = make(fresh, p().keys - p().past, p().head_size, &p().fresh_key);
    Tensor<T>* fv = make(fresh, p().keys - p().past, p().value_size, &p().fresh_value);
    if (p().past == p().keys && random_.Chance(2)) p().past = std::numeric_limits<int64_t>::max();
    const int64_t past = p().past;
    c_.find = [=](const auto& row, int64_t j, bool value) {
      const bool is_old = j < past;
      return typename Case<T>::Spot{value ? (is_old ? v : fv) : (is_old ? k : fk), row.group,
                                    is_old ? j : j - past};
    };
    DrawLengths(true);
  }

  void MakeTable() {
    p().block_slots = random_.Pick({1, 4, 16, 17, 64});
    const int64_t needed = (p().keys + p().block_slots - 1) / p().block_slots;
    p().blocks = p().groups * needed + random_.Between(1, 3);
    p().table_stride = needed + random_.Between(0, 2);
    DrawLengths(false);
    std::vector<int32_t> order(static_cast<size_t>(p().blocks)), table;
    std::iota(order.begin(), order.end(), 0);
    Shuffle(order);
    table.assign(static_cast<size_t>(p().groups * p().table_stride), 1 << 30);
    const bool lacking = random_.Chance(6);
    for (int64_t g = 0; g < p().groups; ++g) {
      for (int64_t b = 0; b < needed; ++b) {
        int32_t& entry = table[static_cast<size_t>(g * p().table_stride + b)];
        entry = order[static_cast<size_t>(g * needed + b)];
        if (lacking && random_.Chance(4))
          entry = random_.Chance(2) ? -1 : static_cast<int32_t>(p().blocks);
      }
    }
    const int64_t stride = p().table_stride, slots = p().block_slots, blocks = p().blocks;
    MakeCaches(p().blocks, slots, [=](const auto& row, int64_t j) {
      const int64_t block = table[static_cast<size_t>(row.group * stride + j / slots)];
      return std::pair<int64_t, int64_t>(block < blocks ? block : -1, j % slots);
    });
    p().table = List(table);
  }

  void MakeIndirection() {
    p().prefix = random_.Between(0, p().keys);
    p().blocks = p().groups * p().rows;
    p().table_stride = p().keys + random_.Between(0, 2);
    DrawLengths(false);
    std::vector<int32_t> table(static_cast<size_t>(p().blocks * p().table_stride), -9);
    const bool lacking = random_.Chance(6);
    for (int64_t r = 0; r < p().blocks; ++r) {
      for (int64_t j = p().prefix; j < p().keys; ++j) {
        int32_t& entry = table[static_cast<size_t>(r * p().table_stride + j)];
        entry = static_cast<int32_t>(r / p().rows * p().rows + random_.Between(0, p().rows - 1));
        if (lacking && random_.Chance(4)) entry = random_.Chance(2) ? -1 : 1 << 29;
      }
    }
    const int64_t rows = p().rows, stride = p().table_stride, blocks = p().blocks;
    const auto at = [=](const auto& row, int64_t j) {
      int64_t block = row.group * rows;
      if (j >= row.shared) block = table[static_cast<size_t>((block + row.row) * stride + j)];
      return std::pair<int64_t, int64_t>(block < blocks ? block : -1, j);
    };
    MakeCaches(blocks, p().keys, at);
    p().table = List(table);
  }

  void MakePool() {
    p().block_slots = random_.Pick({16, 16, 8});
    p().rows = 0;
    std::vector<int32_t> steps, shared, own;
    shared.assign(static_cast<size_t>(random_.Between(0, 3)), -5);  // what no step takes
    own.assign(static_cast<size_t>(random_.Between(0, 3)), 1 << 30);
    p().groups = random_.Chance(12) ? random_.Between(30, 40) : p().groups;
    const int64_t most = p().groups > 3 ? 5 : std::max<int64_t>(p().keys, 1);
    int32_t next = 0;
    std::vector<int32_t> order;
    const auto take = [&] {
      return order[static_cast<size_t>(next++ % static_cast<int32_t>(order.size()))];
    };
    p().blocks = p().groups > 3 ? 24 : random_.Between(20, 40);
    order.resize(static_cast<size_t>(p().blocks * p().block_slots));
    std::iota(order.begin(), order.end(), 0);
    if (random_.Chance(2)) Shuffle(order);
    const bool lacking = random_.Chance(6);
    for (int64_t g = 0; g < p().groups; ++g) {
      const bool causal = random_.Chance(3);
      const int64_t rows =
          random_.Chance(8) && p().groups <= 3 ? random_.Between(7, 20) : random_.Between(1, 5);
      int64_t s = random_.Between(0, most);
      const int64_t m = causal || random_.Chance(5) ? 0 : random_.Between(1, 20);
      if (causal) s += rows;
      steps.insert(steps.end(),
                   {static_cast<int32_t>(p().rows), static_cast<int32_t>(rows),
                    static_cast<int32_t>(shared.size()), static_cast<int32_t>(s),
                    static_cast<int32_t>(own.size()), static_cast<int32_t>(m), causal ? 1 : 0, 0});
      for (int64_t j = 0; j < s; ++j) shared.push_back(take());
      for (int64_t j = 0; j < rows * m; ++j) own.push_back(take());
      for (int64_t i = 0; i < rows; ++i) {
        c_.rows.push_back({g, i, causal ? s - rows + i : s + m - 1, s + m, s});
      }
      p().rows += rows;
    }
    if (lacking) {
      for (auto* list : {&shared, &own}) {
        for (int32_t& slot : *list) {
          if (random_.Chance(6)) slot = random_.Chance(2) ? -1 : 1 << 30;
        }
      }
    }
    p().shared_length = static_cast<int64_t>(shared.size());
    p().own_length = static_cast<int64_t>(own.size());
    const int64_t block_slots = p().block_slots, slots = p().blocks * block_slots;
    MakeCaches(p().blocks, block_slots, [=](const auto& row, int64_t j) {
      const auto step = steps.begin() + row.group * 8;
      const int64_t slot =
          j < step[3] ? shared[static_cast<size_t>(step[2] + j)]
                      : own[static_cast<size_t>(step[4] + row.row * step[5] + j - step[3])];
      return slot < 0 || slot >= slots
                 ? std::pair<int64_t, int64_t>(-1, 0)
                 : std::pair<int64_t, int64_t>(slot / block_slots, slot % block_slots);
    });
    p().steps = List(steps);
    p().shared = List(shared);
    p().own = List(own);
  }

  // Fills only what `at` names for some row.
  template <typename At>
  void MakeCaches(int64_t blocks, int64_t slots, const At& at) {
    const Layout<T> layout(random_, false);
    Tensor<T>* k = New({blocks, p().kv_heads, slots, p().head_size}, layout);
    Tensor<T>* v = New({blocks, p().kv_heads, slots, p().value_size}, layout);
    for (const auto& row : c_.rows) {
      for (int64_t j = 0; j < row.keys; ++j) {
        const auto [block, slot] = at(row, j);
        if (block < 0 || !std::isnan(Wide(k->data[k->At(block, 0, slot, 0)]))) continue;
        Draw(random_, *k, block, slot);
        Draw(random_, *v, block, slot);
      }
    }
    c_.find = [=](const auto& row, int64_t j, bool value) {
      const auto [block, slot] = at(row, j);
      return typename Case<T>::Spot{value ? v : k, block, slot};
    };
    p().key = Upload(*k, layout);
    p().value = Upload(*v, layout);
  }

  void DrawScoring() {
    if (random_.Chance(2)) p().scale = static_cast<float>(random_.Uniform(0.05, 0.4));
    if (random_.Chance(6)) p().softcap = static_cast<float>(random_.Uniform(0.5, 20));
    if (random_.Chance(4)) p().window = random_.Between(1, 50);
    p().zero_masked_rows = random_.Chance(2);
    if (p().steps == nullptr) {
      p().causal = random_.Chance(3);
      if (random_.Chance(10)) p().key_limit = random_.Between(0, p().keys);
    }
    if (random_.Chance(4)) {
      p().distances = random_.Chance(2) ? random_.Between(1, 10) : random_.Between(1, 200);
      distances_ = Numbers<float>(random_, p().heads * p().distances, -3, 3);
      if (p().distances > 2 && random_.Chance(4)) {
        distances_[static_cast<size_t>(random_.Between(1, p().distances - 1))] =
            -std::numeric_limits<float>::infinity();
      }
      distance_bias_ = std::make_unique<Array<float>>(trial_, distances_);
      p().distance_bias = distance_bias_->data();
    }
    if (p().places != fd::Places::kContiguous || p().keys == 0) return;
    const int64_t columns = std::max<int64_t>(1, std::min(p().keys, p().key_limit));
    const int64_t sizes[4] = {random_.Chance(2) ? p().groups : 1, random_.Chance(2) ? p().heads : 1,
                              random_.Chance(2) ? p().rows : 1, random_.Chance(15) ? 1 : columns};
    const auto broadcast = [&](fd::Strides s) {
      if (sizes[0] == 1) s.batch = 0;
      if (sizes[1] == 1) s.head = 0;
      if (sizes[2] == 1) s.position = 0;
      if (sizes[3] == 1) s.feature = 0;
      return s;
    };
    if (random_.Chance(3)) {
      const double hidden =
          random_.Pick({kLowest, -1e4, kType<T> == Type::kFloat16 ? -65504.0 : -3.0e38});
      const double share = random_.Chance(8) ? 1.0 : random_.Uniform(0, 0.6);
      bias_ = std::make_unique<Tensor<T>>(sizes, "bhsd", random_.Between(0, 3), Nan<T>());
      Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        bias_->data[bias_->At(b, h, s, d)] =
            Narrow<T>(random_.Uniform(0, 1) < share ? hidden : random_.Uniform(-1, 1));
      });
      bias_->strides = broadcast(bias_->strides);
      bias_array_ = std::make_unique<Array<T>>(trial_, bias_->data, random_.Between(0, 3));
      p().bias = {bias_array_->data(), bias_->strides};
    }
    if (random_.Chance(3)) {
      const double share = random_.Chance(8) ? 1.0 : random_.Uniform(0, 0.6);
      mask_ = std::make_unique<Tensor<uint8_t>>(sizes, "bhsd", random_.Between(0, 3), 1);
      Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        mask_->data[mask_->At(b, h, s, d)] = random_.Uniform(0, 1) < share ? 0 : 1;
      });
      mask_->strides = broadcast(mask_->strides);
      mask_array_ = std::make_unique<Array<uint8_t>>(trial_, mask_->data, random_.Between(0, 3));
      p().mask = {mask_array_->data(), mask_->strides};
      p().mask_fill =
          static_cast<float>(random_.Pick({kLowest, kLowest, -1e4, 0.5, -3.4028234663852886e38}));
      p().mask_after_bias = random_.Chance(2);
    }
    wants_scores_ = random_.Chance(5);
    p().scores_stage = random_.Pick({fd::ScoresStage::kProduct, fd::ScoresStage::kSoftcapped,
                                     fd::ScoresStage::kMasked, fd::ScoresStage::kProbabilities});
    if (!wants_scores_) HideGarbage();
  }

  // The score of a row's key before the softmax, as the formula says; `hidden`: nobody may look.
  // Without dot it is the score of a product of 0.
  double ScoreOf(const typename Case<T>::Row& row, int64_t head, int64_t j, double dot,
                 bool* hidden, std::vector<double>* stages = nullptr) {
    const double scale =
        p().scale != 0 ? p().scale : 1 / std::sqrt(static_cast<double>(p().head_size));
    double s = scale * dot;
    if (stages != nullptr) stages->push_back(s);
    if (p().softcap > 0) s = p().softcap * std::tanh(s / p().softcap);
    if (stages != nullptr) stages->push_back(s);
    bool gone = c_.find(row, j, false).batch < 0;
    const auto add = [&](double bias) {
      if (bias == kLowest) gone = true;
      s = bias == kLowest ? kLowest : static_cast<double>(static_cast<float>(s + bias));
    };
    const auto biased = [&] {
      if (bias_ != nullptr) add(Wide(bias_->data[bias_->At(row.group, head, row.row, j)]));
    };
    const bool has_columns = j < p().key_limit;
    if (has_columns && p().mask_after_bias) biased();
    if (has_columns && mask_ != nullptr &&
        mask_->data[mask_->At(row.group, head, row.row, j)] == 0) {
      s = p().mask_fill;
      gone = s == kLowest;
    }
    if (has_columns && !p().mask_after_bias) biased();
    const int64_t distance = row.position - j;
    if (p().distances > 0) {
      const int64_t at = std::max<int64_t>(0, std::min(distance, p().distances - 1));
      add(distances_[static_cast<size_t>(head * p().distances + at)]);
    }
    const bool ordered = p().causal || p().steps != nullptr;
    if (j >= row.keys || j >= p().key_limit || (ordered && distance < 0) ||
        (p().window > 0 && distance >= p().window)) {
      gone = true;
    }
    if (gone) s = kLowest;
    *hidden = gone;
    if (stages != nullptr) stages->push_back(s);
    return s;
  }

  void HideGarbage() {
    const int64_t group_heads = p().heads / p().kv_heads;
    for (int64_t g = 0; g < p().groups; ++g) {
      for (int64_t h = 0; h < p().kv_heads; ++h) {
        for (int64_t j = 0; j < p().keys; ++j) {
          bool hidden = true;
          for (const auto& row : c_.rows) {
            if (row.group != g) continue;
            for (int64_t q = h * group_heads; q < (h + 1) * group_heads && hidden; ++q) {
              ScoreOf(row, q, j, 0, &hidden);
            }
            if (!hidden) break;
          }
          if (!hidden) continue;
          for (const bool value : {false, true}) {
            const auto spot = c_.find({g, 0, 0, p().keys, p().keys}, j, value);
            auto* t = const_cast<Tensor<T>*>(spot.tensor);
            for (int64_t d = 0; d < t->sizes[3]; ++d) {
              t->data[t->At(spot.batch, h, spot.position, d)] = Nan<T>();
            }
          }
        }
      }
    }
    for (size_t i = 0; i < uploads_.size(); ++i) uploads_[i].first->Write(uploads_[i].second->data);
  }

  void MakeRows() {
    const bool pool = p().steps != nullptr;
    const int64_t batch = pool ? 1 : p().groups;
    const int64_t sizes[4] = {batch, p().heads, p().rows, p().head_size};
    const int64_t out[4] = {batch, p().heads, p().rows, p().value_size};
    query_ = std::make_unique<Tensor<T>>(sizes, random_.Pick({"bhsd", "bshd", "bhds"}),
                                         random_.Between(0, 3), Nan<T>());
    Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
      query_->data[query_->At(b, h, s, d)] = Narrow<T>(random_.Uniform(-1.5, 1.5));
    });
    query_array_ = std::make_unique<Array<T>>(trial_, query_->data, random_.Between(0, 3));
    p().query = {query_array_->data(), query_->strides};
    output_ = std::make_unique<Tensor<T>>(out, random_.Pick({"bhsd", "bshd", "bhds"}),
                                          random_.Between(0, 3), Nan<T>());
    if (wants_scores_) {
      const int64_t grid[4] = {batch, p().heads, p().rows, p().keys};
      scores_ = std::make_unique<Tensor<T>>(grid, "bhsd", random_.Between(0, 3), Nan<T>());
    }
  }

  void Launch() {
    Array<T> output(trial_, static_cast<int64_t>(output_->data.size()), random_.Between(0, 3));
    p().output = {output.data(), output_->strides};
    std::unique_ptr<Array<T>> scores;
    if (wants_scores_) {
      scores = std::make_unique<Array<T>>(trial_, static_cast<int64_t>(scores_->data.size()), 1);
      p().scores = {scores->data(), scores_->strides};
    }
    const int64_t all_rows = static_cast<int64_t>(c_.rows.size());
    std::unique_ptr<Array<float>> lse;
    if (random_.Chance(2)) {
      lse = std::make_unique<Array<float>>(trial_, all_rows * p().heads);
      p().lse = lse->data();
    }
    fd::Tuning tuning;
    if (random_.Chance(3)) tuning.path = fd::Path::kSimple;
    if (random_.Chance(2)) tuning.tile_tokens = static_cast<int32_t>(random_.Between(1, 16));
    if (random_.Chance(2)) tuning.splits = static_cast<int32_t>(random_.Between(1, 6));
    if (random_.Chance(2)) tuning.stages = random_.Pick({2, 3, 4});
    if (random_.Chance(2)) tuning.most_blocks = random_.Between(1, 9);
    cuda::DeviceLimits limits;
    if (random_.Chance(3)) limits.multiprocessors = 20;
    const fd::Plan plan = fd::MakePlan(p(), limits, tuning);
    trial_.about << "type " << static_cast<int>(p().type) << " places "
                 << static_cast<int>(p().places) << " groups " << p().groups << " rows " << p().rows
                 << " heads " << p().heads << '/' << p().kv_heads << " of " << p().head_size << '/'
                 << p().value_size << " keys " << p().keys << " past " << p().past << " prefix "
                 << p().prefix << " shared " << p().shared_length << " own " << p().own_length
                 << " causal " << p().causal << " window " << p().window << " diagonal "
                 << p().diagonal << " softcap " << p().softcap << " bias " << (bias_ != nullptr)
                 << " mask " << (mask_ != nullptr) << " fill " << p().mask_fill << " after "
                 << p().mask_after_bias << " distances " << p().distances << " limit "
                 << p().key_limit << " scores " << wants_scores_ << " | fast " << plan.fast
                 << " tile rows " << plan.tile_rows << " tokens " << plan.cut.tile_tokens
                 << " splits " << plan.cut.splits << " stages " << plan.cut.stages << " blocks "
                 << plan.attend.grid_x;
    Array<unsigned char> workspace(trial_, plan.workspace_bytes);
    trial_.Expect(fd::Run(p(), plan, workspace.data(), nullptr));
    Compare(output, scores.get(), lse.get());
  }

  void Compare(const Array<T>& output, const Array<T>* scores, const Array<float>* lse) {
    std::vector<double> want(output_->data.size(), std::nan(""));
    std::vector<double> want_scores(scores_ != nullptr ? scores_->data.size() : 0, std::nan(""));
    std::vector<double> want_lse;
    double slack = 0;
    const bool pool = p().steps != nullptr;
    for (size_t r = 0; r < c_.rows.size(); ++r) {
      const auto& row = c_.rows[r];
      const int64_t batch = pool ? 0 : row.group;
      const int64_t place = pool ? static_cast<int64_t>(r) : row.row;
      const int64_t keys = pool                                    ? row.keys
                           : p().places == fd::Places::kContiguous ? p().keys
                                                                   : row.keys;
      for (int64_t head = 0; head < p().heads; ++head) {
        const int64_t h = head / (p().heads / p().kv_heads);
        std::vector<double> weights;
        std::vector<bool> hidden;
        double maximum = kLowest, sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          const auto spot = c_.find(row, j, false);
          double dot = 0;
          for (int64_t d = 0; d < p().head_size && spot.batch >= 0; ++d) {
            dot += Wide(query_->data[query_->At(batch, head, place, d)]) *
                   Wide(spot.tensor->data[spot.tensor->At(spot.batch, h, spot.position, d)]);
          }
          bool gone;
          std::vector<double> stages;
          weights.push_back(ScoreOf(row, head, j, dot, &gone, &stages));
          hidden.push_back(gone);
          maximum = std::max(maximum, weights.back());
          if (scores_ != nullptr && p().scores_stage != fd::ScoresStage::kProbabilities) {
            want_scores[scores_->At(batch, head, place, j)] =
                stages[static_cast<size_t>(p().scores_stage)];
          }
        }
        const bool weightless = maximum == kLowest;
        if (!weightless && std::abs(maximum) > 64) {
          slack = std::max(slack, std::min(1.0, std::abs(maximum) * 2.5e-7));
        }
        for (double& w : weights) sum += w = weightless ? 0 : std::exp(w - maximum);
        const bool keyless = pool ? row.keys == 0 : p().keys == 0;
        const double lost = p().zero_masked_rows || keyless ? 0 : std::nan("");
        for (double& w : weights) w = weightless ? lost : w / sum;
        want_lse.push_back(weightless ? kLowest : maximum + std::log(sum));
        for (int64_t d = 0; d < p().value_size; ++d) {
          double total = weightless ? lost : 0;
          for (int64_t j = 0; j < keys && !weightless; ++j) {
            if (hidden[static_cast<size_t>(j)]) continue;
            const auto spot = c_.find(row, j, true);
            total += weights[static_cast<size_t>(j)] *
                     Wide(spot.tensor->data[spot.tensor->At(spot.batch, h, spot.position, d)]);
          }
          want[output_->At(batch, head, place, d)] = total;
        }
        for (int64_t j = 0; j < keys; ++j) {
          if (scores_ == nullptr || p().scores_stage != fd::ScoresStage::kProbabilities) break;
          want_scores[scores_->At(batch, head, place, j)] = weights[static_cast<size_t>(j)];
        }
      }
    }
    Tolerance tolerance = ToleranceOf(p().type);
    // float32 cannot resolve the differences of large scores better.
    tolerance.absolute += 3 * slack;
    trial_.Expect("output", output.Read(), want, tolerance);
    if (scores != nullptr) {
      // What rounds to an infinity in half precision is one.
      for (double& w : want_scores) {
        if (kType<T> == Type::kFloat16 && std::abs(w) >= 65520) w = w < 0 ? kLowest : -kLowest;
      }
      trial_.Expect("scores", scores->Read(), want_scores, tolerance);
    }
    if (lse != nullptr) {
      trial_.Expect("lse", lse->Read(), want_lse, {1e-5 + 3 * slack, 1e-4});
    }
  }

  template <typename Use>
  static void Each(const int64_t (&sizes)[4], const Use& use) {
    for (int64_t a = 0; a < sizes[0]; ++a) {
      for (int64_t b = 0; b < sizes[1]; ++b) {
        for (int64_t c = 0; c < sizes[2]; ++c) {
          for (int64_t d = 0; d < sizes[3]; ++d) use(a, b, c, d);
        }
      }
    }
  }
  void Shuffle(std::vector<int32_t>& list) {
    for (size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1],
                list[static_cast<size_t>(random_.Between(0, static_cast<int64_t>(i) - 1))]);
    }
  }
  Tensor<T>* New(const int64_t (&sizes)[4], const Layout<T>& layout) {
    c_.tensors.push_back(std::make_unique<Tensor<T>>(sizes, layout.order, layout.gap, Nan<T>()));
    return c_.tensors.back().get();
  }
  fd::Input Upload(const Tensor<T>& tensor, const Layout<T>& layout) {
    c_.arrays.push_back(std::make_unique<Array<T>>(trial_, tensor.data, layout.shift));
    uploads_.push_back({c_.arrays.back().get(), &tensor});
    return {c_.arrays.back()->data(), tensor.strides};
  }
  const int32_t* List(const std::vector<int32_t>& values) {
    c_.lists.push_back(std::make_unique<Array<int32_t>>(trial_, values, random_.Between(0, 3)));
    return c_.lists.back()->data();
  }

  Trial& trial_;
  Random& random_;
  Case<T> c_;
  std::unique_ptr<Array<int64_t>> lengths64_;
  std::unique_ptr<Tensor<T>> query_, output_, scores_, bias_;
  std::unique_ptr<Array<T>> query_array_, bias_array_;
  std::unique_ptr<Tensor<uint8_t>> mask_;
  std::unique_ptr<Array<uint8_t>> mask_array_;
  std::vector<float> distances_;
  std::unique_ptr<Array<float>> distance_bias_;
  std::vector<std::pair<Array<T>*, const Tensor<T>*>> uploads_;
  bool wants_scores_ = false;
};

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
  std::vector<int32_t> slots(static_cast<size_t>(p.slots)), write;
  std::iota(slots.begin(), slots.end(), 0);
  for (size_t i = slots.size(); i > 1; --i) {
    std::swap(slots[i - 1],
              slots[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))]);
  }
  for (int64_t i = 0; i < p.batch * p.positions; ++i) {
    write.push_back(random.Chance(5) ? random.Pick({-1, static_cast<int32_t>(p.slots), 1 << 30})
                                     : slots[static_cast<size_t>(i)]);
  }
  Array<int32_t> list(trial, write, 1);
  if (listed) p.write = list.data();
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
      for (int64_t s = 0; s < p.positions; ++s) Draw(random, source, b, s);
    }
    Tensor<T> cache({listed ? blocks : p.batch, p.heads,
                     listed ? p.block_slots : p.first_position + p.positions, c.size},
                    target.order, target.gap, Nan<T>());
    want[side].assign(cache.data.size(), std::nan(""));
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t s = 0; s < p.positions; ++s) {
        const int64_t slot = write[static_cast<size_t>(b * p.positions + s)];
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
  for (const int32_t slot : write) count += slot >= 0 && slot < p.slots ? 1 : 0;
  trial.ExpectSame("stored", stored.Read(), {count});
}

template <typename T>
void ConformAs(Trial& trial) {
  if (trial.random.Chance(8)) return ConformStore<T>(trial);
  Maker<T>(trial).Run();
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
}  // namespace gpu
}  // namespace graft
