// Package store holds installed plugins in a folder, with a record of what was installed and verified.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/file"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signing"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/host/storage"
)

// Store holds plugins in a folder, one folder each, and the record of verified libraries beside it.
// Several processes may use one store at once.
type Store struct {
	root  string // of the plugins
	trust *trust.Record
	keys  *signing.Trusted
}

// User is the store in the user's data folder, where Discover looks.
func User() (*Store, error) {
	data, err := file.DataFolder()
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Found: err.Error(), Cause: err}
	}
	return At(data), nil
}

// At is the store in a folder of the caller's.
func At(folder string) *Store {
	return &Store{root: filepath.Join(folder, "plugins"), trust: trust.At(folder), keys: signing.At(folder)}
}

// Record is the store's record of verified libraries.
func (s *Store) Trust() *trust.Record { return s.trust }

// Keys are those that may sign what is installed.
func (s *Store) Keys() *signing.Trusted { return s.keys }

// Prefixes of folders in a store that are no plugins.
const (
	stagingPrefix = ".staging-"
	removedPrefix = ".removed-"
)

// lock gives this process the store for a change of its folders. Close unlocks.
func (s *Store) lock(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return nil, refusal.Store(s.root, "cannot make the folder", err)
	}
	lock, err := storage.Lock(ctx, filepath.Join(s.root, ".lock"), nil)
	if err != nil {
		return nil, refusal.Locking(ctx, s.root, err)
	}
	return lock, nil
}

// Installed is a plugin in the store.
type Installed struct {
	Name     string             `json:"name"`
	Version  string             `json:"version"`
	Folder   string             `json:"folder"`
	Source   string             `json:"source,omitempty"`
	Time     time.Time          `json:"time"`
	Key      string             `json:"key,omitempty"`      // as in Record
	Unsigned bool               `json:"unsigned,omitempty"` // as in Record
	Manifest *manifest.Manifest `json:"manifest,omitempty"`
	// Problem says why the plugin cannot be used; empty when nothing is known against it. List reads no
	// library: Verify does.
	Problem string `json:"problem,omitempty"`
}

// List reads the store. A store that does not exist is empty.
func (s *Store) List() ([]Installed, error) {
	entries, err := os.ReadDir(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return []Installed{}, nil
	}
	if err != nil {
		return nil, refusal.Store(s.root, "cannot read", err)
	}
	known, err := s.trust.Read()
	if err != nil {
		return nil, err
	}
	out := []Installed{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() {
			continue
		}
		out = append(out, s.installed(e.Name(), known))
	}
	return out, nil
}

func (s *Store) installed(name string, known *trust.Content) Installed {
	folder := filepath.Join(s.root, name)
	in := Installed{Name: name, Folder: folder}
	m, err := manifest.Read(folder)
	if err != nil {
		in.Problem = err.Error()
		return in
	}
	in.Manifest, in.Version = m, m.Version
	record, err := readRecord(folder)
	if err != nil {
		in.Problem = err.Error()
		return in
	}
	in.Source, in.Time, in.Key, in.Unsigned = record.Source, record.Time, record.Key, record.Unsigned
	if v := known.At(folder); v != nil {
		for _, variant := range m.ForPlatform(manifest.ThisPlatform) {
			if _, ran := v.Libraries[variant.File]; ran {
				return in
			}
		}
	}
	in.Problem = "no library for this machine is recorded as verified; run: graft plugin verify " + name
	return in
}

// folderOf is an installed plugin's folder.
func (s *Store) folderOf(name string) (string, error) {
	if !manifest.IsName(name) {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root, Found: fmt.Sprintf("found no plugin %q", diagnostic.Clip(name)), Needed: "the name of an installed one", Fix: "run: graft plugin list"}
	}
	folder := filepath.Join(s.root, name)
	if !manifest.Exists(folder) {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root, Found: fmt.Sprintf("found no plugin %q", name), Needed: "the name of an installed one", Fix: "run: graft plugin list"}
	}
	return folder, nil
}

