#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "../../kernels-cuda/device/device.cuh"
#include "memory.h"

namespace graft {
namespace gpu {

namespace {

constexpr int64_t kGuard = 512;
constexpr unsigned char kPoison = 0xff;
constexpr int64_t kAligned = 256;

int64_t calls = 0;

}  // namespace

int64_t DeviceCalls() { return calls; }

#if defined(__CUDACC__)

namespace {

bool pool_arrays = true;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  DeviceLost(std::string(what) + ": " + cudaGetErrorString(error));
}

unsigned char* Pinned(int64_t bytes) {
  void* memory = nullptr;
  ++calls;
  Check(cudaMallocHost(&memory, static_cast<size_t>(bytes)), "cudaMallocHost");
  return static_cast<unsigned char*>(memory);
}
void Unpin(unsigned char* memory) {
  ++calls;
  Check(cudaFreeHost(memory), "cudaFreeHost");
}
// On the stream of the kernels, without waiting where `from` is pinned.
void EnqueueCopy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, nullptr),
        "copy to device");
}
void EnqueuePoison(void* memory, int64_t bytes) {
  Check(cudaMemsetAsync(memory, kPoison, static_cast<size_t>(bytes), nullptr), "fill with poison");
}
void Settle() {
  ++calls;
  Check(cudaDeviceSynchronize(), "wait for the device");
}

}  // namespace

void* Allocate(int64_t bytes) {
  void* memory = nullptr;
  ++calls;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  return memory;
}

void Free(void* memory) {
  ++calls;
  Check(cudaFree(memory), "cudaFree");
}

void CopyToDevice(void* to, const void* from, int64_t bytes) {
  ++calls;
  Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), "copy to device");
}

void CopyFromDevice(Trial& trial, void* to, const void* from, int64_t bytes) {
  ++calls;
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) trial.Fail(cudaGetErrorString(error));
  Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
        "copy from device");
}

#else

namespace {

bool pool_arrays = false;

void EnqueueCopy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void EnqueuePoison(void* memory, int64_t bytes) {
  std::memset(memory, kPoison, static_cast<size_t>(bytes));
}
void Settle() {}

}  // namespace

void* Allocate(int64_t bytes) {
  ++calls;
  return ::operator new (static_cast<size_t>(bytes), std::align_val_t{kAligned});
}
void Free(void* memory) {
  ++calls;
  ::operator delete (memory, std::align_val_t{kAligned});
}
void CopyToDevice(void* to, const void* from, int64_t bytes) {
  ++calls;
  EnqueueCopy(to, from, bytes);
}
void CopyFromDevice(Trial&, void* to, const void* from, int64_t bytes) {
  ++calls;
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

namespace {

unsigned char* Pinned(int64_t bytes) { return static_cast<unsigned char*>(Allocate(bytes)); }
void Unpin(unsigned char* memory) { Free(memory); }

}  // namespace

#endif

namespace {

// Fails the trial where a byte of the guard bands was written. `all`: the bands and what is
// between.
void ExpectIntact(Trial& trial, const unsigned char* all, int64_t whole, int64_t first,
                  int64_t bytes) {
  for (int64_t at = 0; at < whole; ++at) {
    if (at == first) at += bytes;
    if (at >= whole || all[at] == kPoison) continue;
    const bool before = at < first;
    return trial.Fail("a byte " + std::to_string(before ? first - at : at - first - bytes + 1) +
                      (before ? " before" : " after") + " an array was written");
  }
}

// One allocation for all arrays of a problem, and a mirror of it on the host. More of them while a
// problem needs more than there is; the next problem finds one as large as all of these.
class Pool {
 public:
  struct Place {
    unsigned char *device, *mirror;
  };

  Place Take(int64_t bytes) {
    const int64_t room = cuda::RoundUp(bytes, kAligned);
    if (areas_.empty() || areas_.back().used + room > areas_.back().size) {
      Add(std::max({room, 2 * Size(), kLeast}));
    }
    Area& area = areas_.back();
    const int64_t at = area.used;
    area.used += room;
    ++live_;
    return {area.device + at, area.mirror + at};
  }

  // An array has died, its guard bands not yet looked at.
  void Give(Trial& trial, const unsigned char* mirror, int64_t whole, int64_t first,
            int64_t bytes) {
    dead_.push_back({mirror, whole, first, bytes});
    if (--live_ > 0) return;
    for (Area& area : areas_) {
      if (area.used > 0) CopyFromDevice(trial, area.mirror, area.device, area.used);
      area.used = 0;
    }
    for (const Dead& d : dead_) ExpectIntact(trial, d.mirror, d.whole, d.first, d.bytes);
    dead_.clear();
    if (areas_.size() > 1) {
      const int64_t size = Size();
      for (const Area& area : areas_) {
        Free(area.device);
        Unpin(area.mirror);
      }
      areas_.clear();
      Add(size);
    }
  }

 private:
  struct Area {
    unsigned char *device, *mirror;
    int64_t size, used;
  };
  struct Dead {
    const unsigned char* mirror;
    int64_t whole, first, bytes;
  };
  static constexpr int64_t kLeast = int64_t{4} << 20;

  int64_t Size() const {
    int64_t size = 0;
    for (const Area& area : areas_) size += area.size;
    return size;
  }
  void Add(int64_t size) {
    areas_.push_back({static_cast<unsigned char*>(Allocate(size)), Pinned(size), size, 0});
  }

  std::vector<Area> areas_;
  std::vector<Dead> dead_;
  int64_t live_ = 0;
};

// Never destroyed: the driver may be gone by then.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void PoolArrays(bool pooled) { pool_arrays = pooled; }

Memory::Memory(Trial& trial, int64_t bytes, int64_t shift)
    : trial_(&trial),
      bytes_(bytes),
      first_(kGuard + shift),
      whole_(kGuard + shift + bytes + kGuard) {
  if (!pool_arrays) {
    memory_ = static_cast<unsigned char*>(Allocate(whole_));
  } else {
    const Pool::Place place = ThePool().Take(whole_);
    memory_ = place.device;
    mirror_ = place.mirror;
  }
  EnqueuePoison(memory_, whole_);
}

Memory::~Memory() {
  if (mirror_ != nullptr) {
    ThePool().Give(*trial_, mirror_, whole_, first_, bytes_);
    return;
  }
  std::vector<unsigned char> all(static_cast<size_t>(whole_));
  CopyFromDevice(*trial_, all.data(), memory_, whole_);
  ExpectIntact(*trial_, all.data(), whole_, first_, bytes_);
  Free(memory_);
}

void Memory::Write(const void* from) {
  if (bytes_ == 0) return;
  if (mirror_ == nullptr) return CopyToDevice(data(), from, bytes_);
  if (written_) Settle();  // a copy from the mirror may still be in flight
  written_ = true;
  std::memcpy(mirror_ + first_, from, static_cast<size_t>(bytes_));
  EnqueueCopy(data(), mirror_ + first_, bytes_);
}

void Memory::Read(void* to) const {
  std::vector<unsigned char> own;
  unsigned char* all = mirror_;
  if (all == nullptr) {
    own.resize(static_cast<size_t>(whole_));
    all = own.data();
  }
  CopyFromDevice(*trial_, all, memory_, whole_);
  ExpectIntact(*trial_, all, whole_, first_, bytes_);
  if (bytes_ > 0) std::memcpy(to, all + first_, static_cast<size_t>(bytes_));
}

}  // namespace gpu
}  // namespace graft
