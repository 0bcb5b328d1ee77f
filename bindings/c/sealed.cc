#include "sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "entry.h"
#include "lock.h"
#include "sha256.h"

namespace graft {
namespace {

constexpr unsigned kCloseOnExec = 1, kAllowSealing = 2, kNoExecSeal = 8;  // <linux/memfd.h>
constexpr int kAddSeals = 1033, kEverySeal = 15;                          // <linux/fcntl.h>
constexpr off_t kMostLibrary = off_t{1} << 31;

struct Memory {
  char hash[65];
  int fd;
  dev_t device;  // of the memory: a program may have closed the descriptor, and have another by it
  ino_t inode;
};

constexpr size_t kMost = 128;
Memory memories[kMost];
size_t made = 0;

bool IsOpen(const Memory& m) {
  struct stat s;
  return fstat(m.fd, &s) == 0 && s.st_dev == m.device && s.st_ino == m.inode;
}

// A memory file with these bytes; -1 where there cannot be one.
int Keep(const char* name, const Bytes& bytes) {
  int fd =
      static_cast<int>(syscall(SYS_memfd_create, name, kCloseOnExec | kAllowSealing | kNoExecSeal));
  if (fd < 0) {  // before Linux 6.3
    fd = static_cast<int>(syscall(SYS_memfd_create, name, kCloseOnExec | kAllowSealing));
  }
  if (fd < 0) return -1;
  const unsigned char* at = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t n = write(fd, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += n;
    left -= static_cast<size_t>(n);
  }
  // The kernel may still hold pages that were just written, above all on a machine under load.
  for (unsigned tries = 0; left == 0 && tries < 30; ++tries) {
    if (fcntl(fd, kAddSeals, kEverySeal) == 0) return fd;
    if (errno != EBUSY) break;
    usleep(tries * 1000);
  }
  close(fd);
  return -1;
}

bool ReadLibrary(const char* path, Bytes* bytes) {
  struct stat s;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool ok = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0 &&
                  s.st_size <= kMostLibrary && bytes->Take(static_cast<size_t>(s.st_size)) &&
                  ReadAt(fd, bytes->data(), bytes->size(), 0);
  close(fd);
  return ok;
}

}  // namespace

bool Seal(const char* path, const char* hash, char to[kSealedPath]) {
  const Lock lock(&seal_lock);
  Memory* m = nullptr;
  for (size_t i = 0; i < made && m == nullptr; ++i) {
    if (strcmp(memories[i].hash, hash) == 0) m = &memories[i];
  }
  if (m == nullptr || !IsOpen(*m)) {
    if (m == nullptr && made == kMost) return false;
    Bytes bytes;
    char found[65];
    if (!ReadLibrary(path, &bytes)) return false;
    Sha256(bytes.data(), bytes.size(), found);
    if (strcmp(found, hash) != 0) return false;
    const char* name = strrchr(path, '/');
    struct stat s;
    const int fd = Keep(name == nullptr ? path : name + 1, bytes);
    if (fd < 0) return false;
    if (fstat(fd, &s) != 0) {
      close(fd);
      return false;
    }
    if (m == nullptr) m = &memories[made++];
    memcpy(m->hash, found, sizeof found);
    m->fd = fd;
    m->device = s.st_dev;
    m->inode = s.st_ino;
  }
  snprintf(to, kSealedPath, "/proc/self/fd/%d", m->fd);
  return true;
}

}  // namespace graft
