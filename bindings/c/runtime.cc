#include "runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lock.h"
#include "options.h"
#include "say.h"
#include "session.h"
#include "settings.h"
#include "wayback.h"

namespace graft {
namespace {

constexpr int kRuntimes = 8;
Runtime runtimes[kRuntimes];

// libgraft's functions for the runtime of a number.
template <int I>
struct Hook {
  template <typename... A>
  static Status* Own(Slot slot, A... a) {
    return runtimes[I].Call<Status*>(slot, a...);
  }

  static Status* Make(Slot slot, void* mine, Creation c) {
    c.runtime = &runtimes[I];
    // Where somebody stands before this function, as graft in a Go program does, it is theirs to
    // patch.
    if (__atomic_load_n(&runtimes[I].table[slot], __ATOMIC_ACQUIRE) != mine) {
      c.left = "another hook creates it";
    } else if (c.left == nullptr && c.options != nullptr) {
      c.left = LeftFor(c.options);
    }
    return Create(c);
  }

  static Status* CreateSession(void* env, const char* path, void* options, void** out) {
    return Make(kCreateSession, reinterpret_cast<void*>(&CreateSession),
                {nullptr, env, path, nullptr, 0, options, nullptr, false, out, nullptr});
  }
  static Status* CreateSessionFromArray(void* env, const void* model, size_t size, void* options,
                                        void** out) {
    return Make(kCreateSessionFromArray, reinterpret_cast<void*>(&CreateSessionFromArray),
                {nullptr, env, nullptr, model, size, options, nullptr, false, out, nullptr});
  }
  static Status* CreateSessionWithPrepackedWeightsContainer(void* env, const char* path,
                                                            void* options, void* container,
                                                            void** out) {
    return Make(kCreateSessionWithPrepackedWeightsContainer,
                reinterpret_cast<void*>(&CreateSessionWithPrepackedWeightsContainer),
                {nullptr, env, path, nullptr, 0, options, container, true, out, nullptr});
  }
  static Status* CreateSessionFromArrayWithPrepackedWeightsContainer(void* env, const void* model,
                                                                     size_t size, void* options,
                                                                     void* container, void** out) {
    return Make(kCreateSessionFromArrayWithPrepackedWeightsContainer,
                reinterpret_cast<void*>(&CreateSessionFromArrayWithPrepackedWeightsContainer),
                {nullptr, env, nullptr, model, size, options, container, true, out, nullptr});
  }
  static void ReleaseSession(void* session) { Release(runtimes[I], session); }

  static Status* Run(void* session, const void* options, const char* const* input_names,
                     const void* const* inputs, size_t n, const char* const* output_names, size_t m,
                     void** outputs) {
    return graft::Run(runtimes[I],
                      {session, options, input_names, inputs, n, output_names, m, outputs});
  }
  static Status* RunAsync(void* session, const void* options, const char* const* input_names,
                          const void* const* inputs, size_t n, const char* const* output_names,
                          size_t m, void** outputs, RunEnded ended, void* user) {
    return graft::RunAsync(runtimes[I],
                           {session, options, input_names, inputs, n, output_names, m, outputs},
                           ended, user);
  }
  static Status* RunWithBinding(void* session, const void* options, const void* binding) {
    return graft::RunWithBinding(runtimes[I], session, options, binding);
  }
  static Status* CreateIoBinding(void* session, void** out) {
    Status* status = Own(kCreateIoBinding, session, out);
    if (status == nullptr) BindingCreated(session, *out);
    return status;
  }
  static void ReleaseIoBinding(void* binding) {
    BindingReleased(binding);  // before the address can name another
    runtimes[I].Call<void>(kReleaseIoBinding, binding);
  }
  static Status* BindInput(void* binding, const char* name, const void* value) {
    Status* status = Own(kBindInput, binding, name, value);
    if (status == nullptr) InputBound(runtimes[I], binding, name, value);
    return status;
  }
  static void ClearBoundInputs(void* binding) {
    runtimes[I].Call<void>(kClearBoundInputs, binding);
    InputsCleared(binding);
  }

  static Status* CreateSessionOptions(void** out) {
    Status* status = Own(kCreateSessionOptions, out);
    if (status == nullptr) Forget(*out);
    return status;
  }
  static Status* CloneSessionOptions(void* options, void** out) {
    Status* status = Own(kCloneSessionOptions, options, out);
    if (status == nullptr) {
      Forget(*out);
      CopyNotes(options, *out);
    }
    return status;
  }
  static void ReleaseSessionOptions(void* options) {
    Forget(options);  // before the address can name others
    runtimes[I].Call<void>(kReleaseSessionOptions, options);
  }

