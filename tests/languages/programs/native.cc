// Sessions as a program in C or C++ makes them: the table of functions is taken before main, as
// ONNX Runtime's own C++ header does. Prints the last session's first output, a number a line.
// Every session must give the same bits, or the exit code is 1.
//
//   native MODEL SESSIONS [OPTION]...
#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#ifdef WITH_GRAFT
#include "graft_enable.h"

// Where MORE_RIGHTS is set, the process is one of a set-user-ID program.
extern "C" unsigned long getauxval(unsigned long type) {
  if (type == AT_SECURE) return std::getenv("MORE_RIGHTS") != nullptr;
  return reinterpret_cast<unsigned long (*)(unsigned long)>(dlsym(RTLD_NEXT, "getauxval"))(type);
}
#endif

namespace {

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "native: %s\n", text.c_str());
  std::exit(1);
}

const OrtApiBase* Base() {
#ifdef WITH_DLOPEN
  const char* path = std::getenv("ORT_LIBRARY");
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) Fail(dlerror());
  if (dlsym(handle, "no_such_function") != nullptr || dlerror() == nullptr)
    Fail("dlsym finds what is not there");
  auto* function = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
  const char* error = dlerror();
  if (error != nullptr) Fail(error);
  // Nor does it lose what is there.
  if (dlsym(RTLD_DEFAULT, "malloc") == nullptr) Fail("dlsym finds no malloc");
  return function();
#else
  // Programs take it away for the sake of their children.
  if (std::getenv("UNSET_PRELOAD") != nullptr) unsetenv("LD_PRELOAD");
  // What is found leaves no error.
  dlerror();
  const bool found = dlsym(RTLD_DEFAULT, "OrtGetApiBase") != nullptr;
  const char* error = dlerror();
  if (!found || error != nullptr) Fail(error == nullptr ? "dlsym finds no runtime" : error);
  return OrtGetApiBase();
#endif
}

const OrtApi* const api = Base()->GetApi(22);

void Check(OrtStatus* status) {
  if (status != nullptr) Fail(api->GetErrorMessage(status));
}

struct Arguments {
  std::string model;
  int sessions = 1, threads = 1, forks = 0, rows = 2, runs = 1, shared = 1, meet = 0;
  bool bytes = false, prepacked = false, policy = false, spoil = false, quiet_children = false;
  bool refused = false, fails = false, profile = false;
  std::string pipe;  // a folder in which a command waits
  std::string how;   // a run is made: "", "async", "place", "overlap", "binding", "binding-overlap"
  std::vector<std::string> entries;
};

volatile sig_atomic_t children = 0;

