// Models that are about to become sessions, and what the cache has for them.
#ifndef GRAFT_C_MODEL_H_
#define GRAFT_C_MODEL_H_

#include "entry.h"
#include "say.h"
#include "session.h"
#include "weights.h"

namespace graft {

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

class Model {
 public:
  Model(const Creation& c, Why* why) : c_(c), why_(why) {}

  // Finds what the session is made from, and has the command write it where there is none. Where
  // this is false, the session is the program's own, and why says why.
  bool Prepare();

  // Adds what messages call it.
  void Name(Text* name) const;

  // What Prepare found.
  const Entry& entry() const { return inlined_.graph() != nullptr ? inlined_ : entry_; }
  // Encoded, and the weights that it has in files. Empty where the graph's file has all weights.
  const Bytes& graph() const { return graph_; }
  const Externals& externals() const { return externals_; }
  // Whether a location of a graph's external data is the model's own file.
  bool IsOwn(const char* location, size_t size) const;
  // Whether all files are as they were.
  bool Holds() const;

  const Text& path() const { return path_; }  // absolute; "" for bytes
  const char* hash() const { return hash_; }  // of bytes; "" for a file
  int64_t size() const { return file_.size; }
  // Adds where a copy of the bytes lies, which the command read.
  void AddCopy(Text* path) const { path->Add(folder_).Add(key_).Add(".model"); }
  // Adds the model's files as they are; false where there is no memory.
  bool AddFiles(List<File>* list) const;

 private:
  bool Lines();
  bool Find();
  bool Key(bool inlined);
  bool Look(bool inlined, Entry* entry);
  bool Ask(const char* entry_path);
  bool Failed() const;
  void Remember(bool hung_now);
  int MakeCopy(Text* path) const;
  int CopyBytes(Text* path);
  void Drop() const;
  bool Spoilt();  // the graph's file is not what its entry says; false

  const Creation& c_;
  Why* why_;
  Text lines_;  // options of the command, one a line
  Text path_;
  char hash_[65] = "";
  File file_ = {};        // the model's, or the size of bytes
  Text binary_, folder_;  // the command, and the cache
  bool whole_ = false;    // the command is told to write all weights into the graph
  char key_[65];
  // inlined_ is of a model that has weights of its own file inside of nodes.
  Entry entry_, inlined_;
  Bytes graph_;
  Externals externals_;
};

}  // namespace graft

#endif  // GRAFT_C_MODEL_H_
