// Runs the conformance of kernels: `conform [--problems N] [--first I] [--seconds S] [--seed S]
// [--only KERNEL]... [--fault N] [--until-failure] [--pooled] [--separate] [--json FILE]`: problems
// I to I + N - 1 of a seed, fewer where the seconds are over before, or with --until-failure after
// one that failed. --fault turns a seeded fault on; so does being called fault-KERNEL-N. Where
// arrays come from is set by --pooled and --separate (memory.h).
//
// Ends with 0 when all agreed, 1 when some did not, 2 on bad usage, 3 when the device was lost
// under a problem, which counts as failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "../../kernels-cuda/device/device.cuh"
#include "check.h"
#include "json.h"
#include "memory.h"

namespace graft {
namespace gpu {

std::vector<Conformance>& Conformances() {
  static std::vector<Conformance> list;
  return list;
}

namespace {

constexpr double kWriteSeconds = 2;  // between what is written on the way

struct Options {
  int64_t problems = 1000, first = 0;
  double seconds = 1e9;
  uint64_t seed = 1;
  int32_t fault = 0;
  bool until_failure = false;
  std::vector<std::string> only;
  std::string json;
};

struct Result {
  const char* kernel = nullptr;
  int64_t problems = 0, failed = 0;
  double worst = 0, seconds = 0;
  int64_t calls = 0;  // of the device, for arrays
  std::string first;  // failure
};

// What was run so far, for the case that the device is lost.
Options options;
std::vector<Result> results;
const Trial* trying = nullptr;
int64_t trying_index = 0;

// Numbers of a trial follow from the seed, the kernel's name and the trial's place alone.
uint64_t SeedOf(uint64_t seed, const char* kernel, int64_t index) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (; *kernel != 0; ++kernel) {
    hash = (hash ^ static_cast<unsigned char>(*kernel)) * 0x100000001b3;
  }
  return hash * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(index);
}

std::string About(const Trial& trial, int64_t index, const std::string& fault) {
  return "problem " + std::to_string(index) + " (" + trial.about.str() + "): " + fault;
}

void Print(const Result& r) {
  std::printf("%-16s %9lld %7lld %11.3f %9.2f\n", r.kernel, static_cast<long long>(r.problems),
              static_cast<long long>(r.failed), r.worst, r.seconds);
  if (r.failed > 0) std::printf("  %s\n", r.first.c_str());
  std::fflush(stdout);
}

// The file is there whole or not at all: this program may be killed at any time.
void Write() {
  if (options.json.empty()) return;
  const std::string part = options.json + ".part";
  std::ofstream file(part);
  file << "[\n";
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    file << "  {\"kernel\": " << Quoted(r.kernel) << ", \"problems\": " << r.problems
         << ", \"failed\": " << r.failed << ", \"worst_error\": " << Number(r.worst)
         << ", \"seconds\": " << r.seconds << ", \"device_calls\": " << r.calls
         << ", \"first_failure\": " << Quoted(r.first) << '}'
         << (i + 1 < results.size() ? ",\n" : "\n");
  }
  file << "]\n";
  file.close();
  std::rename(part.c_str(), options.json.c_str());
}

void Run(const Conformance& c) {
  results.emplace_back();
  Result& result = results.back();
  result.kernel = c.kernel;
  const auto start = std::chrono::steady_clock::now();
  double written = 0;
  const int64_t end = options.first + options.problems;
  for (int64_t i = options.first; i < end && result.seconds < options.seconds; ++i) {
    const uint64_t seed = SeedOf(options.seed, c.kernel, i);
    Trial trial(seed);
    trying = &trial;
    trying_index = i;
#if !defined(__CUDACC__)
    cuda::emulator::Seed(seed);
#endif
    try {
      c.conform(trial);
    } catch (const std::exception& error) {
      trial.Fail(error.what());
    }
    ++result.problems;
    result.worst = std::max(result.worst, trial.worst());
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (trial.failed() && result.failed++ == 0) result.first = About(trial, i, trial.fault());
    trying = nullptr;
    result.calls = DeviceCalls();
    if (result.seconds > written + kWriteSeconds) {
      Write();
      written = result.seconds;
    }
    if (options.until_failure && result.failed > 0) break;
  }
}

// Counts of all kernels, as the last line.
int64_t Close() {
  int64_t passed = 0, failed = 0;
  for (const Result& r : results) {
    failed += r.failed;
    passed += r.problems - r.failed;
  }
  Write();
  std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed),
              static_cast<long long>(failed));
  return failed;
}

bool Parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--until-failure" || flag == "--pooled" || flag == "--separate") {
      if (flag == "--until-failure") {
        options.until_failure = true;
      } else {
        PoolArrays(flag == "--pooled");
      }
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (flag == "--problems") {
      options.problems = std::atoll(value);
    } else if (flag == "--first") {
      options.first = std::atoll(value);
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value);
    } else if (flag == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--fault") {
      options.fault = std::atoi(value);
    } else if (flag == "--only") {
      options.only.emplace_back(value);
    } else if (flag == "--json") {
      options.json = value;
    } else {
      return false;
    }
  }
  return options.problems > 0 && options.first >= 0 && options.seconds > 0;
}

// The seeded fault that a program's name ends with: fault-KERNEL-N.
int32_t FaultOf(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.rfind("fault-", 0) == 0 ? std::atoi(name.c_str() + name.rfind('-') + 1) : 0;
}

int Main(int argc, char** argv) {
  options.fault = FaultOf(argv[0]);
  if (!Parse(argc, argv)) {
    std::fprintf(stderr,
                 "usage: %s [--problems N] [--first I] [--seconds S] [--seed S] [--only KERNEL]... "
                 "[--fault N] [--until-failure] [--pooled] [--separate] [--json FILE]\n",
                 argv[0]);
    return 2;
  }
  std::printf("%-16s %9s %7s %11s %9s\n", "kernel", "problems", "failed", "worst error", "seconds");
  for (const Conformance& c : Conformances()) {
    bool wanted = options.only.empty();
    for (const std::string& name : options.only) wanted = wanted || name == c.kernel;
    if (!wanted) continue;
    if (c.seed(options.fault) != cuda::kOk) {
      std::fprintf(stderr, "%s: cannot seed fault %d\n", argv[0], options.fault);
      return 2;
    }
    Run(c);
    Print(results.back());
  }
  if (results.empty()) {
    std::fprintf(stderr, "%s: no kernel of that name\n", argv[0]);
    return 2;
  }
  return Close() > 0 ? 1 : 0;
}

}  // namespace

void DeviceLost(const std::string& what) {
  if (trying != nullptr) {
    Result& result = results.back();
    ++result.problems;
    if (result.failed++ == 0) {
      result.first = About(*trying, trying_index,
                           trying->failed() ? trying->fault() + "; then " + what : what);
    }
    Print(result);
    Close();
  }
  std::fprintf(stderr, "the device is lost: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(3);  // nothing that a later problem gave would mean anything
}

}  // namespace gpu
}  // namespace graft

int main(int argc, char** argv) { return graft::gpu::Main(argc, argv); }
