// Decode steps: long contexts, and beams that share a prompt against the same kernel beam by beam.
#include <numeric>

#include "../../../kernels-cuda/flash-decode/flash_decode.cuh"
#include "../timing.h"

namespace graft {
namespace timing {
namespace {

namespace fd = cuda::flash_decode;
using cuda::Type;

template <typename T>
constexpr Type kType = std::is_same_v<T, float>        ? Type::kFloat32
                       : std::is_same_v<T, cuda::Half> ? Type::kFloat16
                                                       : Type::kBFloat16;

struct Heads {
  int64_t query, kv, size;
};

// The first of a shape's numbers, and those of its heads.
Shape ShapeOf(Shape first, const Heads& heads) {
  first.insert(first.end(),
               {{"query_heads", heads.query}, {"kv_heads", heads.kv}, {"head_size", heads.size}});
  return first;
}

// Bytes and operations of `rows` queries that see `seen` keys each, of which `read` are different.
template <typename T>
void Count(Case* one, const Heads& heads, int64_t rows, int64_t seen, int64_t read) {
  const auto numbers = 2 * read * heads.kv * heads.size + 2 * rows * heads.query * heads.size;
  one->bytes = static_cast<double>(numbers * static_cast<int64_t>(sizeof(T)));
  one->flops = 4.0 * static_cast<double>(rows * seen * heads.query * heads.size);
}

// The problem as planned, against the simple kernel. That one reads the keys of each row and head
// anew: 135 million at most (batch 32, 8 beams, 16,448 keys), some tenths of a second on a GPU, and
// once for each set of inputs.
template <typename T>
Launch Planned(Inputs& in, fd::Problem p, const cuda::DeviceLimits& limits) {
  const int64_t numbers =
      p.heads * p.value_size * (p.sequences != nullptr ? p.rows : p.groups * p.rows);
  fd::Problem plain = p;
  T *output = in.Output<T>(numbers), *want = in.Output<T>(numbers);
  p.output.data = output;
  plain.output.data = want;
  fd::Tuning simple;
  simple.path = fd::Path::kSimple;
  const fd::Plan plan = fd::MakePlan(p, limits), plainly = fd::MakePlan(plain, limits, simple);
  in.Against(output, want, numbers,
             [=](cuda::Stream stream) { return fd::Run(plain, plainly, nullptr, stream); });
  void* workspace = in.Scratch<float>(plan.workspace_bytes / 4 + 1);
  return [=](cuda::Stream stream) { return fd::Run(p, plan, workspace, stream); };
}

template <typename T>
fd::Problem Rows(Inputs& in, int64_t groups, int64_t rows, const Heads& heads) {
  fd::Problem p;
  p.type = kType<T>;
  p.groups = groups;
  p.rows = rows;
  p.heads = heads.query;
  p.kv_heads = heads.kv;
  p.head_size = p.value_size = heads.size;
  const int64_t row = heads.query * heads.size;
  // Scores of deviation 3: few keys have most of the weight, so that answers are no mean of all,
  // which is next to nothing, and a wrong key or weight is seen.
  p.query = {in.Normal<T>(groups * rows * row, 3), {rows * row, heads.size, row, 1}};
  p.output.strides = p.query.strides;
  return p;
}

// A sequence a row, each with a cache [kv_heads][keys][size] of its own.
template <typename T>
Case Contiguous(const char* variant, Shape shape, int64_t rows, const Heads& heads, int64_t keys,
                const cuda::DeviceLimits& limits) {
  Case one{variant, kType<T>, std::move(shape)};
  Count<T>(&one, heads, rows, keys, rows * keys);
  one.make = [=](Inputs& in) {
    fd::Problem p = Rows<T>(in, rows, 1, heads);
    p.keys = keys;
    const int64_t numbers = heads.kv * keys * heads.size;
    p.key = {in.Normal<T>(rows * numbers), {numbers, keys * heads.size, heads.size, 1}};
    p.value = {in.Normal<T>(rows * numbers), p.key.strides};
    return Planned<T>(in, p, limits);
  };
  return one;
}

// The same in blocks of 16 slots, wherever they are.
template <typename T>
Case Tabled(int64_t rows, const Heads& heads, int64_t keys, const cuda::DeviceLimits& limits) {
  Case one{"block-table", kType<T>, ShapeOf({{"batch", rows}, {"keys", keys}}, heads)};
  Count<T>(&one, heads, rows, keys, rows * keys);
  one.make = [=](Inputs& in) {
    fd::Problem p = Rows<T>(in, rows, 1, heads);
    p.places = fd::Places::kBlockTable;
    p.keys = keys;
    p.block_slots = cuda::kBlockSlots;
    p.table_stride = cuda::CeilDivide(keys, 16);
    p.blocks = rows * p.table_stride;
    std::vector<int32_t> table(static_cast<size_t>(p.blocks));
    // A stride without a common divisor visits every block once.
    int64_t stride = p.blocks / 3 * 2 + 1;
    while (std::gcd(stride, p.blocks) != 1) ++stride;
    for (int64_t i = 0; i < p.blocks; ++i) {
      table[static_cast<size_t>(i)] = static_cast<int32_t>(i * stride % p.blocks);
    }
    p.table = in.Copy(table);
    const int64_t block = heads.kv * cuda::kBlockSlots * heads.size;
    p.key = {in.Normal<T>(p.blocks * block),
             {block, cuda::kBlockSlots * heads.size, heads.size, 1}};
    p.value = {in.Normal<T>(p.blocks * block), p.key.strides};
    return Planned<T>(in, p, limits);
  };
  return one;
}

// Beams over a pool: the prefix of a request stands in it once, and each beam's suffix.
template <typename T>
Case Shared(Shape shape, int64_t batch, int64_t beam, const Heads& heads, int64_t prefix,
            int64_t suffix, const cuda::DeviceLimits& limits) {
  Case one{"shared-prefix", kType<T>, std::move(shape)};
  Count<T>(&one, heads, batch * beam, prefix + suffix, batch * (prefix + beam * suffix));
  one.make = [=](Inputs& in) {
    fd::Problem p = Rows<T>(in, 1, batch * beam, heads);
    p.groups = batch;
    p.places = fd::Places::kPool;
    p.block_slots = cuda::kBlockSlots;
    p.blocks = cuda::CeilDivide(batch * (prefix + beam * suffix), cuda::kBlockSlots);
    p.shared_length = batch * prefix;
    p.private_length = batch * beam * suffix;
    std::vector<int32_t> sequences, slots(static_cast<size_t>(p.shared_length + p.private_length));
    std::iota(slots.begin(), slots.end(), 0);
    for (int64_t b = 0; b < batch; ++b) {
      for (const int64_t column : {b * beam, beam, b * prefix, prefix, b * beam * suffix, suffix,
                                   int64_t{0}, int64_t{0}}) {
        sequences.push_back(static_cast<int32_t>(column));
      }
    }
    p.sequences = in.Copy(sequences);
    p.shared_slots = in.Copy(slots);
    p.private_slots = p.shared_slots + p.shared_length;
    const int64_t block = heads.kv * cuda::kBlockSlots * heads.size;
    p.key = {in.Normal<T>(p.blocks * block),
             {block, cuda::kBlockSlots * heads.size, heads.size, 1}};
    p.value = {in.Normal<T>(p.blocks * block), p.key.strides};
    return Planned<T>(in, p, limits);
  };
  return one;
}

void Time(Bench& bench) {
  using cuda::BFloat16;
  const bool tiny = bench.tiny();
  const cuda::DeviceLimits& limits = bench.limits();
  const auto contiguous = [&](auto number, int64_t rows, const Heads& heads, int64_t keys) {
    bench.Time(Contiguous<decltype(number)>("contiguous",
                                            ShapeOf({{"batch", rows}, {"keys", keys}}, heads), rows,
                                            heads, keys, limits));
  };
  const Heads many = tiny ? Heads{2, 2, 64} : Heads{32, 32, 128};
  const Heads grouped = tiny ? Heads{4, 2, 64} : Heads{32, 8, 128};
  for (const int64_t keys : {16384, 32768, 65536, 131072}) {
    contiguous(BFloat16{}, 1, many, tiny ? keys >> 7 : keys);
  }
  contiguous(float{}, 1, many, tiny ? 100 : 32768);
  contiguous(BFloat16{}, tiny ? 2 : 16, grouped, tiny ? 100 : 8192);
  bench.Time(Tabled<BFloat16>(tiny ? 2 : 16, grouped, tiny ? 100 : 8192, limits));

  for (const int64_t beam : {4, 8}) {
    for (const int64_t prefix : {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
      const int64_t batch = tiny ? 1 : 32, first = tiny ? prefix >> 6 : prefix;
      const int64_t suffix = tiny ? 3 : 64;
      const Shape shape =
          ShapeOf({{"batch", batch}, {"beam", beam}, {"prefix", first}, {"suffix", suffix}}, many);
      bench.Compare(
          Contiguous<BFloat16>("per-beam", shape, batch * beam, many, first + suffix, limits),
          Shared<BFloat16>(shape, batch, beam, many, first, suffix, limits));
    }
  }
}

GRAFT_TIMING("flash-decode", Time);

}  // namespace
}  // namespace timing
}  // namespace graft
