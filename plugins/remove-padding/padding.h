// RemovePadding: which rows of a batch an attention mask retains. RestorePadding: rows that were
// kept, back in their places.
#ifndef GRAFT_PLUGINS_REMOVE_PADDING_PADDING_H_
#define GRAFT_PLUGINS_REMOVE_PADDING_PADDING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "graft.h"

namespace graft {
namespace padding {

// What a mask says of one position.
enum class Says : uint8_t { kHidden = 0, kVisible = 1, kNothing = 2 };

// Numbers of a mask of each type. The bytes of a bool are numbers too: 0 and 1.
inline double NumberOf(uint8_t value) { return value; }
inline double NumberOf(int32_t value) { return value; }
inline double NumberOf(int64_t value) { return static_cast<double>(value); }
inline double NumberOf(float value) { return value; }
inline double NumberOf(Float16 value) { return value.ToFloat(); }

// What is at most this, added to a score, hides its key.
constexpr double kLeastHidden = -1e4;

template <typename T>
Says Meaning(T element, bool additive) {
  const double value = NumberOf(element);
  if (additive) {
    return value == 0.0 ? Says::kVisible : value <= kLeastHidden ? Says::kHidden : Says::kNothing;
  }
  return value == 0.0 ? Says::kHidden : value == 1.0 ? Says::kVisible : Says::kNothing;
}

class RemovePadding {
 public:
  static Operator Describe() {
    return Operator("RemovePadding", "which rows of a batch an attention mask retains")
        .TypeVariable("M", {kBool, kInt32, kInt64, kFloat32, kFloat16})
        .Input("mask", "M")
        .VariadicInput("like",
                       {kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kInt16, kInt8,
                        kUInt64, kUInt32, kUInt16, kUInt8, kBool},
                       0)
        .Output("keep", kBool)
        .Output("offsets", kInt32)
        .Output("first", kInt32)
        .OptionalOutput("hidden", kBool)
        .Int("additive", 0)
        .Int("keep_first", 0)
        .Int("keep_last", 0)
        .Int("keep_whole", 0)
        .Int("keep_empty", 0);
  }

  explicit RemovePadding(const CreateContext& context)
      : additive_(context.Int("additive") != 0),
        keep_first_(context.Int("keep_first") != 0),
        keep_last_(context.Int("keep_last") != 0),
        keep_whole_(context.Int("keep_whole") != 0),
        keep_empty_(context.Int("keep_empty") != 0) {}

  void Infer(InferContext& context) const {
    Require(context.InputRank(0) == 2, "RemovePadding: mask has rank ", context.InputRank(0),
            ", needed is 2: rows of the batch, and their positions");
    const Dim batch = context.InputDim(0, 0), positions = context.InputDim(0, 1);
    // What rows are taken of has as many as the mask: else they would be others'.
    for (uint64_t i = 1; i < context.num_inputs(); ++i) {
      Require(context.InputRank(i) >= 2 && Fits(context.InputDim(i, 0), batch) &&
                  Fits(context.InputDim(i, 1), positions),
              "RemovePadding: input ", i, " is of ", context.InputDim(i, 0).value(), " x ",
              context.InputDim(i, 1).value(), " tokens, needed are those of the mask, ",
              batch.value(), " x ", positions.value());
    }
    context.SetOutput(kKeep, kBool, {batch, positions});
    context.SetOutput(kOffsets, kInt32, {batch + Dim(1)});
    context.SetOutput(kFirst, kInt32, {batch});
    context.SetOutput(kHidden, kBool, {batch, positions});
  }

  void Run(const RunContext& context) const {
    const Tensor mask = context.inputs[0];
    Require(mask.elements() <= std::numeric_limits<int32_t>::max(), "RemovePadding: mask has ",
            mask.elements(), " elements, needed are at most ", std::numeric_limits<int32_t>::max());
    if (mask.type() == kBool) return Run(context, static_cast<const uint8_t*>(mask.raw()));
    if (mask.type() == kInt32) return Run(context, mask.data<int32_t>());
    if (mask.type() == kInt64) return Run(context, mask.data<int64_t>());
    if (mask.type() == kFloat32) return Run(context, mask.data<float>());
    Run(context, mask.data<Float16>());
  }

 private:
  enum OutputIndex : uint64_t { kKeep, kOffsets, kFirst, kHidden };

