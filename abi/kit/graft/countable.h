// What sizes a launch on a CUDA device may be planned from.
#ifndef GRAFT_KIT_COUNTABLE_H_
#define GRAFT_KIT_COUNTABLE_H_

#include <cstdint>
#include <initializer_list>

#include "graft/checked.h"

namespace graft {
namespace cuda {

// Plans of launches multiply sizes with each other, with numbers of threads, tiles and splits, and
// with bytes, in plain integers, and kernels count in 32 bits. Throws unless each of these sizes is
// a number of 31 bits, and their product, a 0 taken as 1, leaves eleven of 63 for the rest: more
// than 2^52 numbers are beyond any device.
inline void RequireCountable(const char* kernel, std::initializer_list<int64_t> sizes) {
  Size product = 1;
  for (const int64_t size : sizes) {
    Require(size >= 0 && size <= INT32_MAX, kernel, ": a size is ", size, ", needed is 0 to ",
            INT32_MAX);
    if (size > 0) product *= size;
  }
  Require(product <= int64_t{1} << 52, kernel, ": ", int64_t{product},
          " numbers are beyond any device");
}

}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KIT_COUNTABLE_H_
