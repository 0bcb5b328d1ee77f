// The scanner, compiled once for each instruction set.
#include "scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scan.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "scan-inl.h"

#if HWY_ONCE
namespace graft {
namespace ngram {

const Scanner* FindScanner(Isa isa) {
  static const Kernels<Scanner> scanners = GRAFT_KERNELS(kScanner);
  return scanners.Find(isa);
}

}  // namespace ngram
}  // namespace graft
#endif  // HWY_ONCE
