// Memory alone: the floor that kernels bound by it stand on.
#include "../timing.h"

namespace graft {
namespace timing {

void Memory(Bench& bench) {
  for (const int64_t megabytes : {16, 256, 1024}) {
    const int64_t bytes = bench.tiny() ? megabytes << 7 : megabytes << 20;
    bench.Time(Bench::Reading(cuda::Type::kFloat32, {{"bytes", bytes}}, bytes));
  }
}
GRAFT_TIMING("memory", Memory);

}  // namespace timing
}  // namespace graft
