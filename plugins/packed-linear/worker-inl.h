// One worker of any path.
#if defined(GRAFT_PACKED_LINEAR_WORKER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAFT_PACKED_LINEAR_WORKER_INL_H_
#undef GRAFT_PACKED_LINEAR_WORKER_INL_H_
#else
#define GRAFT_PACKED_LINEAR_WORKER_INL_H_
#endif

#include "blocked-inl.h"
#include "dots-inl.h"
#include "panels-inl.h"
#include "stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace graft {
namespace linear {
namespace HWY_NAMESPACE {

void RunWorker(const Problem& problem, const Plan& plan, char* workspace, int64_t worker) {
  switch (plan.path) {
    case Path::kPanels:
      return Paneller(problem, plan, workspace, worker).Run();
    case Path::kStream:
      return Streamer(problem, plan, workspace, worker).Run();
    case Path::kDots:
      return RunDots(problem, plan, workspace);
    case Path::kBlocked:
      return Blocker(problem, plan, workspace, worker).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace linear
}  // namespace graft
HWY_AFTER_NAMESPACE();

#endif  // GRAFT_PACKED_LINEAR_WORKER_INL_H_
