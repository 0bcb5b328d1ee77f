// Random problems of flash-decode, with NaN in whatever a kernel must not read: gaps between rows,
// slots that no list names, positions beyond a length, keys that masks take from every row.
#ifndef GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_MAKER_H_
#define GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_MAKER_H_

#include <numeric>
#include <utility>

#include "flash-decode-case.h"

namespace graft {
namespace gpu {
namespace flash_decode {

template <typename T>
void Randomize(Random& random, Tensor<T>& t, int64_t b, int64_t s) {
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

// Makes a random problem.
template <typename T>
class Maker {
 public:
  Maker(Trial& trial, Case<T>& made) : trial_(trial), random_(trial.random), c_(made) {}

  void Make() {
    RandomShape();
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
    RandomScoring();
    MakeRows();
  }

 private:
  fd::Problem& p() { return c_.p; }

  void RandomShape() {
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
  void RandomLengths(bool from_start) {
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
      c_.lengths64_array = std::make_unique<Array<int64_t>>(trial_, c_.lengths);
      p().lengths64 = c_.lengths64_array->data();
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
        for (int64_t s = 0; s < positions; ++s) Randomize(random_, *t, b, s);
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
    RandomLengths(true);
  }

  void MakeTable() {
    p().block_slots = random_.Pick({1, 4, 16, 17, 64});
    const int64_t needed = (p().keys + p().block_slots - 1) / p().block_slots;
    p().blocks = p().groups * needed + random_.Between(1, 3);
    p().table_stride = needed + random_.Between(0, 2);
    RandomLengths(false);
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
    RandomLengths(false);
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
    std::vector<int32_t> sequences, shared_slots, private_slots;
    shared_slots.assign(static_cast<size_t>(random_.Between(0, 3)), -5);  // what no step takes
    private_slots.assign(static_cast<size_t>(random_.Between(0, 3)), 1 << 30);
    p().groups = random_.Chance(12) ? random_.Between(30, 40) : p().groups;
    const int64_t maximum = p().groups > 3 ? 5 : std::max<int64_t>(p().keys, 1);
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
      int64_t s = random_.Between(0, maximum);
      const int64_t m = causal || random_.Chance(5) ? 0 : random_.Between(1, 20);
      if (causal) s += rows;
      sequences.insert(
          sequences.end(),
          {static_cast<int32_t>(p().rows), static_cast<int32_t>(rows),
           static_cast<int32_t>(shared_slots.size()), static_cast<int32_t>(s),
           static_cast<int32_t>(private_slots.size()), static_cast<int32_t>(m), causal ? 1 : 0, 0});
      for (int64_t j = 0; j < s; ++j) shared_slots.push_back(take());
      for (int64_t j = 0; j < rows * m; ++j) private_slots.push_back(take());
      for (int64_t i = 0; i < rows; ++i) {
        c_.rows.push_back({g, i, causal ? s - rows + i : s + m - 1, s + m, s});
      }
      p().rows += rows;
    }
    if (lacking) {
      for (auto* list : {&shared_slots, &private_slots}) {
        for (int32_t& slot : *list) {
          if (random_.Chance(6)) slot = random_.Chance(2) ? -1 : 1 << 30;
        }
      }
    }
    p().shared_length = static_cast<int64_t>(shared_slots.size());
    p().private_length = static_cast<int64_t>(private_slots.size());
    const int64_t block_slots = p().block_slots, slots = p().blocks * block_slots;
    MakeCaches(p().blocks, block_slots, [=](const auto& row, int64_t j) {
      const auto step = sequences.begin() + row.group * 8;
      const int64_t slot =
          j < step[3]
              ? shared_slots[static_cast<size_t>(step[2] + j)]
              : private_slots[static_cast<size_t>(step[4] + row.row * step[5] + j - step[3])];
      return slot < 0 || slot >= slots
                 ? std::pair<int64_t, int64_t>(-1, 0)
                 : std::pair<int64_t, int64_t>(slot / block_slots, slot % block_slots);
    });
    p().sequences = List(sequences);
    p().shared_slots = List(shared_slots);
    p().private_slots = List(private_slots);
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
        Randomize(random_, *k, block, slot);
        Randomize(random_, *v, block, slot);
      }
    }
    c_.find = [=](const auto& row, int64_t j, bool value) {
      const auto [block, slot] = at(row, j);
      return typename Case<T>::Spot{value ? v : k, block, slot};
    };
    p().key = Upload(*k, layout);
    p().value = Upload(*v, layout);
  }