  template <typename T>
  void Run(const RunContext& context, const T* mask) const {
    const int64_t batch = context.inputs[0].dim(0), positions = context.inputs[0].dim(1);
    auto* keep = static_cast<uint8_t*>(context.outputs[kKeep].raw());
    auto* offsets = context.outputs[kOffsets].data<int32_t>();
    auto* firsts = context.outputs[kFirst].data<int32_t>();
    const MutableTensor hidden = context.outputs[kHidden];
    int32_t kept = 0;
    offsets[0] = 0;
    for (int64_t b = 0; b < batch; ++b, mask += positions, keep += positions) {
      CheckRow(b, positions, mask);
      int64_t first = 0, end = positions;
      while (first < positions && !Visible(mask[first])) ++first;
      if (first == positions) {
        first = end = 0;
        if (keep_empty_) {
          // What such a row sees follows from the mask's own numbers.
          Require(!additive_ || positions == 0, "RemovePadding: row ", b,
                  " of mask shows no token, needed is one where the mask is added to scores");
          end = positions;
        } else if (keep_first_ || keep_last_) {
          first = keep_first_ ? 0 : positions - 1;
          end = keep_last_ ? positions : 1;
          // Without positions there is neither a first nor a last one.
          if (positions == 0) first = end = 0;
        }
      } else {
        while (!Visible(mask[end - 1])) --end;
        if (keep_whole_ && ((keep_first_ && first > 0) || (keep_last_ && end < positions))) {
          first = 0;
          end = positions;
        }
        if (keep_first_) first = 0;
        if (keep_last_) end = positions;
      }
      std::memset(keep, 0, static_cast<size_t>(first));
      std::memset(keep + first, 1, static_cast<size_t>(end - first));
      std::memset(keep + end, 0, static_cast<size_t>(positions - end));
      kept += static_cast<int32_t>(end - first);
      offsets[b + 1] = kept;
      firsts[b] = end > first ? static_cast<int32_t>(first) : 0;
      if (hidden.present()) {
        auto* to = static_cast<uint8_t*>(hidden.raw()) + b * positions;
        for (int64_t s = 0; s < positions; ++s) to[s] = Visible(mask[s]) ? 0 : 1;
      }
    }
  }

  template <typename T>
  bool Visible(T element) const {
    return Meaning(element, additive_) == Says::kVisible;
  }

  // All elements at once: only where one says nothing it is looked for.
  template <typename T>
  void CheckRow(int64_t b, int64_t positions, const T* mask) const {
    uint8_t all = 0;
    for (int64_t s = 0; s < positions; ++s) {
      all |= static_cast<uint8_t>(Meaning(mask[s], additive_));
    }
    if (all < static_cast<uint8_t>(Says::kNothing)) return;
    int64_t s = 0;
    while (Meaning(mask[s], additive_) != Says::kNothing) ++s;
    const char* needed = additive_
                             ? "0 where a token is visible, and at most -10000 where it is hidden"
                             : "1 where a token is visible, and 0 where it is hidden";
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT,
                Text("RemovePadding: element [", b, ", ", s, "] of mask is ", NumberOf(mask[s]),
                     ", needed is ", needed));
  }

  bool additive_, keep_first_, keep_last_, keep_whole_, keep_empty_;
};

class RestorePadding {
 public:
  static Operator Describe() {
    return Operator("RestorePadding", "rows that were kept, in their places, and zeros elsewhere")
        .TypeVariable("T", {kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kInt16, kInt8,
                            kUInt64, kUInt32, kUInt16, kUInt8, kBool})
        .TypeVariable("M", {kBool, kInt32, kInt64, kFloat32, kFloat16})
        .Input("packed", "T")
        .Input("rows", kInt64)
        .Input("like", "M")
        .OptionalInput("hidden", kBool)
        .Output("output", "T");
  }

  explicit RestorePadding(const CreateContext&) {}

