// The cost of finding repeated n-grams, a row and a step: a plain loop, the vector scan of whole
// rows, and the index over lineages.
//
//   ngram_block_bench [n]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "index.h"
#include "scan.h"

namespace graft {
namespace ngram {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Tokens with the frequencies of a text: the one of rank r about 1 / r (Zipf).
class Text {
 public:
  Text() {
    double sum = 0;
    for (int r = 1; r <= 20000; ++r) edges_.push_back(sum += 1.0 / r);
  }
  int32_t Next() {
    const double u = std::uniform_real_distribution<double>(0, edges_.back())(random_);
    return static_cast<int32_t>(std::lower_bound(edges_.begin(), edges_.end(), u) - edges_.begin());
  }
  int Pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

 private:
  std::mt19937 random_{1};
  std::vector<double> edges_;
};

int64_t PlainScan(const int64_t* row, int64_t length, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i + n <= length; ++i) {
    bool equal = true;
    for (int64_t j = 0; j < n - 1 && equal; ++j) equal = row[i + j] == row[length - n + 1 + j];
    if (equal) sum += row[i + n - 1];
  }
  return sum;
}

volatile int64_t sink;

constexpr int kRows = 4, kSteps = 32;

// Nanoseconds a row and step of an index whose four rows share `prompt` tokens and then fork and
// swap `lineage` times before the clock starts.
double TimeIndex(int64_t prompt, int64_t lineage, int64_t n, Text& text) {
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    const int64_t bytes = Index::Bytes(prompt + kRows * (lineage + kSteps + 1), 16);
    std::vector<uint8_t> memory(static_cast<size_t>(bytes + 64), 0);
    void* data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    std::vector<int32_t> first;
    for (int64_t i = 0; i < prompt; ++i) first.push_back(text.Next());
    std::vector<int32_t> words;
    for (int64_t i = 0; i < kRows * (lineage + kSteps); ++i) words.push_back(text.Next());
    const int32_t begin = -1;
    Index(data, bytes, n).Advance(&begin, first.data(), prompt, 1, [&](int64_t) { return prompt; });
    int64_t sum = 0;
    double start = 0;
    int32_t fresh[kRows];
    for (int32_t& token : fresh) token = text.Next();
    for (int64_t step = 0; step < lineage + kSteps; ++step) {
      if (step == lineage) start = Now();
      int32_t parents[kRows], tokens[kRows];
      for (int r = 0; r < kRows; ++r) {
        // As in beam search: most rows go on, now and then one beam gives two.
        parents[r] = step == 0 ? 0 : step % 2 == 0 ? r : (r + (r > 2)) % kRows;
        tokens[r] = fresh[r];
      }
      Index index(data, bytes, n);
      index.Advance(parents, tokens, 1, kRows, [](int64_t) { return 1; });
      for (int r = 0; r < kRows; ++r) {
        fresh[r] = words[static_cast<size_t>(step * kRows + r)];
        index.ForEachBanned(r, [&](int64_t token) {
          sum += token;
          if (token == fresh[r]) fresh[r] = 20000 + r;  // the ban is kept
        });
      }
    }
    times.push_back((Now() - start) * 1e9 / (kRows * kSteps));
    sink = sum;
  }
  return Median(times);
}

template <typename Body>
double TimeRows(const Body& body) {
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    const double start = Now();
    int64_t sum = 0;
    for (int i = 0; i < 400; ++i) sum += body(i);
    times.push_back((Now() - start) * 1e9 / 400);
    sink = sum;
  }
  return Median(times);
}

int Main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 3;
  Text text;
  std::printf("n = %lld, ns a row and step; four rows that share a prompt\n",
              static_cast<long long>(n));
  std::printf("%8s %8s %12s %12s %12s %12s\n", "prompt", "lineage", "plain loop", "scan int64",
              "scan int32", "index");
  for (const int64_t prompt : {16, 64, 128, 256, 512, 1024, 2048, 4096}) {
    for (const int64_t lineage : {0, 64, 512}) {
      const int64_t length = prompt + lineage;
      std::vector<int64_t> wide(static_cast<size_t>(length + 400));
      for (int64_t& token : wide) token = text.Next();
      const std::vector<int32_t> narrow(wide.begin(), wide.end());
      const Scanner& scanner = *FindScanner(Isa::kBest);
      const auto scan = [&](const auto* row) {
        int64_t sum = 0;
        ForEachRepeat(scanner, row, length, n, [&](int64_t token) { sum += token; });
        return sum;
      };
      std::printf("%8lld %8lld %12.0f %12.0f %12.0f %12.0f\n", static_cast<long long>(prompt),
                  static_cast<long long>(lineage),
                  TimeRows([&](int i) { return PlainScan(wide.data() + i, length, n); }),
                  TimeRows([&](int i) { return scan(wide.data() + i); }),
                  TimeRows([&](int i) { return scan(narrow.data() + i); }),
                  TimeIndex(prompt, lineage, n, text));
    }
  }
  return 0;
}

}  // namespace
}  // namespace ngram
}  // namespace graft

int main(int argc, char** argv) { return graft::ngram::Main(argc, argv); }
