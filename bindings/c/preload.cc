// What libgraft.so exports, and how it comes to see every ONNX Runtime.
//
// Preloaded, its OrtGetApiBase is what programs and libraries are bound to that link ONNX Runtime;
// and its dlsym is what those call that open it. Both answer with ONNX Runtime's own, in whose
// table the functions that create sessions were replaced before.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include "graft_enable.h"
#include "options.h"
#include "say.h"
#include "session.h"
#include "settings.h"
#include "wayback.h"

#define GRAFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace graft {
namespace {

using GetBase = const ApiBase* (*)();
using Dlsym = void* (*)(void*, const char*);

constexpr char kBase[] = "OrtGetApiBase";

// The C library's dlsym, or that of a library that was preloaded after this one. There is none only
// where the C library is not glibc.
Dlsym RealDlsym() {
  static void* known = nullptr;
  void* real = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (real == nullptr) {
    // The versions of glibc 2.34, of x86-64 and of arm64.
    static const char* const kVersions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (const char* version : kVersions) {
      real = dlvsym(RTLD_NEXT, "dlsym", version);
      if (real != nullptr) break;
    }
    __atomic_store_n(&known, real, __ATOMIC_RELEASE);
  }
  return reinterpret_cast<Dlsym>(real);
}

bool IsMine(const void* address) {
  Dl_info a, b;
  return dladdr(address, &a) != 0 && dladdr(reinterpret_cast<const void*>(&IsMine), &b) != 0 &&
         a.dli_fbase == b.dli_fbase;
}

// A function as a library that is loaded has it, or one that it depends on; null where that is
// none, or ours.
void* In(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  const Dlsym real = RealDlsym();
  void* found = real == nullptr ? nullptr : real(handle, name);
  dlclose(handle);  // the reference, no more
  return found != nullptr && !IsMine(found) ? found : nullptr;
}

int AddName(dl_phdr_info* info, size_t, void* list) {
  char* name =
      info->dlpi_name == nullptr || *info->dlpi_name == 0 ? nullptr : strdup(info->dlpi_name);
  if (name != nullptr && !static_cast<List<char*>*>(list)->Add(name)) free(name);
  return 0;
}

// Calls f with every library of the process that has a function itself, until it returns true.
template <typename F>
void Everywhere(const char* name, F f) {
  List<char*> names;
  dl_iterate_phdr(&AddName, &names);  // which holds a lock, so that nothing is opened meanwhile
  bool done = false;
  for (size_t i = 0; i < names.size(); ++i) {
    void* found = done ? nullptr : In(names[i], name);
    Dl_info info;
    if (found != nullptr && dladdr(found, &info) != 0 && info.dli_fname != nullptr &&
        strcmp(info.dli_fname, names[i]) == 0) {
      done = f(found);
    }
    free(names[i]);
  }
}

// ONNX Runtime's function, as the code at an address means it: that of the library that the code's
// library was linked with, the next in the order of the process, or that of any library.
void* Real(const char* name, const void* caller) {
  Dl_info info;
  void* found = nullptr;
  if (dladdr(caller, &info) != 0 && info.dli_fname != nullptr) found = In(info.dli_fname, name);
  if (found == nullptr) {
    const Dlsym real = RealDlsym();
    found = real == nullptr ? nullptr : real(RTLD_NEXT, name);
    if (found != nullptr && IsMine(found)) found = nullptr;
  }
  if (found == nullptr) {
    Everywhere(name, [&found](void* f) {
      found = f;
      return true;
    });
  }
  return found;
}

// Sees a runtime by its OrtGetApiBase.
const ApiBase* See(void* function) {
  Begin();
  const ApiBase* base = reinterpret_cast<GetBase>(function)();
  Attach(base, function);
  return base;
}

// The exported functions beside the table, by which some bindings append providers.
#define GRAFT_APPENDERS(X) X(CUDA) X(Tensorrt) X(ROCM) X(MIGraphX) X(Dnnl)

Status* Append(const char* name, void* options, int value, const void* caller) {
  void* real = Real(name, caller);
  if (real == nullptr) {
    const Runtime* any = AnyRuntime();
    constexpr int kNotImplemented = 9;
    return any == nullptr ? nullptr
                          : any->Call<Status*>(kCreateStatus, kNotImplemented,
                                               "this ONNX Runtime has no such execution provider");
  }
  auto* status = CallAt<Status*>(real, options, value);
  if (status == nullptr) NoteProvider(options);
  return status;
}

}  // namespace
}  // namespace graft

