#include "weights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "graft/checked.h"

namespace graft {
namespace quantized {
namespace {

constexpr size_t kAlignment = 64;

int8_t* Allocate(size_t bytes) {
  const size_t whole = RoundUp(Size(std::max<size_t>(bytes, 1)), kAlignment).To<size_t>();
  void* memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<int8_t*>(memory);
}

// FNV-1a (Fowler, Noll and Vo) over words: what is equal is compared in full.
uint64_t Hash(const int8_t* bytes, size_t count) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes + i, sizeof word);
    hash = (hash ^ word) * 1099511628211u;
  }
  return hash;
}

}  // namespace

void Packed::Free::operator()(void* memory) const { std::free(memory); }

Packed::Packed(const uint8_t* weight, bool is_signed, int64_t depth, int64_t columns)
    : depth_(depth),
      columns_(columns),
      bytes_(PackedBytes(depth, columns)),
      panels_(Allocate(bytes_)),
      sums_(new int32_t[static_cast<size_t>(PackedColumns(columns))]) {
  Pack(weight, is_signed, depth, columns, panels_.get(), sums_.get());
}

// Sums follow from panels.
bool Packed::operator==(const Packed& other) const {
  return depth_ == other.depth_ && columns_ == other.columns_ &&
         std::memcmp(panels_.get(), other.panels_.get(), bytes_) == 0;
}

std::shared_ptr<const Packed> Share(Packed&& made) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_multimap<uint64_t, std::weak_ptr<const Packed>>;
  const uint64_t hash = Hash(made.panels(), made.bytes_);
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto [at, end] = known.equal_range(hash); at != end;) {
    if (auto held = at->second.lock(); held == nullptr) {
      at = known.erase(at);
    } else if (*held == made) {
      return held;
    } else {
      ++at;
    }
  }
  auto held = std::make_shared<const Packed>(std::move(made));
  known.emplace(hash, held);
  return held;
}

}  // namespace quantized
}  // namespace graft
