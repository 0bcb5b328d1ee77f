// native RUNTIME MODEL one KIND | run ROWS TOKENS PAIRS; with LD_PRELOAD=libgraft.so, where plain
// sessions say graft.disable.
#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>
static const OrtApi* api;
static OrtEnv* env;
static void Check(OrtStatus* s) {
  if (s) {
    fprintf(stderr, "%s\n", api->GetErrorMessage(s));
    exit(1);
  }
}
static double Now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static OrtSession* Make(const std::string& kind, const char* model) {
  OrtSessionOptions* o;
  Check(api->CreateSessionOptions(&o));
  Check(api->SetIntraOpNumThreads(o, 1));
  if (kind == "plain") Check(api->AddSessionConfigEntry(o, "graft.disable", "1"));
  if (kind == "ep") {
    const OrtEpDevice* const* d;
    size_t n;
    Check(api->GetEpDevices(env, &d, &n));
    for (size_t i = 0; i < n; ++i)
      if (!strcmp(api->EpDevice_EpName(d[i]), "graft")) {
        Check(api->SessionOptionsAppendExecutionProvider_V2(o, env, d + i, 1, nullptr, nullptr, 0));
        break;
      }
  }
  OrtSession* s;
  Check(api->CreateSession(env, model, o, &s));
  api->ReleaseSessionOptions(o);
  return s;
}
static std::vector<std::string> names[2];
static std::vector<std::vector<int64_t>> data;
static std::vector<OrtValue*> in;
static std::vector<float> Run(OrtSession* s) {
  std::vector<const char*> a, b;
  for (auto& x : names[0]) a.push_back(x.c_str());
  for (auto& x : names[1]) b.push_back(x.c_str());
  std::vector<OrtValue*> out(b.size());
  Check(api->Run(s, nullptr, a.data(), in.data(), in.size(), b.data(), b.size(), out.data()));
  void* p;
  size_t n;
  Check(api->GetTensorMutableData(out.back(), &p));
  Check(api->GetTensorSizeInBytes(out.back(), &n));
  std::vector<float> r((float*)p, (float*)p + n / 4);
  for (auto* v : out) api->ReleaseValue(v);
  return r;
}
static void Inputs(OrtSession* s, int64_t rows, int64_t tokens) {
  OrtAllocator* al;
  Check(api->GetAllocatorWithDefaultOptions(&al));
  OrtMemoryInfo* mi;
  Check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &mi));
  size_t n;
  char* c;
  Check(api->SessionGetInputCount(s, &n));
  data.resize(n);
  for (size_t i = 0; i < n; ++i) {
    Check(api->SessionGetInputName(s, i, al, &c));
    names[0].push_back(c);
  }
  size_t m;
  Check(api->SessionGetOutputCount(s, &m));
  for (size_t i = 0; i < m; ++i) {
    Check(api->SessionGetOutputName(s, i, al, &c));
    names[1].push_back(c);
  }
  for (size_t i = 0; i < n; ++i) {
    bool mask = names[0][i].find("mask") != std::string::npos,
         type = names[0][i].find("type") != std::string::npos;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < tokens; ++t)
        data[i].push_back(mask   ? t < std::max<int64_t>(2, tokens * (r + 1) / rows)
                          : type ? 0
                                 : 1000 + (r * 7919 + t * 104729) % 19000);
    int64_t d[2] = {rows, tokens};
    OrtValue* v;
    Check(api->CreateTensorWithDataAsOrtValue(mi, data[i].data(), data[i].size() * 8, d, 2,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &v));
    in.push_back(v);
  }
}
static double Status(const char* key) {
  FILE* f = fopen("/proc/self/status", "r");
  char l[256];
  double v = 0;
  while (fgets(l, sizeof l, f))
    if (!strncmp(l, key, strlen(key))) v = atof(l + strlen(key) + 1) / 1000;
  fclose(f);
  return v;
}
int main(int, char** v) {
  void* h = dlopen(v[1], RTLD_NOW);
  if (!h) {
    puts(dlerror());
    return 1;
  }
  auto base = ((const OrtApiBase* (*)())dlsym(h, "OrtGetApiBase"))();
  api = base->GetApi(23);
  Check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "m", &env));
  std::string what = v[3];
  if (what == "run" || !strcmp(v[4], "ep"))
    Check(api->RegisterExecutionProviderLibrary(env, "graft", getenv("GRAFT_EP")));
  if (what == "one") {
    double b = Now();
    OrtSession* s = Make(v[4], v[2]);
    double took = Now() - b, peak = Status("VmHWM");
    Inputs(s, 1, 16);
    Run(s);
    printf(
        "%s %s: %.3f s of the processor, peak %.0f MB, after a run anonymous %.0f MB, peak %.0f "
        "MB\n",
        base->GetVersionString(), v[4], took, peak, Status("RssAnon"), Status("VmHWM"));
    api->ReleaseSession(s);
    api->ReleaseEnv(env);
    return 0;
  }
  const char* kinds[] = {"plain", "graft", "ep"};
  OrtSession* s[3];
  for (int i = 0; i < 3; ++i) s[i] = Make(kinds[i], v[2]);
  Inputs(s[0], atoi(v[4]), atoi(v[5]));
  std::vector<float> r[3];
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 3; ++i) r[i] = Run(s[i]);
  float d = 0;
  for (size_t k = 0; k < r[0].size(); ++k) d = std::max(d, std::fabs(r[0][k] - r[2][k]));
  printf("last output: greatest difference %g; libgraft.so and provider bit-equal: %d\n", d,
         r[1] == r[2]);
  std::vector<double> t[3];
  int pairs = atoi(v[6]);
  for (int p = 0; p < pairs; ++p)
    for (int k = 0; k < 3; ++k) {
      int i = p % 2 ? 2 - k : k;
      double b = Now();
      Run(s[i]);
      t[i].push_back(Now() - b);
    }
  auto med = [](std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
  };
  auto ratio = [&](int a, int b) {
    std::vector<double> x;
    for (int p = 0; p < pairs; ++p) x.push_back(t[a][p] / t[b][p]);
    std::sort(x.begin(), x.end());
    printf("%s/%s %.3f (quartiles %.3f %.3f)\n", kinds[a], kinds[b], x[pairs / 2], x[pairs / 4],
           x[3 * pairs / 4]);
  };
  for (int i = 0; i < 3; ++i) printf("%s %.2f ms\n", kinds[i], 1e3 * med(t[i]));
  ratio(0, 1);
  ratio(0, 2);
  ratio(1, 2);
  for (auto* x : s) api->ReleaseSession(x);
  api->ReleaseEnv(env);
}
