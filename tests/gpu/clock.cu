#include <cstring>
#include <new>
#include <stdexcept>

#include "clock.h"
#if defined(__CUDACC__)
#include "../../kernels-cuda/device/limits.cuh"
#endif

#if defined(__CUDACC__)
// Of cuda_profiler_api.h, which not every toolkit brings; the runtime has both.
extern "C" cudaError_t CUDARTAPI cudaProfilerStart();
extern "C" cudaError_t CUDARTAPI cudaProfilerStop();
#endif

namespace graft {
namespace gpu {

namespace {

void CheckLaunch(cuda::Status status) {
  if (status == cuda::kOk) return;
#if defined(__CUDACC__)
  if (status > 0) {
    throw std::runtime_error(std::string("a launch failed: ") +
                             cudaGetErrorString(static_cast<cudaError_t>(status)));
  }
#endif
  throw std::runtime_error("a launch failed with " + std::to_string(status));
}

}  // namespace

#if defined(__CUDACC__)

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

void Describe(Facts* facts) {
  int count = 0;
  Check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) throw std::runtime_error("the driver shows no device");
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  facts->device = properties.name;
  facts->timed = true;
  int version = 0;
  Check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  facts->driver = version;
  Check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  facts->runtime = version;
  facts->memory = static_cast<int64_t>(properties.totalGlobalMem);
  Check(static_cast<cudaError_t>(cuda::ReadLimits(&facts->limits)), "limits of the device");
}

}  // namespace

bool OpenDevice(Facts* facts, std::string* why) {
  try {
    Describe(facts);
    return true;
  } catch (const std::exception& error) {
    *why = error.what();
    return false;
  }
}

int64_t FreeMemory() {
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

void* Reserve(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)), "cudaMalloc");
  return memory;
}

void Release(void* memory) { cudaFree(memory); }

void CopyBytes(void* to, const void* from, int64_t bytes, Direction direction) {
  Wait();
  const auto kind =
      direction == Direction::kToDevice ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), kind), "cudaMemcpy");
}

void CopyWithin(void* to, const void* from, int64_t bytes) {
  Check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, WorkStream()),
      "cudaMemcpyAsync");
}

void SetBytes(void* memory, unsigned char byte, int64_t bytes) {
  Check(cudaMemsetAsync(memory, byte, static_cast<size_t>(bytes), WorkStream()), "cudaMemsetAsync");
}

cuda::Stream WorkStream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    Check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    return made;
  }();
  return stream;
}

void Wait() { Check(cudaDeviceSynchronize(), "the device's work failed"); }

std::vector<double> TimeEach(int64_t count, const Work& work) {
  std::vector<cudaEvent_t> events(static_cast<size_t>(2 * count));
  for (cudaEvent_t& event : events) Check(cudaEventCreate(&event), "cudaEventCreate");
  for (int64_t i = 0; i < count; ++i) {
    Check(cudaEventRecord(events[static_cast<size_t>(2 * i)], WorkStream()), "cudaEventRecord");
    CheckLaunch(work(i));
    Check(cudaEventRecord(events[static_cast<size_t>(2 * i + 1)], WorkStream()), "cudaEventRecord");
  }
  Wait();
  std::vector<double> milliseconds;
  for (size_t i = 0; i < events.size(); i += 2) {
    float time = 0;
    Check(cudaEventElapsedTime(&time, events[i], events[i + 1]), "cudaEventElapsedTime");
    milliseconds.push_back(time);
  }
  for (const cudaEvent_t event : events) cudaEventDestroy(event);
  return milliseconds;
}

void Profile(bool seen) {
  Check(seen ? cudaProfilerStart() : cudaProfilerStop(), "cudaProfilerStart");
}

Graph::Graph(int64_t count, const Work& work) {
  Check(cudaStreamBeginCapture(WorkStream(), cudaStreamCaptureModeThreadLocal), "begin of capture");
  cuda::Status status = cuda::kOk;
  for (int64_t i = 0; i < count && status == cuda::kOk; ++i) status = work(i);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(WorkStream(), &graph);
  CheckLaunch(status);
  Check(ended, "end of capture");
  cudaGraphExec_t instance = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&instance, graph, 0);
  cudaGraphDestroy(graph);
  Check(made, "cudaGraphInstantiate");
  instance_ = instance;
}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(instance_)); }

cuda::Status Graph::Replay() const {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(instance_), WorkStream());
}

#else

bool OpenDevice(Facts* facts, std::string*) {
  facts->device = "emulator";
  return true;
}

constexpr std::align_val_t kAlignment{256};

int64_t FreeMemory() { return int64_t{1} << 30; }
void* Reserve(int64_t bytes) { return ::operator new(static_cast<size_t>(bytes), kAlignment); }
void Release(void* memory) { ::operator delete(memory, kAlignment); }
void CopyBytes(void* to, const void* from, int64_t bytes, Direction) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void CopyWithin(void* to, const void* from, int64_t bytes) {
  CopyBytes(to, from, bytes, Direction::kToDevice);
}
void SetBytes(void* memory, unsigned char byte, int64_t bytes) {
  std::memset(memory, byte, static_cast<size_t>(bytes));
}

cuda::Stream WorkStream() { return nullptr; }
void Wait() {}

std::vector<double> TimeEach(int64_t count, const Work& work) {
  for (int64_t i = 0; i < count; ++i) CheckLaunch(work(i));
  return std::vector<double>(static_cast<size_t>(count));
}

void Profile(bool) {}

// The work itself stands in for a graph.
Graph::Graph(int64_t count, const Work& work)
    : instance_(new std::function<cuda::Status()>([=] {
        cuda::Status status = cuda::kOk;
        for (int64_t i = 0; i < count && status == cuda::kOk; ++i) status = work(i);
        return status;
      })) {}

Graph::~Graph() { delete static_cast<std::function<cuda::Status()>*>(instance_); }

cuda::Status Graph::Replay() const {
  return (*static_cast<std::function<cuda::Status()>*>(instance_))();
}

#endif

}  // namespace gpu
}  // namespace graft
