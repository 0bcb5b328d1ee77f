// The device under test as timing sees it: facts, a stream, events, graphs. On the emulator work is
// done when it is enqueued, and nothing has a time.
#ifndef GRAFT_TESTS_GPU_CLOCK_H_
#define GRAFT_TESTS_GPU_CLOCK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../../kernels-cuda/device/launch.h"

namespace graft {
namespace gpu {

struct Facts {
  std::string device;   // its name; "emulator"
  bool timed = false;   // false on the emulator
  int32_t driver = 0;   // newest CUDA that the driver supports, like 13000; 0 on the emulator
  int32_t runtime = 0;  // CUDA that this program was built with
  int64_t memory = 0;   // bytes
  cuda::DeviceLimits limits;
};

// Opens the first device. False, and why, where there is none that works.
bool OpenDevice(Facts* facts, std::string* why);

// Bytes of device memory that can still be had.
int64_t FreeMemory();
// Device memory, 256-byte aligned; throws std::runtime_error where there is too little.
void* Reserve(int64_t bytes);
void Release(void* memory);
enum class Direction { kToDevice, kToHost };
// Waits for all work, copies, and waits for the copy.
void CopyBytes(void* to, const void* from, int64_t bytes, Direction direction);
// Enqueues a copy within the device.
void CopyWithin(void* to, const void* from, int64_t bytes);
// Enqueues the writing of one byte all over.
void SetBytes(void* memory, unsigned char byte, int64_t bytes);

cuda::Stream WorkStream();
// Waits for all work. Throws std::runtime_error when some of it failed.
void Wait();

// Enqueues work(0) to work(count - 1) without waiting between them, and gives the milliseconds that
// each took, by events around it; zeros on the emulator. Throws when a launch or the work fails.
using Work = std::function<cuda::Status(int64_t)>;
std::vector<double> TimeEach(int64_t count, const Work& work);

// Begins or ends what a profiler sees; nothing where none watches.
void Profile(bool seen);

// work(0) to work(count - 1) captured as one CUDA graph.
class Graph {
 public:
  Graph(int64_t count, const Work& work);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  cuda::Status Replay() const;

 private:
  void* instance_ = nullptr;
};

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_CLOCK_H_
