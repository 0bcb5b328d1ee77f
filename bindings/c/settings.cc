#include "settings.h"

#include <dlfcn.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lock.h"
#include "say.h"

namespace graft {
namespace {

bool enabled = false, forbidden = false;
bool preloaded = false;       // LD_PRELOAD had this library when the process began
char* options_now = nullptr;  // lines; null for none
int deadline = 60000;         // milliseconds

// The path of the library that this is, or "".
const char* Self() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&Self), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  return info.dli_fname;
}

const char* BaseName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

bool IsExecutable(const Text& path) {
  struct stat s;
  return stat(path.c(), &s) == 0 && S_ISREG(s.st_mode) && access(path.c(), X_OK) == 0;
}

// Whether every line is an option.
bool AreOptions(const char* lines) {
  if (strlen(lines) > 100000) return false;
  while (*lines != 0) {
    const char* end = strchrnul(lines, '\n');
    if (end != lines && (After(lines, "--") == nullptr || end - lines < 3)) return false;
    lines = *end == 0 ? end : end + 1;
  }
  return true;
}

bool SetOptions(const char* lines) {
  char* copy = nullptr;
  if (lines != nullptr && *lines != 0) {
    if (!AreOptions(lines) || (copy = strdup(lines)) == nullptr) return false;
  }
  const Lock lock(&state_lock);
  free(options_now);
  options_now = copy;
  return true;
}

// Seconds, with a fraction or not, as milliseconds; -1 where it is no such number.
int Milliseconds(const char* text) {
  long n = 0, part = 0, unit = 1000;
  const char* p = text;
  for (; *p >= '0' && *p <= '9' && n < 100000; ++p) n = 10 * n + (*p - '0');
  if (p == text) return -1;
  if (*p == '.') {
    for (++p; *p >= '0' && *p <= '9'; ++p) {
      if (unit == 1) continue;
      unit /= 10;
      part += unit * (*p - '0');
    }
  }
  n = 1000 * n + part;
  return *p == 0 && n > 0 && n <= 24L * 60 * 60 * 1000 ? static_cast<int>(n) : -1;
}

// Asked when the library is loaded: programs take themselves out of LD_PRELOAD, for the sake of
// their children.
bool PreloadsThis() {
  const char* list = getenv("LD_PRELOAD");
  const char* name = BaseName(Self());
  if (*name == 0) return false;
  while (list != nullptr && *list != 0) {
    const size_t n = strcspn(list, ": ");
    const size_t length = strlen(name);
    if (n >= length && memcmp(list + n - length, name, length) == 0 &&
        (n == length || list[n - length - 1] == '/')) {
      return true;
    }
    list += n;
    list += *list != 0 ? 1 : 0;
  }
  return false;
}

// Programs take it out of LD_PRELOAD for the sake of their children.
__attribute__((constructor)) void Loaded() { preloaded = PreloadsThis(); }

// Whether this process is the command graft, whose own sessions are not for it to patch.
bool IsGraft() {
  Text binary;
  struct stat a, b;
  return FindBinary(&binary) && stat(binary.c(), &a) == 0 && stat("/proc/self/exe", &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void ReadSettings() {
  WatchForks();
  // The caller of a program with more rights must not say what it runs.
  if (getauxval(AT_SECURE) != 0) {
    forbidden = true;
    return;
  }
  const char* value = getenv("GRAFT_DISABLE");
  forbidden = (value != nullptr && strcmp(value, "1") == 0) || IsGraft();
  value = getenv("GRAFT_GRAPH_DEADLINE");
  if (value != nullptr && *value != 0) {
    const int n = Milliseconds(value);
    if (n > 0) {
      deadline = n;
    } else {
      Text text("GRAFT_GRAPH_DEADLINE: found \"");
      text.Add(value).Add("\", needed seconds above 0 and up to 86400; it is 60");
      Warn(Cause::kOptions, text);
    }
  }
  bool on = !forbidden && preloaded;
  value = getenv("GRAFT_OPTIONS");
  if (on && !SetOptions(value)) {
    Text text("GRAFT_OPTIONS: found \"");
    text.Add(value).Add(
        "\", needed options of graft graph, one a line; sessions are as without graft");
    Warn(Cause::kOptions, text);
    on = false;
  }
  __atomic_store_n(&enabled, on, __ATOMIC_RELEASE);
}

}  // namespace

bool FindBinary(Text* path) {
  const char* named = getenv("GRAFT_BINARY");
  if (named != nullptr && *named != 0) {
    path->Add(named);
    return IsExecutable(*path);
  }
  char self[PATH_MAX];
  if (realpath(Self(), self) != nullptr) {
    static const char* const kNear[] = {"/graft", "/../bin/graft", "/../../bin/graft"};
    for (const char* near : kNear) {
      path->Clear();
      path->Add(self, static_cast<size_t>(BaseName(self) - self - 1)).Add(near);
      char resolved[PATH_MAX];
      if (IsExecutable(*path) && realpath(path->c(), resolved) != nullptr) {
        path->Clear();
        path->Add(resolved);
        return true;
      }
    }
  }
  for (const char* at = getenv("PATH"); at != nullptr && *at != 0;) {
    const char* end = strchrnul(at, ':');
    path->Clear();
    if (*at == '/') {
      path->Add(at, static_cast<size_t>(end - at)).Add("/graft");
      if (IsExecutable(*path)) return true;
    }
    at = *end == 0 ? nullptr : end + 1;
  }
  path->Clear();
  return false;
}

bool CacheFolder(Text* folder) {
  const char* base = getenv("XDG_CACHE_HOME");
  if (base != nullptr && *base != 0) {
    folder->Add(base);
  } else {
    base = getenv("HOME");
    if (base == nullptr || *base == 0) return false;
    folder->Add(base).Add("/.cache");
  }
  folder->Add("/graft/graphs/");
  return *base == '/' && !folder->bad();
}

void Begin() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &ReadSettings);
}

bool Enabled() { return __atomic_load_n(&enabled, __ATOMIC_ACQUIRE); }

bool Enable(const char* options) {
  if (!SetOptions(options)) return false;
  __atomic_store_n(&enabled, !forbidden, __ATOMIC_RELEASE);
  return true;
}

void Disable() { __atomic_store_n(&enabled, false, __ATOMIC_RELEASE); }

void AddOptions(Text* lines) {
  const Lock lock(&state_lock);
  if (options_now != nullptr) lines->Add(options_now);
}

int Deadline() { return deadline; }

}  // namespace graft
