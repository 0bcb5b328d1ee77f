#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "lock.h"
#include "options.h"
#include "settings.h"
#include "sha256.h"

namespace graft {
namespace {

constexpr char kDomainEntry[] = "graft.domain.v1";  // GRAFT_ORT_DOMAIN_KEY of graft_plugin.h

// What the command failed for, so that it is not asked again: the key, and the model's size and
// time.
struct Failure {
  char key[33];
  int64_t size, time, changed;
};
constexpr size_t kMostFailures = 256;
Failure failures[kMostFailures];
size_t failed = 0;  // so many ever
bool hung = false;  // the deadline passed once

// Makes the folders that a path goes through.
void MakeFolders(const Text& path) {
  Text folder;
  for (const char* at = path.c(); (at = strchr(at + 1, '/')) != nullptr;) {
    folder.Clear();
    folder.Add(path.c(), static_cast<size_t>(at - path.c()));
    mkdir(folder.c(), 0700);
  }
}

bool WriteAll(int fd, const void* bytes, size_t n) {
  const char* at = static_cast<const char*>(bytes);
  while (n > 0) {
    const ssize_t done = write(fd, at, n < (1U << 30) ? n : 1U << 30);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    n -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace

void Model::Name(Text* name) const {
  if (c_.path != nullptr) {
    name->Add(c_.path);
  } else {
    name->Add("a model of ").Number(static_cast<long long>(c_.size)).Add(" bytes in memory");
  }
}

// What a session's own config entries say, over the options of the process.
bool Model::Lines() {
  Text value;
  if (Config(*c_.runtime, c_.options, "graft.disable", &value) && value.Is("1")) {
    return why_->Left("session config entry graft.disable is 1");
  }
  value.Clear();
  if (Config(*c_.runtime, c_.options, kDomainEntry, &value)) {
    return why_->Left("the program registered graft's operators itself");
  }
  if (HasProviderEntries(*c_.runtime, c_.options)) {
    return why_->Left("the session has other execution providers than the CPU's");
  }
  Text plugins, padding;
  Config(*c_.runtime, c_.options, "graft.plugins", &plugins);
  Config(*c_.runtime, c_.options, "graft.padding", &padding);
  if (strpbrk(plugins.c(), "\n\r") != nullptr || strpbrk(padding.c(), "\n\r") != nullptr) {
    return why_->Fail(Cause::kOptions, "a session config entry of graft's has several lines");
  }
  Text all;
  AddOptions(&all);
  for (const char* at = all.c(); *at != 0;) {
    const char* end = strchrnul(at, '\n');
    const bool replaced = (!plugins.empty() && After(at, "--plugins=") != nullptr) ||
                          (!padding.empty() && After(at, "--padding=") != nullptr);
    if (end != at && !replaced) lines_.Add(at, static_cast<size_t>(end - at)).Add("\n");
    at = *end == 0 ? end : end + 1;
  }
  if (!plugins.empty()) lines_.Add("--plugins=").Add(plugins).Add("\n");
  if (!padding.empty()) lines_.Add("--padding=").Add(padding).Add("\n");
  return (!lines_.bad() && !all.bad()) || why_->Fail(Cause::kMemory, "no memory");
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
    if (path_.Add(c_.path).bad()) return why_->Fail(Cause::kMemory, "no memory");
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
bool Model::Key(bool inlined) {
  File binary;
  if (!FileAt(binary_.c(), &binary) || binary.size < 0) {
    return why_->Fail(Cause::kNoBinary, "the command graft is gone");
  }
  Text text("graft graph 2\n");
  text.Add(binary_).Add("\n").Number(binary.size).Add("\n").Number(binary.time).Add("\n");
  text.Number(binary.changed)
      .Add(" ")
      .Number(binary.device)
      .Add(" ")
      .Number(binary.inode)
      .Add("\n");
  text.Add(lines_).Add(whole_ ? "--whole\n" : "");
  // Where the command looks for plugins, and which it takes.
  static const char* const kPlaces[] = {"GRAFT_PLUGIN_PATH", "GRAFT_PLUGIN_LOCK",
                                        "GRAFT_PLUGIN_UNVERIFIED", "XDG_DATA_HOME", "HOME"};
  for (const char* name : kPlaces) {
    const char* value = getenv(name);
    text.Add(name).Add(value == nullptr ? "" : "=").Add(value == nullptr ? "" : value).Add("\n");
  }
  if (c_.path != nullptr) {
    text.Add("path ").Add(path_).Add("\n");
  } else {
    text.Add("bytes ").Add(hash_).Add("\n");
  }
  // A graph with all weights is of the files as they are, which its own entry does not list.
  for (size_t i = 0; inlined && i < entry_.files().size(); ++i) {
    const File& f = entry_.files()[i];
    text.Number(f.size).Add(" ").Number(f.time).Add(" ").Number(f.changed).Add(" ");
    text.Number(f.device).Add(" ").Number(f.inode).Add(" ").Add(f.hash == nullptr ? "-" : f.hash);
    text.Add(" ").Add(f.path).Add("\n");
  }
  if (text.bad()) return why_->Fail(Cause::kMemory, "no memory");
  Sha256(text.c(), text.size(), key_);
  key_[32] = 0;
  return true;
}

bool Model::Failed() const {
  const Lock lock(&state_lock);
  const size_t n = failed < kMostFailures ? failed : kMostFailures;
  for (size_t i = 0; i < n; ++i) {
    const Failure& f = failures[i];
    if (strcmp(f.key, key_) == 0 && f.size == file_.size && f.time == file_.time &&
        f.changed == file_.changed) {
      return true;
    }
  }
  return false;
}

void Model::Remember(bool hung_now) {
  const Lock lock(&state_lock);
  Failure& f = failures[failed++ % kMostFailures];
  memcpy(f.key, key_, sizeof f.key);
  f.size = file_.size;
  f.time = file_.time;
  f.changed = file_.changed;
  hung = hung || hung_now;
}

// Makes a file of this user's in the cache, which is locked as long as the descriptor is open: the
// command removes others whose names end so, as what processes left that were killed. -1 where it
// cannot be made.
int Model::MakeCopy(Text* path) const {
  constexpr char kSuffix[] = ".tmp";
  for (int tries = 0; tries < 100; ++tries) {
    path->Clear();
    AddCopy(path);
    path->Add(".XXXXXX").Add(kSuffix);
    if (path->bad()) {
      errno = ENOMEM;
      return -1;
    }
    MakeFolders(*path);
    const int fd = mkostemps(const_cast<char*>(path->c()), sizeof kSuffix - 1, O_CLOEXEC);
    if (fd < 0) return -1;
    struct stat s;
    // Where there are no locks, the command removes nothing.
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && fstat(fd, &s) == 0 && s.st_nlink > 0) return fd;
    close(fd);
  }
  errno = EBUSY;
  return -1;
}

// Writes the bytes to a file of this user's in the cache, for the command to read, and gives its
// descriptor; -1 where it cannot.
int Model::CopyBytes(Text* path) {
  const int fd = MakeCopy(path);
  if (fd >= 0 && WriteAll(fd, c_.model, c_.size)) return fd;
  const int error = errno;
  why_->Fail(Cause::kNoCache, path->c());
  why_->text.Add(": cannot store the model's bytes for the command graft: ").Add(strerror(error));
  if (fd >= 0) {
    unlink(path->c());
    close(fd);
  }
  return -1;
}

// Runs the command. Only one thread does at a time.
bool Model::Ask(const char* entry_path) {
  const Lock lock(&ask_lock);
  {
    Entry other;  // another thread may have asked meanwhile
    if (other.Read(entry_path) == Entry::kHere && other.Holds()) return true;
  }
  bool hung_before;
  {
    const Lock inner(&state_lock);
    hung_before = hung;
  }
  if (hung_before || Failed()) {
    why_->said = true;
    return why_->Fail(Cause::kFailed, hung_before ? "the command graft took too long before"
                                                  : "the command graft failed for it before");
  }

  Text copy;
  const int copied = c_.path == nullptr ? CopyBytes(&copy) : -1;
  if (c_.path == nullptr && copied < 0) return false;
  Text options;
  options.Add(lines_).Add(whole_ ? "--whole\n" : "");
  List<const char*> argv;
  const char* model = c_.path != nullptr ? path_.c() : copy.c();
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
    answer = Run(argv.data(), Deadline(), &said);
  } else {
    said.Add("no memory");
  }
  if (c_.path == nullptr) {
    // It stays for a session whose operator fails.
    Text kept;
    AddCopy(&kept);
    Entry made;
    if (answer != Answer::kDone || made.Read(entry_path) != Entry::kHere ||
        made.graph() == nullptr || kept.bad() || rename(copy.c(), kept.c()) != 0) {
      unlink(copy.c());
    }
    close(copied);
  }
  if (answer == Answer::kDone) return true;
  Remember(answer == Answer::kDeadline);
  if (answer == Answer::kDeadline) {
    why_->Fail(Cause::kDeadline, binary_.c());
    why_->text.Add(" took longer than ").Number((Deadline() + 999) / 1000);
    why_->text.Add(" seconds (GRAFT_GRAPH_DEADLINE) and is not asked again");
    return false;
  }
  // What it printed; the command's name is there already.
  const char* line = After(said.c(), "graft: ");
  Text first;
  first.AddWords(line == nullptr ? said.c() : line);
  why_->Fail(answer == Answer::kNotRun ? Cause::kNoBinary : Cause::kFailed, "");
  if (answer == Answer::kNotRun) why_->text.Add(binary_).Add(": ");
  why_->text.Add(first.empty() ? "the command graft failed" : first.c());
  return false;
}

// Finds an entry that holds, and has the command write one where there is none.
bool Model::Look(bool inlined, Entry* entry) {
  if (!Key(inlined)) return false;
  Text path;
  path.Add(folder_).Add(key_);
  for (int asked = 0; asked < 2; ++asked) {
    if (path.bad()) return why_->Fail(Cause::kMemory, "no memory");
    const Entry::Found found = entry->Read(path.c());
    if (found == Entry::kHere && entry->Holds()) {
      Touch(path.c());
      if (c_.path == nullptr) {
        Text copy;
        AddCopy(&copy);
        Touch(copy.c());
      }
      return entry->left() == nullptr || why_->Left(entry->left());
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
    if (!Ask(path.c())) return false;
  }
  return false;
}

bool Model::IsOwn(const char* location, size_t size) const {
  if (c_.path == nullptr || entry_.folder() == nullptr) return false;
  Text path(entry_.folder());
  path.Add("/").Add(location, size);
  struct stat a, b;
  return !path.bad() && stat(path.c(), &a) == 0 && stat(path_.c(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool Model::Holds() const {
  return entry_.Holds() && (inlined_.graph() == nullptr || inlined_.Holds());
}

bool Model::AddFiles(List<File>* list) const {
  struct stat program, s;
  const bool known = stat(binary_.c(), &program) == 0;
  for (size_t i = 0; i < entry_.files().size(); ++i) {
    const File& f = entry_.files()[i];
    // What graft is made of may change, and the model be the same.
    bool other = stat(f.path, &s) != 0 || !S_ISREG(s.st_mode) ||
                 (known && s.st_dev == program.st_dev && s.st_ino == program.st_ino);
    if (!other && !list->Add(f)) return false;
  }
  return true;
}

// Removes an entry whose graph is not what it says, so that the command makes it again.
void Model::Drop() const {
  Text path;
  path.Add(folder_).Add(key_);
  if (!path.bad()) unlink(path.c());
}

bool Model::Spoilt() {
  Drop();
  why_->Fail(Cause::kEntry, entry().graph());
  why_->text.Add(": found no graph that the command graft wrote for this user");
  return false;
}

bool Model::Prepare() {
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
  whole_ = c_.path == nullptr;
  if (whole_) Sha256(c_.model, c_.size, hash_);
  if (!Look(false, &entry_)) return false;
  if (whole_) return entry_.HasGraph() || Spoilt();

  char hash[65] = "";
  if (ReadOwn(entry_.graph(), &graph_)) Sha256(graph_.data(), graph_.size(), hash);
  if (strcmp(hash, entry_.hash()) != 0 || !externals_.Read(graph_.data(), graph_.size())) {
    return Spoilt();
  }
  // ONNX Runtime takes weights from memory for the main graph only.
  for (size_t i = 0; i < externals_.nested().size() && !whole_; ++i) {
    const External& e = externals_.nested()[i];
    whole_ = IsOwn(e.location, e.location_size);
  }
  if (!whole_) return true;
  graph_.Free();
  if (!Look(true, &inlined_)) return false;
  if (!inlined_.HasGraph()) return Spoilt();
  if (entry_.Holds()) return true;
  Drop();  // it may be of what the files are now
  return why_->Fail(Cause::kChanged, "a file changed while the command graft read it");
}

}  // namespace graft
