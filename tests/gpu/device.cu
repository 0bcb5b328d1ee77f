// Says what device there is, as JSON: `device`. Ends with 4 where there is none.
#include <cstdio>

#include "clock.h"
#include "json.h"

int main(int, char** argv) {
  graft::gpu::Facts facts;
  std::string why;
  if (!graft::gpu::OpenDevice(&facts, &why)) {
    std::fprintf(stderr, "%s: no device: %s\n", argv[0], why.c_str());
    return 4;
  }
  const graft::cuda::DeviceLimits& limits = facts.limits;
  std::printf(
      "{\"device\": %s, \"timed\": %s, \"driver_cuda\": %d, \"runtime_cuda\": %d, \"memory\": "
      "%lld, \"multiprocessors\": %d, \"capability\": \"%d.%d\", \"shared_per_block\": %lld, "
      "\"l2_bytes\": %lld, \"clusters\": [%d, %d, %d, %d]}\n",
      graft::gpu::Quoted(facts.device).c_str(), facts.timed ? "true" : "false", facts.driver,
      facts.runtime, static_cast<long long>(facts.memory), limits.multiprocessors, limits.major,
      limits.minor, static_cast<long long>(limits.shared_per_block),
      static_cast<long long>(limits.l2_bytes), limits.clusters[0], limits.clusters[1],
      limits.clusters[2], limits.clusters[3]);
  return 0;
}
