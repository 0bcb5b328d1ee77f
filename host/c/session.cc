#include "session.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "entry.h"
#include "lock.h"
#include "say.h"
#include "sha256.h"
#include "weights.h"

namespace graft {
namespace {

constexpr char kFolderEntry[] = "session.model_external_initializers_file_folder_path";
constexpr char kDomainEntry[] = "graft.domain.v1";  // GRAFT_ORT_DOMAIN_KEY of graft_plugin.h

pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER;   // of all below; for moments only
pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;  // held while the command runs

bool enabled = false, forbidden = false;
char* options_now = nullptr;  // lines; null for none
int deadline = 60000;         // milliseconds
uint64_t patched_sessions = 0, left_sessions = 0;

// What the command failed for, so that it is not asked again: the key, and the model's size and
// time.
struct Failure {
  char key[33];
  int64_t size, time;
};
constexpr size_t kMostFailures = 256;
Failure failures[kMostFailures];
size_t failed = 0;  // so many ever
bool hung = false;  // the deadline passed once

// Weights of a session whose runtime may read them as long as it is there.
struct Kept {
  void* session;
  void* at;
  size_t size;
  Kept* next;
};
Kept* kept = nullptr;

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

// The command graft: GRAFT_BINARY, near this library, or on PATH.
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
  const Lock lock(&state);
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

// Whether this process is the command graft, whose own sessions are not for it to patch.
bool IsGraft() {
  Text binary;
  struct stat a, b;
  return FindBinary(&binary) && stat(binary.c(), &a) == 0 && stat("/proc/self/exe", &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void AfterFork() {
  StateUnlock();
  asking = PTHREAD_MUTEX_INITIALIZER;  // the thread that held it is not there
  AttachAfterFork();
}

void ReadSettings() {
  pthread_atfork(&StateLock, &StateUnlock, &AfterFork);
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
  bool on = !forbidden && PreloadsThis();
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

// The cache's folder of graphs, as the command finds it.
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

// Why there is no patched session.
struct Why {
  enum What { kLeft, kFailure } what = kLeft;
  Cause cause = Cause::kSession;
  bool said = false;  // the cause was a warning before
  Text text;

  bool Left(const char* reason) {
    what = kLeft;
    text.Clear();
    text.Add(reason);
    return false;
  }
  bool Fail(Cause c, const char* reason) {
    what = kFailure;
    cause = c;
    text.Clear();
    text.Add(reason);
    return false;
  }
};

// A session config entry of options; false where there is none.
bool Config(const Runtime& r, void* options, const char* key, Text* value) {
  int has = 0;
  Text error;
  if (options == nullptr ||
      !r.Succeeded(r.Call<Status*>(kHasSessionConfigEntry, options, key, &has), &error) ||
      has == 0) {
    return false;
  }
  size_t size = 0;
  char* none = nullptr;
  if (!r.Succeeded(r.Call<Status*>(kGetSessionConfigEntry, options, key, none, &size), &error) ||
      size == 0 || size > 100000) {
    return false;
  }
  auto* buffer = static_cast<char*>(malloc(size));
  if (buffer == nullptr) return false;
  const bool ok =
      r.Succeeded(r.Call<Status*>(kGetSessionConfigEntry, options, key, buffer, &size), &error);
  if (ok) value->Add(buffer);  // size counts the final zero
  free(buffer);
  return ok;
}

// Whether options have entries of providers, which those that are appended by name leave there.
bool HasProviderEntries(const Runtime& r, void* options) {
  if (options == nullptr || r.api < 23) return false;
  void* pairs = nullptr;
  Text error;
  if (!r.Succeeded(CallAt<Status*>(r.table[GRAFT_SLOT_GetSessionOptionsConfigEntries],
                                   static_cast<const void*>(options), &pairs),
                   &error)) {
    return false;
  }
  const char *const *keys = nullptr, *const *values = nullptr;
  size_t n = 0;
  r.Call<void>(kGetKeyValuePairs, pairs, &keys, &values, &n);
  bool found = false;
  for (size_t i = 0; i < n; ++i) {
    const char* name = After(keys[i], "ep.");
    const char* end = name == nullptr ? nullptr : strstr(name, "executionprovider.");
    found = found || (end != nullptr && After(name, "cpuexecutionprovider.") == nullptr);
  }
  r.Call<void>(kReleaseKeyValuePairs, pairs);
  return found;
}

// A model about to become a session.
class Model {
 public:
  Model(const Creation& c, Why* why) : c_(c), r_(*c.runtime), why_(why) {}

  // Creates the patched session; false where there is none, and the caller's own is to be made.
  bool Patched(int* replaced);

  void Name(Text* name) const {
    if (c_.path != nullptr) {
      name->Add(c_.path);
    } else {
      name->Add("a model of ").Number(static_cast<long long>(c_.size)).Add(" bytes in memory");
    }
  }

 private:
  bool Lines();
  bool Find();
  bool Key(bool whole);
  bool Look(bool whole);
  bool Ask(bool whole, const char* entry_path);
  bool Failed() const;
  void Remember(bool hung_now);
  bool Temporary(Text* path);
  bool IsOwn(const char* location, size_t size) const;
  bool Make(bool whole, Bytes* graph, const Externals& externals);
  bool Equip(void* options, const Bytes& graph, const Externals& externals, Bytes* memory);
  bool Give(void* options, const Externals& externals, Bytes* memory);
  bool Step(Status* status, Cause cause);
  void Drop() const;

  const Creation& c_;
  const Runtime& r_;
  Why* why_;
  Text lines_;      // options of the command, one a line
  Text path_;       // absolute; "" for bytes
  char hash_[65];   // of bytes
  File file_ = {};  // the model's, or the size of bytes
  Text binary_;
  Text folder_;  // of the cache
  char key_[65];
  Entry entry_;
};

// What a session's own config entries say, over the options of the process.
bool Model::Lines() {
  Text value;
  if (Config(r_, c_.options, "graft.disable", &value) && value.Is("1")) {
    return why_->Left("session config entry graft.disable is 1");
  }
  value.Clear();
  if (Config(r_, c_.options, kDomainEntry, &value)) {
    return why_->Left("the program registered graft's operators itself");
  }
  if (HasProviderEntries(r_, c_.options)) {
    return why_->Left("the session has other execution providers than the CPU's");
  }
  Text plugins, padding;
  Config(r_, c_.options, "graft.plugins", &plugins);
  Config(r_, c_.options, "graft.padding", &padding);
  if (strpbrk(plugins.c(), "\n\r") != nullptr || strpbrk(padding.c(), "\n\r") != nullptr) {
    return why_->Fail(Cause::kOptions, "a session config entry of graft's has several lines");
  }
  Text all;
  {
    const Lock lock(&state);
    if (options_now != nullptr) all.Add(options_now);
  }
  for (const char* at = all.c(); *at != 0;) {
    const char* end = strchrnul(at, '\n');
    const bool replaced = (!plugins.empty() && After(at, "--plugins=") != nullptr) ||
                          (!padding.empty() && After(at, "--padding=") != nullptr);
    if (end != at && !replaced) lines_.Add(at, static_cast<size_t>(end - at)).Add("\n");
    at = *end == 0 ? end : end + 1;
  }
  if (!plugins.empty()) lines_.Add("--plugins=").Add(plugins).Add("\n");
  if (!padding.empty()) lines_.Add("--padding=").Add(padding).Add("\n");
  return !lines_.bad() || why_->Fail(Cause::kMemory, "no memory");
}

// Finds what the program means, where that is a model that the command can read.
bool Model::Find() {
  unsigned char first[8] = {};
  bool known = false;
  if (c_.path != nullptr) {
    if (*c_.path != '/') {
      char here[PATH_MAX];
      if (getcwd(here, sizeof here) == nullptr) return why_->Left("the current folder has no path");
      path_.Add(here).Add("/");
    }
    path_.Add(c_.path);
    struct stat s;
    const int fd = open(path_.c(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    // ONNX Runtime says better what is wrong.
    if (fd < 0) return why_->Left("it cannot be opened");
    known = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    if (known) known = ReadAt(fd, first, sizeof first, 0);
    close(fd);
    if (!known) return why_->Left("it is no file of a model");
    FileAt(path_.c(), &file_);
    if (strpbrk(path_.c(), "\n\r") != nullptr) return why_->Left("its path has several lines");
  } else {
    if (c_.model == nullptr || c_.size < sizeof first) return why_->Left("it is no model");
    memcpy(first, c_.model, sizeof first);
    file_.size = static_cast<int64_t>(c_.size);
  }
  if (memcmp(first + 4, "ORTM", 4) == 0) return why_->Left("it is in ONNX Runtime's own format");
  return true;
}

// The name of an entry: a hash of what it depends on and can be known without the command.
bool Model::Key(bool whole) {
  File binary;
  if (!FileAt(binary_.c(), &binary) || binary.size < 0) {
    return why_->Fail(Cause::kNoBinary, "the command graft is gone");
  }
  const char* plugins = getenv("GRAFT_PLUGIN_PATH");
  Text text("graft graph 1\n");
  text.Add(binary_).Add("\n").Number(binary.size).Add("\n").Number(binary.time).Add("\n");
  text.Add(lines_).Add(whole ? "--whole\n" : "").Add(plugins == nullptr ? "" : plugins).Add("\n");
  if (c_.path != nullptr) {
    text.Add("path ").Add(path_).Add("\n");
  } else {
    text.Add("bytes ").Add(hash_).Add("\n");
  }
  if (text.bad()) return why_->Fail(Cause::kMemory, "no memory");
  Sha256(text.c(), text.size(), key_);
  key_[32] = 0;
  return true;
}

bool Model::Failed() const {
  const Lock lock(&state);
  const size_t n = failed < kMostFailures ? failed : kMostFailures;
  for (size_t i = 0; i < n; ++i) {
    const Failure& f = failures[i];
    if (strcmp(f.key, key_) == 0 && f.size == file_.size && f.time == file_.time) return true;
  }
  return false;
}

void Model::Remember(bool hung_now) {
  const Lock lock(&state);
  Failure& f = failures[failed++ % kMostFailures];
  memcpy(f.key, key_, sizeof f.key);
  f.size = file_.size;
  f.time = file_.time;
  hung = hung || hung_now;
}

// Writes the bytes to a file of this user's, for the command to read.
bool Model::Temporary(Text* path) {
  const char* folder = getenv("TMPDIR");
  path->Add(folder != nullptr && *folder == '/' ? folder : "/tmp").Add("/graft-XXXXXX");
  if (path->bad()) return why_->Fail(Cause::kMemory, "no memory");
  const int fd = mkostemp(const_cast<char*>(path->c()), O_CLOEXEC);
  if (fd < 0) {
    why_->Fail(Cause::kNoCache, path->c());
    why_->text.Add(": cannot write: ").Add(strerror(errno));
    path->Clear();
    return false;
  }
  const char* at = static_cast<const char*>(c_.model);
  size_t left = c_.size;
  while (left > 0) {
    const ssize_t n = write(fd, at, left < (1U << 30) ? left : 1U << 30);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      why_->Fail(Cause::kNoCache, path->c());
      why_->text.Add(": cannot write: ").Add(strerror(errno));
      break;
    }
    at += n;
    left -= static_cast<size_t>(n);
  }
  close(fd);
  return left == 0;
}

// Runs the command. Only one thread does at a time.
bool Model::Ask(bool whole, const char* entry_path) {
  const Lock lock(&asking);
  {
    Entry other;  // another thread may have asked meanwhile
    if (other.Read(entry_path) == Entry::kHere && other.Holds()) return true;
  }
  bool hung_before;
  {
    const Lock inner(&state);
    hung_before = hung;
  }
  if (hung_before || Failed()) {
    why_->said = true;
    return why_->Fail(Cause::kFailed, hung_before ? "the command graft took too long before"
                                                  : "the command graft failed for it before");
  }

  Text temporary;
  if (c_.path == nullptr && !Temporary(&temporary)) {
    if (!temporary.empty()) unlink(temporary.c());
    return false;
  }
  Text options;
  options.Add(lines_).Add(whole ? "--whole\n" : "");
  List<const char*> argv;
  const char* model = c_.path != nullptr ? path_.c() : temporary.c();
  bool ok = argv.Add(binary_.c()) && argv.Add("graph") && argv.Add(model) && argv.Add("--key") &&
            argv.Add(key_) && !options.bad();
  char* at = const_cast<char*>(options.c());
  while (ok && *at != 0) {
    char* end = strchr(at, '\n');
    *end = 0;
    ok = argv.Add(at);
    at = end + 1;
  }
  Text said;
  Answer answer = Answer::kNotRun;
  if (ok && argv.Add(nullptr)) {
    answer = Run(argv.data(), deadline, &said);
  } else {
    said.Add("no memory");
  }
  if (!temporary.empty()) unlink(temporary.c());
  if (answer == Answer::kDone) return true;
  Remember(answer == Answer::kDeadline);
  if (answer == Answer::kDeadline) {
    why_->Fail(Cause::kDeadline, binary_.c());
    why_->text.Add(" took longer than ").Number((deadline + 999) / 1000);
    return why_->text.Add(" seconds (GRAFT_GRAPH_DEADLINE) and is not asked again").bad();
  }
  // What it printed, as one line; the command's name is there already.
  const char* line = After(said.c(), "graft: ");
  line = line == nullptr ? said.c() : line;
  Text first;
  for (const char* word = line + strspn(line, " \t\n"); *word != 0 && first.size() < 600;) {
    const size_t n = strcspn(word, " \t\n");
    first.Add(first.empty() ? "" : " ").Add(word, n);
    word += n + strspn(word + n, " \t\n");
  }
  why_->Fail(answer == Answer::kNotRun ? Cause::kNoBinary : Cause::kFailed, "");
  if (answer == Answer::kNotRun) why_->text.Add(binary_).Add(": ");
  why_->text.Add(first.empty() ? "the command graft failed" : first.c());
  return false;
}

// Finds an entry that holds, and has the command write one where there is none.
bool Model::Look(bool whole) {
  if (!Key(whole)) return false;
  Text path;
  path.Add(folder_).Add(key_);
  for (int asked = 0; asked < 2; ++asked) {
    if (path.bad()) return why_->Fail(Cause::kMemory, "no memory");
    const Entry::Found found = entry_.Read(path.c());
    if (found == Entry::kHere && entry_.Holds()) {
      Touch(path.c());
      if (entry_.graph() != nullptr) Touch(entry_.graph());
      return true;
    }
    if (asked == 1) {
      why_->Fail(found == Entry::kHere ? Cause::kChanged : Cause::kEntry, "");
      if (found == Entry::kHere) {
        why_->text.Add("a file changed while the command graft read it");
      } else {
        why_->text.Add(path).Add(": found no entry that the command graft wrote for this user");
      }
      return false;
    }
    if (!Ask(whole, path.c())) return false;
  }
  return false;
}

// Whether a location of a graph's external data is the model's own file.
bool Model::IsOwn(const char* location, size_t size) const {
  if (c_.path == nullptr || entry_.folder() == nullptr) return false;
  Text path(entry_.folder());
  path.Add("/").Add(location, size);
  struct stat a, b;
  return !path.bad() && stat(path.c(), &a) == 0 && stat(path_.c(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool Model::Step(Status* status, Cause cause) {
  Text error;
  return r_.Succeeded(status, &error) || why_->Fail(cause, error.c());
}

// Reads the weights that lie in the model's own file, and gives them to the session from memory.
// ONNX Runtime would map that file, and whoever overwrites it later would change answers. Without
// graft it copies them too.
bool Model::Give(void* options, const Externals& externals, Bytes* memory) {
  constexpr size_t kAlign = 64;
  size_t total = 0;
  List<const External*> own;
  const char* known = nullptr;
  size_t known_size = 0;
  for (size_t i = 0; i < externals.size(); ++i) {
    const External& e = externals[i];
    const bool same = known != nullptr && e.location_size == known_size &&
                      memcmp(e.location, known, known_size) == 0;
    if (!same && !IsOwn(e.location, e.location_size)) continue;
    known = e.location;
    known_size = e.location_size;
    if (e.length == 0) continue;
    if (e.length > static_cast<uint64_t>(file_.size) ||
        e.offset > static_cast<uint64_t>(file_.size) - e.length ||
        e.length > SIZE_MAX / 4 - total) {
      return why_->Fail(Cause::kChanged, "the model's file changed");
    }
    total += (static_cast<size_t>(e.length) + kAlign - 1) / kAlign * kAlign;
    if (!own.Add(&e)) return why_->Fail(Cause::kMemory, "no memory");
  }
  if (own.size() == 0) return true;
  if (!memory->Take(total)) return why_->Fail(Cause::kMemory, "no memory for the weights");
  const int fd = open(path_.c(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return why_->Fail(Cause::kChanged, "the model's file is gone");

  void* info = nullptr;
  bool ok = Step(r_.Call<Status*>(kCreateCpuMemoryInfo, 0, 0, &info), Cause::kSession);
  List<void*> values;
  List<const char*> names;
  Text texts;
  List<size_t> starts;
  size_t at = 0;
  for (size_t i = 0; ok && i < own.size(); ++i) {
    const External& e = *own[i];
    const auto length = static_cast<size_t>(e.length);
    void* value = nullptr;
    if (!ReadAt(fd, memory->data() + at, length, static_cast<off_t>(e.offset))) {
      ok = why_->Fail(Cause::kChanged, "the model's file changed");
    }
    ok = ok && Step(r_.Call<Status*>(kCreateTensorWithDataAsOrtValue, info,
                                     static_cast<void*>(memory->data() + at), length, e.dims,
                                     e.rank, e.type, &value),
                    Cause::kSession);
    if (ok && !values.Add(value)) {
      r_.Call<void>(kReleaseValue, value);
      ok = why_->Fail(Cause::kMemory, "no memory");
    }
    ok = ok && starts.Add(texts.size()) && !texts.Add(e.name, e.name_size).Add("", 1).bad();
    at += (length + kAlign - 1) / kAlign * kAlign;
  }
  close(fd);
  for (size_t i = 0; ok && i < starts.size(); ++i) ok = names.Add(texts.c() + starts[i]);
  ok = ok && Step(r_.Call<Status*>(kAddExternalInitializers, options,
                                   static_cast<const char* const*>(names.data()),
                                   static_cast<void* const*>(values.data()), names.size()),
                  Cause::kSession);
  for (size_t i = 0; i < values.size(); ++i) r_.Call<void>(kReleaseValue, values[i]);
  if (info != nullptr) r_.Call<void>(kReleaseMemoryInfo, info);
  return ok;
}

// Gives options what a session of the graph needs.
bool Model::Equip(void* options, const Bytes& graph, const Externals& externals, Bytes* memory) {
  Text folder;
  if (graph.size() > 0 && entry_.folder() != nullptr &&
      !(Config(r_, options, kFolderEntry, &folder) && folder.Is(entry_.folder())) &&
      !Step(r_.Call<Status*>(kAddSessionConfigEntry, options, kFolderEntry, entry_.folder()),
            Cause::kSession)) {
    return false;
  }
  for (size_t i = 0; i < entry_.libraries().size(); ++i) {
    if (!Step(r_.Call<Status*>(kRegisterCustomOpsLibrary_V2, options, entry_.libraries()[i]),
              Cause::kSession)) {
      return false;
    }
  }
  return Give(options, externals, memory);
}

// Creates the session of the entry.
bool Model::Make(bool whole, Bytes* graph, const Externals& externals) {
  void* options = nullptr;
  if (!Step(c_.options == nullptr ? r_.Call<Status*>(kCreateSessionOptions, &options)
                                  : r_.Call<Status*>(kCloneSessionOptions, c_.options, &options),
            Cause::kSession)) {
    return false;
  }
  Bytes memory;
  bool ok = Equip(options, *graph, externals, &memory);
  if (ok) {
    Status* status;
    if (whole) {
      status = c_.prepacked
                   ? r_.Call<Status*>(kCreateSessionWithPrepackedWeightsContainer, c_.env,
                                      entry_.graph(), options, c_.container, c_.out)
                   : r_.Call<Status*>(kCreateSession, c_.env, entry_.graph(), options, c_.out);
    } else {
      const void* bytes = graph->data();
      status = c_.prepacked
                   ? r_.Call<Status*>(kCreateSessionFromArrayWithPrepackedWeightsContainer, c_.env,
                                      bytes, graph->size(), options, c_.container, c_.out)
                   : r_.Call<Status*>(kCreateSessionFromArray, c_.env, bytes, graph->size(),
                                      options, c_.out);
    }
    ok = Step(status, Cause::kSession);
  }
  r_.Call<void>(kReleaseSessionOptions, options);
  if (!ok) return false;
  if (!entry_.Holds()) {
    r_.Call<void>(kReleaseSession, *c_.out);
    *c_.out = nullptr;
    return why_->Fail(Cause::kChanged, "a file changed while the session was created");
  }
  if (memory.size() == 0 || r_.api <= GRAFT_COPYING_API) return true;
  auto* keep = static_cast<Kept*>(malloc(sizeof(Kept)));
  if (keep == nullptr) {
    r_.Call<void>(kReleaseSession, *c_.out);
    *c_.out = nullptr;
    return why_->Fail(Cause::kMemory, "no memory");
  }
  keep->session = *c_.out;
  memory.Give(&keep->at, &keep->size);
  const Lock lock(&state);
  keep->next = kept;
  kept = keep;
  return true;
}

// Removes an entry whose graph is not whole, so that the command makes it again.
void Model::Drop() const {
  Text path;
  path.Add(folder_).Add(key_);
  if (!path.bad()) unlink(path.c());
}

bool Model::Patched(int* replaced) {
  if (!Lines() || !Find()) return false;
  if (!CacheFolder(&folder_)) {
    return why_->Fail(Cause::kNoCache,
                      "found no cache folder, needed XDG_CACHE_HOME or HOME as an absolute path");
  }
  if (!FindBinary(&binary_)) {
    why_->Fail(Cause::kNoBinary, binary_.c());
    why_->text.Add(binary_.empty() ? "found no command graft, needed GRAFT_BINARY, or graft beside "
                                     "libgraft.so or on PATH"
                                   : ": found no program that can be run, needed the command graft "
                                     "(GRAFT_BINARY)");
    return false;
  }
  bool whole = c_.path == nullptr;
  if (whole) Sha256(c_.model, c_.size, hash_);
  if (!Look(whole)) return false;
  if (entry_.left() != nullptr) return why_->Left(entry_.left());

  Bytes graph;
  Externals externals;
  if (!whole) {
    if (!ReadOwn(entry_.graph(), &graph) || !externals.Read(graph.data(), graph.size())) {
      Drop();
      why_->Fail(Cause::kEntry, entry_.graph());
      why_->text.Add(": found no graph that the command graft wrote for this user");
      return false;
    }
    // ONNX Runtime takes weights from memory for the main graph only.
    for (size_t i = 0; i < externals.nested().size() && !whole; ++i) {
      const External& e = externals.nested()[i];
      whole = IsOwn(e.location, e.location_size);
    }
    if (whole) {
      if (!Look(true)) return false;
      if (entry_.left() != nullptr) return why_->Left(entry_.left());
      graph.Free();
    }
  }
  if (whole) {
    Externals none;
    if (!Make(true, &graph, none)) return false;
  } else if (!Make(false, &graph, externals)) {
    return false;
  }
  *replaced = entry_.replaced();
  return true;
}

}  // namespace

Status* Create(const Creation& c) {
  const Runtime& r = *c.runtime;
  const auto own = [&c, &r]() -> Status* {
    if (c.path != nullptr || c.model == nullptr) {
      return c.prepacked ? r.Call<Status*>(kCreateSessionWithPrepackedWeightsContainer, c.env,
                                           c.path, c.options, c.container, c.out)
                         : r.Call<Status*>(kCreateSession, c.env, c.path, c.options, c.out);
    }
    return c.prepacked
               ? r.Call<Status*>(kCreateSessionFromArrayWithPrepackedWeightsContainer, c.env,
                                 c.model, c.size, c.options, c.container, c.out)
               : r.Call<Status*>(kCreateSessionFromArray, c.env, c.model, c.size, c.options, c.out);
  };
  Begin();
  if (!Enabled() || c.out == nullptr || (c.path == nullptr && c.model == nullptr)) return own();
  Why why;
  Model model(c, &why);
  Text line;
  model.Name(&line);
  int replaced = 0;
  if (c.left != nullptr) {
    why.Left(c.left);
  } else if (model.Patched(&replaced)) {
    __atomic_add_fetch(&patched_sessions, 1, __ATOMIC_RELAXED);
    line.Add(": ").Number(replaced).Add(replaced == 1 ? " block" : " blocks").Add(" replaced");
    Tell(line);
    return nullptr;
  }
  __atomic_add_fetch(&left_sessions, 1, __ATOMIC_RELAXED);
  Status* status = own();
  if (why.what == Why::kLeft) {
    Tell(line.Add(": left as it is: ").Add(why.text));
  } else if (status == nullptr && !why.said) {
    Warn(why.cause, line.Add(": session created without graft: ").Add(why.text));
  } else {
    // The program gets ONNX Runtime's own refusal, which says more about its model.
    Tell(line.Add(status == nullptr ? ": session created without graft: "
                                    : ": created neither with graft nor without: ")
             .Add(why.text));
  }
  return status;
}

void* Releasing(void* session) {
  const Lock lock(&state);
  for (Kept** at = &kept; *at != nullptr; at = &(*at)->next) {
    if ((*at)->session != session) continue;
    Kept* found = *at;
    *at = found->next;
    return found;
  }
  return nullptr;
}

void Released(void* memory) {
  if (memory == nullptr) return;
  auto* k = static_cast<Kept*>(memory);
  munmap(k->at, k->size);
  free(k);
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

void Count(uint64_t* patched, uint64_t* left) {
  if (patched != nullptr) *patched = __atomic_load_n(&patched_sessions, __ATOMIC_RELAXED);
  if (left != nullptr) *left = __atomic_load_n(&left_sessions, __ATOMIC_RELAXED);
}

void StateLock() { pthread_mutex_lock(&state); }
void StateUnlock() { pthread_mutex_unlock(&state); }

}  // namespace graft
