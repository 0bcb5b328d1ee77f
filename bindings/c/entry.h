// Entries of the cache of rewritten graphs, as `graft graph` writes them (host/session/languages).
#ifndef GRAFT_C_ENTRY_H_
#define GRAFT_C_ENTRY_H_

#include <sys/types.h>

#include "text.h"

namespace graft {

// A file as it was. Whoever writes to one changes the time of its last change, which no program can
// set.
struct File {
  int64_t size;           // in bytes; -1 where there must be none
  int64_t time, changed;  // of its content and of anything, in nanoseconds since 1970
  int64_t device, inode;
  // SHA-256 where the rest may not tell another content; null elsewhere, and once it does.
  mutable const char* hash;
  const char* path;
};

// Reads what there is at a path, but for its hash; of one where nothing is, a size of -1. Not ok
// where that cannot be known.
bool FileAt(const char* path, File* file);

// Whether two are of one content, as far as is known without reading it.
bool Same(const File& a, const File& b);

// Whether a file is as it was.
bool Holds(const File& then);

// A library of which these bytes were verified.
struct Library {
  const char *hash, *path;
};

// What a session is made from. Paths are in the entry's own text.
class Entry {
 public:
  enum Found { kHere, kNone, kBad };

  // Reads an entry's file. kNone where there is none; kBad where it is not a whole entry, or others
  // than this user could have written it.
  Found Read(const char* path);

  // Whether the graph's file has the bytes that the command wrote.
  bool HasGraph() const;

  // Whether all its files are as they were, and its libraries those that were verified.
  bool Holds() const;

  const char* graph() const { return graph_; }  // null where the model is left as it is
  const char* hash() const { return hash_; }    // of the graph's file
  const char* left() const { return left_; }    // why it is; null where it is not
  const char* folder() const {
    return folder_;
  }  // of the weights that the graph refers to; null for none
  const List<Library>& libraries() const { return libraries_; }
  const List<File>& files() const { return files_; }
  int replaced() const { return replaced_; }

 private:
  bool Line(char* line);

  Text text_;
  const char *graph_ = nullptr, *hash_ = nullptr, *left_ = nullptr, *folder_ = nullptr;
  List<Library> libraries_;
  List<File> files_;
  int replaced_ = 0;
};

// Bytes of a file that were read into memory of their own.
class Bytes {
 public:
  Bytes() = default;
  ~Bytes() { Free(); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  // Takes memory of so many bytes.
  bool Take(size_t n);
  void Free();
  void Swap(Bytes* other);
  unsigned char* data() { return static_cast<unsigned char*>(at_); }
  const unsigned char* data() const { return static_cast<const unsigned char*>(at_); }
  size_t size() const { return size_; }

 private:
  void* at_ = nullptr;
  size_t size_ = 0;
};

// Reads a range of a file.
bool ReadAt(int fd, void* to, size_t n, off_t from);

// Reads the whole file that only this user can have written.
bool ReadOwn(const char* path, Bytes* bytes);

// Has an entry and its graph stay, which the cache drops when nobody used them for long.
void Touch(const char* path);

}  // namespace graft

#endif  // GRAFT_C_ENTRY_H_
