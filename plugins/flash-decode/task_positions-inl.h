// Keys and values of one task: from past and new ones to rows of floats, and on to present.
#if defined(GRAFT_FLASH_DECODE_TASK_POSITIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_FLASH_DECODE_TASK_POSITIONS_INL_H_
#undef GRAFT_FLASH_DECODE_TASK_POSITIONS_INL_H_
#else
#define GRAFT_FLASH_DECODE_TASK_POSITIONS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "attention.h"
#include "hwy/highway.h"
#include "memory-inl.h"
#include "plan.h"
#include "rows-inl.h"
#include "task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace attention {
namespace HWY_NAMESPACE {

// Reads the keys and values of the current task's range, past and new ones, and copies them to
// present.
class TaskPositions : public Task {
 protected:
  using Task::Task;

  // The end of the tile that begins at j: no tile holds keys of both past and fresh.
  int64_t TileEnd(int64_t j, int64_t end) const {
    const int64_t stop = std::min(j + plan_.tile, end);
    return j < problem_.past ? std::min(stop, problem_.past) : stop;
  }

  // Positions j .. j+count-1 as rows of floats: of past or of fresh, where they lie if they are
  // floats in full vectors, else through `scratch`, with `stride` floats a row.
  Rows RowsOf(const Input& past, const Input& fresh, int64_t j, int64_t count, int64_t size,
              int64_t stride, bool gather, float* scratch) const {
    const bool old = j < problem_.past;
    const Input& input = old ? past : fresh;
    const char* from = At(input, g_, old ? j : j - problem_.past);
    const Strides& s = input.strides;
    if (!gather && InPlace(input, size)) {
      return {from, s.position, problem_.type == Type::kFloat16};
    }
    for (int64_t k = 0; k < count; ++k) {
      LoadRow(problem_.type, from + k * s.position * element_, s.feature, size, stride, 1.0f,
              scratch + k * stride);
    }
    return {scratch, stride, false};
  }
  // Whether rows can be read where they lie.
  bool InPlace(const Input& input, int64_t size) const {
    return size % kLanes == 0 && input.strides.feature == 1 &&
           (problem_.type == Type::kFloat32 || GRAFT_HALF_IN_HARDWARE);
  }

  // Loads one word of each cache line of a tile that comes from memory. The matmuls load from many
  // instructions, each in strides of several rows, which no prefetcher follows past a page; this
  // one instruction it follows. Prefetch instructions, measured, make things worse.
  void Fetch(const Input& past, const Input& fresh, int64_t j, int64_t count, int64_t size) const {
    const Input& input = j < problem_.past ? past : fresh;
    if (!plan_.fetched || !InPlace(input, size)) return;
    const char* row = At(input, g_, j < problem_.past ? j : j - problem_.past);
    int64_t bytes = size * element_;
    const int64_t stride = input.strides.position * element_;
    if (stride == bytes) {
      bytes *= count;
      count = 1;
    }
    for (; count > 0; --count, row += stride) {
#pragma GCC unroll 1
      for (int64_t i = 0; i < bytes; i += 64) {
        (void)*reinterpret_cast<const volatile uint8_t*>(row + i);
      }
    }
  }

  Rows Keys(int64_t j, int64_t count, bool gather) const {
    return RowsOf(problem_.past_key, problem_.key, j, count, problem_.head_size, plan_.key_stride,
                  gather, key_rows_);
  }
  Rows Values(int64_t j, int64_t count, bool gather) const {
    return RowsOf(problem_.past_value, problem_.value, j, count, problem_.value_size,
                  plan_.value_stride, gather, value_rows_);
  }

  // Values for weights that are known. A value whose key no row gives any weight may hold anything:
  // zeros stand in for it.
  Rows WeightedValues(int64_t j, int64_t count, bool gather, const float* weights,
                      int64_t weight_stride) {
    if (!masks_) return Values(j, count, gather);
    int64_t unused = 0;
    for (int64_t k = 0; k < count; ++k) {
      bool used = false;
      for (int64_t r = 0; r < rows_ && !used; ++r) used = weights[r * weight_stride + k] != 0.0f;
      unused_[k] = !used;
      unused += used ? 0 : 1;
    }
    if (unused == 0) return Values(j, count, gather);
    const Rows rows = Values(j, count, true);
    for (int64_t k = 0; k < count; ++k) {
      if (!unused_[k]) continue;
      std::memset(value_rows_ + k * plan_.value_stride, 0,
                  static_cast<size_t>(plan_.value_stride) * sizeof(float));
    }
    return rows;
  }

  // Where the rows of present go while they are read, or nowhere when they must be copied
  // afterwards: rows that are gathered, no whole vectors of keys, or a target that is not made of
  // full lines.
  CopyTarget Passing(const Output& present, Rows rows, const float* gathered, int64_t j,
                     int64_t count, int64_t size) const {
    CopyTarget none{nullptr, 0};
    if (!copies_ || !plan_.streamed || present.data == nullptr) return none;
    if (rows.first == gathered || count % kLanes != 0) return none;
    char* to = At(present, g_, j);
    const int64_t stride = present.strides.position;
    const bool lines = reinterpret_cast<uintptr_t>(to) % 64 == 0 && stride * element_ % 64 == 0 &&
                       size * element_ % 64 == 0;
    if (!lines || to == rows.first) return none;
    return {to, stride};
  }

  void CopyKeys(int64_t begin, int64_t end) {
    CopyPositions(problem_.past_key, problem_.key, problem_.present_key, problem_.head_size, begin,
                  end);
  }
  void CopyValues(int64_t begin, int64_t end) {
    CopyPositions(problem_.past_value, problem_.value, problem_.present_value, problem_.value_size,
                  begin, end);
  }

  // Writes positions begin .. end-1 of present.
  void CopyPositions(const Input& past, const Input& fresh, const Output& present, int64_t size,
                     int64_t begin, int64_t end) const {
    if (present.data == nullptr || !copies_) return;
    const int64_t old_end = std::min(end, problem_.past);
    if (begin < old_end && past.data != present.data) {
      CopyRows(past, begin, old_end - begin, size, present, begin);
    }
    const int64_t first = std::max(begin, problem_.past);
    if (first < end) CopyRows(fresh, first - problem_.past, end - first, size, present, first);
  }

  void CopyRows(const Input& input, int64_t from, int64_t count, int64_t size,
                const Output& present, int64_t to) const {
    const Strides& s = input.strides;
    if (s.feature == 1 && s.position == size && present.strides.position == size) {
      CopyBytes(At(input, g_, from), At(present, g_, to),
                static_cast<size_t>(count * size * element_), plan_.streamed);
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      CopyRow(element_, At(input, g_, from + j), s.feature, size, At(present, g_, to + j));
    }
  }

 private:
  bool unused_[kMaxTile];  // keys of a tile that no row gives any weight
};

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_FLASH_DECODE_TASK_POSITIONS_INL_H_
