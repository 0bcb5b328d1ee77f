#include "wayback.h"

#include <new>

#include "lock.h"
#include "say.h"
#include "sha256.h"

namespace graft {
namespace {

Patched* sessions = nullptr;  // state_lock
uint64_t reverted = 0;        // so many ever
uint64_t running = 0;         // those of them that are not released

bool Any() { return __atomic_load_n(&sessions, __ATOMIC_ACQUIRE) != nullptr; }

// The patched session at an address; null where that is none. It is there until the program
// releases it, which no run outlives.
Patched* Find(const void* session) {
  if (!Any()) return nullptr;
  const Lock lock(&state_lock);
  Patched* p = sessions;
  while (p != nullptr && p->session != session) p = p->next;
  return p;
}

Patched* Take(const void* session) {
  if (!Any()) return nullptr;
  const Lock lock(&state_lock);
  for (Patched** at = &sessions; *at != nullptr; at = &(*at)->next) {
    if ((*at)->session != session) continue;
    Patched* found = *at;
    __atomic_store_n(at, found->next, __ATOMIC_RELEASE);
    if (found->reverted) __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    return found;
  }
  return nullptr;
}

// The program's own session, where it runs in a session's place; otherwise the session.
void* Running(void* session) {
  if (__atomic_load_n(&running, __ATOMIC_ACQUIRE) == 0) return session;
  const Patched* p = Find(session);
  return p != nullptr && __atomic_load_n(&p->reverted, __ATOMIC_ACQUIRE) ? p->own : session;
}

// Memory of a tensor.
struct Span {
  uintptr_t start, end;

  bool Overlaps(const Span& other) const { return start < other.end && other.start < end; }
};

// The bytes of an element of a type, by ONNX's number; where types are not known here, as many as
// one has at most.
size_t ElementSize(int type) {
  constexpr unsigned char kSizes[] = {0,  4, 1, 1, 2, 2, 4, 8, sizeof(void*) * 4, 1, 2, 8, 4, 8, 8,
                                      16, 2, 1, 1, 1, 1, 1, 1};
  return type > 0 && type < static_cast<int>(sizeof kSizes) ? kSizes[type] : 16;
}

// The memory of a value. One without memory that a run could write, of another kind or not yet
// there, has none.
bool SpanOf(const Runtime& r, const void* value, Span* span) {
  Text error;
  int tensor = 0, type = 0;
  void *data = nullptr, *info = nullptr;
  size_t count = 0;
  if (value == nullptr || !r.Succeeded(r.Call<Status*>(kIsTensor, value, &tensor), &error) ||
      tensor == 0 || !r.Succeeded(r.Call<Status*>(kGetTensorMutableData, value, &data), &error) ||
      data == nullptr ||
      !r.Succeeded(r.Call<Status*>(kGetTensorTypeAndShape, value, &info), &error)) {
    return false;
  }
  const bool ok = r.Succeeded(r.Call<Status*>(kGetTensorElementType, info, &type), &error) &&
                  r.Succeeded(r.Call<Status*>(kGetTensorShapeElementCount, info, &count), &error);
  r.Call<void>(kReleaseTensorTypeAndShapeInfo, info);
  span->start = reinterpret_cast<uintptr_t>(data);
  span->end = span->start + count * ElementSize(type);
  return ok;
}

// Whether an output has its place in the memory of an input: what failed may have written there.
bool Overlap(const Runtime& r, const RunArguments& a) {
  for (size_t i = 0; i < a.m; ++i) {
    Span output, input;
    if (!SpanOf(r, a.outputs[i], &output)) continue;
    for (size_t k = 0; k < a.n; ++k) {
      if (SpanOf(r, a.inputs[k], &input) && input.Overlaps(output)) return true;
    }
  }
  return false;
}

struct BoundInput {
  char* name;
  Span span;
};

// A binding of a patched session.
struct Binding {
  const void* binding;
  Binding* next;
  List<BoundInput> inputs;
  bool unknown;  // there was no memory for all of them

