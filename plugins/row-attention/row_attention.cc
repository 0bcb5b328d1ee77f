#include "row_attention.h"

#include <algorithm>
#include <cstring>

#include "graft/error.h"
#include "row_kernel.h"
#include "row_plan.h"

namespace graft {
namespace row_attention {
namespace {

// The lists of a part as a problem of attention over a pool with as many slots, whose check of them
// applies here too. Of what these pointers point to only lists are read.
attention::CachedProblem ListsOf(int64_t blocks, int64_t tokens, const int32_t* sequences,
                                 int64_t groups, const int32_t* shared_slots, int64_t shared_length,
                                 const int32_t* private_slots, int64_t private_length,
                                 const int32_t* slot_mapping) {
  static float anything;
  attention::CachedProblem p;
  p.pool.data = &anything;
  p.pool.blocks = blocks;
  p.pool.kv_heads = p.pool.head_size = p.pool.value_size = 1;
  p.pool.block_floats = p.pool.floats();
  p.rows = tokens;
  p.heads = 1;
  p.query = p.output = &anything;
  if (slot_mapping != nullptr) p.key = p.value = &anything;
  p.slot_mapping = slot_mapping;
  p.sequences = sequences;
  p.groups = groups;
  p.shared_slots = shared_slots;
  p.shared_length = shared_length;
  p.private_slots = private_slots;
  p.private_length = private_length;
  return p;
}

std::string ValidateKeys(const Problem& p) {
  if (p.rotary == Rotary::kNone) return std::string();
  if (p.kind != RowKind::kKeys) return "rotary positions need rows of keys";
  if (p.cosine == nullptr || p.sine == nullptr) return "rotary angles are required";
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* step = attention::SequenceOf(p.sequences, g);
    const Size keys = Size(step[attention::kSequenceShared]) + step[attention::kSequencePrivate];
    if (keys > p.positions) {
      return Text("group ", g, " has ", keys, " positions, there are angles for ", p.positions);
    }
  }
  return std::string();
}

std::string ValidateSecond(const Problem& p) {
  using namespace attention;
  if ((p.key != nullptr) != (p.value != nullptr)) return "key and value must be given together";
  if (p.kv_sequences == nullptr) return std::string();
  if (p.kind != RowKind::kHiddenStates) return "a second part needs rows of hidden states";
  if (p.kv_pool.kv_heads != p.kv_heads || p.kv_pool.head_size != p.head_size ||
      p.kv_pool.value_size != p.value_size) {
    return Text("the pool of keys and values has ", p.kv_pool.kv_heads, " heads of ",
                p.kv_pool.head_size, " and ", p.kv_pool.value_size, ", needed are ", p.kv_heads,
                " of ", p.head_size, " and ", p.value_size);
  }
  for (int64_t g = 0; g < p.groups; ++g) {
    const int32_t* rows = SequenceOf(p.sequences, g);
    const int32_t* keys = SequenceOf(p.kv_sequences, g);
    if (rows[kSequenceFirstToken] != keys[kSequenceFirstToken] ||
        rows[kSequenceTokens] != keys[kSequenceTokens]) {
      return Text("group ", g, " of the second part has ", keys[kSequenceTokens], " tokens from ",
                  keys[kSequenceFirstToken], " on, the first part ", rows[kSequenceTokens],
                  " from ", rows[kSequenceFirstToken], " on");
    }
    const bool has_rows = rows[kSequenceShared] > 0 || rows[kSequencePrivate] > 0;
    const bool has_keys = keys[kSequenceShared] > 0 || keys[kSequencePrivate] > 0;
    if (has_rows && has_keys && (rows[kSequenceCausal] != 0 || keys[kSequenceCausal] != 0)) {
      return Text("group ", g, " is causal and has positions in both parts");
    }
  }
  return std::string();
}

attention::CachedProblem SecondOf(const Problem& p, float* output, float* lse) {
  attention::CachedProblem second;
  second.pool = p.kv_pool;
  second.rows = p.tokens;
  second.heads = p.heads;
  second.query = p.query;
  second.query_stride = p.query_stride;
  if (p.kv_slot_mapping != nullptr) {
    second.key = p.key;
    second.value = p.value;
    second.key_stride = p.key_stride;
    second.value_stride = p.value_stride;
    second.slot_mapping = p.kv_slot_mapping;
  }
  second.output = output;
  second.lse = lse;
  second.sequences = p.kv_sequences;
  second.groups = p.groups;
  second.shared_slots = p.kv_shared_slots;
  second.shared_length = p.kv_shared_length;
  second.private_slots = p.kv_private_slots;
  second.private_length = p.kv_private_length;
  second.bias = p.bias;
  second.distances = p.distances;
  second.scale = p.scale;
  second.softcap = p.softcap;
  second.window = p.window;
  return second;
}

// One prompt over keys and values in scratch: the same query heads as `prompt` has KV heads.
attention::CachedProblem PromptOf(const Problem& p, const Prompt& prompt, const int32_t* step,
                                  const int32_t* list, int64_t list_length) {
  const Size group_heads = p.heads / p.kv_heads, head = group_heads * prompt.head0;
  const Group& group = *prompt.group;
  attention::CachedProblem inner;
  inner.pool = prompt.pool;
  inner.rows = group.tokens;
  inner.heads = group_heads * prompt.heads;
  inner.query = p.query + (Size(group.first) * p.query_stride + head * p.head_size);
  inner.query_stride = p.query_stride;
  inner.output = p.output + (Size(group.first) * p.heads + head) * p.value_size;
  inner.output_stride = Size(p.heads) * p.value_size;
  inner.sequences = step;
  inner.groups = 1;
  inner.shared_slots = list;
  inner.shared_length = list_length;
  inner.bias = p.bias != nullptr ? p.bias + head * p.distances : nullptr;
  inner.distances = p.distances;
  inner.scale = p.scale;
  inner.softcap = p.softcap;
  inner.window = p.window;
  return inner;
}

attention::CachedTuning InnerTuning(const Tuning& tuning) {
  attention::CachedTuning inner;
  inner.isa = tuning.isa;
  inner.serial_cost = tuning.serial_cost;
  return inner;
}

struct Call {
  const Problem* problem;
  const Plan* plan;
  const Prompt* prompt;
  const Kernel* kernel;
  char* workspace;
};

void RunTask(void* argument, int64_t worker) {
  const Call& call = *static_cast<const Call*>(argument);
  call.kernel->run_worker(*call.problem, *call.plan, call.workspace, worker);
}

// Worker `worker` makes every workers'th tile of a prompt's keys and values.
void MakeTask(void* argument, int64_t worker) {
  const Call& call = *static_cast<const Call*>(argument);
  char* scratch = call.workspace + call.plan->worker_offset +
                  static_cast<size_t>(worker) * call.plan->worker_bytes;
  const int64_t tiles = DivideUp(call.prompt->group->shared_count, kPromptTile);
  for (int64_t tile = worker; tile < tiles; tile += call.plan->workers) {
    call.kernel->make_keys(*call.problem, *call.plan, *call.prompt, tile, scratch);
  }
}

// Runs a task a worker, on the caller's thread where there is one worker only.
void RunWorkers(Call& call, int64_t workers, const Runner& runner, void (*task)(void*, int64_t)) {
  if (workers <= 1 || runner.parallel_for == nullptr) {
    for (int64_t worker = 0; worker < workers; ++worker) task(&call, worker);
  } else {
    runner.parallel_for(runner.context, workers, task, &call);
  }
}

void RunPrompt(Call call, const Group& group, const Runner& runner, const Tuning& tuning) {
  const Problem& p = *call.problem;
  const Plan& plan = *call.plan;
  int32_t* list = reinterpret_cast<int32_t*>(call.workspace + plan.prompt_list);
  for (int64_t j = 0; j < group.shared_count; ++j) list[j] = static_cast<int32_t>(j);
  const int32_t step[attention::kSequenceColumns] = {0,
                                                     static_cast<int32_t>(group.tokens),
                                                     0,
                                                     static_cast<int32_t>(group.shared_count),
                                                     0,
                                                     0,
                                                     group.causal ? 1 : 0,
                                                     0};
  Prompt prompt;
  prompt.group = &group;
  prompt.pool.data = reinterpret_cast<float*>(call.workspace + plan.prompt_pool);
  prompt.pool.blocks = DivideUp(group.shared_count, kBlockSlots);
  prompt.pool.head_size = p.head_size;
  prompt.pool.value_size = p.value_size;
  call.prompt = &prompt;
  for (int64_t head = 0; head < p.kv_heads; head += plan.prompt_heads) {
    prompt.head0 = head;
    prompt.heads = std::min(plan.prompt_heads, p.kv_heads - head);
    prompt.pool.kv_heads = prompt.heads;
    prompt.pool.block_floats = prompt.pool.floats();
    const int64_t workers = std::min(plan.workers, DivideUp(group.shared_count, kPromptTile));
    RunWorkers(call, workers, runner, MakeTask);
    const attention::CachedProblem inner = PromptOf(p, prompt, step, list, group.shared_count);
    attention::Run(inner, call.workspace + plan.inner_offset, runner, InnerTuning(tuning));
  }
  if (p.skipped != nullptr) {  // nothing is
    std::memset(p.skipped + group.first * p.heads, 0,
                static_cast<size_t>(group.tokens * p.heads) * sizeof(float));
  }
}

// A group without rows: what the second part gives, or zeros.
void CopySecond(const Problem& p, const Group& group, const float* second) {
  const int64_t row = p.heads * p.value_size;
  float* to = p.output + group.first * row;
  const size_t bytes = static_cast<size_t>(group.tokens * row) * sizeof(float);
  if (p.kv_sequences != nullptr) {
    std::memcpy(to, second + group.first * row, bytes);
  } else {
    std::memset(to, 0, bytes);
  }
  if (p.skipped != nullptr) {
    std::memset(p.skipped + group.first * p.heads, 0,
                static_cast<size_t>(group.tokens * p.heads) * sizeof(float));
  }
}

}  // namespace

std::string Validate(const Problem& p) {
  std::string fault = ValidatePool(p.pool);
  if (fault.empty()) fault = ValidateSizes(p);
  if (!fault.empty()) return fault;
  if (p.pool.slots() > 0 && p.pool.data == nullptr) return "the pool has no memory";
  if (p.tokens > 0 && (p.query == nullptr || p.output == nullptr)) {
    return "query and output are required";
  }
  if (p.value_weight == nullptr || (p.kind == RowKind::kHiddenStates && p.key_weight == nullptr)) {
    return "weights are required";
  }
  if (p.tokens > 0 && (p.input != nullptr) != (p.slot_mapping != nullptr)) {
    return "rows and their slots must be given together";
  }
  if (p.groups > 0 && p.sequences == nullptr) return "sequence descriptors are required";
  if (p.skip < 0.0f || !(p.skip < 1.0f)) return Text("skip is ", p.skip, ", needed is 0 to 1");
  fault = attention::Validate(ListsOf(p.pool.blocks, p.tokens, p.sequences, p.groups,
                                      p.shared_slots, p.shared_length, p.private_slots,
                                      p.private_length, p.slot_mapping));
  if (fault.empty()) fault = ValidateKeys(p);
  if (!fault.empty() || p.kv_sequences == nullptr) return fault.empty() ? ValidateSecond(p) : fault;
  float nowhere;
  fault = attention::Validate(SecondOf(p, &nowhere, nullptr));
  if (!fault.empty()) return "second part: " + fault;
  return ValidateSecond(p);
}

size_t WorkspaceSize(const Problem& problem, int64_t threads, const Tuning& tuning) {
  return MakePlan(problem, threads, tuning).total_bytes + 64;
}

void Run(const Problem& problem, void* workspace, const Runner& runner, const Tuning& tuning) {
  if (problem.tokens == 0) return;
  Plan plan = MakePlan(problem, runner.threads, tuning);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + 63) &
                                          ~static_cast<uintptr_t>(63));
  Group* groups = reinterpret_cast<Group*>(aligned + plan.group_offset);
  float* second = reinterpret_cast<float*>(aligned + plan.second_offset);
  FillPlan(problem, tuning, aligned, plan);
  Call call{&problem, &plan, nullptr, &ChooseKernel(tuning.isa), aligned};
  if (problem.kv_sequences != nullptr) {
    attention::Run(SecondOf(problem, second, reinterpret_cast<float*>(aligned + plan.second_lse)),
                   aligned + plan.inner_offset, runner, InnerTuning(tuning));
  }
  if (plan.writes + plan.contracts > 0) RunWorkers(call, plan.workers, runner, RunTask);
  for (int64_t g = 0; g < problem.groups; ++g) {
    if (groups[g].way == Way::kMadeKeys) RunPrompt(call, groups[g], runner, tuning);
    if (groups[g].way == Way::kSecondPart) CopySecond(problem, groups[g], second);
  }
}