  void Infer(InferContext& context) const {
    const int32_t rank = context.InputRank(kPacked);
    Require(rank >= 2, "RestorePadding: packed has rank ", rank, ", needed is 2 or more");
    Require(Fits(context.InputDim(kPacked, 0), Dim(1)), "RestorePadding: axis 0 of packed is ",
            context.InputDim(kPacked, 0).value(), ", needed is 1");
    const int32_t rows_rank = context.InputRank(kRows);
    Require(rows_rank == 1 || rows_rank == 2, "RestorePadding: rows has rank ", rows_rank,
            ", needed is 1 or 2");
    Require(rows_rank == 1 || Fits(context.InputDim(kRows, 0), Dim(1)),
            "RestorePadding: axis 0 of rows is ", context.InputDim(kRows, 0).value(),
            ", needed is 1");
    Require(Fits(context.InputDim(kRows, -1), context.InputDim(kPacked, 1)),
            "RestorePadding: rows has ", context.InputDim(kRows, -1).value(),
            " elements, needed is one a row of packed, ", context.InputDim(kPacked, 1).value());
    Require(context.InputRank(kLike) == 2, "RestorePadding: like has rank ",
            context.InputRank(kLike), ", needed is 2: rows of the batch, and their positions");
    if (context.HasInput(kHidden)) {
      Require(context.InputRank(kHidden) >= 1 &&
                  Fits(context.InputDim(kHidden, -1), context.InputDim(kPacked, 1)),
              "RestorePadding: hidden has ", context.InputDim(kHidden, -1).value(),
              " elements, needed is one a row of packed, ", context.InputDim(kPacked, 1).value());
    }
    Dim dims[GRAFT_MAX_RANK] = {context.InputDim(kLike, 0), context.InputDim(kLike, 1)};
    for (int32_t i = 2; i < rank; ++i) dims[i] = context.InputDim(kPacked, i);
    context.SetOutput(0, context.InputType(kPacked), dims, rank);
  }

  void Run(const RunContext& context) const {
    const Tensor packed = context.inputs[kPacked], like = context.inputs[kLike];
    const MutableTensor output = context.outputs[0];
    const int64_t count = packed.dim(1);
    const int64_t places = Size(like.dim(0)) * like.dim(1);
    const int64_t* rows = context.inputs[kRows].data<int64_t>();
    CheckRows(rows, count, places);
    const bool* hidden = nullptr;
    if (const Tensor flags = context.inputs[kHidden]; flags.present()) {
      Require(flags.elements() == count, "RestorePadding: hidden has ", flags.elements(),
              " elements, needed is one a row of packed, ", count);
      hidden = flags.data<bool>();
    }
    if (output.elements() == 0) return;
    const int64_t bytes = Size(ElementsOf(packed.shape() + 2, packed.rank() - 2)) *
                          static_cast<int64_t>(BytesOf(packed.type()));
    const char* from = static_cast<const char*>(packed.raw());
    char* to = static_cast<char*>(output.raw());
    // A task writes some rows of the output, whatever stands in them: some microseconds of copying.
    const int64_t share = std::max<int64_t>(1, kTaskBytes / bytes);
    context.ParallelFor(static_cast<uint64_t>((places + share - 1) / share), [&](uint64_t task) {
      int64_t place = static_cast<int64_t>(task) * share;
      const int64_t end = std::min(places, place + share);
      int64_t row = std::lower_bound(rows, rows + count, place) - rows;
      while (place < end) {
        const int64_t next = row < count ? std::min(rows[row], end) : end;
        std::memset(to + place * bytes, 0, static_cast<size_t>((next - place) * bytes));
        place = next;
        int64_t run = 0;  // rows that stand next to each other in both
        while (place + run < end && row + run < count && rows[row + run] == place + run) ++run;
        std::memcpy(to + place * bytes, from + row * bytes, static_cast<size_t>(run * bytes));
        for (int64_t i = 0; hidden != nullptr && i < run; ++i) {
          if (hidden[row + i]) {
            std::memset(to + (place + i) * bytes, 0, static_cast<size_t>(bytes));
          }
        }
        place += run;
        row += run;
      }
    });
  }

 private:
  enum InputIndex : uint64_t { kPacked, kRows, kLike, kHidden };
  static constexpr int64_t kTaskBytes = 128 << 10;

  // All rows at once: only where one is wrong it is looked for.
  static void CheckRows(const int64_t* rows, int64_t count, int64_t places) {
    bool wrong = count > 0 && (rows[0] < 0 || rows[count - 1] >= places);
    for (int64_t i = 1; i < count; ++i) wrong |= rows[i] <= rows[i - 1];
    if (!wrong) return;
    int64_t i = 0, least = 0;
    while (rows[i] >= least && rows[i] < places) least = rows[i++] + 1;
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT,
                Text("RestorePadding: element ", i, " of rows is ", rows[i], ", needed is ", least,
                     " to ", places - 1, ": places in ascending order"));
  }
};

}  // namespace padding
}  // namespace graft

#endif  // GRAFT_PLUGINS_REMOVE_PADDING_PADDING_H_
