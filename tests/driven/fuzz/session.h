// Operators of plugins in sessions of ONNX Runtime, fed with memory that ends at a page which
// nobody may touch.
#ifndef GRAFT_TESTS_DRIVEN_SESSION_H_
#define GRAFT_TESTS_DRIVEN_SESSION_H_

#include <onnxruntime_c_api.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "case.h"
#include "graft_plugin.h"

namespace graft::driven {

// What came of a case.
struct Outcome {
  enum Stage { kLoad, kRun, kDone } stage = kLoad;  // refused by the load or the run, or answered
  std::string message;                              // of a refusal
  std::string fault;  // what an answer did that it must not; empty for nothing
};

// An input's memory: pages between two that nobody may touch, and what is before the data is
// poisoned.
class Guarded {
 public:
  static constexpr size_t kBytes = 8 << 20;
  Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  // A copy of bytes that ends where the memory does.
  char* Take(const std::string& bytes);

 private:
  char* end_;
  size_t taken_ = 0;
};

class Runtime {
 public:
  // Loads ONNX Runtime and the libraries. Throws std::runtime_error.
  Runtime(const std::string& runtime, const std::vector<std::string>& libraries);

  const graft_operator* Find(const std::string& op) const;
  // Makes the case's model, unless the last case had the same, and runs it.
  Outcome Run(const Case& c);
  int64_t sessions() const { return sessions_; }

 private:
  struct Made {
    const graft_operator* description;
    OrtCustomOpDomain* domain;
  };
  void Load(const Case& c);
  std::string Refused(OrtStatus* status) const;
  // Whether the session leaves an element of output `index` as it was, which is `got` of a first
  // run: it holds what fresh memory holds, and is left alone again in memory that holds another.
  bool LeavesUnwritten(const std::vector<const char*>& names, const std::vector<OrtValue*>& values,
                       const std::vector<const char*>& wanted, size_t index, const OrtValue* got);

  const OrtApi* api_ = nullptr;
  OrtEnv* env_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
  OrtSession* session_ = nullptr;
  std::string key_, refusal_;
  int64_t sessions_ = 0;
  std::map<std::string, Made> operators_;
  std::vector<std::unique_ptr<Guarded>> guarded_;
};

}  // namespace graft::driven

#endif  // GRAFT_TESTS_DRIVEN_SESSION_H_
