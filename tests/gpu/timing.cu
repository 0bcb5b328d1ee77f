// Times kernels: `timing [--only KERNEL]... [--case WORDS]... [--tiny] [--list] [--once]
// [--rounds N] [--json FILE] [--append]`.
// --case runs only cases of these words, which are those that are printed before the colon; of two
// that are compared, one alone where the other is not named. --tiny runs small shapes and reports
// no time; --list runs nothing and names the cases at full size; --once launches each case twice
// and opens the door to a profiler for the second, as `ncu --profile-from-start off` needs.
//
// Ends with 0 when all cases ran and their outputs hold no NaN, 1 when some did not, 2 on bad
// usage, 4 where there is no device.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <stdexcept>

#include "clock.h"
#include "json.h"
#include "limits.h"
#include "statistics.h"
#include "timing.h"

namespace graft {
namespace timing {

std::vector<Timing>& Timings() {
  static std::vector<Timing> list;
  return list;
}

namespace {

using gpu::Number;
using gpu::Quoted;
using gpu::Sample;

constexpr double kShort = 0.1;  // ms: below, replays of a graph are timed as well
constexpr int64_t kMaxSets = 256;
constexpr int64_t kCopied = int64_t{1} << 30;  // bytes

struct Options {
  std::vector<std::string> only, cases;
  bool tiny = false, list = false, once = false, append = false;
  int64_t rounds = 51;
  std::string json;
};

const char* NameOf(cuda::Type type) {
  switch (type) {
    case cuda::Type::kFloat32:
      return "float32";
    case cuda::Type::kFloat16:
      return "float16";
    default:
      return "bfloat16";
  }
}

std::string Words(const Case& one) {
  std::string out = one.variant + " " + NameOf(one.type);
  for (const auto& entry : one.shape) out += " " + entry.first + "=" + std::to_string(entry.second);
  return out;
}

std::string Json(const char* kernel, const Case& one) {
  std::string out = "\"kernel\": " + Quoted(kernel) + ", \"variant\": " + Quoted(one.variant) +
                    ", \"type\": \"" + NameOf(one.type) + "\", \"shape\": {";
  for (size_t i = 0; i < one.shape.size(); ++i) {
    out += (i == 0 ? "" : ", ") + Quoted(one.shape[i].first) + ": " +
           std::to_string(one.shape[i].second);
  }
  return out + "}, \"bytes\": " + Number(one.bytes) + ", \"flops\": " + Number(one.flops);
}

// A case with its sets of inputs.
class Prepared {
 public:
  // At most `memory` bytes of inputs, and one set in any case.
  Prepared(const Case& one, const cuda::DeviceLimits& limits, int64_t memory, bool tiny)
      : one_(one) {
    Add();
    const auto moved = static_cast<int64_t>(std::max(one.bytes, 1.0));
    int64_t sets = tiny ? 2 : cuda::CeilDivide(16 * limits.l2_bytes, moved);
    sets = std::min(std::min(std::max<int64_t>(sets, 2), kMaxSets),
                    memory / std::max<int64_t>(sets_[0].bytes(), 1));
    while (static_cast<int64_t>(sets_.size()) < sets) Add();
    gpu::Wait();
  }

  cuda::Status Launch(int64_t turn) const {
    return launches_[static_cast<size_t>(turn) % sets()](gpu::WorkStream());
  }
  size_t sets() const { return sets_.size(); }
  const Case& one() const { return one_; }

  // Two rounds over all sets at the least, and 100 ms: clocks rise only under load.
  void WarmUp(bool timed) const {
    double spent = 0;
    int64_t turn = 0;
    do {
      for (const double ms : gpu::TimeEach(static_cast<int64_t>(sets()),
                                           [&](int64_t i) { return Launch(turn + i); })) {
        spent += ms;
      }
      turn += static_cast<int64_t>(sets());
    } while (timed && (turn < 2 * static_cast<int64_t>(sets()) || spent < 100) && turn < 20000);
  }

  // Launches of a graph, each of `ms` milliseconds: a replay takes half a millisecond or more.
  int64_t GraphLaunches(double ms) const {
    const auto sets = static_cast<int64_t>(this->sets());
    const auto wanted = static_cast<int64_t>(0.5 / std::max(ms, 1e-3)) + 1;
    return sets * std::max<int64_t>(1, cuda::CeilDivide(std::min<int64_t>(wanted, 512), sets));
  }

  void Check() const {
    for (size_t i = 0; i < sets_.size(); ++i) {
      sets_[i].Refer();
      const std::string wrong = sets_[i].Wrong();
      if (!wrong.empty()) throw std::runtime_error("inputs " + std::to_string(i) + ": " + wrong);
    }
  }

 private:
  void Add() {
    sets_.emplace_back(0x6772616674 + sets_.size());
    launches_.push_back(one_.make(sets_.back()));
  }

  const Case& one_;
  std::deque<Inputs> sets_;
  std::vector<timing::Launch> launches_;
};

// Milliseconds a launch: by events around each, and by replays of a graph where it is short.
struct Measured {
  Sample events, graph;
  int64_t launches = 0;  // of a replay; 0: no graph

