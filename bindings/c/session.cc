#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "domain.h"
#include "model.h"
#include "options.h"
#include "sealed.h"
#include "settings.h"
#include "wayback.h"

namespace graft {
namespace {

constexpr char kFolderEntry[] = "session.model_external_initializers_file_folder_path";

uint64_t patched_sessions = 0, left_sessions = 0;

// Creates a session of a file, or of bytes where path is null.
Status* CreateOwn(const Creation& c, const char* path, const void* bytes, size_t size,
                  void* options) {
  const Runtime& r = *c.runtime;
  if (path != nullptr || bytes == nullptr) {
    return c.prepacked ? r.Call<Status*>(kCreateSessionWithPrepackedWeightsContainer, c.env, path,
                                         options, c.container, c.out)
                       : r.Call<Status*>(kCreateSession, c.env, path, options, c.out);
  }
  return c.prepacked ? r.Call<Status*>(kCreateSessionFromArrayWithPrepackedWeightsContainer, c.env,
                                       bytes, size, options, c.container, c.out)
                     : r.Call<Status*>(kCreateSessionFromArray, c.env, bytes, size, options, c.out);
}

// Makes the patched session of a model that is prepared.
class Maker {
 public:
  Maker(const Creation& c, const Model& model, Why* why)
      : c_(c), r_(*c.runtime), model_(model), why_(why) {}

  bool Make();

 private:
  bool CopyOptions(void** options);
  bool Equip(void* options, Bytes* memory);
  bool Give(void* options, Bytes* memory);
  bool Note(Bytes* memory);
  bool NoteWayBack(Patched* p);

  bool Step(Status* status) {
    Text error;
    return r_.Succeeded(status, &error) || why_->Fail(Cause::kSession, error.c());
  }

  const Creation& c_;
  const Runtime& r_;
  const Model& model_;
  Why* why_;
};

// Reads the weights that lie in the model's own file, and gives them to the session from memory.
// ONNX Runtime would map that file, and whoever overwrites it later would change answers. Without
// graft it copies them too.
bool Maker::Give(void* options, Bytes* memory) {
  const Externals& externals = model_.externals();
  const auto file_size = static_cast<uint64_t>(model_.size());
  constexpr size_t kAlign = 64;
  size_t total = 0;
  List<const External*> own;
  const char* known = nullptr;
  size_t known_size = 0;
  for (size_t i = 0; i < externals.size(); ++i) {
    const External& e = externals[i];
    const bool same = known != nullptr && e.location_size == known_size &&
                      memcmp(e.location, known, known_size) == 0;
    if (!same && !model_.IsOwn(e.location, e.location_size)) continue;
    known = e.location;
    known_size = e.location_size;
    if (e.length == 0) continue;
    if (e.length > file_size || e.offset > file_size - e.length ||
        e.length > SIZE_MAX / 4 - total) {
      return why_->Fail(Cause::kChanged, "the model's file changed");
    }
    total += (static_cast<size_t>(e.length) + kAlign - 1) / kAlign * kAlign;
    if (!own.Add(&e)) return why_->Fail(Cause::kMemory, "no memory");
  }
  if (own.size() == 0) return true;
  if (!memory->Take(total)) return why_->Fail(Cause::kMemory, "no memory for the weights");
  const int fd = open(model_.path().c(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return why_->Fail(Cause::kChanged, "the model's file is gone");

  void* info = nullptr;
  bool ok = Step(r_.Call<Status*>(kCreateCpuMemoryInfo, 0, 0, &info));
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
                                     e.rank, e.type, &value));
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
                                   static_cast<void* const*>(values.data()), names.size()));
  for (size_t i = 0; i < values.size(); ++i) r_.Call<void>(kReleaseValue, values[i]);
  if (info != nullptr) r_.Call<void>(kReleaseMemoryInfo, info);
  return ok;
}