  static Status* AddInitializer(void* options, const char* name, const void* value) {
    NoteLends(options);
    return Own(kAddInitializer, options, name, value);
  }
  static Status* AddExternalInitializers(void* options, const char* const* names,
                                         const void* const* values, size_t n) {
    NoteLends(options);
    return Own(kAddExternalInitializers, options, names, values, n);
  }
  static Status* AddExternalInitializersFromFilesInMemory(void* options, const char* const* names,
                                                          char* const* buffers,
                                                          const size_t* lengths, size_t n) {
    NoteLends(options);
    return Own(kAddExternalInitializersFromFilesInMemory, options, names, buffers, lengths, n);
  }

  // Providers come by a function of their own, with a struct of options.
#define GRAFT_PROVIDER(name)                                 \
  static Status* name(void* options, const void* provider) { \
    Status* status = Own(k##name, options, provider);        \
    if (status == nullptr) NoteProvider(options);            \
    return status;                                           \
  }
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_CUDA)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_ROCM)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_OpenVINO)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_TensorRT)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_TensorRT_V2)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_CUDA_V2)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_MIGraphX)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_CANN)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_Dnnl)
#undef GRAFT_PROVIDER
  // Or with keys and values.
#define GRAFT_PROVIDER(name)                                                             \
  static Status* name(void* options, const char* const* keys, const char* const* values, \
                      size_t n) {                                                        \
    Status* status = Own(k##name, options, keys, values, n);                             \
    if (status == nullptr) NoteProvider(options);                                        \
    return status;                                                                       \
  }
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_OpenVINO_V2)
  GRAFT_PROVIDER(SessionOptionsAppendExecutionProvider_VitisAI)
#undef GRAFT_PROVIDER
  // By name, by device, or by what ONNX Runtime chooses.
  static Status* SessionOptionsAppendExecutionProvider(void* options, const char* name,
                                                       const char* const* keys,
                                                       const char* const* values, size_t n) {
    Status* status = Own(kSessionOptionsAppendExecutionProvider, options, name, keys, values, n);
    if (status == nullptr) NoteProvider(options);
    return status;
  }
  static Status* SessionOptionsAppendExecutionProvider_V2(void* options, void* env,
                                                          const void* const* devices, size_t count,
                                                          const char* const* keys,
                                                          const char* const* values, size_t n) {
    Status* status = Own(kSessionOptionsAppendExecutionProvider_V2, options, env, devices, count,
                         keys, values, n);
    for (size_t i = 0; status == nullptr && i < count; ++i) {
      const char* name = runtimes[I].Call<const char*>(kEpDevice_EpName, devices[i]);
      if (name == nullptr || strcmp(name, "CPUExecutionProvider") != 0) {
        NoteProvider(options);
      }
    }
    return status;
  }
  static Status* SessionOptionsSetEpSelectionPolicy(void* options, int policy) {
    Status* status = Own(kSessionOptionsSetEpSelectionPolicy, options, policy);
    if (status == nullptr) NoteProvider(options);
    return status;
  }
  static Status* SessionOptionsSetEpSelectionPolicyDelegate(void* options, void* delegate,
                                                            void* state) {
    Status* status = Own(kSessionOptionsSetEpSelectionPolicyDelegate, options, delegate, state);
    if (status == nullptr) NoteProvider(options);
    return status;
  }

  static void* Function(Slot slot) {
    switch (slot) {
#define GRAFT_FUNCTION(name, index) \
  case k##name:                     \
    return reinterpret_cast<void*>(&name);
      GRAFT_HOOKED_SLOTS(GRAFT_FUNCTION)
#undef GRAFT_FUNCTION
      default:
        return nullptr;
    }
  }
};

void* HookOf(int runtime, Slot slot) {
  static_assert(kRuntimes == 8, "a case for each runtime");
  switch (runtime) {
    case 0:
      return Hook<0>::Function(slot);
    case 1:
      return Hook<1>::Function(slot);
    case 2:
      return Hook<2>::Function(slot);
    case 3:
      return Hook<3>::Function(slot);
    case 4:
      return Hook<4>::Function(slot);
    case 5:
      return Hook<5>::Function(slot);
    case 6:
      return Hook<6>::Function(slot);
    default:
      return Hook<7>::Function(slot);
  }
}

#define GRAFT_HOOKED(name, index) k##name,
constexpr Slot kHooked[kHooks] = {GRAFT_HOOKED_SLOTS(GRAFT_HOOKED)};
#undef GRAFT_HOOKED

// The protection of the page at an address, by the process's memory map; -1 where that cannot be
// known.
int Protection(uintptr_t address) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return -1;
  int found = -1;
  char* line = nullptr;
  size_t capacity = 0;
  while (found < 0 && getline(&line, &capacity, maps) > 0) {
    char* at = line;
    const uintptr_t start = strtoull(at, &at, 16);
    if (*at != '-') continue;
    const uintptr_t end = strtoull(at + 1, &at, 16);
    if (address < start || address >= end || strlen(at) < 4) continue;
    found = (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0) |
            (at[3] == 'x' ? PROT_EXEC : 0);
  }
  free(line);
  fclose(maps);
  return found;
}