  const Sample& best() const { return launches > 0 ? graph : events; }
  std::string Json(const Prepared& p) const {
    const double ms = best().median();
    return "\"sets\": " + std::to_string(p.sets()) + ", \"milliseconds\": " + Number(ms) +
           ", \"gigabytes_per_second\": " + Number(p.one().bytes / ms / 1e6) +
           ", \"teraflops\": " + Number(p.one().flops / ms / 1e9) +
           ", \"events\": " + events.Json() +
           ", \"graph\": " + (launches > 0 ? graph.Json() : std::string("null")) +
           ", \"graph_launches\": " + std::to_string(launches);
  }
};

class Runner : public Bench {
 public:
  Runner(const Options& options, const gpu::Facts& facts, std::ofstream* json)
      : options_(options),
        facts_(facts),
        timed_(facts.timed && !options.tiny && !options.list && !options.once),
        json_(json) {
    if (timed_) copy_ = gpu::CopyBandwidth(facts, kCopied);
    Record("\"record\": \"limits\", \"device\": " + Quoted(facts.device) + ", \"driver\": " +
           std::to_string(facts.driver) + ", \"runtime\": " + std::to_string(facts.runtime) +
           ", \"timed\": " + (timed_ ? "true" : "false") +
           ", \"copy_gigabytes_per_second\": " + (timed_ ? Number(copy_) : "null"));
    if (timed_) std::printf("copy within the device: %.0f GB/s\n", copy_);
  }

  void Begin(const char* kernel) {
    kernel_ = kernel;
    std::printf("%s\n", kernel);
  }
  int64_t failed() const { return failed_; }

  bool tiny() const override { return options_.tiny || !(facts_.timed || options_.list); }
  const cuda::DeviceLimits& limits() const override { return facts_.limits; }

  void Time(const Case& one) override {
    if (!Wanted(one)) return;
    if (options_.list) return List(one);
    if (options_.once) return Once(one);
    Guard(one, [&] {
      const Prepared p(one, limits(), gpu::FreeMemory() / 10 * 9, tiny());
      const Measured m = Alternate({&p})[0];
      p.Check();
      Report(p, m);
    });
  }

  void Compare(const Case& slow, const Case& fast) override {
    if (!options_.list && (options_.once || !Wanted(slow) || !Wanted(fast))) {
      Time(slow);
      return Time(fast);
    }
    if (options_.list) {
      List(slow);
      List(fast);
      return RecordPair(slow, fast, "null", "null");
    }
    Guard(fast, [&] {
      const Prepared b(fast, limits(), gpu::FreeMemory() / 10 * 3, tiny());
      const Prepared a(slow, limits(), gpu::FreeMemory() / 10 * 9, tiny());
      const std::vector<Measured> m = Alternate({&a, &b});
      a.Check();
      b.Check();
      Report(a, m[0]);
      Report(b, m[1]);
      Sample ratio;
      if (timed_) {
        const std::vector<double>&x = m[0].best().raw(), &y = m[1].best().raw();
        std::vector<double> each;
        for (size_t i = 0; i < x.size(); ++i) each.push_back(x[i] / y[i]);
        ratio = Sample(each);
        std::printf("  %s over %s: %.3f\n", slow.variant.c_str(), fast.variant.c_str(),
                    ratio.median());
      }
      RecordPair(slow, fast, timed_ ? Number(ratio.median()) : "null",
                 timed_ ? ratio.Json() : "null");
    });
  }

 private:
  bool Wanted(const Case& one) const {
    return options_.cases.empty() || std::find(options_.cases.begin(), options_.cases.end(),
                                               Words(one)) != options_.cases.end();
  }

  void Once(const Case& one) {
    Guard(one, [&] {
      Inputs inputs(0x6772616674);
      const timing::Launch launch = one.make(inputs);
      gpu::TimeEach(1, [&](int64_t) { return launch(gpu::WorkStream()); });
      gpu::Profile(true);
      gpu::TimeEach(1, [&](int64_t) { return launch(gpu::WorkStream()); });
      gpu::Profile(false);
      std::printf("  %s: launched\n", Words(one).c_str());
    });
  }

  // All of them in turns, so that what the machine does meanwhile is shared by all.
  std::vector<Measured> Alternate(const std::vector<const Prepared*>& cases) {
    std::vector<Measured> out(cases.size());
    for (const Prepared* p : cases) p->WarmUp(timed_);
    if (!timed_) return out;
    const auto many = static_cast<int64_t>(cases.size());
    const auto split = [&](const std::vector<double>& all, size_t k, double divisor) {
      std::vector<double> mine;
      for (size_t i = k; i < all.size(); i += cases.size()) mine.push_back(all[i] / divisor);
      return Sample(mine);
    };
    const std::vector<double> each = gpu::TimeEach(options_.rounds * many, [&](int64_t i) {
      return cases[static_cast<size_t>(i % many)]->Launch(i / many);
    });
    bool any_short = false;
    for (size_t k = 0; k < out.size(); ++k) {
      out[k].events = split(each, k, 1);
      any_short = any_short || out[k].events.median() < kShort;
    }
    if (!any_short) return out;
    std::deque<gpu::Graph> graphs;
    for (size_t k = 0; k < out.size(); ++k) {
      out[k].launches = cases[k]->GraphLaunches(out[k].events.median());
      graphs.emplace_back(out[k].launches, [&, k](int64_t i) { return cases[k]->Launch(i); });
    }
    const auto replay = [&](int64_t i) { return graphs[static_cast<size_t>(i % many)].Replay(); };
    gpu::TimeEach(3 * many, replay);
    const std::vector<double> replays = gpu::TimeEach(options_.rounds * many, replay);
    for (size_t k = 0; k < out.size(); ++k) {
      out[k].graph = split(replays, k, static_cast<double>(out[k].launches));
    }
    return out;
  }