// Remove takes a plugin out of the store. Programs that have loaded it keep running.
func (s *Store) Remove(ctx context.Context, name string) error {
	folder, err := s.folderOf(name)
	if err != nil {
		return err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	aside, err := os.MkdirTemp(s.root, removedPrefix)
	if err != nil {
		return refusal.Store(s.root, "cannot write", err)
	}
	// Out of sight in one step, so that no search finds half of it.
	if err := os.Rename(folder, filepath.Join(aside, name)); err != nil {
		os.Remove(aside)
		return refusal.Store(folder, "cannot remove", err)
	}
	if err := errors.Join(storage.SyncFolder(s.root), os.RemoveAll(aside)); err != nil {
		return refusal.Store(aside, "cannot remove", err)
	}
	return s.trust.Update(ctx, func(known *trust.Content) { known.Forget(folder, nil) })
}

// Verify checks installed plugins, all of them without names, or plugins anywhere: a name with a
// separator in it is a folder, and one that is not installed is looked for where Discover looks. The files of installed ones must be the recorded ones; then the libraries
// run in a child process again, and their hashes are recorded, so that Open takes them.
func (s *Store) Verify(ctx context.Context, names []string, opts verification.Options) ([]Verification, error) {
	if len(names) == 0 {
		all, err := s.List()
		if err != nil {
			return nil, err
		}
		for _, in := range all {
			names = append(names, in.Name)
		}
		if len(names) == 0 {
			return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root, Found: "found no installed plugin", Fix: "install one with: graft plugin install DIR"}
		}
	}
	var (
		out      []Verification
		problems []error
	)
	for _, name := range names {
		v, err := s.verify(ctx, name, opts)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			problems = append(problems, err)
			v.Problem = err.Error()
		}
		out = append(out, v)
	}
	return out, errors.Join(problems...)
}

// folderNamed is the folder of the plugin that a search finds under a name, "" where it finds none.
func folderNamed(name string, where discovery.Options) string {
	for _, f := range discovery.Find(where).Found {
		if f.Manifest != nil && f.Manifest.Name == name && f.ShadowedBy == "" {
			return f.Folder
		}
	}
	return ""
}

// Verification is the result of Verify for one plugin.
type Verification struct {
	Name    string                 `json:"name"`
	Folder  string                 `json:"folder"`
	Checked []verification.Checked `json:"checked"`
	Skipped []verification.Skipped `json:"skipped"` // libraries for this platform that were not run
	Tests   []matching.Tested      `json:"tests"`   // graphs that patterns must and must not match
	Problem string                 `json:"problem,omitempty"`
}

func (s *Store) verify(ctx context.Context, name string, opts verification.Options) (Verification, error) {
	v := Verification{Name: name, Checked: []verification.Checked{}, Skipped: []verification.Skipped{}, Tests: []matching.Tested{}}
	var err error
	if strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".." {
		if v.Folder, err = filepath.Abs(name); err != nil {
			return v, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: name, Found: err.Error(), Cause: err}
		}
	} else if v.Folder, err = s.folderOf(name); err != nil {
		if v.Folder = folderNamed(name, opts.Search); v.Folder == "" {
			return v, err
		}
	}
	if filepath.Dir(v.Folder) == s.root { // installed, whichever way it was named
		if _, err := readRecord(v.Folder); err != nil {
			return v, err
		}
		if err := s.unchanged(v.Folder); err != nil {
			return v, err
		}
	}
	done, err := verification.Folder(ctx, v.Folder, opts)
	if err != nil {
		return v, err
	}
	v.Name, v.Checked, v.Skipped, v.Tests = done.Manifest.Name, done.Checked, done.Skipped, done.Tests
	return v, s.trust.Update(ctx, func(known *trust.Content) {
		known.Add(done.Verified(v.Folder))
		known.Forget(v.Folder, done.Files)
	})
}
