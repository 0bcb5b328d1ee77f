// A plugin with faults of the kinds that graft bisect looks for: one operator each, and a right
// one.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <stdexcept>

#include "graft.h"

namespace {

template <class Self>
class Unary {
 public:
  static graft::Operator Describe() {
    return graft::Operator(Self::kName, "a test's")
        .Input("x", {graft::kFloat32})
        .Output("y", {graft::kFloat32});
  }
  explicit Unary(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    const graft::MutableTensor y = context.outputs[0];
    Self::Before();
    for (int64_t i = 0; i < x.elements(); ++i) y.data<float>()[i] = Self::Of(x.data<float>()[i], x);
  }
  static void Before() {}
};

struct Right : Unary<Right> {
  static constexpr const char* kName = "Right";
  using Unary::Unary;
  static float Of(float x, const graft::Tensor&) { return x > 0 ? x : 0; }
};

// Wrong where there are more than four rows.
struct WrongWhenTall : Unary<WrongWhenTall> {
  static constexpr const char* kName = "WrongWhenTall";
  using Unary::Unary;
  static float Of(float x, const graft::Tensor& t) {
    return std::fabs(x) + (t.dim(0) > 4 ? 0.25f : 0);
  }
};

// Wrong where there are two in one session.
struct WrongInPairs : Unary<WrongInPairs> {
  static constexpr const char* kName = "WrongInPairs";
  explicit WrongInPairs(const graft::CreateContext& context) : Unary(context) { ++live; }
  ~WrongInPairs() { --live; }
  static float Of(float x, const graft::Tensor&) { return -x + (live > 1 ? 0.25f : 0); }
  static inline std::atomic<int> live{0};
};

struct Sleeps : Unary<Sleeps> {
  static constexpr const char* kName = "Sleeps";
  using Unary::Unary;
  static void Before() { usleep(10000); }
  static float Of(float x, const graft::Tensor&) { return std::sin(x); }
};

struct Crashes : Unary<Crashes> {
  static constexpr const char* kName = "Crashes";
  using Unary::Unary;
  static float Of(float x, const graft::Tensor&) {
    volatile float* nowhere = nullptr;
    return x + *nowhere;
  }
};

struct Refuses : Unary<Refuses> {
  static constexpr const char* kName = "Refuses";
  using Unary::Unary;
  static float Of(float, const graft::Tensor&) {
    throw std::runtime_error("the test's operator gives up");
  }
};

struct Hangs : Unary<Hangs> {
  static constexpr const char* kName = "Hangs";
  using Unary::Unary;
  static void Before() {
    for (;;) pause();
  }
  static float Of(float x, const graft::Tensor&) { return x; }
};

}  // namespace

GRAFT_PLUGIN(Right, WrongWhenTall, WrongInPairs, Sleeps, Crashes, Refuses, Hangs);