std::string Validate(const StoreProblem& p) {
  std::string fault = ValidatePool(p.pool);
  if (!fault.empty()) return fault;
  if (p.pool.slots() > 0 && p.pool.data == nullptr) return "the pool has no memory";
  if (p.count < 0) return "a size is negative";
  if (p.count == 0) return fault;
  if (p.rows == nullptr || p.slot_mapping == nullptr) return "rows and their slots are required";
  for (int64_t i = 0; i < p.count; ++i) {
    if (p.slot_mapping[i] < -1 || p.slot_mapping[i] >= p.pool.slots()) {
      return Text("slot_mapping[", i, "] is slot ", p.slot_mapping[i], ", the pool has ",
                  p.pool.slots());
    }
  }
  return fault;
}

namespace {

// Rows of one task of StoreProblem.
constexpr int64_t kStoreRows = 64;

void StoreTask(void* argument, int64_t index) {
  const StoreProblem& p = *static_cast<const StoreProblem*>(argument);
  const Kernel& kernel = ChooseKernel(Isa::kBest);
  const int64_t end = std::min(p.count, (index + 1) * kStoreRows);
  for (int64_t i = index * kStoreRows; i < end; ++i) {
    if (p.slot_mapping[i] < 0) continue;
    kernel.write_row(p.pool.storage, p.rows + i * p.pool.width, p.pool.width,
                     reinterpret_cast<char*>(p.pool.data) + p.pool.RowOffset(p.slot_mapping[i]));
  }
}

}  // namespace

int64_t Run(const StoreProblem& problem, const Runner& runner) {
  StoreProblem p = problem;
  const int64_t tasks = DivideUp(p.count, kStoreRows);
  if (runner.parallel_for == nullptr || tasks <= 1) {
    for (int64_t i = 0; i < tasks; ++i) StoreTask(&p, i);
  } else {
    runner.parallel_for(runner.context, tasks, StoreTask, &p);
  }
  int64_t stored = 0;
  for (int64_t i = 0; i < p.count; ++i) stored += p.slot_mapping[i] >= 0;
  return stored;
}

}  // namespace row_attention
}  // namespace graft
