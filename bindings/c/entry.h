// Entries of the cache of rewritten graphs, as `graft graph` writes them (host/session/languages).
#ifndef GRAFT_C_ENTRY_H_
#define GRAFT_C_ENTRY_H_

#include <sys/types.h>

#include "text.h"

namespace graft {

// A file as it was.
struct File {
  int64_t size;  // in bytes; -1 where there must be none
  int64_t time;  // of its last change, in nanoseconds since 1970
  const char* path;
};

// Reads size and time of what is at a path; of one where nothing is, -1 and 0. Not ok where that
// cannot be known.
bool FileAt(const char* path, File* file);

// What a session is made from. Paths are in the entry's own text.
class Entry {
 public:
  enum Found { kHere, kNone, kBad };

  // Reads an entry's file. kNone where there is none; kBad where it is not a whole entry, or others
  // than this user could have written it.
  Found Read(const char* path);

  // Whether all its files are as they were.
  bool Holds() const;

  const char* graph() const { return graph_; }  // null where the model is left as it is
  const char* left() const { return left_; }    // why it is; null where it is not
  const char* folder() const {
    return folder_;
  }  // of the weights that the graph refers to; null for none
  const List<const char*>& libraries() const { return libraries_; }
  const List<File>& files() const { return files_; }
  int replaced() const { return replaced_; }

 private:
  bool Line(char* line);

  Text text_;
  const char *graph_ = nullptr, *left_ = nullptr, *folder_ = nullptr;
  List<const char*> libraries_;
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
