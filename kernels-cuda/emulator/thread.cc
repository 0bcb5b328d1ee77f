// What a thread of a kernel may do: barriers, clusters, copies, and meeting the lanes of its warp.
#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "state.h"

namespace graft {
namespace cuda {
namespace emulator {

std::string NameOf(const Thread& thread) {
  std::ostringstream text;
  text << "block (" << thread.block->index.x << ", " << thread.block->index.y << ", "
       << thread.block->index.z << ") thread " << thread.index;
  return text.str();
}

[[noreturn]] void Fail(const std::string& what) {
  throw Fault((run->current != nullptr ? NameOf(*run->current) + ": " : "") + what);
}

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

void Complete() {
  run->arrived = 0;
  ++run->round;
  Release(run->waiting);
}

void WaitForLaunch() {
  Thread* self = run->current;
  if (!run->shape.dependent) return;
  self->depended = true;
  if (run->before == nullptr) return;
  run->dependent.push_back(self);
  Wait("WaitForLaunch");
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
  Block& other = *run->cluster[static_cast<size_t>(rank)];
  if (rank != run->current->block->rank) {
    if (other.alive == 0) Fail("ClusterMap to a block that has ended, and its memory with it");
    // What a thread does between arriving at a barrier and waiting there, that barrier says
    // nothing of.
    other.mapped =
        std::max(other.mapped, run->current->owes ? run->current->round + 1 : run->round);
  }
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
    auto& in_flight = block->warps[static_cast<size_t>(warp)];
    Gathering* gathering = nullptr;
    for (Gathering& g : in_flight) {
      if ((g.mask & mask) == 0) continue;
      if (g.mask != mask || g.name != name) {
        Fail(std::string("lanes of a warp meet in ") + name + " and " + g.name +
             ", or with different masks");
      }
      gathering = &g;
    }
    if (gathering == nullptr) {
      in_flight.emplace_back();
      gathering = &in_flight.back();
      gathering->name = name;
      gathering->mask = mask;
    }
    self->given = given;
    gathering->arrived |= lane;
    gathering->threads.push_back(self);
    if (gathering->arrived == mask) {
      Release(gathering->threads);
      in_flight.erase(in_flight.begin() + (gathering - in_flight.data()));
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
