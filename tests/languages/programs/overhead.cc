// What libgraft.so costs: times of a model's first session in processes of their own, without
// graft, and patched from the cache; and of runs of a session that is left as it is, with and
// without libgraft.so's functions in the table. Sides take turns, in the order A B B A. Linked with
// libgraft.so after ONNX Runtime, whose table is as it was until graft_enable is called.
//
//   overhead MODEL [ROUNDS]
#include <onnxruntime_c_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "graft_enable.h"

namespace {

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "overhead: %s\n", text.c_str());
  std::exit(1);
}

double Milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Check(const OrtApi* api, OrtStatus* status) {
  if (status != nullptr) Fail(api->GetErrorMessage(status));
}

// The time of the first session of this process.
double First(const char* model, bool graft) {
  const OrtApi* api = OrtGetApiBase()->GetApi(22);
  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  Check(api, api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "overhead", &env));
  Check(api, api->CreateSessionOptions(&options));
  Check(api, api->SetIntraOpNumThreads(options, 1));
  const double begin = Milliseconds();
  if (graft && graft_enable(nullptr) != 1) Fail("graft_enable finds no runtime");
  Check(api, api->CreateSession(env, model, options, &session));
  const double took = Milliseconds() - begin;
  uint64_t patched = 0, left = 0;
  graft_sessions(&patched, &left);
  if (patched != (graft ? 1U : 0U)) Fail("the session was not patched (GRAFT_VERBOSE=1 says why)");
  return took;
}

// First in a process of its own.
double InProcess(const char* model, bool graft) {
  int ends[2];
  if (pipe(ends) != 0) Fail("cannot make a pipe");
  const pid_t child = fork();
  if (child == 0) {
    const double took = First(model, graft);
    _exit(write(ends[1], &took, sizeof took) == sizeof took ? 0 : 1);
  }
  close(ends[1]);
  double took = 0;
  const bool ok = read(ends[0], &took, sizeof took) == sizeof took;
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0 || !ok) Fail("a process failed");
  return took;
}

// A side's times of so many runs, in nanoseconds a run.
double Runs(const OrtApi* api, OrtSession* session, int count) {
  const char* const input = "x";
  const char* const output = "y";
  float data[4] = {1, 2, 3, 4};
  const int64_t shape = 4;
  OrtMemoryInfo* memory;
  OrtValue* value;
  Check(api, api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  Check(api, api->CreateTensorWithDataAsOrtValue(memory, data, sizeof data, &shape, 1,
                                                 ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value));
  const double begin = Milliseconds();
  for (int i = 0; i < count; ++i) {
    OrtValue* out = nullptr;
    Check(api, api->Run(session, nullptr, &input, &value, 1, &output, 1, &out));
    api->ReleaseValue(out);
  }
  const double took = Milliseconds() - begin;
  api->ReleaseValue(value);
  api->ReleaseMemoryInfo(memory);
  return took * 1e6 / count;
}

double Median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  const size_t n = list.size();
  return n % 2 == 1 ? list[n / 2] : (list[n / 2 - 1] + list[n / 2]) / 2;
}

void Print(const char* what, const char* unit, const std::vector<double>& a,
           const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(b[i] / a[i]);
  std::sort(ratios.begin(), ratios.end());
  std::printf("%s: %.4g %s without graft, %.4g with; ratio %.3f, quartiles %.3f to %.3f, of %zu\n",
              what, Median(a), unit, Median(b), Median(ratios), ratios[ratios.size() / 4],
              ratios[ratios.size() * 3 / 4], ratios.size());
  std::fflush(stdout);
}

// A model of one node y = -x, encoded.
const unsigned char kTiny[] = {
    0x08, 8,                                                           // IR version
    0x3a, 38,                                                          // graph
    0x0a, 11, 0x0a, 1, 'x', 0x12, 1, 'y',  0x22, 3,    'N', 'e', 'g',  // node
    0x12, 1,  'g',                                                     // name
    0x5a, 9,  0x0a, 1, 'x', 0x12, 4, 0x0a, 2,    0x08, 1,              // input of floats
    0x62, 9,  0x0a, 1, 'y', 0x12, 4, 0x0a, 2,    0x08, 1,              // output of floats
    0x42, 2,  0x10, 17};                                               // opset

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) Fail("found no argument, needed MODEL");
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  InProcess(argv[1], true);  // the command makes the graph
  InProcess(argv[1], false);
  std::vector<double> a, b;
  for (int i = 0; i < rounds; ++i) {
    const bool first = i % 2 == 1;  // whether graft's is first
    double took[2];
    took[first] = InProcess(argv[1], first);
    took[!first] = InProcess(argv[1], !first);
    a.push_back(took[0]);
    b.push_back(took[1]);
  }
  Print("first session, patched from the cache", "ms", a, b);

  const OrtApi* api = OrtGetApiBase()->GetApi(22);
  const OrtApi plain = *api;
  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  Check(api, api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "overhead", &env));
  Check(api, api->CreateSessionOptions(&options));
  Check(api, api->SetIntraOpNumThreads(options, 1));
  Check(api, api->CreateSessionFromArray(env, kTiny, sizeof kTiny, options, &session));
  if (graft_enable(nullptr) != 1) Fail("graft_enable finds no runtime");
  constexpr int kCount = 2000;
  Runs(&plain, session, kCount);
  a.clear();
  b.clear();
  for (int i = 0; i < rounds * 5; ++i) {
    const bool first = i % 2 == 1;
    double took[2];
    took[first] = Runs(first ? api : &plain, session, kCount);
    took[!first] = Runs(first ? &plain : api, session, kCount);
    a.push_back(took[0]);
    b.push_back(took[1]);
  }
  Print("run of a model of one node, left as it is", "ns", a, b);
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(env);
  return 0;
}
