#include "emulator.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace graft {
namespace cuda {
namespace emulator {

thread_local Place place;
int32_t seeded_fault = 0;

namespace {

namespace context = boost::context;

constexpr int64_t kCanary = 256;         // bytes behind shared memory
constexpr unsigned char kPoison = 0xff;  // NaN in every floating-point type, -1 in integers
constexpr size_t kStack = 128 * 1024;

// xorshift64*: repeatable on every machine.
struct Order {
  uint64_t state = 0x9e3779b97f4a7c15;
  uint32_t Below(uint32_t n) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return static_cast<uint32_t>((state * 0x2545f4914f6cdd1d >> 32) * n >> 32);
  }
};
thread_local Order order;
thread_local uint64_t launches = 0;

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
  std::map<int32_t, Gathering> barriers;
  std::vector<std::vector<Gathering>> warps;  // gatherings of each warp that are under way
  int32_t counted = 0;                        // the last BarrierCount's answer
};

// A launch, and the one before it where that has not run yet.
struct Work {
  LaunchShape shape;
  std::function<void()> body;
  std::unique_ptr<Work> before;
};
thread_local std::unique_ptr<Work> followed;  // the last launch, where it waits for the next

struct Run {
  LaunchShape shape;
  const std::function<void()>* body = nullptr;
  Work* before = nullptr;          // runs once nobody can go on without it
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
thread_local Run* run = nullptr;

// The limits of shared memory that kernels were given, a device.
struct Limits {
  std::mutex mutex;
  std::map<std::pair<const void*, int32_t>, int64_t> shared;
  int64_t set = 0;
};
Limits& KernelLimits() {
  static Limits limits;
  return limits;
}
thread_local int32_t current_device = 0;

int64_t LimitOf(const void* kernel) {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  const auto at = limits.shared.find({kernel, current_device});
  return at == limits.shared.end() ? kSharedWithoutAsking : at->second;
}

std::string NameOf(const Thread& thread) {
  std::ostringstream text;
  text << "block (" << thread.block->index.x << ", " << thread.block->index.y << ", "
       << thread.block->index.z << ") thread " << thread.index;
  return text.str();
}

[[noreturn]] void Fail(const std::string& what) {
  throw Fault((run->current != nullptr ? NameOf(*run->current) + ": " : "") + what);
}

// Leaves the thread until something makes it ready.
void Wait(const char* what) {
  Thread* self = run->current;
  self->waits = what;
  run->scheduler = std::move(run->scheduler).resume();
  self->waits = nullptr;
}

void Release(std::vector<Thread*>& threads) {
  for (Thread* thread : threads) {
    if (thread != run->current) run->ready.push_back(thread);
  }
  threads.clear();
}

// Everybody is at the cluster's barrier.
void Complete() {
  run->arrived = 0;
  ++run->round;
  Release(run->waiting);
}

// Called when a thread has ended: barriers of the whole block wait for the living only.
void Recheck(Block* block) {
  for (auto& [id, gathering] : block->barriers) {
    if (id != 0 || gathering.threads.empty()) continue;
    if (static_cast<int32_t>(gathering.threads.size()) == block->alive) {
      block->counted = gathering.said;
      gathering.said = 0;
      Release(gathering.threads);
    }
  }
  if (run->arrived > 0 && run->arrived == run->alive) Complete();
}

void Enter(Thread* thread) {
  run->current = thread;
  place.thread = {static_cast<uint32_t>(thread->index), 0, 0};
  place.block = thread->block->index;
}

std::string Waiting() {
  std::ostringstream text;
  text << "threads wait for ones that never come:";
  int32_t listed = 0;
  for (const auto& block : run->cluster) {
    for (const Thread& thread : block->threads) {
      if (thread.ended || ++listed > 8) continue;
      text << ' ' << NameOf(thread) << " in " << (thread.waits ? thread.waits : "?") << ';';
    }
  }
  if (listed > 8) text << " and " << listed - 8 << " more";
  return text.str();
}

void Begin(Block* block, int64_t x, int64_t y, int64_t z, int32_t rank) {
  block->index = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
  block->rank = rank;
  block->memory.assign(static_cast<size_t>(run->shape.shared_bytes + 128 + kCanary), kPoison);
  const auto address = reinterpret_cast<uintptr_t>(block->memory.data());
  block->shared = reinterpret_cast<unsigned char*>((address + 127) / 128 * 128);
  block->alive = run->shape.threads;
  block->warps.resize(static_cast<size_t>((run->shape.threads + 31) / 32));
  block->threads = std::vector<Thread>(static_cast<size_t>(run->shape.threads));
  static thread_local context::pooled_fixedsize_stack stacks(kStack);
  for (int32_t i = 0; i < run->shape.threads; ++i) {
    Thread* thread = &block->threads[static_cast<size_t>(i)];
    thread->block = block;
    thread->index = i;
    thread->fiber = context::fiber(std::allocator_arg, stacks, [thread](context::fiber&& from) {
      run->scheduler = std::move(from);
      try {
        (*run->body)();
      } catch (const Fault& fault) {
        if (run->fault.empty()) run->fault = fault.what();
      }
      if (thread->owes && run->fault.empty()) {
        run->fault = NameOf(*thread) + " ended between ClusterArrive and ClusterWait";
      }
      if (run->shape.dependent && !thread->depended && run->fault.empty()) {
        run->fault = NameOf(*thread) + " of a dependent launch ended without WaitForLaunch";
      }
      thread->ended = true;
      --thread->block->alive;
      --run->alive;
      return std::move(run->scheduler);
    });
    run->ready.push_back(thread);
  }
  run->alive += run->shape.threads;
}

void CheckCanary(const Block& block) {
  const unsigned char* end = block.shared + run->shape.shared_bytes;
  const unsigned char* last = block.memory.data() + block.memory.size();
  for (const unsigned char* at = end; at < last; ++at) {
    if (*at != kPoison) {
      throw Fault("block (" + std::to_string(block.index.x) + ", " + std::to_string(block.index.y) +
                  ", " + std::to_string(block.index.z) + ") wrote " + std::to_string(at - end) +
                  " bytes behind its shared memory");
    }
  }
}

Status RunWork(Work* work);

// Runs the launch before this one, if it has not run yet.
void RunBefore() {
  Work* before = std::exchange(run->before, nullptr);
  if (before == nullptr) return;
  Run* const mine = std::exchange(run, nullptr);
  const Place here = place;
  RunWork(before);
  place = here;
  run = mine;
  Release(run->dependent);
}

void RunCluster() {
  while (!run->ready.empty()) {
    const uint32_t pick = order.Below(static_cast<uint32_t>(run->ready.size()));
    Thread* thread = run->ready[pick];
    run->ready[pick] = run->ready.back();
    run->ready.pop_back();
    Enter(thread);
    thread->fiber = std::move(thread->fiber).resume();
    run->current = nullptr;
    if (!run->fault.empty()) throw Fault(run->fault);
    if (thread->ended) Recheck(thread->block);
    if (run->ready.empty()) RunBefore();
  }
  if (run->alive > 0) throw Fault(Waiting());
  for (const auto& block : run->cluster) CheckCanary(*block);
}

// Runs one cluster after the other, in an order of its own: a walk of a stride that has no divisor
// in common.
Status RunWork(Work* work) {
  const LaunchShape& shape = work->shape;
  const int64_t clusters = shape.grid_x / shape.cluster * shape.grid_y * shape.grid_z;
  const auto divides = [&](int64_t stride) {
    int64_t a = clusters, b = stride;
    while (b != 0) std::swap(a %= b, b);
    return a != 1;
  };
  int64_t stride = 1 + order.Below(static_cast<uint32_t>(std::min<int64_t>(clusters, 1 << 20)));
  while (divides(stride)) ++stride;
  int64_t at = order.Below(static_cast<uint32_t>(std::min<int64_t>(clusters, 1 << 20)));
  for (int64_t i = 0; i < clusters; ++i, at = (at + stride) % clusters) {
    Run state;
    state.shape = shape;
    state.body = &work->body;
    state.before = work->before.get();
    run = &state;
    struct Reset {
      ~Reset() { run = nullptr; }
    } reset;
    place.threads = {static_cast<uint32_t>(shape.threads), 1, 1};
    place.blocks = {static_cast<uint32_t>(shape.grid_x), static_cast<uint32_t>(shape.grid_y),
                    static_cast<uint32_t>(shape.grid_z)};
    const int64_t across = shape.grid_x / shape.cluster;
    for (int32_t rank = 0; rank < shape.cluster; ++rank) {
      state.cluster.push_back(std::make_unique<Block>());
      Begin(state.cluster.back().get(), at % across * shape.cluster + rank,
            at / across % shape.grid_y, at / across / shape.grid_y, rank);
    }
    RunCluster();
    work->before.reset();
  }
  return kOk;
}

}  // namespace

void Seed(uint64_t seed) {
  followed.reset();  // of a test that ended between two launches
  order.state = seed * 0x9e3779b97f4a7c15 + 0xd1b54a32d192ed03;
}

uint64_t Launches() { return launches; }

Status Launch(const void* kernel, const LaunchShape& shape, const std::function<void()>& body) {
  auto work = std::make_unique<Work>();
  work->shape = shape;
  work->body = body;
  work->before = std::move(followed);
  if (!IsLegal(shape)) return kBadLaunch;
  if (work->before != nullptr && !shape.dependent) {
    throw Fault("a launch was to be followed by a dependent one, and was not");
  }
  if (shape.shared_bytes > LimitOf(kernel)) {
    throw Fault("a block asks for " + std::to_string(shape.shared_bytes) +
                " bytes of shared memory, its kernel's limit is " +
                std::to_string(LimitOf(kernel)));
  }
  ++launches;
  if (shape.followed) {
    followed = std::move(work);
    return kOk;
  }
  return RunWork(work.get());
}

void WaitForLaunch() {
  Thread* self = run->current;
  if (!run->shape.dependent) return;
  self->depended = true;
  if (run->before == nullptr) return;
  run->dependent.push_back(self);
  Wait("WaitForLaunch");
}

Status CurrentDevice(int32_t* device) {
  *device = current_device;
  return kOk;
}
void SetDevice(int32_t device) { current_device = device; }

Status LargestShared(const void*, int32_t, int64_t* bytes) {
  *bytes = DeviceLimits().shared_per_block;
  return kOk;
}

Status SetSharedLimit(const void* kernel, int64_t bytes) {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  limits.shared[{kernel, current_device}] = bytes;
  ++limits.set;
  return kOk;
}

int64_t SharedLimitsSet() {
  Limits& limits = KernelLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  return limits.set;
}

unsigned char* SharedMemory() { return run->current->block->shared; }

int32_t LaneIndex() { return run->current->index % 32; }

void Barrier(int32_t id, int32_t threads) {
  Thread* self = run->current;
  Block* block = self->block;
  if (id < 0 || id > 15) Fail("barrier " + std::to_string(id) + ", there are 0 to 15");
  if (threads % 32 != 0) Fail("a barrier of " + std::to_string(threads) + " threads");
  Gathering& gathering = block->barriers[id];
  gathering.threads.push_back(self);
  const int32_t need = threads == 0 ? block->alive : threads;
  if (static_cast<int32_t>(gathering.threads.size()) == need) return Release(gathering.threads);
  Wait(id == 0 ? "__syncthreads" : "BarrierSync");
}

int32_t BarrierCount(bool said) {
  Thread* self = run->current;
  Block* block = self->block;
  Gathering& gathering = block->barriers[0];
  gathering.threads.push_back(self);
  gathering.said += said;
  if (static_cast<int32_t>(gathering.threads.size()) == block->alive) {
    block->counted = gathering.said;
    gathering.said = 0;
    Release(gathering.threads);
  } else {
    Wait("__syncthreads_count");
  }
  return block->counted;
}

int32_t ClusterRank() { return run->current->block->rank; }
int32_t ClusterSize() { return run->shape.cluster; }

void ClusterArrive() {
  Thread* self = run->current;
  if (self->owes) Fail("ClusterArrive: the last arrival was not waited for");
  self->owes = true;
  self->round = run->round;
  if (++run->arrived == run->alive) Complete();
}

void ClusterWait() {
  Thread* self = run->current;
  if (!self->owes) Fail("ClusterWait without ClusterArrive");
  self->owes = false;
  if (self->round < run->round) return;
  run->waiting.push_back(self);
  Wait("ClusterWait");
}

void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

void* ClusterMap(void* shared, int32_t rank) {
  CheckShared("ClusterMap", shared, 0, 1);
  if (rank < 0 || rank >= run->shape.cluster) Fail("ClusterMap to block " + std::to_string(rank));
  if (rank != run->current->block->rank && run->round == 0) {
    Fail("ClusterMap to a block that may not have begun: no barrier of the cluster came before");
  }
  const Block& other = *run->cluster[static_cast<size_t>(rank)];
  return other.shared + (static_cast<unsigned char*>(shared) - run->current->block->shared);
}

void CheckShared(const char* what, const void* address, int64_t bytes, int64_t alignment) {
  const auto* at = static_cast<const unsigned char*>(address);
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0) {
    Fail(std::string(what) + ": an address is not a multiple of " + std::to_string(alignment));
  }
  for (const auto& block : run->cluster) {
    if (at >= block->shared && at + bytes <= block->shared + run->shape.shared_bytes) return;
  }
  Fail(std::string(what) + ": an address is not in shared memory");
}

