package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/file"
)

// maxBytes bounds a result's file.
const maxBytes = 256 << 20

// suffix ends the names of results' files, which begin with their IDs.
const suffix = ".json"

// idLength is the number of an ID's digits, and leastPrefix that of digits which may stand for it.
const (
	idLength    = 64
	leastPrefix = 4
)

// Store is a folder of results.
type Store struct{ Folder string }

// User is that of the user's data folder, which may not be there yet.
func User() (*Store, error) {
	data, err := file.DataFolder()
	if err != nil {
		return nil, err
	}
	return &Store{filepath.Join(data, "results")}, nil
}

// Save stores a record, whole or not at all, and gives it its ID.
func (s *Store) Save(r *Record) error {
	data, err := r.canonical()
	if err != nil {
		return err
	}
	if len(data) > maxBytes {
		return &diagnostic.Error{Path: s.Folder, Found: fmt.Sprintf("a result of %d bytes", len(data)),
			Needed: fmt.Sprintf("at most %d", maxBytes), Fix: "compare fewer sizes or rounds at once"}
	}
	fail := func(err error) error {
		return &diagnostic.Error{Path: s.Folder, Found: "cannot store the result: " + diagnostic.Cause(err),
			Fix: "make the folder writable, or set XDG_DATA_HOME to one that is", Cause: err}
	}
	if err := os.MkdirAll(s.Folder, 0o700); err != nil {
		return fail(err)
	}
	storage.Sweep(s.Folder)
	name := id(data)
	if err := storage.Write(filepath.Join(s.Folder, name+suffix), data, storage.Private); err != nil {
		return fail(err)
	}
	r.id = name
	return nil
}

// Skipped is a file of the folder that is no result.
type Skipped struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// List reads all results, the newest first. What is none of them, was changed or is of a newer graft is left out and
// named.
func (s *Store) List() (list []*Record, skipped []Skipped, err error) {
	entries, err := os.ReadDir(s.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &diagnostic.Error{Path: s.Folder, Found: "cannot read the results: " + diagnostic.Cause(err),
			Cause: err}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp") { // what is being written
			continue
		}
		r, err := s.read(e.Name())
		if err != nil {
			skipped = append(skipped,
				Skipped{filepath.Join(s.Folder, e.Name()), strings.TrimPrefix(err.Error(), filepath.Join(s.Folder, e.Name())+": ")})
			continue
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b *Record) int { return -strings.Compare(a.Time+a.id, b.Time+b.id) })
	return list, skipped, nil
}

// read reads the result of a file's name.
func (s *Store) read(name string) (*Record, error) {
	path := filepath.Join(s.Folder, name)
	data, err := storage.ReadOwn(path, maxBytes)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "cannot read the result: " + diagnostic.Cause(err), Cause: err}
	}
	r, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	if was, ok := strings.CutSuffix(name, suffix); !ok || id(data) != was {
		return nil, &diagnostic.Error{Path: path, Found: "a result that was changed or renamed: its SHA-256 is " + id(data),
			Needed: "that of its name", Fix: "remove the file"}
	}
	r.id = id(data)
	return r, nil
}

// isPrefix says whether a text can be the beginning of an ID.
func isPrefix(text string) bool {
	return len(text) >= leastPrefix && len(text) <= idLength &&
		!strings.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) })
}

// Stored finds a result by its ID, a beginning of it of at least four digits that no other has, or the name it was
// saved under: of several, the newest.
func (s *Store) Stored(ref string) (*Record, error) {
	if isPrefix(ref) {
		r, err := s.prefixed(ref)
		if r != nil || err != nil {
			return r, err
		}
	}
	list, skipped, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Name == ref && ref != "" {
			return r, nil
		}
	}
	e := &diagnostic.Error{Path: s.Folder, Found: fmt.Sprintf("no result %q among %d", ref, len(list)),
		Needed: "an ID, at least four digits of its beginning, or a name",
		Fix:    "graft ab list shows them, and graft ab MODEL --save stores one"}
	if len(skipped) > 0 {
		e.Found += fmt.Sprintf("; %d files were skipped", len(skipped))
	}
	return nil, e
}

// prefixed finds the one result whose ID begins so; nil for none.
func (s *Store) prefixed(prefix string) (*Record, error) {
	found, err := filepath.Glob(filepath.Join(escaped(s.Folder), prefix+"*"+suffix))
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(path string) bool { // what graft did not write
		name := strings.TrimSuffix(filepath.Base(path), suffix)
		return len(name) != idLength || !isPrefix(name)
	})
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return s.read(filepath.Base(found[0]))
	}
	var ids []string
	for _, path := range found {
		ids = append(ids, strings.TrimSuffix(filepath.Base(path), suffix)[:min(len(prefix)+8, idLength)])
	}
	return nil, &diagnostic.Error{Path: s.Folder,
		Found: fmt.Sprintf("%d results begin with %s: %s", len(found), prefix, strings.Join(ids, ", ")), Needed: "one",
		Fix: "write more digits"}
}

// escaped is a path that filepath.Glob takes literally.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// Remove removes a result that was stored.
func (s *Store) Remove(r *Record) error {
	if err := os.Remove(filepath.Join(s.Folder, r.id+suffix)); err != nil {
		return &diagnostic.Error{Path: s.Folder, Found: "cannot remove the result: " + diagnostic.Cause(err), Cause: err}
	}
	return storage.SyncFolder(s.Folder)
}

// Find is Stored, or reads a file: what graft ab -o json wrote, or a record. A text with a slash or the end .json is
// a path; so is one that names no result and is there.
func (s *Store) Find(ref string) (*Record, error) {
	if strings.ContainsRune(ref, os.PathSeparator) || strings.HasSuffix(ref, suffix) {
		return readFile(ref)
	}
	r, err := s.Stored(ref)
	if err == nil {
		return r, nil
	}
	if info, missing := os.Stat(ref); missing == nil && info.Mode().IsRegular() {
		return readFile(ref)
	}
	return nil, err
}

// readFile reads a result outside of a store. Of one that was not saved the model's hash and the plugins are not known.
func readFile(path string) (*Record, error) {
	data, err := storage.ReadRegular(path, maxBytes)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "cannot read the result: " + diagnostic.Cause(err),
			Needed: "a file of graft ab -o json", Cause: err}
	}
	if r, err := parse(path, data); err == nil {
		if data, err = canonical(data); err == nil {
			r.id = id(data)
		}
		return r, err
	} else if strings.Contains(string(data[:min(len(data), 1<<12)]), kind) {
		return nil, err
	}
	var head struct {
		Batch json.RawMessage `json:"batch"` // results of generations have it, and no other does
	}
	var of written
	if of.Result = data; json.Unmarshal(data, &head) == nil && head.Batch != nil {
		of = written{Generations: data}
	}
	m, err := of.read(path)
	if err != nil {
		return nil, err
	}
	return &Record{SchemaVersion: recordVersion, Kind: kind, Time: m.Environment().Date, Model: Model{Path: m.path()},
		Measured: m}, nil
}
