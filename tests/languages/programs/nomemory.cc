// Memory that ends: preloaded, this has one call fail by which libgraft.so asks for memory, of the
// number that NO_MEMORY says, and prints a line then.
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

extern "C" void* __libc_malloc(size_t n);
extern "C" void* __libc_realloc(void* at, size_t n);

namespace {

struct Range {
  uintptr_t start, end;
};

int Find(dl_phdr_info* info, size_t, void* found) {
  if (info->dlpi_name == nullptr || strstr(info->dlpi_name, "libgraft.so") == nullptr) return 0;
  auto* range = static_cast<Range*>(found);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD) continue;
    const uintptr_t start = info->dlpi_addr + p.p_vaddr;
    if (range->start == 0) range->start = start;
    range->end = start + p.p_memsz;
  }
  return 1;
}

bool Fails(const void* caller) {
  static Range graft = {};
  static long calls = 0;
  const char* number = getenv("NO_MEMORY");
  if (number == nullptr) return false;
  if (graft.end == 0) dl_iterate_phdr(&Find, &graft);
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at < graft.start || at >= graft.end) return false;
  if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != atol(number)) return false;
  const char line[] = "nomemory: failed\n";
  const ssize_t ignored = write(STDERR_FILENO, line, sizeof line - 1);
  static_cast<void>(ignored);
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" void* malloc(size_t n) {
  return Fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(n);
}

extern "C" void* realloc(void* at, size_t n) {
  return Fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(at, n);
}

extern "C" char* strdup(const char* s) {
  if (Fails(__builtin_return_address(0))) return nullptr;
  const size_t n = strlen(s) + 1;
  void* copy = __libc_malloc(n);
  return copy == nullptr ? nullptr : static_cast<char*>(memcpy(copy, s, n));
}

extern "C" void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t from) {
  if (Fails(__builtin_return_address(0))) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, fd, from));
}