#define GRAFT_APPENDER(name)                                                                 \
  GRAFT_EXPORT graft::Status* OrtSessionOptionsAppendExecutionProvider_##name(void* options, \
                                                                              int value) {   \
    return graft::Append("OrtSessionOptionsAppendExecutionProvider_" #name, options, value,  \
                         __builtin_return_address(0));                                       \
  }
GRAFT_APPENDERS(GRAFT_APPENDER)
#undef GRAFT_APPENDER

namespace {

// For a program that is bound to OrtGetApiBase without there being one. Where this library stands
// before ONNX Runtime, the linker finds that one's function here, and leaves ONNX Runtime out.
void** NoApi(uint32_t) {
  graft::Warn(graft::Cause::kNoRuntime,
              graft::Text("found no ONNX Runtime in the program, needed -lonnxruntime before "
                          "-lgraft when it is linked"));
  return nullptr;
}
const char* NoVersion() { return ""; }
const graft::ApiBase kNothing = {&NoApi, &NoVersion};

}  // namespace

GRAFT_EXPORT const graft::ApiBase* OrtGetApiBase() {
  void* real = graft::Real(graft::kBase, __builtin_return_address(0));
  return real == nullptr ? &kNothing : graft::See(real);
}

// What dlsym does with a name: result where real is null, otherwise the call goes on to real as it
// came.
struct graft_dlsym_answer {
  void *result, *real;
};

extern "C" __attribute__((visibility("hidden"))) graft_dlsym_answer graft_dlsym_seen(
    void* handle, const char* name, const void* caller) {
  void* const real = reinterpret_cast<void*>(graft::RealDlsym());
  if (name == nullptr || real == nullptr || name[0] != 'O' || name[1] != 'r' || name[2] != 't') {
    return {nullptr, real};
  }
  const bool base = strcmp(name, graft::kBase) == 0;
  void* mine = nullptr;
#define GRAFT_APPENDER(provider)                                                          \
  if (strcmp(name, "OrtSessionOptionsAppendExecutionProvider_" #provider) == 0) {         \
    mine = reinterpret_cast<void*>(&OrtSessionOptionsAppendExecutionProvider_##provider); \
  }
  GRAFT_APPENDERS(GRAFT_APPENDER)
#undef GRAFT_APPENDER
  if (!base && mine == nullptr) return {nullptr, real};

  const bool of_caller = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
  void* found =
      of_caller ? graft::Real(name, caller) : reinterpret_cast<graft::Dlsym>(real)(handle, name);
  if (found != nullptr && graft::IsMine(found)) found = graft::Real(name, caller);
  if (found == nullptr) {
    // Ours is no sign that there is a runtime. A name that nobody has leaves the C library's
    // message.
    reinterpret_cast<graft::Dlsym>(real)(handle, base ? "OrtGetApiBase (no ONNX Runtime is loaded)"
                                                      : "execution provider of ONNX Runtime");
    return {nullptr, nullptr};
  }
  if (base) graft::See(found);
  return {base ? found : mine, nullptr};
}

// dlsym itself. The C library's looks at its return address to know who calls: so this one leaves
// no trace of itself on the stack where it goes on.
#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, @function
  .p2align 4
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call graft_dlsym_seen
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rdx, %rdx
  jz 1f
  jmp *%rdx
1:
  ret
  .cfi_endproc
  .size dlsym, .-dlsym
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, %function
  .p2align 4
dlsym:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  mov x29, sp
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl graft_dlsym_seen
  mov x16, x1
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore 30
  .cfi_restore 29
  .cfi_def_cfa_offset 0
  cbz x16, 1f
  br x16
1:
  mov x0, x17
  ret
  .cfi_endproc
  .size dlsym, .-dlsym
  .popsection
)");
#else
#error "libgraft.so is for x86-64 and arm64"
#endif

GRAFT_EXPORT int graft_enable(const char* options) {
  graft::Begin();
  if (!graft::Enable(options)) return -1;
  // A program that links both may have taken its table before.
  graft::Everywhere(graft::kBase, [](void* function) {
    graft::See(function);
    return false;
  });
  return graft::Attached();
}

GRAFT_EXPORT void graft_disable() {
  graft::Begin();
  graft::Disable();
}

GRAFT_EXPORT void graft_sessions(uint64_t* patched, uint64_t* left) { graft::Count(patched, left); }

GRAFT_EXPORT uint64_t graft_reverted() { return graft::Reverted(); }
