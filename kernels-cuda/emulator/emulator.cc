// Launches: clusters one after the other, the threads of one in a random order.
#include "emulator.h"

#include <algorithm>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <exception>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "state.h"

namespace graft {
namespace cuda {
namespace emulator {

thread_local Place place;
int32_t seeded_fault = 0;
thread_local Run* run = nullptr;

// A launch, and the one before it where that has not run yet.
struct Work {
  LaunchShape shape;
  std::function<void()> body;
  std::unique_ptr<Work> before;
};

namespace {

constexpr int64_t kCanary = 256;  // bytes after shared memory
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
thread_local std::unique_ptr<Work> followed;  // the last launch, where it waits for the next

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
      if (thread->block->alive == 0 && thread->block->mapped >= run->round && run->fault.empty()) {
        run->fault = NameOf(*thread) +
                     " is its block's last to end, and other blocks may still use"
                     " its memory: no barrier of the cluster came after ClusterMap";
      }
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
                  " bytes after its shared memory");
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

}  // namespace emulator
}  // namespace cuda
}  // namespace graft
