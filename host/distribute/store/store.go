// Package store holds installed plugins in a folder, with a record of what was installed and verified.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
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
	data, err := storage.DataFolder()
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
	// Retained are versions beside this one, which is current.
	Retained []Installed `json:"retained,omitempty"`
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
		folder := discovery.Current(filepath.Join(s.root, e.Name()))
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() && filepath.Dir(folder) == s.root {
			continue
		}
		if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
			continue // removed; the link is swept
		}
		in := s.installed(e.Name(), folder, known)
		keep, err := s.retained(e.Name())
		if err != nil {
			return nil, err
		}
		for _, id := range append(keep.Before, keep.After...) {
			in.Retained = append(in.Retained, s.installed(e.Name(), filepath.Join(s.versions(e.Name()), id), known))
		}
		out = append(out, in)
	}
	return out, nil
}

func (s *Store) installed(name, folder string, known *trust.Content) Installed {
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

// folderOf is the folder of an installed plugin, NAME for its current version or NAME@VERSION.
func (s *Store) folderOf(text string) (string, error) {
	name, version, one := strings.Cut(text, "@")
	if !manifest.IsName(name) {
		return "", s.notFound(fmt.Sprintf("found no plugin %q", diagnostic.Clip(text)))
	}
	folder, err := s.current(name)
	if err != nil {
		return "", err
	}
	if folder == "" {
		return "", s.notFound(fmt.Sprintf("found no plugin %q", name))
	}
	if !one {
		return folder, nil
	}
	return s.version(name, version)
}

// version is the folder of a version that is retained or current, by the version or by the name of its folder: other
// files of the current version may be retained.
func (s *Store) version(name, version string) (string, error) {
	folders, err := s.all(name)
	if err != nil {
		return "", err
	}
	var have []string
	for _, folder := range append(folders[min(1, len(folders)):], folders[:min(1, len(folders))]...) {
		m, err := manifest.Read(folder)
		switch {
		case err != nil:
		case m.Version == version, filepath.Base(folder) == version && filepath.Dir(folder) != s.root:
			return folder, nil
		default:
			have = append(have, m.Version)
		}
	}
	return "", s.notFound(fmt.Sprintf("found no version %s of %s, but %s", diagnostic.Quote(diagnostic.Clip(version)),
		name, cmp.Or(strings.Join(have, ", "), "none that can be read")))
}

func (s *Store) notFound(found string) error {
	return &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root, Found: found, Needed: "the name of an installed one",
		Fix: "run: graft plugin list"}
}

// Remove takes a plugin, NAME, out of the store with all its versions, or one version that is not the current one of
// several, NAME@VERSION. Programs that have loaded it keep running.
func (s *Store) Remove(ctx context.Context, text string) error {
	name, _, one := strings.Cut(text, "@")
	if _, err := s.folderOf(text); err != nil {
		return err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	s.sweepVersions()
	folder, err := s.folderOf(text) // another process may have removed it
	if err != nil {
		return err
	}
	if keep, err := s.retained(name); err != nil {
		return err
	} else if one && len(keep.Before)+len(keep.After) > 0 {
		return s.removeVersion(ctx, name, folder, keep)
	}
	// With the versions the link points nowhere, and the plugin is gone; what is left of it then is swept.
	inPlace := filepath.Dir(folder) == s.root
	if err := s.discard(s.versions(name)); err != nil {
		return err
	}
	if inPlace {
		err = s.discard(folder)
	} else {
		err = s.discard(filepath.Join(s.root, name))
	}
	if err != nil {
		return err
	}
	s.sweepVersions()
	return s.settle(ctx, name)
}

// removeVersion takes a version out that is not current.
func (s *Store) removeVersion(ctx context.Context, name, folder string, keep retained) error {
	if current, err := s.current(name); err != nil {
		return err
	} else if folder == current {
		return &diagnostic.Error{Kind: refusal.ErrStore, Path: folder,
			Found: "found the version of " + name + " that is current", Needed: "one beside it",
			Fix: "run: graft plugin rollback " + name + ", then remove it; graft plugin remove " + name +
				" removes all versions"}
	}
	keep.without(filepath.Base(folder))
	if err := s.retain(name, keep); err != nil {
		return err
	}
	if err := s.discard(folder); err != nil {
		return err
	}
	return s.settle(ctx, name)
}

// Verify checks installed plugins, all of them without names, or plugins anywhere: see Locate. The files of installed
// ones must be the recorded ones; then the libraries run in a child process again, and their hashes are recorded, so
// that Open takes them.
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
			return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root, Found: "found no installed plugin",
				Fix: "install one with: graft plugin install DIR"}
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

// Locate is the path that a command line means by a word: with a separator in it, a path; else the name of an
// installed plugin, or of one that a search finds, or at last of what lies in the working directory.
func (s *Store) Locate(word string, where discovery.Options) (string, error) {
	if !strings.ContainsRune(word, filepath.Separator) && word != "." && word != ".." {
		folder, err := s.folderOf(word)
		if err == nil {
			return folder, nil
		}
		if found := folderNamed(word, where); found != "" {
			return found, nil
		}
		if _, missing := os.Stat(word); missing != nil || word == "" {
			return "", err
		}
	}
	path, err := filepath.Abs(word)
	if err != nil {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: word, Found: err.Error(), Cause: err}
	}
	return path, nil
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

// has reports a folder of the store.
func (s *Store) has(folder string) bool {
	return filepath.Dir(folder) == s.root ||
		filepath.Dir(filepath.Dir(folder)) == filepath.Join(s.root, discovery.VersionsFolder)
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
	v := Verification{Name: name, Checked: []verification.Checked{}, Skipped: []verification.Skipped{},
		Tests: []matching.Tested{}}
	var err error
	if v.Folder, err = s.Locate(name, opts.Search); err != nil {
		return v, err
	}
	if filepath.Dir(v.Folder) != s.root {
		opts.Own = true // whoever names a folder that is not installed is about to find out why it fails
	}
	if filepath.Dir(v.Folder) == s.root {
		v.Folder = discovery.Current(v.Folder)
	}
	if s.has(v.Folder) { // installed, whichever way it was named
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