  void Clear() {
    for (size_t i = 0; i < inputs.size(); ++i) free(inputs[i].name);
    inputs.Clear();
  }
};

Binding* bindings = nullptr;  // state_lock

bool AnyBinding() { return __atomic_load_n(&bindings, __ATOMIC_ACQUIRE) != nullptr; }

// The lock is held.
Binding* FindBinding(const void* binding) {
  Binding* b = bindings;
  while (b != nullptr && b->binding != binding) b = b->next;
  return b;
}

// Overlap for what is bound. Of a binding that was not seen when it was created, nothing is known.
bool BindingOverlaps(const Runtime& r, const void* binding) {
  void *allocator = nullptr, **outputs = nullptr;
  size_t n = 0;
  Text error;
  if (!r.Succeeded(r.Call<Status*>(kGetAllocatorWithDefaultOptions, &allocator), &error) ||
      !r.Succeeded(r.Call<Status*>(kGetBoundOutputValues, binding, allocator, &outputs, &n),
                   &error)) {
    return true;
  }
  List<Span> spans;
  bool overlaps = false;
  for (size_t i = 0; i < n; ++i) {
    Span span;
    if (SpanOf(r, outputs[i], &span)) overlaps = !spans.Add(span) || overlaps;
    r.Call<void>(kReleaseValue, outputs[i]);
  }
  if (outputs != nullptr) {
    r.Succeeded(r.Call<Status*>(kAllocatorFree, allocator, static_cast<void*>(outputs)), &error);
  }
  const Lock lock(&state_lock);
  const Binding* b = FindBinding(binding);
  if (b == nullptr || b->unknown) return true;
  for (size_t i = 0; i < b->inputs.size(); ++i) {
    for (size_t k = 0; k < spans.size(); ++k) {
      overlaps = overlaps || spans[k].Overlaps(b->inputs[i].span);
    }
  }
  return overlaps;
}

// Whether graft has no part in a failure: the program ended the run, or gave inputs that the model
// does not take, of which ONNX Runtime convinces itself before any operator runs. That only spares
// the program's own session; what is not seen here is seen by running it.
bool IsProgramsOwn(int code, const char* message) {
  constexpr int kInvalidArgument = 2;
  return strstr(message, "terminate flag") != nullptr ||
         (code == kInvalidArgument && strstr(message, "while running ") == nullptr);
}

// A file that is not as it was; null for none.
const char* Changed(const Patched& p) {
  for (size_t i = 0; i < p.files.size(); ++i) {
    if (!Holds(p.files[i])) return p.files[i].path;
  }
  return nullptr;
}

// Creates the program's own session, once; null where it cannot be, and obstacle says why.
void* Open(Patched* p, Text* obstacle) {
  const Lock lock(&open_lock);
  if (p->own != nullptr) return p->own;
  if (!p->has_way_back) {
    obstacle->Add("there was no memory to note how");
    return nullptr;
  }
  const Runtime& r = *p->runtime;
  const char* changed = Changed(*p);
  void* made = nullptr;
  if (changed == nullptr && p->hash[0] == 0) {
    r.Succeeded(r.Call<Status*>(kCreateSession, p->env, p->path.c(), p->options, &made), obstacle);
    changed = Changed(*p);
  } else if (changed == nullptr) {
    Bytes model;
    char hash[65] = "";
    if (ReadOwn(p->path.c(), &model)) Sha256(model.data(), model.size(), hash);
    if (strcmp(hash, p->hash) != 0) {
      obstacle->Add(p->path).Add(": found no copy of the model's bytes");
      return nullptr;
    }
    const void* bytes = model.data();
    r.Succeeded(
        r.Call<Status*>(kCreateSessionFromArray, p->env, bytes, model.size(), p->options, &made),
        obstacle);
  }
  if (changed != nullptr) {
    if (made != nullptr) r.Call<void>(kReleaseSession, made);
    obstacle->Clear();
    obstacle->Add(changed).Add(" changed since the session was created");
    return nullptr;
  }
  p->own = made;
  return made;
}

// Has the program's own session run from now on.
void Revert(Patched* p, const Text& failure) {
  {
    const Lock lock(&state_lock);
    if (p->reverted) return;
    __atomic_store_n(&p->reverted, true, __ATOMIC_RELEASE);
    __atomic_add_fetch(&running, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&reverted, 1, __ATOMIC_RELAXED);
  }
  Text line;
  Say(line.Add(p->name)
          .Add(": runs without graft from now on, since an operator failed: ")
          .AddWords(failure.c()));
}

// Repeats a run that failed in the program's own session. What it returns is the program's.
template <typename R, typename O>
Status* Rescue(const Runtime& r, void* session, Status* status, R run, O overlap) {
  Patched* p = status == nullptr ? nullptr : Find(session);
  if (p == nullptr) return status;
  Text failure(r.Call<const char*>(kGetErrorMessage, status));
  if (IsProgramsOwn(r.Call<int>(kGetErrorCode, status), failure.c())) return status;
  Text obstacle;
  void* own = Open(p, &obstacle);
  if (own == nullptr) {
    if (!__atomic_exchange_n(&p->said, true, __ATOMIC_RELAXED)) {
      Text line;
      Say(line.Add(p->name)
              .Add(": an operator failed, and there is no session without graft: ")
              .AddWords(obstacle.c()));
    }
    return status;
  }
  if (overlap()) {
    Revert(p, failure);
    return status;
  }
  Status* again = run(own);
  if (again == nullptr) Revert(p, failure);
  r.Call<void>(kReleaseStatus, status);
  return again;
}

// Runs a session, or the program's own in its place.
template <typename R, typename O>
Status* RunOrRescue(const Runtime& r, void* session, R run, O overlap) {
  void* running_session = Running(session);
  Status* status = run(running_session);
  return running_session == session ? Rescue(r, session, status, run, overlap) : status;
}

Status* RunIn(const Runtime& r, void* session, const RunArguments& a) {
  return r.Call<Status*>(kRun, session, a.options, a.input_names, a.inputs, a.n, a.output_names,
                         a.m, a.outputs);
}

// A run of RunAsync. What its arguments name is the program's, which leaves it there until its
// function is called.
struct AsyncRun {
  const Runtime* runtime;
  RunArguments arguments;
  RunEnded ended;
  void* user;
};

// Is called in the place of the program's function, on a thread of ONNX Runtime's.
void AsyncEnded(void* run, void** outputs, size_t m, Status* status) {
  const AsyncRun a = *static_cast<AsyncRun*>(run);
  free(run);
  const Runtime& r = *a.runtime;
  Status* result = Rescue(
      r, a.arguments.session, status, [&](void* session) { return RunIn(r, session, a.arguments); },
      [&] { return Overlap(r, a.arguments); });
  if (status != nullptr && result == nullptr) {
    outputs = a.arguments.outputs;
    m = a.arguments.m;
  }
  a.ended(a.user, outputs, m, result);  // the program may release the session now
}

}  // namespace

Patched* Patched::New() {
  void* memory = malloc(sizeof(Patched));
  return memory == nullptr ? nullptr : new (memory) Patched;
}

void Patched::Delete() {
  if (own != nullptr) runtime->Call<void>(kReleaseSession, own);
  if (options != nullptr) runtime->Call<void>(kReleaseSessionOptions, options);
  for (size_t i = 0; i < files.size(); ++i) {
    free(const_cast<char*>(files[i].path));  // and its hash
  }
  this->~Patched();
  free(this);
}

void Keep(Patched* session) {
  const Lock lock(&state_lock);
  session->next = sessions;
  __atomic_store_n(&sessions, session, __ATOMIC_RELEASE);
}

uint64_t Reverted() { return __atomic_load_n(&reverted, __ATOMIC_RELAXED); }

void Release(const Runtime& r, void* session) {
  Patched* p = Take(session);  // before the address can name another
  r.Call<void>(kReleaseSession, session);
  if (p != nullptr) p->Delete();
}

Status* Run(const Runtime& r, const RunArguments& a) {
  return RunOrRescue(
      r, a.session, [&](void* session) { return RunIn(r, session, a); },
      [&] { return Overlap(r, a); });
}

Status* RunAsync(const Runtime& r, const RunArguments& a, RunEnded ended, void* user) {
  const auto run = [&](void* session, RunEnded function, void* data) {
    return r.Call<Status*>(kRunAsync, session, a.options, a.input_names, a.inputs, a.n,
                           a.output_names, a.m, a.outputs, function, data);
  };
  void* session = Running(a.session);
  if (session != a.session || ended == nullptr || Find(session) == nullptr) {
    return run(session, ended, user);
  }
  void* memory = malloc(sizeof(AsyncRun));
  if (memory == nullptr) return run(session, ended, user);
  Status* status = run(session, &AsyncEnded, new (memory) AsyncRun{&r, a, ended, user});
  if (status != nullptr) free(memory);  // the function is not called
  return status;
}

Status* RunWithBinding(const Runtime& r, void* session, const void* options, const void* binding) {
  // A binding refers to inputs and outputs by name, which both sessions have.
  return RunOrRescue(
      r, session,
      [&](void* runs) { return r.Call<Status*>(kRunWithBinding, runs, options, binding); },
      [&] { return BindingOverlaps(r, binding); });
}

void BindingCreated(void* session, const void* binding) {
  if (Find(session) == nullptr) return;
  void* memory = malloc(sizeof(Binding));
  if (memory == nullptr) return;
  auto* b = new (memory) Binding{binding, nullptr, {}, false};
  const Lock lock(&state_lock);
  b->next = bindings;
  __atomic_store_n(&bindings, b, __ATOMIC_RELEASE);
}

void BindingReleased(const void* binding) {
  if (!AnyBinding()) return;
  const Lock lock(&state_lock);
  for (Binding** at = &bindings; *at != nullptr; at = &(*at)->next) {
    Binding* b = *at;
    if (b->binding != binding) continue;
    __atomic_store_n(at, b->next, __ATOMIC_RELEASE);
    b->Clear();
    b->~Binding();
    free(b);
    return;
  }
}

void InputBound(const Runtime& r, const void* binding, const char* name, const void* value) {
  if (!AnyBinding()) return;
  Span span = {};
  const bool has = SpanOf(r, value, &span);
  const Lock lock(&state_lock);
  Binding* b = FindBinding(binding);
  if (b == nullptr) return;
  for (size_t i = 0; i < b->inputs.size(); ++i) {
    if (strcmp(b->inputs[i].name, name) != 0) continue;
    free(b->inputs[i].name);
    b->inputs.Remove(i);
    break;
  }
  if (!has) return;
  char* copy = strdup(name);
  if (copy == nullptr || !b->inputs.Add({copy, span})) {
    free(copy);
    b->unknown = true;
  }
}

void InputsCleared(const void* binding) {
  if (!AnyBinding()) return;
  const Lock lock(&state_lock);
  Binding* b = FindBinding(binding);
  if (b != nullptr) b->Clear();
}

}  // namespace graft
