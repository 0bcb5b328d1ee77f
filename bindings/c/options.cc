#include "options.h"

#include "lock.h"

namespace graft {
namespace {

// What is known of an OrtSessionOptions by its address. Only those with something to know are
// listed.
struct Note {
  void* options;
  bool provider;  // other than the CPU's
  bool lends;     // initializers of the program's own
};

List<Note>& Notes() {
  alignas(List<Note>) static char place[sizeof(List<Note>)];  // zeros are an empty list
  return *reinterpret_cast<List<Note>*>(place);
}

bool lost = false;  // there was no memory for a note

// The note of options; null for none. The lock is held.
Note* Noted(void* options) {
  List<Note>& notes = Notes();
  for (size_t i = 0; i < notes.size(); ++i) {
    if (notes[i].options == options) return &notes[i];
  }
  return nullptr;
}

void Add(const Note& note) {
  const Lock lock(&state_lock);
  Note* old = Noted(note.options);
  if (old != nullptr) {
    old->provider = old->provider || note.provider;
    old->lends = old->lends || note.lends;
  } else if (!Notes().Add(note)) {
    lost = true;
  }
}

}  // namespace

void NoteProvider(void* options) { Add({options, true, false}); }

void NoteLends(void* options) { Add({options, false, true}); }

void CopyNotes(void* from, void* to) {
  Note copy;
  {
    const Lock lock(&state_lock);
    const Note* old = Noted(from);
    if (old == nullptr) return;
    copy = *old;
  }
  copy.options = to;
  Add(copy);
}

void Forget(void* options) {
  const Lock lock(&state_lock);
  Note* old = Noted(options);
  if (old != nullptr) Notes().Remove(static_cast<size_t>(old - Notes().data()));
}

const char* LeftFor(void* options) {
  const Lock lock(&state_lock);
  if (lost) return "there was no memory to note what its options have";
  const Note* n = Noted(options);
  if (n == nullptr) return nullptr;
  return n->provider ? "the session has other execution providers than the CPU's"
                     : "the program gives initializers of its own";
}

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

}  // namespace graft
