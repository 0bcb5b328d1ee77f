// Keys and values on their way from the cache to a warp: each warp has a ring of stages in shared
// memory of its own and waits for no other warp.
#ifndef GRAFT_KERNELS_CUDA_FLASH_DECODE_STAGE_CUH_
#define GRAFT_KERNELS_CUDA_FLASH_DECODE_STAGE_CUH_

#include "../device/async_copy.cuh"
#include "tile.cuh"

namespace graft {
namespace cuda {
namespace flash_decode {

// Begins to copy one row a lane (of the first kKeys) to rows of shared memory `stride` numbers
// apart; a null row, and what a row lacks to whole runs of 16 numbers, becomes zeros.
template <typename T, int32_t kKeys>
GRAFT_DEVICE void CopyRows(T* to, int32_t stride, const T* row, int32_t size,
                           const void* somewhere) {
  constexpr int32_t kWords = kVector<T>;
  const int32_t words = (size + 15) / 16 * (16 / kWords);  // of 16 bytes, a row
  // i / words without a division: exact, because i is below 1,024 and words at most 64.
  const int32_t inverse = 65536 / words + 1;
  for (int32_t i = Lane(); i < kKeys * words; i += kWarp) {
    const int32_t r = i * inverse >> 16;
    const int32_t at = (i - r * words) * kWords;
    const auto address = __shfl_sync(
        kAllLanes, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(row)), r);
    const T* from = reinterpret_cast<const T*>(static_cast<uintptr_t>(address));
    const bool valid = from != nullptr && at < size;
    CopyAsync<16>(to + r * stride + at, valid ? static_cast<const void*>(from + at) : somewhere,
                  valid);
  }
}

// One warp's way through its part of the stream.
template <typename T, int32_t kKeys>
class Ring {
 public:
  // This warp's keys are runs of kKeys, every kWarps-th from `begin` on, before `end`.
  GRAFT_DEVICE Ring(const Problem& p, const Tile& tile, const Cut& cut, int32_t kv_head, T* memory,
                    int32_t begin, int32_t end)
      : p_(p),
        tile_(tile),
        cut_(cut),
        kv_head_(kv_head),
        memory_(memory),
        next_(begin + WarpIndex() * kKeys),
        end_(end),
        now_(next_) {
    Seek();
    for (int32_t i = 0; i < cut.stages - 1; ++i) Fetch();
  }

  // Waits for the next keys; false at the end. What stood in the stage before it is given up.
  GRAFT_DEVICE bool Next() {
    if (now_ >= end_) {
      if (Seeded(2) && WarpIndex() == 0) Linger();
      CopyWait<0>();
      return false;
    }
    if (cut_.stages == 2) {
      CopyWait<0>();
    } else if (cut_.stages == 3) {
      CopyWait<1>();
    } else {
      CopyWait<2>();
    }
    // All lanes' copies are there, and all lanes are done with the stage to fill.
    if (!Seeded(1)) __syncwarp();
    index = now_;
    keys = memory_ + read_ * StageSize();
    values = keys + kKeys * cut_.key_stride;
    there = static_cast<uint32_t>(known_ >> (read_ * 16)) & 0xffffu;
    now_ += kWarps * kKeys;
    read_ = read_ + 1 == cut_.stages ? 0 : read_ + 1;
    Fetch();
    return true;
  }

  int32_t index = 0;    // in the stream, of the first key
  T* keys = nullptr;    // [kKeys][key_stride]
  T* values = nullptr;  // [kKeys][value_stride]
  uint32_t there = 0;   // a bit a key: it exists

 private:
  GRAFT_DEVICE int32_t StageSize() const { return kKeys * (cut_.key_stride + cut_.value_stride); }

  // Finds the keys to fetch next, a lane each. This goes ahead of their copies by a turn: where
  // lists say which slots they are, no warp waits for the lists.
  GRAFT_DEVICE void Seek() {
    found_ = {nullptr, nullptr};
    const int32_t mine = next_ + Lane();
    if (Lane() < kKeys && mine < end_) found_ = Find<T>(p_, tile_, KeyAt(tile_, mine), kv_head_);
  }

  GRAFT_DEVICE void Fetch() {
    if (next_ < end_) {
      const uint64_t bits = __ballot_sync(kAllLanes, found_.key != nullptr);
      known_ = (known_ & ~(uint64_t{0xffff} << (write_ * 16))) | bits << (write_ * 16);
      T* stage = memory_ + write_ * StageSize();
      const void* somewhere = p_.key.data != nullptr ? p_.key.data : p_.fresh_key.data;
      CopyRows<T, kKeys>(stage, cut_.key_stride, found_.key, static_cast<int32_t>(p_.head_size),
                         somewhere);
      CopyRows<T, kKeys>(stage + kKeys * cut_.key_stride, cut_.value_stride, found_.value,
                         static_cast<int32_t>(p_.value_size), somewhere);
      next_ += kWarps * kKeys;
      write_ = write_ + 1 == cut_.stages ? 0 : write_ + 1;
      Seek();
    }
    CopyCommit();  // an empty group preserves the count of groups in flight
  }

  const Problem& p_;
  const Tile& tile_;
  const Cut& cut_;
  const int32_t kv_head_;
  T* const memory_;
  int32_t next_;
  const int32_t end_;
  int32_t now_;
  int32_t read_ = 0, write_ = 0;
  Found<T> found_;
  uint64_t known_ = 0;  // `there` of each stage
};

}  // namespace flash_decode
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_FLASH_DECODE_STAGE_CUH_