std::string ReadFile(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  if (!f) Fail("cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(f), {});
}

OrtSessionOptions* Options(const Arguments& a) {
  OrtSessionOptions* options;
  Check(api->CreateSessionOptions(&options));
  Check(api->SetIntraOpNumThreads(options,
                                  a.how == "async" ? 2 : 1));  // RunAsync needs one of its own
  if (a.profile) {
    Check(api->EnableProfiling(options, (a.model + ".profile").c_str()));
    Check(api->SetOptimizedModelFilePath(options, (a.model + ".optimized").c_str()));
  }
  for (const std::string& e : a.entries) {
    const size_t equals = e.find('=');
    Check(api->AddSessionConfigEntry(options, e.substr(0, equals).c_str(),
                                     e.substr(equals + 1).c_str()));
  }
  if (a.policy)
    Check(api->SessionOptionsSetEpSelectionPolicy(options,
                                                  OrtExecutionProviderDevicePolicy_PREFER_CPU));
  return options;
}

// An input of a session: two rows, or as many as are asked for, of eight tokens, of which the last
// three are hidden, and nothing in the past.
struct Input {
  char* name = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> integers;
  std::vector<float> floats;
  bool yes = false;
  OrtValue* value = nullptr;

  void Make(OrtSession* session, size_t i, int64_t rows, OrtAllocator* allocator,
            const OrtMemoryInfo* memory) {
    constexpr int64_t kTokens = 8;
    Check(api->SessionGetInputName(session, i, allocator, &name));
    const std::string called = name;
    OrtTypeInfo* type;
    const OrtTensorTypeAndShapeInfo* tensor;
    ONNXTensorElementDataType element;
    size_t rank = 0;
    Check(api->SessionGetInputTypeInfo(session, i, &type));
    Check(api->CastTypeInfoToTensorInfo(type, &tensor));
    Check(api->GetTensorElementType(tensor, &element));
    Check(api->GetDimensionsCount(tensor, &rank));
    shape.resize(rank);
    Check(api->GetDimensions(tensor, shape.data(), rank));
    api->ReleaseTypeInfo(type);
    int64_t size = 1;
    for (size_t axis = 0; axis < rank; ++axis) {
      if (shape[axis] < 0)
        shape[axis] = axis == 0 ? rows : called.rfind("past", 0) == 0 ? 0 : kTokens;
      size *= shape[axis];
    }
    void* data = &yes;
    size_t bytes = sizeof yes;
    if (element == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) {
      integers.resize(static_cast<size_t>(size) + 1);  // data of an empty one is no null pointer
      for (int64_t k = 0; k < size; ++k) {
        const bool hidden = k >= size - 3;
        integers[k] = called.find("mask") != called.npos   ? !hidden
                      : called.find("type") != called.npos ? 0
                      : hidden                             ? 1
                                                           : 4 + k * 7 % 23;
      }
      data = integers.data();
      bytes = static_cast<size_t>(size) * sizeof(int64_t);
    } else if (element == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
      floats.resize(static_cast<size_t>(size) + 1);
      for (int64_t k = 0; k < size; ++k) floats[k] = static_cast<float>(k * 37 % 101 - 50) / 50;
      data = floats.data();
      bytes = static_cast<size_t>(size) * sizeof(float);
    } else if (element != ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL) {
      Fail("input " + called + " has a type that this program does not make");
    }
    Check(api->CreateTensorWithDataAsOrtValue(memory, data, bytes, shape.data(), rank, element,
                                              &value));
  }
};

// One run at a time: RunAsync's function is told of the run that it ended.
struct Ended {
  std::promise<OrtStatus*> status;
  static void Call(void* ended, OrtValue** outputs, size_t n, OrtStatus* status) {
    if (status == nullptr && (n != 1 || outputs[0] == nullptr)) Fail("RunAsync gives no output");
    static_cast<Ended*>(ended)->status.set_value(status);
  }
};

struct RunOf {
  OrtSession* session;
  const OrtMemoryInfo* memory;
  std::vector<const char*> names;
  std::vector<const OrtValue*> values;
  char* output;

  // Runs as it is told; out is the output, which is released by the caller.
  OrtStatus* operator()(const std::string& how, OrtValue** out) const {
    if (how == "async") {
      Ended ended;
      OrtStatus* status = api->RunAsync(session, nullptr, names.data(), values.data(), names.size(),
                                        &output, 1, out, &Ended::Call, &ended);
      return status != nullptr ? status : ended.status.get_future().get();
    }
    if (how.rfind("binding", 0) == 0) return Bound(how == "binding-overlap", out);
    return api->Run(session, nullptr, names.data(), values.data(), names.size(), &output, 1, out);
  }

 private:
  OrtStatus* Bound(bool overlap, OrtValue** out) const {
    OrtIoBinding* binding;
    Check(api->CreateIoBinding(session, &binding));
    // What is bound again is not bound twice, nor what was cleared.
    Check(api->BindInput(binding, names[0], values[0]));
    api->ClearBoundInputs(binding);
    for (int twice = 0; twice < 2; ++twice) {
      for (size_t i = 0; i < names.size(); ++i) Check(api->BindInput(binding, names[i], values[i]));
    }
    if (overlap)
      Check(api->BindOutput(binding, output, values[0]));
    else
      Check(api->BindOutputToDevice(binding, output, memory));
    OrtStatus* status = api->RunWithBinding(session, nullptr, binding);
    if (status == nullptr) {
      OrtAllocator* allocator;
      OrtValue** list = nullptr;
      size_t n = 0;
      Check(api->GetAllocatorWithDefaultOptions(&allocator));
      Check(api->GetBoundOutputValues(binding, allocator, &list, &n));
      if (n != 1) Fail("the binding has no output");
      *out = list[0];
      Check(api->AllocatorFree(allocator, list));
    }
    api->ReleaseIoBinding(binding);
    return status;
  }
};

// A run of inputs of a type that the model does not take. The error is the program's own.
void RunRefused(const RunOf& run) {
  int32_t wrong[2] = {1, 2};
  const int64_t shape = 2;
  OrtValue *value, *out = nullptr;
  Check(api->CreateTensorWithDataAsOrtValue(run.memory, wrong, sizeof wrong, &shape, 1,
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, &value));
  RunOf other = run;
  for (const OrtValue*& v : other.values) v = value;
  OrtStatus* status = other("", &out);
  if (status == nullptr || api->GetErrorCode(status) != ORT_INVALID_ARGUMENT)
    Fail("a run of other types is not refused");
  api->ReleaseStatus(status);
  api->ReleaseValue(value);
}

// The floats of a session's first output.
std::vector<float> Run(const Arguments& a, OrtSession* session) {
  OrtAllocator* allocator;
  OrtMemoryInfo* memory;
  Check(api->GetAllocatorWithDefaultOptions(&allocator));
  Check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  size_t count = 0;
  Check(api->SessionGetInputCount(session, &count));
  std::vector<Input> inputs(count);
  RunOf run = {session, memory, {}, {}, nullptr};
  for (size_t i = 0; i < count; ++i) {
    inputs[i].Make(session, i, a.rows, allocator, memory);
    run.names.push_back(inputs[i].name);
    run.values.push_back(inputs[i].value);
  }
  Check(api->SessionGetOutputName(session, 0, allocator, &run.output));
  if (a.refused) RunRefused(run);
  std::vector<float> result, place(static_cast<size_t>(a.rows));
  for (int i = 0; i < a.runs; ++i) {
    OrtValue* out = nullptr;
    const int64_t rows = a.rows;
    // A vector of rows, in memory of the program's.
    float* at = a.how == "overlap" ? inputs[0].floats.data() : place.data();
    if (a.how == "place" || a.how == "overlap") {
      Check(api->CreateTensorWithDataAsOrtValue(memory, at, place.size() * sizeof(float), &rows, 1,
                                                ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &out));
    }
    const OrtValue* given = out;
    OrtStatus* status = run(a.how, &out);
    if (a.fails && i == 0) {
      if (status == nullptr) Fail("a run does not fail");
      std::fprintf(stderr, "native: %s\n", api->GetErrorMessage(status));
      api->ReleaseStatus(status);
      if (given != nullptr) api->ReleaseValue(out);
      continue;
    }
    Check(status);
    if (given != nullptr && out != given) Fail("the output is not where it was asked for");
    OrtTensorTypeAndShapeInfo* info;
    Check(api->GetTensorTypeAndShape(out, &info));
    size_t n = 0;
    Check(api->GetTensorShapeElementCount(info, &n));
    float* p;
    Check(api->GetTensorMutableData(out, reinterpret_cast<void**>(&p)));
    result.assign(p, p + n);
    api->ReleaseTensorTypeAndShapeInfo(info);
    api->ReleaseValue(out);
  }
  for (Input& i : inputs) {
    api->ReleaseValue(i.value);
    Check(api->AllocatorFree(allocator, i.name));
  }
  Check(api->AllocatorFree(allocator, run.output));
  api->ReleaseMemoryInfo(memory);
  return result;
}

// What all threads give that run a session at once.
std::vector<float> Shared(const Arguments& a, OrtSession* session) {
  std::vector<std::vector<float>> results(static_cast<size_t>(a.shared));
  std::vector<std::thread> threads;
  for (std::vector<float>& r : results) threads.emplace_back([&] { r = Run(a, session); });
  for (std::thread& t : threads) t.join();
  for (const std::vector<float>& r : results) {
    if (r != results[0]) Fail("runs at once give different answers");
  }
  return results[0];
}

std::vector<float> Sessions(const Arguments& a, const OrtEnv* env, const std::string& bytes,
                            int count) {
  std::vector<float> first;
  OrtPrepackedWeightsContainer* container = nullptr;
  if (a.prepacked) Check(api->CreatePrepackedWeightsContainer(&container));
  for (int i = 0; i < count; ++i) {
    OrtSessionOptions* options = Options(a);
    OrtSession* session = nullptr;
    OrtStatus* status;
    if (a.bytes && a.prepacked) {
      status = api->CreateSessionFromArrayWithPrepackedWeightsContainer(
          env, bytes.data(), bytes.size(), options, container, &session);
    } else if (a.bytes) {
      status = api->CreateSessionFromArray(env, bytes.data(), bytes.size(), options, &session);
    } else if (a.prepacked) {
      status = api->CreateSessionWithPrepackedWeightsContainer(env, a.model.c_str(), options,
                                                               container, &session);
    } else {
      status = api->CreateSession(env, a.model.c_str(), options, &session);
    }
    Check(status);
    api->ReleaseSessionOptions(options);
    if (a.spoil) {
      std::string zeros(ReadFile(a.model).size(), '\0');
      std::fstream f(a.model, std::ios::in | std::ios::out | std::ios::binary);
      if (!f.write(zeros.data(), static_cast<std::streamsize>(zeros.size())))
        Fail("cannot spoil the model");
      f.close();
      if (truncate(a.model.c_str(), 0) != 0) Fail("cannot cut the model short");
    }
    std::vector<float> result = a.shared > 1 ? Shared(a, session) : Run(a, session);
    api->ReleaseSession(session);
    if (first.empty()) first = result;
    if (first != result) Fail("session " + std::to_string(i) + " gives other answers");
  }
  if (container != nullptr) api->ReleasePrepackedWeightsContainer(container);
  return first;
}

// Closes a pipe while the command runs, which began when it was open, and has the command end then.
void Pipe(const std::string& folder, const int* ends) {
  while (access((folder + "/begun").c_str(), F_OK) != 0) usleep(1000);
  close(ends[1]);
  char byte;
  if (read(ends[0], &byte, 1) != 0) Fail("a pipe that is closed does not end");
  std::ofstream(folder + "/go");
}

// Has threads wait for each other whenever operators are registered, which is the last thing that
// is done before a session with operators is created.
struct Meeting {
  static void Begin(int of) {
    pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(of));
    auto* place =
        const_cast<decltype(api->RegisterCustomOpsLibrary_V2)*>(&api->RegisterCustomOpsLibrary_V2);
    own = *place;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t start = reinterpret_cast<uintptr_t>(place) / page * page;
    if (mprotect(reinterpret_cast<void*>(start), 2 * page, PROT_READ | PROT_WRITE) != 0)
      Fail("cannot write to the runtime's table");
    *place = &Register;
  }

 private:
  static OrtStatus* ORT_API_CALL Register(OrtSessionOptions* options,
                                          const char* library) noexcept {
    OrtStatus* status = own(options, library);
    pthread_barrier_wait(&barrier);
    return status;
  }
  static inline pthread_barrier_t barrier;
  static inline decltype(api->RegisterCustomOpsLibrary_V2) own;
};