  void RandomScoring() {
    if (random_.Chance(2)) p().scale = static_cast<float>(random_.Uniform(0.05, 0.4));
    if (random_.Chance(6)) p().softcap = static_cast<float>(random_.Uniform(0.5, 20));
    if (random_.Chance(4)) p().window = random_.Between(1, 50);
    p().zero_masked_rows = random_.Chance(2);
    p().clear_nan = random_.Chance(4);
    if (p().sequences == nullptr) {
      p().causal = random_.Chance(3);
      if (random_.Chance(10)) p().key_limit = random_.Between(0, p().keys);
    }
    if (random_.Chance(4)) {
      p().distances = random_.Chance(2) ? random_.Between(1, 10) : random_.Between(1, 200);
      c_.distances = Numbers<float>(random_, p().heads * p().distances, -3, 3);
      if (p().distances > 2 && random_.Chance(4)) {
        c_.distances[static_cast<size_t>(random_.Between(1, p().distances - 1))] =
            -std::numeric_limits<float>::infinity();
      }
      c_.distance_array = std::make_unique<Array<float>>(trial_, c_.distances);
      p().distance_bias = c_.distance_array->data();
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
      c_.bias = std::make_unique<Tensor<T>>(sizes, "bhsd", random_.Between(0, 3), Nan<T>());
      Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        c_.bias->data[c_.bias->At(b, h, s, d)] =
            Narrow<T>(random_.Uniform(0, 1) < share ? hidden : random_.Uniform(-1, 1));
      });
      c_.bias->strides = broadcast(c_.bias->strides);
      c_.bias_array = std::make_unique<Array<T>>(trial_, c_.bias->data, random_.Between(0, 3));
      p().bias = {c_.bias_array->data(), c_.bias->strides};
    }
    if (random_.Chance(3)) {
      const double share = random_.Chance(8) ? 1.0 : random_.Uniform(0, 0.6);
      c_.mask = std::make_unique<Tensor<uint8_t>>(sizes, "bhsd", random_.Between(0, 3), 1);
      Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        c_.mask->data[c_.mask->At(b, h, s, d)] = random_.Uniform(0, 1) < share ? 0 : 1;
      });
      c_.mask->strides = broadcast(c_.mask->strides);
      c_.mask_array =
          std::make_unique<Array<uint8_t>>(trial_, c_.mask->data, random_.Between(0, 3));
      p().mask = {c_.mask_array->data(), c_.mask->strides};
      p().mask_fill =
          static_cast<float>(random_.Pick({kLowest, kLowest, -1e4, 0.5, -3.4028234663852886e38}));
      p().mask_after_bias = random_.Chance(2);
    }
    c_.wants_scores = random_.Chance(5);
    p().scores_stage = random_.Pick({fd::ScoresStage::kProduct, fd::ScoresStage::kSoftcapped,
                                     fd::ScoresStage::kMasked, fd::ScoresStage::kProbabilities});
    if (!c_.wants_scores) HideGarbage();
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
              c_.ScoreOf(row, q, j, 0, &hidden);
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
    const bool pool = p().sequences != nullptr;
    const int64_t batch = pool ? 1 : p().groups;
    const int64_t sizes[4] = {batch, p().heads, p().rows, p().head_size};
    const int64_t out[4] = {batch, p().heads, p().rows, p().value_size};
    c_.query = std::make_unique<Tensor<T>>(sizes, random_.Pick({"bhsd", "bshd", "bhds"}),
                                           random_.Between(0, 3), Nan<T>());
    Each(sizes, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
      c_.query->data[c_.query->At(b, h, s, d)] = Narrow<T>(random_.Uniform(-1.5, 1.5));
    });
    if (p().clear_nan && !c_.query->data.empty() && random_.Chance(2)) {
      const auto last = static_cast<int64_t>(c_.query->data.size()) - 1;
      c_.query->data[static_cast<size_t>(random_.Between(0, last))] = Narrow<T>(std::nan(""));
    }
    c_.query_array = std::make_unique<Array<T>>(trial_, c_.query->data, random_.Between(0, 3));
    p().query = {c_.query_array->data(), c_.query->strides};
    c_.output = std::make_unique<Tensor<T>>(out, random_.Pick({"bhsd", "bshd", "bhds"}),
                                            random_.Between(0, 3), Nan<T>());
    if (c_.wants_scores) {
      const int64_t grid[4] = {batch, p().heads, p().rows, p().keys};
      c_.scores = std::make_unique<Tensor<T>>(grid, "bhsd", random_.Between(0, 3), Nan<T>());
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
  Case<T>& c_;
  std::vector<std::pair<Array<T>*, const Tensor<T>*>> uploads_;
};

}  // namespace flash_decode
}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CONFORMANCE_FLASH_DECODE_MAKER_H_
