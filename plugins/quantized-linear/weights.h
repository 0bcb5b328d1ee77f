// Packed weights of kernels, one copy for all sessions that have the same.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_WEIGHTS_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "linear.h"

namespace graft {
namespace quantized {

// Panels and the sums of their columns. Memory is aligned to lines of the cache.
class Packed {
 public:
  Packed(const uint8_t* weight, bool is_signed, int64_t depth, int64_t columns);
  const int8_t* panels() const { return panels_.get(); }
  const int32_t* sums() const { return sums_.get(); }
  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  bool operator==(const Packed& other) const;

 private:
  friend std::shared_ptr<const Packed> Share(Packed&& made);
  struct Free {
    void operator()(void* memory) const;
  };
  int64_t depth_, columns_;
  size_t bytes_;
  std::unique_ptr<int8_t, Free> panels_;
  std::unique_ptr<int32_t[]> sums_;
};

// `made`, or what another kernel of this process holds and is equal to it. Safe from any thread.
std::shared_ptr<const Packed> Share(Packed&& made);

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_WEIGHTS_H_
