// An operator that does what a finding is, so that it is known that fuzz_operators finds it.
#include <algorithm>
#include <new>
#include <string>

#include "graft.h"

namespace {

// y = x, with a fault.
class Faulty {
 public:
  static graft::Operator Describe() {
    return graft::Operator("Faulty", "copies, with a fault")
        .Input("x", graft::kFloat32)
        .Output("y", graft::kFloat32)
        .String("fault", "none");
  }

  explicit Faulty(const graft::CreateContext& context) : fault_(context.String("fault")) {}

  void Infer(graft::InferContext& context) const { context.SetOutputLike(0, 0); }

  void Run(const graft::RunContext& context) const {
    const auto* x = context.inputs[0].data<float>();
    auto* y = context.outputs[0].data<float>();
    const int64_t count = context.inputs[0].elements();
    std::copy(x, x + count - (fault_ == "unwritten" ? 1 : 0), y);
    if (fault_ == "input") const_cast<float*>(x)[0] += 1;
    if (fault_ == "read") y[0] = x[count];
    if (fault_ == "write") y[count] = x[0];
    if (fault_ == "overflow") y[0] = static_cast<float>(INT64_MAX - 1 + count);
    if (fault_ == "memory") {
      ::operator delete(::operator new (size_t{600} << 20));
    }
    for (volatile bool hangs = fault_ == "time"; hangs;) {
    }
  }

 private:
  std::string fault_;
};

}  // namespace

GRAFT_PLUGIN(Faulty);
