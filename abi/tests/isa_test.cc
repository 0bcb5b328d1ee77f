// The choice among instruction sets against what the system says of the CPU.
#include "graft/isa.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace graft {
namespace {

// The first value of a key of /proc/cpuinfo; empty where there is none.
std::string CpuInfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    return line.substr(line.find_first_not_of(' ', colon + 1));
  }
  return "";
}

bool SystemSays(const std::string& needed) {
  std::istringstream flags(CpuInfo("flags")), words(needed);
  std::set<std::string> all;
  for (std::string flag; flags >> flag;) all.insert(flag);
  for (std::string word; words >> word;) {
    if (all.count(word) == 0) return false;
  }
  return true;
}

constexpr char kSse4Flags[] = "sse4_2 pclmulqdq aes ";
constexpr char kAvx2Flags[] = "avx2 fma bmi1 bmi2 f16c ";
constexpr char kAvx512Flags[] = "avx512f avx512vl avx512dq avx512bw ";

constexpr int kBaseline = 1, kSse4 = 2, kAvx2 = 3, kAvx512 = 4;

TEST(Isa, TheCpuRunsWhatTheSystemSays) {
  const std::string sse4 = kSse4Flags, avx2 = sse4 + kAvx2Flags, avx512 = avx2 + kAvx512Flags;
  EXPECT_TRUE(CpuRuns(Isa::kBest));
  EXPECT_TRUE(CpuRuns(Isa::kBaseline));
  EXPECT_EQ(CpuRuns(Isa::kSse4), SystemSays(sse4));
  EXPECT_EQ(CpuRuns(Isa::kAvx2), SystemSays(avx2));
  EXPECT_EQ(CpuRuns(Isa::kAvx512), SystemSays(avx512));
  EXPECT_EQ(CpuHasNarrowLoads(),
            CpuInfo("vendor_id") == "AuthenticAMD" && CpuInfo("cpu family") == "25");
}

TEST(Isa, OnlyWhatTheCpuRunsIsFound) {
  const Kernels<int> kernels(&kBaseline, &kSse4, &kAvx2, &kAvx512);
  const int* best = &kBaseline;
  const struct {
    Isa isa;
    const int* kernel;
  } wider[] = {{Isa::kSse4, &kSse4}, {Isa::kAvx2, &kAvx2}, {Isa::kAvx512, &kAvx512}};
  for (const auto& [isa, kernel] : wider) {
    EXPECT_EQ(kernels.Find(isa), CpuRuns(isa) ? kernel : nullptr);
    EXPECT_EQ(kernels.FindForLoads(isa), kernels.Find(isa));
    if (CpuRuns(isa)) best = kernel;
  }
  EXPECT_EQ(kernels.Find(Isa::kBaseline), &kBaseline);
  EXPECT_EQ(kernels.Find(Isa::kBest), best);
  const bool narrow = CpuRuns(Isa::kAvx2) && CpuHasNarrowLoads();
  EXPECT_EQ(kernels.FindForLoads(Isa::kBest), narrow ? &kAvx2 : best);
}

TEST(Isa, CodeThatThereIsNotIsNotFound) {
  const Kernels<int> kernels(&kBaseline, nullptr, nullptr, nullptr);
  for (const Isa isa : kIsas) {
    const bool there = isa == Isa::kBest || isa == Isa::kBaseline;
    EXPECT_EQ(kernels.Find(isa), there ? &kBaseline : nullptr);
    EXPECT_EQ(kernels.FindForLoads(isa), there ? &kBaseline : nullptr);
  }
}

TEST(Isa, NamesOfACommandLine) {
  EXPECT_EQ(IsaNamed("baseline"), Isa::kBaseline);
  EXPECT_EQ(IsaNamed("sse4"), Isa::kSse4);
  EXPECT_EQ(IsaNamed("avx2"), Isa::kAvx2);
  EXPECT_EQ(IsaNamed("avx512"), Isa::kAvx512);
  EXPECT_EQ(IsaNamed("best"), Isa::kBest);
}

}  // namespace
}  // namespace graft