Arguments Parse(int argc, char** argv) {
  if (argc < 3) Fail("found too few arguments, needed MODEL SESSIONS");
  Arguments a;
  a.model = argv[1];
  a.sessions = std::atoi(argv[2]);
  for (int i = 3; i < argc; ++i) {
    const std::string o = argv[i];
    if (o == "bytes")
      a.bytes = true;
    else if (o == "prepacked")
      a.prepacked = true;
    else if (o == "policy")
      a.policy = true;
    else if (o == "spoil")
      a.spoil = true;
    else if (o == "children")
      a.quiet_children = true;
    else if (o == "refused")
      a.refused = true;
    else if (o == "fails")
      a.fails = true;
    else if (o == "profile")
      a.profile = true;
    else if (o.rfind("rows=", 0) == 0)
      a.rows = std::atoi(o.c_str() + 5);
    else if (o.rfind("runs=", 0) == 0)
      a.runs = std::atoi(o.c_str() + 5);
    else if (o.rfind("shared=", 0) == 0)
      a.shared = std::atoi(o.c_str() + 7);
    else if (o.rfind("meet=", 0) == 0)
      a.meet = std::atoi(o.c_str() + 5);
    else if (o.rfind("pipe=", 0) == 0)
      a.pipe = o.substr(5);
    else if (o.rfind("how=", 0) == 0)
      a.how = o.substr(4);
    else if (o.rfind("threads=", 0) == 0)
      a.threads = std::atoi(o.c_str() + 8);
    else if (o.rfind("forks=", 0) == 0)
      a.forks = std::atoi(o.c_str() + 6);
    else if (o.rfind("entry:", 0) == 0)
      a.entries.push_back(o.substr(6));
    else if (o != "enable" && o.rfind("options=", 0) != 0)
      Fail("unknown option " + o);
#ifdef WITH_GRAFT
    if (o == "enable" && graft_enable(nullptr) != 1) Fail("graft_enable finds no runtime");
    if (o.rfind("options=", 0) == 0 && graft_enable(o.c_str() + 8) != 1)
      Fail("graft_enable refuses options");
#endif
  }
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments a = Parse(argc, argv);
  const std::string bytes = a.bytes ? ReadFile(a.model) : "";
  if (a.quiet_children) {
    struct sigaction action = {};
    action.sa_handler = [](int) { children = children + 1; };
    sigaction(SIGCHLD, &action, nullptr);
  }
  OrtEnv* env;
  Check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "native", &env));
  if (a.meet > 0) Meeting::Begin(a.meet);
  if (a.model == "-") {  // one session of each model that is named in a line
    for (Arguments each = a; std::getline(std::cin, each.model);) {
      for (const float x : Sessions(each, env, "", 1)) {
        std::printf("%.9g ", static_cast<double>(x));
      }
      std::puts("");
      std::fflush(stdout);
    }
    return 0;
  }
  std::vector<std::vector<float>> results(static_cast<size_t>(a.threads));
  std::vector<std::thread> threads;
  int ends[2];
  if (!a.pipe.empty()) {
    if (pipe(ends) != 0) Fail("cannot make a pipe");
    threads.emplace_back(Pipe, a.pipe, ends);
  }
  for (int t = 0; t < a.threads; ++t) {
    threads.emplace_back([&, t] {
      results[static_cast<size_t>(t)] = Sessions(a, env, bytes, a.sessions / a.threads);
    });
  }
  // All of them while the threads wait for their graph: what threads run when a process forks may
  // never be done in the child, in ONNX Runtime and in operators too.
  std::vector<pid_t> forked;
  for (int f = 0; f < a.forks; ++f) {
    const pid_t child = fork();
    if (child == 0) {
      // Without threads of its own; those of the parent are not there.
      OrtEnv* mine;
      Check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "child", &mine));
      _exit(Sessions(a, mine, bytes, 1).empty() ? 1 : 0);
    }
    forked.push_back(child);
  }
  for (const pid_t child : forked) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) Fail("a child failed");
  }
  for (std::thread& t : threads) t.join();
  for (const std::vector<float>& r : results) {
    if (r != results[0]) Fail("threads give different answers");
  }
  if (a.quiet_children &&
      (children != 0 || waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD)) {
    Fail("found a child, or a signal of one, needed none");
  }
  for (const float x : results[0]) std::printf("%.9g\n", static_cast<double>(x));
#ifdef WITH_GRAFT
  uint64_t patched = 0, left = 0;
  graft_sessions(&patched, &left);
  std::fprintf(stderr, "native: %llu patched, %llu left, %llu reverted\n",
               static_cast<unsigned long long>(patched), static_cast<unsigned long long>(left),
               static_cast<unsigned long long>(graft_reverted()));
#endif
  api->ReleaseEnv(env);
  return 0;
}
