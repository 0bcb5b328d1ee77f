// ngram-block against a plain search for repeated n-grams, bit for bit: scans of whole rows, and
// steps of an index whose rows fork, end, swap and begin anew.
#include <set>

#include "../../../kernels-cuda/ngram-block/index.cuh"
#include "../../../kernels-cuda/ngram-block/scan.cuh"
#include "../check.h"
#include "../memory.h"

namespace graft {
namespace gpu {
namespace {

namespace ngram = cuda::ngram_block;

using Tokens = std::vector<int64_t>;

// The tokens that would repeat an n-gram of the row.
std::set<int64_t> Repeats(const Tokens& row, int64_t n) {
  std::set<int64_t> out;
  const auto length = static_cast<int64_t>(row.size());
  for (int64_t i = n - 1; i < length; ++i) {
    if (std::equal(row.begin() + (i - n + 1), row.begin() + i, row.end() - (n - 1))) {
      out.insert(row[static_cast<size_t>(i)]);
    }
  }
  return out;
}

// Scores of any bits, with gaps between rows, and what bans make of them.
template <typename Word>
class Lines {
 public:
  Lines(Trial& trial, cuda::Type type, int64_t rows, int64_t vocab)
      : type_(type),
        stride_(vocab + trial.random.Pick<int64_t>({0, 0, 1, 13})),
        vocab_(vocab),
        want_(static_cast<size_t>(rows * stride_)),
        array_(trial, rows * stride_, trial.random.Between(0, 9)) {
    for (Word& word : want_) word = static_cast<Word>(trial.random.Bits());
    array_.Write(want_);
  }
  ngram::Scores scores() const { return {array_.data(), type_, stride_, vocab_}; }
  void Ban(int64_t row, int64_t token) {
    if (token < 0 || token >= vocab_) return;
    want_[static_cast<size_t>(row * stride_ + token)] =
        static_cast<Word>(type_ == cuda::Type::kFloat32   ? 0xff800000u
                          : type_ == cuda::Type::kFloat16 ? 0xfc00u
                                                          : 0xff80u);
  }
  void Refuse(int64_t row) {
    for (int64_t t = 0; t < vocab_; ++t) {
      want_[static_cast<size_t>(row * stride_ + t)] =
          static_cast<Word>(type_ == cuda::Type::kFloat32   ? 0x7fc00000u
                            : type_ == cuda::Type::kFloat16 ? 0x7e00u
                                                            : 0x7fc0u);
    }
  }
  void Check(Trial& trial) const { trial.ExpectSame("scores", array_.Read(), want_); }