void CopyAsync(void* shared, const void* global, int32_t bytes, bool valid) {
  CheckShared("cp.async", shared, bytes, bytes);
  if (reinterpret_cast<uintptr_t>(global) % static_cast<uintptr_t>(bytes) != 0) {
    Fail("cp.async: the source is not a multiple of " + std::to_string(bytes));
  }
  std::memset(shared, kPoison, static_cast<size_t>(bytes));
  run->current->copies.push_back({shared, global, bytes, valid});
}

void CopyCommit() {
  run->current->groups.push_back(std::move(run->current->copies));
  run->current->copies.clear();
}

void CopyWait(int32_t pending) {
  auto& groups = run->current->groups;
  while (static_cast<int32_t>(groups.size()) > pending) {
    for (const Copy& copy : groups.front()) {
      if (copy.valid) {
        std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      } else {
        std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
      }
    }
    groups.erase(groups.begin());
  }
}

void Meet(const char* name, uint32_t mask, const void* given,
          const std::function<void(const void* const* lanes)>& use) {
  Thread* self = run->current;
  Block* block = self->block;
  const int32_t warp = self->index / 32;
  const uint32_t lane = uint32_t{1} << self->index % 32;
  if ((mask & lane) == 0) Fail(std::string(name) + ": its own lane is not in the mask");
  const int32_t lanes_alive = std::min(32, run->shape.threads - warp * 32);
  if (lanes_alive < 32 && mask >> lanes_alive != 0) {
    Fail(std::string(name) + ": the mask names lanes that the warp does not have");
  }
  // Twice: to see what all gave, and so that none takes it away before all have used it.
  for (int32_t round = 0; round < 2; ++round) {
    auto& under_way = block->warps[static_cast<size_t>(warp)];
    Gathering* gathering = nullptr;
    for (Gathering& g : under_way) {
      if ((g.mask & mask) == 0) continue;
      if (g.mask != mask || g.name != name) {
        Fail(std::string("lanes of a warp meet in ") + name + " and " + g.name +
             ", or with different masks");
      }
      gathering = &g;
    }
    if (gathering == nullptr) {
      under_way.emplace_back();
      gathering = &under_way.back();
      gathering->name = name;
      gathering->mask = mask;
    }
    self->given = given;
    gathering->arrived |= lane;
    gathering->threads.push_back(self);
    if (gathering->arrived == mask) {
      Release(gathering->threads);
      under_way.erase(under_way.begin() + (gathering - under_way.data()));
    } else {
      Wait(name);
    }
    if (round == 1) break;
    const void* lanes[32] = {};
    for (int32_t i = 0; i < lanes_alive; ++i) {
      if ((mask >> i & 1) != 0) {
        lanes[i] = block->threads[static_cast<size_t>(warp * 32 + i)].given;
      }
    }
    use(lanes);
  }
}

}  // namespace emulator
}  // namespace cuda
}  // namespace graft