// Puts libgraft's functions in a runtime's table, which is read-only but for this moment. Whoever
// reads it meanwhile sees one function or the other.
bool Fill(int number) {
  Runtime& r = runtimes[number];
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (int i = 0; i < kHooks; ++i) {
    const auto at = reinterpret_cast<uintptr_t>(r.table + kHooked[i]);
    low = at < low ? at : low;
    high = at > high ? at : high;
    r.original[i] = __atomic_load_n(r.table + kHooked[i], __ATOMIC_ACQUIRE);
  }
  low -= low % page;
  high -= high % page;
  int before[16];
  const size_t pages = (high - low) / page + 1;
  if (pages > sizeof before / sizeof *before) return false;
  bool writable = true;
  size_t done = 0;
  for (; done < pages && writable; ++done) {
    before[done] = Protection(low + done * page);
    // Without /proc it is what linkers leave.
    if (before[done] < 0) before[done] = PROT_READ;
    if ((before[done] & PROT_WRITE) != 0) continue;
    writable =
        mprotect(reinterpret_cast<void*>(low + done * page), page, before[done] | PROT_WRITE) == 0;
  }
  if (writable) {
    for (int i = 0; i < kHooks; ++i) {
      __atomic_store_n(r.table + kHooked[i], HookOf(number, kHooked[i]), __ATOMIC_RELEASE);
    }
  }
  for (size_t i = 0; i < done; ++i) {
    if ((before[i] & PROT_WRITE) == 0) {
      mprotect(reinterpret_cast<void*>(low + i * page), page, before[i]);
    }
  }
  return writable;
}

// The N of a version 1.N.
int ApiOf(const char* version) {
  const char* minor = version == nullptr ? nullptr : After(version, "1.");
  if (minor == nullptr || *minor < '0' || *minor > '9') return 0;
  return static_cast<int>(strtol(minor, nullptr, 10));
}

const char* ObjectOf(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "a program";
}

// Whether two addresses are in one object.
bool Together(const void* a, const void* b) {
  Dl_info x, y;
  return dladdr(a, &x) != 0 && dladdr(b, &y) != 0 && x.dli_fbase == y.dli_fbase;
}

}  // namespace

bool Runtime::Succeeded(Status* status, Text* error) const {
  if (status == nullptr) return true;
  error->Clear();
  error->Add(Call<const char*>(kGetErrorMessage, status));
  Call<void>(kReleaseStatus, status);
  return false;
}

void Attach(const ApiBase* base, const void* function) {
  if (base == nullptr) return;
  const Lock lock(&attach_lock);
  const char* version = base->get_version();
  const int api = ApiOf(version);
  if (api < GRAFT_OLDEST_API) {
    if (!Enabled()) return;
    Text text(ObjectOf(function));
    text.Add(": found ONNX Runtime ").Add(version == nullptr ? "of no version" : version);
    text.Add(", needed 1.")
        .Number(GRAFT_OLDEST_API)
        .Add(" or newer; its sessions are as without graft");
    Warn(Cause::kOldRuntime, text);
    return;
  }
  void** table = base->get_api(static_cast<uint32_t>(api));
  if (table == nullptr) return;
  int free = -1;
  for (int i = 0; i < kRuntimes; ++i) {
    if (runtimes[i].table == nullptr) {
      free = free < 0 ? i : free;
    } else if (runtimes[i].table == table) {
      // Functions of its own again: it was unloaded, and loaded where it had been.
      if (!Together(table[kCreateSession], table)) return;
      free = i;
      break;
    }
  }
  Text text(ObjectOf(function));
  if (free < 0) {
    text.Add(": found more than ").Number(kRuntimes);
    text.Add(" ONNX Runtimes in the process; sessions of this one are as without graft");
    Warn(Cause::kManyRuntimes, text);
    return;
  }
  runtimes[free].api = api;
  runtimes[free].knows_domain = false;
  runtimes[free].table = table;
  if (!Fill(free)) {
    runtimes[free].table = nullptr;
    text.Add(": cannot write to its table of functions: ").Add(strerror(errno));
    text.Add("; its sessions are as without graft");
    Warn(Cause::kProtected, text);
  }
}

int Attached() {
  const Lock lock(&attach_lock);
  int n = 0;
  for (const Runtime& r : runtimes) n += r.table != nullptr ? 1 : 0;
  return n;
}

const Runtime* AnyRuntime() {
  const Lock lock(&attach_lock);
  for (const Runtime& r : runtimes) {
    if (r.table != nullptr) return &r;
  }
  return nullptr;
}

}  // namespace graft