// Gives options what a session of the graph needs.
bool Maker::Equip(void* options, Bytes* memory) {
  const Entry& entry = model_.entry();
  const bool whole = model_.graph().size() == 0;
  Text folder;
  if (!whole && entry.folder() != nullptr &&
      !(Config(r_, options, kFolderEntry, &folder) && folder.Is(entry.folder())) &&
      !Step(r_.Call<Status*>(kAddSessionConfigEntry, options, kFolderEntry, entry.folder()))) {
    return false;
  }
  for (size_t i = 0; i < entry.libraries().size(); ++i) {
    const Library& l = entry.libraries()[i];
    char path[kSealedPath];
    if (!Seal(l.path, l.hash, path)) {
      why_->Fail(Cause::kChanged, l.path);
      why_->text.Add(": found other bytes than those that were verified");
      return false;
    }
    if (!Step(r_.Call<Status*>(kRegisterCustomOpsLibrary_V2, options,
                               static_cast<const char*>(path)))) {
      return false;
    }
  }
  return whole || Give(options, memory);
}

bool Maker::CopyOptions(void** options) {
  return Step(c_.options == nullptr ? r_.Call<Status*>(kCreateSessionOptions, options)
                                    : r_.Call<Status*>(kCloneSessionOptions, c_.options, options));
}

bool Maker::Make() {
  void* options = nullptr;
  if (!CopyOptions(&options)) return false;
  Bytes memory;
  const bool whole = model_.graph().size() == 0;
  const bool ok = Equip(options, &memory) &&
                  Step(CreateOwn(c_, whole ? model_.entry().graph() : nullptr,
                                 model_.graph().data(), model_.graph().size(), options));
  r_.Call<void>(kReleaseSessionOptions, options);
  if (!ok) return false;
  if (!model_.Holds()) {
    why_->Fail(Cause::kChanged, "a file changed while the session was created");
  } else if (Note(&memory)) {
    return true;
  }
  r_.Call<void>(kReleaseSession, *c_.out);
  *c_.out = nullptr;
  return false;
}

// Notes what is to be there as long as the session is.
bool Maker::Note(Bytes* memory) {
  const bool weights = memory->size() > 0 && r_.api > GRAFT_COPYING_API;
  Patched* p = Patched::New();
  if (p == nullptr) return !weights || why_->Fail(Cause::kMemory, "no memory");
  p->runtime = &r_;
  p->session = *c_.out;
  if (weights) p->weights.Swap(memory);
  p->has_way_back = NoteWayBack(p);
  Keep(p);
  return true;
}

bool Maker::NoteWayBack(Patched* p) {
  p->env = c_.env;
  model_.Name(&p->name);
  if (c_.path != nullptr) {
    p->path.Add(model_.path());
  } else {
    model_.AddCopy(&p->path);
  }
  memcpy(p->hash, model_.hash(), sizeof p->hash);
  List<File> files;
  if (p->name.bad() || p->path.bad() || !model_.AddFiles(&files)) return false;
  for (size_t i = 0; i < files.size(); ++i) {
    File f = files[i];
    const size_t path = strlen(f.path) + 1, hash = f.hash == nullptr ? 0 : strlen(f.hash) + 1;
    auto* both = static_cast<char*>(malloc(path + hash));
    if (both == nullptr) return false;
    memcpy(both, f.path, path);
    f.path = both;
    if (hash > 0) f.hash = static_cast<char*>(memcpy(both + path, f.hash, hash));
    if (!p->files.Add(f)) {
      free(both);
      return false;
    }
  }
  // It writes nothing where the patched session wrote.
  return c_.options == nullptr ||
         (CopyOptions(&p->options) && Step(r_.Call<Status*>(kDisableProfiling, p->options)) &&
          Step(r_.Call<Status*>(kSetOptimizedModelFilePath, p->options, "")));
}

}  // namespace

Status* Create(const Creation& c) {
  const auto own = [&c] { return CreateOwn(c, c.path, c.model, c.size, c.options); };
  Begin();
  if (!Enabled() || c.out == nullptr || (c.path == nullptr && c.model == nullptr)) return own();
  KnowDomain(*c.runtime, c.env);
  Why why;
  Model model(c, &why);
  Text line;
  model.Name(&line);
  if (c.left != nullptr) {
    why.Left(c.left);
  } else if (model.Prepare() && Maker(c, model, &why).Make()) {
    const int replaced = model.entry().replaced();
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

void Count(uint64_t* patched, uint64_t* left) {
  if (patched != nullptr) *patched = __atomic_load_n(&patched_sessions, __ATOMIC_RELAXED);
  if (left != nullptr) *left = __atomic_load_n(&left_sessions, __ATOMIC_RELAXED);
}

}  // namespace graft
