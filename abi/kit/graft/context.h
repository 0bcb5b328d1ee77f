// What the kit hands to a kernel's methods: shapes to infer, and everything that a run may use.
#ifndef GRAFT_KIT_CONTEXT_H_
#define GRAFT_KIT_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <type_traits>

#include "graft/tensor.h"
#include "graft_plugin.h"

namespace graft {

// Types and shapes of one node. Sizes may be unknown while a model is loaded, never in a run.
class InferContext {
 public:
  InferContext(const graft_tensor* const* inputs, uint64_t num_inputs, graft_tensor* const* outputs,
               uint64_t num_outputs)
      : inputs_(inputs), num_inputs_(num_inputs), outputs_(outputs), num_outputs_(num_outputs) {
    for (uint64_t i = 0; i < num_outputs; ++i) {
      if (outputs[i] != nullptr) outputs[i]->ndim = -1;  // until it is set
    }
  }

  uint64_t num_inputs() const { return num_inputs_; }
  uint64_t num_outputs() const { return num_outputs_; }
  bool HasInput(uint64_t index) const { return index < num_inputs_ && inputs_[index] != nullptr; }
  bool HasOutput(uint64_t index) const {
    return index < num_outputs_ && outputs_[index] != nullptr;
  }

  DataType InputType(uint64_t index) const { return Input(index)->dtype; }
  int32_t InputRank(uint64_t index) const { return Input(index)->ndim; }
  // A negative axis counts from the end.
  Dim InputDim(uint64_t index, int32_t axis) const {
    const graft_tensor* input = Input(index);
    if (axis < 0) axis += input->ndim;
    Require(axis >= 0 && axis < input->ndim, "input ", index, " has rank ", input->ndim,
            ", which has no axis ", axis);
    return Dim(input->shape[axis]);
  }

  // Sets an output's type and shape; does nothing when the output is absent.
  void SetOutput(uint64_t index, DataType type, std::initializer_list<Dim> dims) {
    SetOutput(index, type, dims.begin(), static_cast<int32_t>(dims.size()));
  }
  void SetOutput(uint64_t index, DataType type, const Dim* dims, int32_t rank) {
    if (!HasOutput(index)) return;
    Require(rank <= GRAFT_MAX_RANK, "output ", index, " has rank ", rank, ", above ",
            GRAFT_MAX_RANK);
    graft_tensor* output = outputs_[index];
    output->dtype = type;
    output->ndim = rank;
    for (int32_t i = 0; i < rank; ++i) output->shape[i] = dims[i].value();
  }
  void SetOutputLike(uint64_t index, uint64_t input) {
    if (!HasOutput(index)) return;
    const graft_tensor* like = Input(input);
    outputs_[index]->dtype = like->dtype;
    outputs_[index]->ndim = like->ndim;
    for (int32_t i = 0; i < like->ndim; ++i) outputs_[index]->shape[i] = like->shape[i];
  }

 private:
  const graft_tensor* Input(uint64_t index) const {
    Require(HasInput(index), "input ", index, " is absent");
    return inputs_[index];
  }
  const graft_tensor* const* inputs_;
  uint64_t num_inputs_;
  graft_tensor* const* outputs_;
  uint64_t num_outputs_;
};

// Shapes of one run, to size its workspace from.
struct WorkspaceContext {
  Tensors inputs;
  Tensors outputs;
  int32_t concurrency;  // threads that ParallelFor is likely to use; 0: not known
};

// Everything that one run may use.
class RunContext {
 public:
  RunContext(const graft_run_context* context, const graft_tensor* const* inputs,
             uint64_t num_inputs, graft_tensor* const* outputs, uint64_t num_outputs)
      : inputs(inputs, num_inputs), outputs(outputs, num_outputs), context_(context) {}

  const Tensors inputs;
  const MutableTensors outputs;

  void* stream() const { return context_->stream; }
  void* workspace() const { return context_->workspace; }
  uint64_t workspace_size() const { return context_->workspace_size; }
  int32_t concurrency() const { return context_->concurrency; }

  // Calls task(i) for i in [0, count) on the host's threads, and returns when all are done. The
  // first exception of a task is thrown here; tasks not begun by then are left out.
  template <typename Task>
  void ParallelFor(uint64_t count, Task&& task) const {
    if (count == 0) return;
    if (count == 1 || context_->parallel_for == nullptr) {
      for (uint64_t i = 0; i < count; ++i) task(i);
      return;
    }
    Shared<std::remove_reference_t<Task>> shared{&task, {}, nullptr};
    const int32_t code = context_->parallel_for(
        context_->parallel_context, count, &Shared<std::remove_reference_t<Task>>::Call, &shared);
    if (shared.failure) std::rethrow_exception(shared.failure);
    if (code != GRAFT_OK) throw Error(code, "the host's parallel_for failed");
  }

  void Log(int32_t level, const char* text) const {
    if (context_->log != nullptr) context_->log(context_->log_context, level, text);
  }

 private:
  template <typename Task>
  struct Shared {
    Task* task;
    std::atomic<int> failed;
    std::exception_ptr failure;

    static void Call(void* self, uint64_t index) {
      auto* shared = static_cast<Shared*>(self);
      if (shared->failed.load(std::memory_order_relaxed) != 0) return;
      try {
        (*shared->task)(index);
      } catch (...) {
        if (shared->failed.exchange(1) == 0) shared->failure = std::current_exception();
      }
    }
  };

  const graft_run_context* context_;
};

}  // namespace graft

#endif  // GRAFT_KIT_CONTEXT_H_