 private:
  cuda::Type type_;
  int64_t stride_, vocab_;
  std::vector<Word> want_;
  Array<Word> array_;
};

template <typename Word, typename Token>
void Scan(Trial& trial, cuda::Type type) {
  gpu::Random& random = trial.random;
  const int64_t n = random.Chance(8) ? random.Size(1, 200) : random.Between(1, 6);
  const int64_t rows = random.Size(1, 9), columns = random.Size(1, 700);
  const int64_t kinds = random.Between(1, random.Pick<int64_t>({2, 5, 30}));
  const int64_t vocab = kinds + random.Between(0, 40), pad = random.Between(0, kinds - 1);
  const bool pads = random.Chance(3), lengths = random.Chance(2), wide_lengths = random.Chance(2);
  const bool stray = random.Chance(10);  // tokens outside of the vocabulary
  const int64_t stride = columns + random.Pick<int64_t>({0, 0, 1, 7});
  trial.about << "scan of " << rows << " x " << columns << ", n " << n << ", vocabulary " << vocab
              << (pads ? ", pads" : "") << (lengths ? ", lengths" : "");

  Lines<Word> lines(trial, type, rows, vocab);
  std::vector<Token> all(static_cast<size_t>(rows * stride), static_cast<Token>(-100));
  std::vector<int32_t> narrow_length;
  std::vector<int64_t> wide_length;
  for (int64_t r = 0; r < rows; ++r) {
    Tokens row;
    for (int64_t i = 0; i < columns; ++i) row.push_back(random.Between(0, kinds - 1));
    if (stray) {
      row[static_cast<size_t>(random.Between(0, columns - 1))] =
          random.Pick<int64_t>({-1, -7, vocab, vocab + 1000000});
    }
    const int64_t length = lengths ? random.Between(0, columns) : columns;
    const int64_t left = pads ? random.Between(0, length) : 0;
    const int64_t right = pads ? random.Between(0, length - left) : 0;
    std::fill_n(row.begin(), left, pad);
    std::fill_n(row.begin() + (length - right), right, pad);
    for (int64_t i = 0; i < length; ++i) {
      all[static_cast<size_t>(r * stride + i)] = static_cast<Token>(row[static_cast<size_t>(i)]);
    }
    narrow_length.push_back(static_cast<int32_t>(length));
    wide_length.push_back(length);
    row.resize(static_cast<size_t>(length));
    if (pads) {
      while (!row.empty() && row.back() == pad) row.pop_back();
      while (!row.empty() && row.front() == pad) row.erase(row.begin());
    }
    for (const int64_t token : Repeats(row, n)) lines.Ban(r, token);
  }
  Array<Token> tokens(trial, all, random.Between(0, 5));
  Array<int32_t> narrow(trial, narrow_length);
  Array<int64_t> wide(trial, wide_length);

  ngram::Rows input;
  input.tokens = tokens.data();
  input.wide_tokens = sizeof(Token) == 8;
  input.stride = stride;
  input.rows = rows;
  input.columns = columns;
  if (lengths) input.lengths = wide_lengths ? static_cast<void*>(wide.data()) : narrow.data();
  input.wide_lengths = wide_lengths;
  input.pad = pads ? pad : -1;
  ngram::ScanPlan plan = ngram::PlanScan(rows, columns, n, input.wide_tokens, {});
  if (!random.Chance(4)) {
    // Every path at small sizes: several chunks and parts, few blocks for many rows.
    const auto threads = static_cast<int32_t>(32 * random.Between(1, 4));
    const int64_t blocks = random.Chance(2) ? random.Between(1, 5) : int64_t{1} << 20;
    plan = ngram::PlanScanAs(random.Chance(2), random.Size(1, columns), random.Between(1, 3),
                             threads, blocks, rows, columns, n, input.wide_tokens);
  }
  trial.about << (plan.staged ? ", staged by " : ", simple ") << plan.chunk << ", parts "
              << plan.parts << ", threads " << plan.shape.threads;
  trial.Expect(ngram::BanByScan(lines.scores(), input, n, plan, nullptr));
  lines.Check(trial);
}

template <typename Word, typename Token>
void Grow(Trial& trial, cuda::Type type) {
  gpu::Random& random = trial.random;
  const int64_t n = random.Between(1, 5), kinds = random.Between(1, 12);
  const int64_t vocab = kinds + random.Between(0, 20), maximum = random.Between(1, 12);
  const int64_t steps = random.Between(1, 12);
  // Often too small for all that dies, now and then for what lives.
  const int64_t bytes = 64 + random.Between(360, random.Chance(3) ? 3000 : 40000);
  trial.about << "index of " << bytes << " bytes, n " << n << ", " << maximum << " rows, " << steps
              << " steps";
  Array<unsigned char> memory(trial, std::vector<unsigned char>(static_cast<size_t>(bytes), 0));
  ngram::IndexView index;
  if (!ngram::MakeIndexView(memory.data(), bytes, n, &index)) return trial.Fail("no view");

  std::vector<Tokens> rows;
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t count = random.Between(1, maximum);
    const int64_t columns = random.Chance(3) ? random.Size(0, 90) : 1;
    const bool lengths = random.Chance(4), stray = random.Chance(30);
    std::vector<int32_t> parents, length;
    std::vector<Token> fresh(static_cast<size_t>(count * columns), static_cast<Token>(kinds - 1));
    std::vector<Tokens> next;
    int64_t more = 0;
    for (int64_t r = 0; r < count; ++r) {
      const auto last = static_cast<int64_t>(rows.size()) - 1;
      const auto parent =
          static_cast<int32_t>(random.Chance(12) ? -1 : random.Between(-(last < 0), last));
      parents.push_back(stray && r == 0 ? static_cast<int32_t>(last + 1) : parent);
      length.push_back(static_cast<int32_t>(lengths ? random.Between(0, columns) : columns));
      next.push_back(parent < 0 ? Tokens() : rows[static_cast<size_t>(parent)]);
      for (int64_t i = 0; i < length.back(); ++i) {
        const int64_t token = random.Chance(50) ? vocab + 3 : random.Between(0, kinds - 1);
        fresh[static_cast<size_t>(r * columns + i)] = static_cast<Token>(token);
        next.back().push_back(token);
      }
      more += length.back();
    }
    // Nodes that stay are those of the continued rows, shared as they were added. Only the index
    // knows them, so the index says whether there was room.
    Array<Token> tokens(trial, fresh);
    Array<int32_t> parent(trial, parents), lengths_of(trial, length);
    Lines<Word> lines(trial, type, count, vocab);
    ngram::Step step;
    step.rows.tokens = tokens.data();
    step.rows.wide_tokens = sizeof(Token) == 8;
    step.rows.stride = columns;
    step.rows.rows = count;
    step.rows.columns = columns;
    if (lengths) step.rows.lengths = lengths_of.data();
    step.parents = parent.data();
    step.vocab = vocab;
    ngram::IndexPlan plan = ngram::PlanIndex(count, columns);
    if (random.Chance(2)) {
      plan.grow_at_once = !plan.grow_at_once;
      plan.begin.threads = static_cast<int32_t>(32 * random.Between(1, 4));
      plan.grow.threads = static_cast<int32_t>(32 * random.Between(1, 3));
      plan.grow.grid_x = random.Between(1, 3);
      plan.ban.threads = 64;
      plan.ban.grid_x = random.Between(1, 3);
    }
    trial.Expect(ngram::AdvanceIndex(index, step, plan, nullptr));
    trial.Expect(ngram::BanFromIndex(index, lines.scores(), count, plan, nullptr));

    ngram::IndexHeader header;
    const std::vector<unsigned char> bytes_now = memory.Read();
    std::memcpy(&header, bytes_now.data(), sizeof header);
    int64_t held = 0;
    for (const Tokens& row : next) held += static_cast<int64_t>(row.size());
    int32_t want = ngram::kIndexGood;
    if (count > index.max_rows) {
      want = ngram::kIndexRows;
    } else if (stray) {
      want = ngram::kIndexParents;
    } else if (header.fault == ngram::kIndexRoom) {
      want = ngram::kIndexRoom;
      // Rows that shared nothing would need `held`.
      if (held <= index.capacity) trial.Fail("an index with room for its rows refused a step");
    }
    if (header.fault != want) {
      return trial.Fail("step " + std::to_string(s) + ": fault " + std::to_string(header.fault) +
                        ", needed is " + std::to_string(want));
    }
    if (header.nodes > index.capacity) return trial.Fail("more nodes than there is room for");
    for (int64_t r = 0; r < count; ++r) {
      if (want != ngram::kIndexGood) {
        lines.Refuse(r);
        continue;
      }
      for (const int64_t token : Repeats(next[static_cast<size_t>(r)], n)) lines.Ban(r, token);
    }
    lines.Check(trial);
    if (trial.failed()) return;
    if (want == ngram::kIndexGood) rows = next;
  }
}

void Conform(Trial& trial) {
  const cuda::Type type =
      trial.random.Pick({cuda::Type::kFloat32, cuda::Type::kFloat16, cuda::Type::kBFloat16});
  const bool index = trial.random.Chance(3), wide = trial.random.Chance(2);
  if (type == cuda::Type::kFloat32) {
    if (index)
      return wide ? Grow<uint32_t, int64_t>(trial, type) : Grow<uint32_t, int32_t>(trial, type);
    return wide ? Scan<uint32_t, int64_t>(trial, type) : Scan<uint32_t, int32_t>(trial, type);
  }
  if (index)
    return wide ? Grow<uint16_t, int64_t>(trial, type) : Grow<uint16_t, int32_t>(trial, type);
  return wide ? Scan<uint16_t, int64_t>(trial, type) : Scan<uint16_t, int32_t>(trial, type);
}
GRAFT_CONFORM("ngram-block", Conform);

}  // namespace
}  // namespace gpu
}  // namespace graft
