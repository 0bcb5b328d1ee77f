#include "domain.h"

#include "lock.h"

namespace graft {
namespace {

// The model y = x of one float32, as ONNX's protobuf.
constexpr char kModel[] =
    "\x08\x08"                                                           // IR version 8
    "\x3a\x37"                                                           // the graph
    "\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01i"                // the node
    "\x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"  // the input
    "\x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"  // the output
    "\x42\x02\x10\x0d";                                                  // opset 13

// Creates a session with the domain, which neither computes nor speaks, and releases it.
bool Enter(const Runtime& r, void* env) {
  constexpr int kFatal = 4;
  void *options = nullptr, *domain = nullptr, *session = nullptr;
  Text error;
  const auto step = [&](Status* status) { return r.Succeeded(status, &error); };
  const bool ok = step(r.Call<Status*>(kCreateSessionOptions, &options)) &&
                  step(r.Call<Status*>(kSetIntraOpNumThreads, options, 1)) &&
                  step(r.Call<Status*>(kSetSessionLogSeverityLevel, options, kFatal)) &&
                  step(r.Call<Status*>(kCreateCustomOpDomain, "graft", &domain)) &&
                  step(r.Call<Status*>(kAddCustomOpDomain, options, domain)) &&
                  step(r.Call<Status*>(kCreateSessionFromArray, env, kModel, sizeof kModel - 1,
                                       options, &session));
  if (session != nullptr) r.Call<void>(kReleaseSession, session);
  if (options != nullptr) r.Call<void>(kReleaseSessionOptions, options);
  if (domain != nullptr) r.Call<void>(kReleaseCustomOpDomain, domain);
  return ok;
}

}  // namespace

void KnowDomain(const Runtime& r, void* env) {
  if (__atomic_load_n(&r.knows_domain, __ATOMIC_ACQUIRE)) return;
  const Lock lock(&domain_lock);
  if (!r.knows_domain && Enter(r, env)) __atomic_store_n(&r.knows_domain, true, __ATOMIC_RELEASE);
}

}  // namespace graft