  template <typename Body>
  void Guard(const Case& one, const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      ++failed_;
      std::printf("  %s: FAILED: %s\n", Words(one).c_str(), error.what());
      Record("\"record\": \"failure\", \"kernel\": " + Quoted(kernel_) +
             ", \"case\": " + Quoted(Words(one)) + ", \"fault\": " + Quoted(error.what()));
    }
    std::fflush(stdout);
  }

  void Report(const Prepared& p, const Measured& m) {
    const Case& one = p.one();
    if (!timed_) {
      std::printf("  %s: ran, not timed\n", Words(one).c_str());
      Record("\"record\": \"case\", " + Json(kernel_, one) + ", \"milliseconds\": null");
      return;
    }
    const double ms = m.best().median(), rate = one.bytes / ms / 1e6;
    std::printf("  %s: %.2f us", Words(one).c_str(), m.events.median() * 1e3);
    if (m.launches > 0) std::printf(", in a graph %.2f us", m.graph.median() * 1e3);
    std::printf("; %.0f GB/s, %.0f %% of copy", rate, 100 * rate / copy_);
    if (one.flops > 0) std::printf("; %.1f TFLOP/s", one.flops / ms / 1e9);
    std::printf("\n");
    Record("\"record\": \"case\", " + Json(kernel_, one) + ", " + m.Json(p) +
           ", \"share_of_copy\": " + Number(rate / copy_));
  }

  void List(const Case& one) {
    std::printf("  %s\n", Words(one).c_str());
    Record("\"record\": \"case\", " + Json(kernel_, one) + ", \"milliseconds\": null");
  }

  void RecordPair(const Case& slow, const Case& fast, const std::string& ratio,
                  const std::string& ratios) {
    Record("\"record\": \"pair\", " + Json(kernel_, fast) + ", \"slow\": " + Quoted(slow.variant) +
           ", \"fast\": " + Quoted(fast.variant) + ", \"ratio\": " + ratio +
           ", \"ratios\": " + ratios);
  }

  void Record(const std::string& fields) {
    if (json_->is_open()) *json_ << '{' << fields << "}\n" << std::flush;
  }

  const Options& options_;
  const gpu::Facts& facts_;
  const bool timed_;
  std::ofstream* json_;
  double copy_ = 0;
  const char* kernel_ = "";
  int64_t failed_ = 0;
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--tiny") {
      options->tiny = true;
    } else if (flag == "--list") {
      options->list = true;
    } else if (flag == "--once") {
      options->once = true;
    } else if (flag == "--append") {
      options->append = true;
    } else if (i + 1 == argc) {
      return false;
    } else if (flag == "--only") {
      options->only.push_back(argv[++i]);
    } else if (flag == "--case") {
      options->cases.push_back(argv[++i]);
    } else if (flag == "--rounds") {
      options->rounds = std::atoll(argv[++i]);
    } else if (flag == "--json") {
      options->json = argv[++i];
    } else {
      return false;
    }
  }
  return options->rounds > 0;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: %s [--only KERNEL]... [--case WORDS]... [--tiny] [--list] [--once] "
                 "[--rounds N] [--json FILE] [--append]\n",
                 argv[0]);
    return 2;
  }
  gpu::Facts facts;
  std::string why;
  if (!gpu::OpenDevice(&facts, &why) && !options.list) {
    std::fprintf(stderr, "%s: no device to time on: %s\n", argv[0], why.c_str());
    return 4;
  }
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json, options.append ? std::ios::app : std::ios::trunc);
    if (!json) {
      std::fprintf(stderr, "%s: %s cannot be written\n", argv[0], options.json.c_str());
      return 2;
    }
  }
  try {
    Runner runner(options, facts, &json);
    bool any = false;
    for (const Timing& timing : Timings()) {
      if (!options.only.empty() && std::find(options.only.begin(), options.only.end(),
                                             timing.kernel) == options.only.end()) {
        continue;
      }
      any = true;
      runner.Begin(timing.kernel);
      timing.time(runner);
    }
    if (!any) {
      std::fprintf(stderr, "%s: no kernel of that name\n", argv[0]);
      return 2;
    }
    return runner.failed() > 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace
}  // namespace timing
}  // namespace graft

int main(int argc, char** argv) { return graft::timing::Main(argc, argv); }
