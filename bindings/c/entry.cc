#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sealed.h"
#include "sha256.h"

namespace graft {
namespace {

constexpr char kFirst[] = "graft graph 2";
constexpr off_t kMostEntry = 16 << 20;
constexpr int64_t kCoarse = 3000000000;  // above the steps in which file systems count time

int64_t Nanoseconds(const timespec& t) {
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Opens a file that nobody else than this user, or root, can have written: its libraries run in
// this process.
int OpenOwn(const char* path, struct stat* s) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return -1;
  if (fstat(fd, s) != 0 || !S_ISREG(s->st_mode) || (s->st_uid != geteuid() && s->st_uid != 0) ||
      (s->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

// The SHA-256 of a file's bytes; false where they cannot be read. It is read and not mapped: a file
// that becomes shorter meanwhile would end the process.
bool HashOf(const char* path, char hash[65]) {
  struct stat s;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  bool ok = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
  Sha256Sum sum;
  unsigned char part[1 << 16];
  size_t n = sizeof part;
  for (off_t at = 0; ok && n == sizeof part; at += static_cast<off_t>(n)) {
    const off_t left = s.st_size - at;
    if (left < static_cast<off_t>(n)) n = static_cast<size_t>(left);
    ok = ReadAt(fd, part, n, at);
    if (ok) sum.Add(part, n / 64);
  }
  if (ok) sum.Finish(part + n / 64 * 64, n % 64, hash);
  close(fd);
  return ok;
}

// Cuts a hash off a line: "HASH PATH".
bool Hashed(char* value, const char** hash, const char** path) {
  char* space = strchr(value, ' ');
  if (space == nullptr || space - value != 64 || space[1] != '/') return false;
  *space = 0;
  *hash = value;
  *path = space + 1;
  return true;
}

// Reads a number that ends at a space or at the text's end; the rest after it.
bool Number(char** at, int64_t* n) {
  char* end = nullptr;
  errno = 0;
  *n = strtoll(*at, &end, 10);
  if (end == *at || errno != 0 || (*end != ' ' && *end != 0)) return false;
  *at = *end == ' ' ? end + 1 : end;
  return true;
}

}  // namespace

bool FileAt(const char* path, File* file) {
  struct stat s;
  *file = {};
  file->path = path;
  if (stat(path, &s) != 0) {
    file->size = -1;
    return errno == ENOENT || errno == ENOTDIR;
  }
  file->size = s.st_size;
  file->time = Nanoseconds(s.st_mtim);
  file->changed = Nanoseconds(s.st_ctim);
  file->device = static_cast<int64_t>(s.st_dev);
  file->inode = static_cast<int64_t>(s.st_ino);
  return true;
}

bool Same(const File& a, const File& b) {
  return a.size == b.size && a.time == b.time && a.changed == b.changed && a.device == b.device &&
         a.inode == b.inode;
}

bool Holds(const File& then) {
  File now;
  if (!FileAt(then.path, &now)) return false;
  if (then.size < 0) return now.size < 0;
  if (!Same(now, then)) return false;
  if (then.hash == nullptr) return true;
  char hash[65];
  timespec t;
  const bool lasting =
      clock_gettime(CLOCK_REALTIME, &t) == 0 && Nanoseconds(t) - then.changed > kCoarse;
  if (!HashOf(then.path, hash) || strcmp(hash, then.hash) != 0) return false;
  if (lasting) then.hash = nullptr;  // whatever happens to it from then on shows
  return true;
}

Entry::Found Entry::Read(const char* path) {
  graph_ = hash_ = left_ = folder_ = nullptr;
  libraries_.Clear();
  files_.Clear();
  text_.Clear();
  replaced_ = 0;
  struct stat s;
  const int fd = OpenOwn(path, &s);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? kNone : kBad;
  bool ok = s.st_size > 0 && s.st_size <= kMostEntry;
  Bytes bytes;
  ok = ok && bytes.Take(static_cast<size_t>(s.st_size)) &&
       ReadAt(fd, bytes.data(), bytes.size(), 0) &&
       memchr(bytes.data(), 0, bytes.size()) == nullptr;
  close(fd);
  if (!ok || text_.Add(bytes.data(), bytes.size()).bad()) return kBad;
  char* at = const_cast<char*>(text_.c());
  bool first = true;
  while (*at != 0) {
    char* end = strchr(at, '\n');
    if (end == nullptr) return kBad;
    *end = 0;
    if (first ? strcmp(at, kFirst) != 0 : !Line(at)) return kBad;
    first = false;
    at = end + 1;
  }
  if ((graph_ == nullptr) == (left_ == nullptr) || files_.size() == 0) return kBad;
  return kHere;
}

bool Entry::Line(char* line) {
  char* value = strchr(line, ' ');
  if (value == nullptr || value[1] == 0) return false;
  *value++ = 0;
  int64_t n = 0;
  if (strcmp(line, "replaced") == 0) {
    if (!Number(&value, &n)) return false;
    replaced_ = static_cast<int>(n);
  } else if (strcmp(line, "graph") == 0) {
    return Hashed(value, &hash_, &graph_);
  } else if (strcmp(line, "left") == 0) {
    left_ = value;
  } else if (strcmp(line, "folder") == 0) {
    folder_ = value;
  } else if (strcmp(line, "library") == 0) {
    Library l = {};
    return Hashed(value, &l.hash, &l.path) && libraries_.Add(l);
  } else if (strcmp(line, "file") == 0) {
    File f = {};
    if (!Number(&value, &f.size) || !Number(&value, &f.time) || !Number(&value, &f.changed) ||
        !Number(&value, &f.device) || !Number(&value, &f.inode)) {
      return false;
    }
    if (strncmp(value, "- /", 3) == 0) {
      f.path = value + 2;
    } else if (!Hashed(value, &f.hash, &f.path)) {
      return false;
    }
    return files_.Add(f);
  }
  return true;  // what a newer command writes beside it
}

bool Entry::Holds() const {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!graft::Holds(files_[i])) return false;
  }
  for (size_t i = 0; i < libraries_.size(); ++i) {
    char path[kSealedPath];
    // Another version, perhaps, which the command verifies.
    if (!Seal(libraries_[i].path, libraries_[i].hash, path)) return false;
  }
  return true;
}

bool Entry::HasGraph() const {
  char hash[65];
  return graph_ != nullptr && HashOf(graph_, hash) && strcmp(hash, hash_) == 0;
}

bool Bytes::Take(size_t n) {
  Free();
  if (n == 0) return false;
  at_ = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at_ == MAP_FAILED) {
    at_ = nullptr;
    return false;
  }
  size_ = n;
  return true;
}

void Bytes::Free() {
  if (at_ != nullptr) munmap(at_, size_);
  at_ = nullptr;
  size_ = 0;
}

void Bytes::Swap(Bytes* other) {
  void* at = at_;
  const size_t size = size_;
  at_ = other->at_;
  size_ = other->size_;
  other->at_ = at;
  other->size_ = size;
}

bool ReadAt(int fd, void* to, size_t n, off_t from) {
  auto* p = static_cast<char*>(to);
  while (n > 0) {
    const ssize_t got = pread(fd, p, n < (1U << 30) ? n : 1U << 30, from);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= static_cast<size_t>(got);
    from += got;
  }
  return true;
}

bool ReadOwn(const char* path, Bytes* bytes) {
  struct stat s;
  const int fd = OpenOwn(path, &s);
  if (fd < 0) return false;
  const bool ok = s.st_size > 0 && bytes->Take(static_cast<size_t>(s.st_size)) &&
                  ReadAt(fd, bytes->data(), bytes->size(), 0);
  close(fd);
  return ok;
}

void Touch(const char* path) {
  struct stat s;
  if (stat(path, &s) == 0 && time(nullptr) - s.st_mtime > 24 * 60 * 60) {
    utimensat(AT_FDCWD, path, nullptr, 0);
  }
}

}  // namespace graft
