// What all paths share: vectors, and the walk through memory that will be read next.
#if defined(GRAFT_PACKED_LINEAR_COMMON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_COMMON_INL_H_
#undef GRAFT_PACKED_LINEAR_COMMON_INL_H_
#else
#define GRAFT_PACKED_LINEAR_COMMON_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "linear.h"
#include "plan.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = HWY_LANES(float);

// Vectors that make a cache line.
constexpr int kLineVectors = kLanes >= kLine ? 1 : static_cast<int>(kLine / kLanes);

// The order in which to prefetch a rectangle of memory: runs of lines as stored. The CPU's own
// prefetcher then sees one long stream, whatever order the arithmetic goes in. A core has few
// places for lines on their way into its first cache; the second is filled instead.
template <int64_t kRun>  // lines of a run
class Ahead {
 public:
  // Nothing to prefetch: the line at `idle` and those after it, again and again, which costs
  // little.
  explicit Ahead(const void* idle) : at_(static_cast<const char*>(idle)) {}

  // `rows` rows of `width` floats, `stride` floats apart. The last run of a row may reach beyond
  // it.
  Ahead(const float* from, int64_t rows, int64_t width, int64_t stride)
      : at_(reinterpret_cast<const char*>(from)) {
    if (rows <= 0 || width <= 0) return;
    if (width == stride) {  // one piece
      width *= rows;
      rows = 1;
    }
    runs_ = left_ = DivideUp(width, kRun * kLine);
    rows_ = rows;
    skip_ = (stride - runs_ * kRun * kLine) * static_cast<int64_t>(sizeof(float));
  }

  bool done() const { return rows_ == 0; }

  // The first line of the next run.
  HWY_INLINE const char* Next() {
    const char* run = at_;
    if (rows_ == 0) return run;
    at_ += kRun * 64;
    if (--left_ == 0) {
      left_ = runs_;
      at_ += skip_;
      --rows_;
    }
    return run;
  }

 private:
  const char* at_;
  int64_t left_ = 0;
  int64_t runs_ = 0;
  int64_t rows_ = 0;
  int64_t skip_ = 0;
};

HWY_INLINE void Fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

// y[r][0 .. columns) += bias.
HWY_INLINE void AddBias(const float* HWY_RESTRICT bias, int64_t rows, int64_t columns,
                        float* HWY_RESTRICT y, int64_t y_stride) {
  const DF d;
  for (int64_t r = 0; r < rows; ++r) {
    float* to = y + r * y_stride;
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, bias + i)), d, to + i);
    }
    for (; i < columns; ++i) to[i] += bias[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_COMMON_INL_H_
