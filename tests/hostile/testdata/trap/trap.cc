// A plugin whose operators misbehave, one way each; macros make the library itself misbehave.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "graft.h"

#ifdef CRASH_IN_CONSTRUCTOR
static int* volatile nowhere;
__attribute__((constructor)) static void Crash() { *nowhere = 1; }
#endif
#ifdef HANG_IN_CONSTRUCTOR
#include <unistd.h>

__attribute__((constructor)) static void Hang() {
  if (getenv("TRAP_SPEAKS")) std::fputs("the trap hangs\n", stderr);
  for (;;) pause();
}
#endif
#ifdef ESCAPE_IN_CONSTRUCTOR
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
// What it tries is in the variable TRAP.
__attribute__((constructor)) static void Escape() {
  const char* way = getenv("TRAP");
  if (!way) return;
  if (strcmp(way, "signal") == 0) kill(getppid(), SIGKILL);
  if (strcmp(way, "stop") == 0) raise(SIGSTOP);
  if (strcmp(way, "daemon") == 0 && fork() == 0) {
    setsid();
    if (fork() == 0) {
      for (;;) pause();
    }
    _exit(0);
  }
}
#endif
#ifdef IGNORE_SIGNALS
#include <signal.h>
__attribute__((constructor)) static void Ignore() {
  for (int s : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) signal(s, SIG_IGN);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}
#endif

namespace {

template <class Self>
class Unary {
 public:
  static graft::Operator Describe() {
    return graft::Operator(Self::kName, "a trap")
        .Input("x", {graft::kFloat32})
        .Output("y", {graft::kFloat32});
  }
  explicit Unary(const graft::CreateContext&) {}
  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }
  void Run(const graft::RunContext& context) const {
    const graft::Tensor x = context.inputs[0];
    const graft::MutableTensor y = context.outputs[0];
    for (int64_t i = 0; i < x.elements(); ++i) y.data<float>()[i] = Self::Of(x.data<float>()[i]);
  }
};

struct RefuseCreate : Unary<RefuseCreate> {
  static constexpr const char* kName = "RefuseCreate";
  explicit RefuseCreate(const graft::CreateContext& context) : Unary(context) {
#ifdef HANG_IN_CREATE
    for (volatile bool hang = true; hang;) {
    }
#endif
    throw std::runtime_error("the trap makes no kernels");
  }
  static float Of(float x) { return x; }
};

struct FailRun : Unary<FailRun> {
  static constexpr const char* kName = "FailRun";
  using Unary::Unary;
  static float Of(float) { throw std::runtime_error("the trap cannot run"); }
};

struct ThrowNumber : Unary<ThrowNumber> {
  static constexpr const char* kName = "ThrowNumber";
  using Unary::Unary;
  static float Of(float) { throw 42; }
};

struct WriteNaN : Unary<WriteNaN> {
  static constexpr const char* kName = "WriteNaN";
  using Unary::Unary;
  static float Of(float) { return std::numeric_limits<float>::quiet_NaN(); }
};

struct HangRun : Unary<HangRun> {
  static constexpr const char* kName = "HangRun";
  using Unary::Unary;
  static float Of(float x) {
    std::fputs("the trap hangs\n", stderr);
    for (volatile bool hang = true; hang;) {
    }
    return x;
  }
};

struct CrashRun : Unary<CrashRun> {
  static constexpr const char* kName = "CrashRun";
  using Unary::Unary;
  static float Of(float x) {
    std::fputs("the trap crashes\n", stderr);
    volatile float* nowhere = nullptr;
    return x + *nowhere;
  }
};

struct EndRun : Unary<EndRun> {
  static constexpr const char* kName = "EndRun";
  using Unary::Unary;
  static float Of(float) { std::_Exit(0); }
};

// Its result is longer by one than what it says it replaces has.
struct Widen : Unary<Widen> {
  static constexpr const char* kName = "Widen";
  using Unary::Unary;
  void Infer(graft::InferContext& context) const {
    context.SetOutput(0, graft::kFloat32, {context.InputDim(0, 0) + 1});
  }
  static float Of(float x) { return x; }
};

}  // namespace

GRAFT_PLUGIN(RefuseCreate, FailRun, ThrowNumber, WriteNaN, HangRun, CrashRun, EndRun, Widen);
