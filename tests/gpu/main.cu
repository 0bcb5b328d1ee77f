// Runs the conformance of kernels: `conform [--problems N] [--seed S] [--only KERNEL]... [--json
// FILE]`.
//
// Ends with 0 when all agreed, 1 when some did not, 2 on bad usage.
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

namespace graft {
namespace gpu {

std::vector<Conformance>& Conformances() {
  static std::vector<Conformance> list;
  return list;
}

namespace {

struct Options {
  int64_t problems = 1000;
  uint64_t seed = 1;
  std::vector<std::string> only;
  std::string json;
};

struct Result {
  const char* kernel = nullptr;
  int64_t problems = 0, failed = 0;
  double worst = 0, seconds = 0;
  std::string first;  // failure
};

// Numbers of a trial follow from the seed, the kernel's name and the trial's place alone.
uint64_t SeedOf(uint64_t seed, const char* kernel, int64_t index) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (; *kernel != 0; ++kernel) {
    hash = (hash ^ static_cast<unsigned char>(*kernel)) * 0x100000001b3;
  }
  return hash * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(index);
}

Result Run(const Conformance& c, const Options& options) {
  Result result;
  result.kernel = c.kernel;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.problems; ++i) {
    const uint64_t seed = SeedOf(options.seed, c.kernel, i);
    Trial trial(seed);
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
    if (!trial.failed()) continue;
    if (result.failed++ == 0) {
      result.first =
          "problem " + std::to_string(i) + " (" + trial.about.str() + "): " + trial.fault();
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void Write(const std::string& path, const std::vector<Result>& results) {
  std::ofstream file(path);
  file << "[\n";
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    file << "  {\"kernel\": " << Quoted(r.kernel) << ", \"problems\": " << r.problems
         << ", \"failed\": " << r.failed << ", \"worst_error\": " << r.worst
         << ", \"seconds\": " << r.seconds << ", \"first_failure\": " << Quoted(r.first) << '}'
         << (i + 1 < results.size() ? ",\n" : "\n");
  }
  file << "]\n";
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (flag == "--problems") {
      options->problems = std::atoll(value);
    } else if (flag == "--seed") {
      options->seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--only") {
      options->only.emplace_back(value);
    } else if (flag == "--json") {
      options->json = value;
    } else {
      return false;
    }
  }
  return options->problems > 0;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fprintf(stderr, "usage: %s [--problems N] [--seed S] [--only KERNEL]... [--json FILE]\n",
                 argv[0]);
    return 2;
  }
  std::vector<Result> results;
  int64_t passed = 0, failed = 0;
  std::printf("%-16s %9s %7s %11s %9s\n", "kernel", "problems", "failed", "worst error", "seconds");
  for (const Conformance& c : Conformances()) {
    bool wanted = options.only.empty();
    for (const std::string& name : options.only) wanted = wanted || name == c.kernel;
    if (!wanted) continue;
    results.push_back(Run(c, options));
    const Result& r = results.back();
    std::printf("%-16s %9lld %7lld %11.3f %9.2f\n", r.kernel, static_cast<long long>(r.problems),
                static_cast<long long>(r.failed), r.worst, r.seconds);
    if (r.failed > 0) std::printf("  %s\n", r.first.c_str());
    std::fflush(stdout);
    failed += r.failed;
    passed += r.problems - r.failed;
  }
  if (results.empty()) {
    std::fprintf(stderr, "%s: no kernel of that name\n", argv[0]);
    return 2;
  }
  if (!options.json.empty()) Write(options.json, results);
  std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed),
              static_cast<long long>(failed));
  return failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace gpu
}  // namespace graft

int main(int argc, char** argv) { return graft::gpu::Main(argc, argv); }
