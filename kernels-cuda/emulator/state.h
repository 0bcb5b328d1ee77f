// What the emulator knows of a launch while it runs: its blocks, their threads, and who waits for
// whom. For the emulator's own sources.
#ifndef GRAFT_KERNELS_CUDA_EMULATOR_STATE_H_
#define GRAFT_KERNELS_CUDA_EMULATOR_STATE_H_

#include <boost/context/fiber.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator.h"

namespace graft {
namespace cuda {
namespace emulator {

namespace context = boost::context;

constexpr unsigned char kPoison = 0xff;  // NaN in every floating-point type, -1 in integers

struct Copy {
  void* to;
  const void* from;
  int32_t bytes;
  bool valid;
};

struct Block;

struct Thread {
  context::fiber fiber;
  Block* block = nullptr;
  int32_t index = 0;
  bool ended = false;
  bool depended = false;        // called WaitForLaunch
  bool owes = false;            // a wait, having arrived at the cluster's barrier
  int64_t round = 0;            // of that barrier, when it arrived
  const char* waits = nullptr;  // what for, where it does
  const void* given = nullptr;  // to the lanes it meets
  std::vector<Copy> copies;     // of the open group
  std::vector<std::vector<Copy>> groups;
};

// Threads that wait for each other.
struct Gathering {
  const char* name = nullptr;
  uint32_t mask = 0;
  uint32_t arrived = 0;
  std::vector<Thread*> threads;
  int32_t said = 0;
};

struct Block {
  dim3 index;
  int32_t rank = 0;  // in its cluster
  std::vector<unsigned char> memory;
  unsigned char* shared = nullptr;
  std::vector<Thread> threads;
  int32_t alive = 0;
  int64_t mapped = -1;  // the cluster's barrier after which no other block uses its memory
  std::map<int32_t, Gathering> barriers;
  std::vector<std::vector<Gathering>> warps;  // gatherings of each warp that are in flight
  int32_t counted = 0;                        // the last BarrierCount's answer
};

struct Work;

struct Run {
  LaunchShape shape;
  const std::function<void()>* body = nullptr;
  Work* before = nullptr;          // runs once no thread can continue without it
  std::vector<Thread*> dependent;  // threads that wait for it
  std::vector<std::unique_ptr<Block>> cluster;
  std::vector<Thread*> ready;
  Thread* current = nullptr;
  context::fiber scheduler;
  // The cluster's barrier: how many are there, who waits, and which round it is.
  int32_t arrived = 0;
  std::vector<Thread*> waiting;
  int64_t round = 0;
  int32_t alive = 0;
  std::string fault;
};
extern thread_local Run* run;  // of this host thread's launch, or null

// Ends the launch with a fault of the current thread.
[[noreturn]] void Fail(const std::string& what);

// "block (x, y, z) thread i".
std::string NameOf(const Thread& thread);

// Leaves the current thread until something makes it ready. `what` must outlive the wait.
void Wait(const char* what);

// Makes threads ready and empties the list.
void Release(std::vector<Thread*>& threads);

// Everybody is at the cluster's barrier.
void Complete();

// Bytes of shared memory that a launch of a kernel may ask for on the current device.
int64_t LimitOf(const void* kernel);

}  // namespace emulator
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_EMULATOR_STATE_H_
