package store

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
)

// Each version of a plugin has a folder of its own, which nothing changes once it is there:
//
//	plugins/.versions/NAME/VERSION-HASH/   HASH: the beginning of content.Files.Digest
//	plugins/.versions/NAME/retained.json   which of them are retained beside the current one
//	plugins/NAME -> .versions/NAME/VERSION-HASH
//
// What is current changes in one step, as the link is replaced. What is neither current nor retained was left by a
// process that ended, and goes with the next change. A store of an older graft has a folder in the link's place; it
// is current where it lies, and is moved to the versions when another takes its place.

// Files of the store's own.
const (
	retainedName = "retained.json"
	newLink      = ".link" // a link that is not in its place yet; whoever has the store's lock makes it
)

// current is the folder of a name's current version; "" where there is none.
func (s *Store) current(name string) (string, error) {
	folder, err := s.pointed(name)
	if err != nil || !manifest.Exists(folder) {
		return "", err
	}
	return folder, nil
}

// pointed is the folder in which a name's current version lies, or has to.
func (s *Store) pointed(name string) (string, error) {
	link := filepath.Join(s.root, name)
	folder, err := discovery.Pointed(link)
	if err != nil {
		return "", refusal.Store(link, "cannot read the link", err)
	}
	return folder, nil
}

// all are the folders of a name's versions, the current one first.
func (s *Store) all(name string) ([]string, error) {
	current, err := s.current(name)
	if err != nil || current == "" {
		return nil, err
	}
	keep, err := s.retained(name)
	if err != nil {
		return nil, err
	}
	folders := []string{current}
	for _, id := range append(slices.Clone(keep.Before), keep.After...) {
		folders = append(folders, filepath.Join(s.versions(name), id))
	}
	return folders, nil
}

// versions is the folder of a name's versions.
func (s *Store) versions(name string) string {
	return filepath.Join(s.root, discovery.VersionsFolder, name)
}

// identity names the folder of a version.
func identity(version string, files content.Files) string {
	const longest = 100 // of a file's name on any system there is room for more
	return version[:min(len(version), longest)] + "-" + files.Digest()[:16]
}

// retained says which versions of a name stay beside the current one, by the names of their folders.
type retained struct {
	SchemaVersion int `json:"schema_version"`
	// Before were current, in this order, before the one that is: Rollback returns to the last.
	Before []string `json:"before"`
	// After were current, and were left by Rollback.
	After []string `json:"after"`
}

// maxRetainedBytes bounds the file: names of some 1,000 versions.
const maxRetainedBytes = 1 << 20

// retained reads what is retained of a name beside its current version, that is there.
func (s *Store) retained(name string) (retained, error) {
	r := retained{SchemaVersion: 1}
	path := filepath.Join(s.versions(name), retainedName)
	data, err := storage.ReadOwn(path, maxRetainedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.SchemaVersion != 1 {
		err = errors.New("found another schema_version, needed 1")
	}
	if err != nil {
		return r, &diagnostic.Error{Kind: refusal.ErrStore, Path: path,
			Found: "cannot read which versions are retained: " + diagnostic.Cause(err),
			Fix:   "remove the file; what is installed is used on, and other versions are not", Cause: err}
	}
	current, err := s.pointed(name)
	if err != nil {
		return r, err
	}
	gone := func(id string) bool {
		folder := filepath.Join(s.versions(name), id)
		info, err := os.Lstat(folder)
		// A link there is unfinished: what it is to be exchanged for is current still.
		return id != filepath.Base(id) || folder == current || errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir()
	}
	r.Before = slices.DeleteFunc(r.Before, gone)
	r.After = slices.DeleteFunc(r.After, func(id string) bool { return gone(id) || slices.Contains(r.Before, id) })
	return r, nil
}

// has reports a version that is retained.
func (r *retained) has(id string) bool {
	return slices.Contains(r.Before, id) || slices.Contains(r.After, id)
}

// without takes a version out.
func (r *retained) without(id string) {
	is := func(other string) bool { return other == id }
	r.Before, r.After = slices.DeleteFunc(r.Before, is), slices.DeleteFunc(r.After, is)
}

// retain writes what is retained of a name. It is written before the link turns: what is current then is among it,
// and is not read from there while it is current.
func (s *Store) retain(name string, r retained) error {
	if r.Before == nil {
		r.Before = []string{}
	}
	if r.After == nil {
		r.After = []string{}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.versions(name), retainedName)
	if err := storage.Write(path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(path, "cannot write", err)
	}
	return nil
}

// asVersion is the name of the folder among the versions that a current version has, or will have where it lies in
// the store's folder itself.
func (s *Store) asVersion(folder string) (id string, err error) {
	if filepath.Dir(folder) != s.root {
		return filepath.Base(folder), nil
	}
	m, err := manifest.Read(folder)
	if err != nil {
		return "", err
	}
	files, err := content.ReadAny(folder, nil)
	if err != nil {
		return "", err
	}
	return identity(m.Version, files), nil
}

// turn makes a version current, in one step. A folder in the link's place becomes the version old in the same step.
// The caller has the store's lock.
func (s *Store) turn(name, id, old string) error {
	link, target := filepath.Join(s.root, name), filepath.Join(discovery.VersionsFolder, name, id)
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		made := filepath.Join(s.root, newLink)
		os.Remove(made) // of a process that ended
		if err := os.Symlink(target, made); err != nil {
			return refusal.Store(s.root, "cannot write", err)
		}
		if err := os.Rename(made, link); err != nil {
			os.Remove(made)
			return refusal.Store(link, "cannot move it into place", err)
		}
		return s.sync(s.root)
	}
	slot := filepath.Join(s.versions(name), old)
	if err := s.discard(slot); err != nil {
		return err
	}
	if err := os.Symlink(target, slot); err != nil {
		return refusal.Store(slot, "cannot write", err)
	}
	done, err := swap(slot, link)
	if err == nil && !done {
		// In two steps, where the file system has not one: what is retained says that the old version is no rest.
		if err = os.Rename(slot, filepath.Join(s.root, newLink)); err == nil {
			if err = os.Rename(link, slot); err == nil {
				err = os.Rename(filepath.Join(s.root, newLink), link)
			}
		}
	}
	if err != nil {
		if info, statErr := os.Lstat(slot); statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
			os.Remove(slot)
		}
		return refusal.Store(link, "cannot move it into place", err)
	}
	return errors.Join(s.sync(s.versions(name)), s.sync(s.root))
}

func (s *Store) sync(folder string) error {
	if err := storage.SyncFolder(folder); err != nil {
		return refusal.Store(folder, "cannot sync", err)
	}
	return nil
}

// discard removes a folder of the store, out of sight in one step, so that no search finds half of it. One that is
// not there is none.
func (s *Store) discard(folder string) error {
	info, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		if err = os.Remove(folder); err == nil {
			return s.sync(filepath.Dir(folder))
		}
		return refusal.Store(folder, "cannot remove", err)
	}
	aside, err := os.MkdirTemp(s.root, removedPrefix)
	if err != nil {
		return refusal.Store(s.root, "cannot write", err)
	}
	if err := os.Rename(folder, filepath.Join(aside, "folder")); err != nil {
		os.Remove(aside)
		return refusal.Store(folder, "cannot remove", err)
	}
	if err := errors.Join(storage.SyncFolder(filepath.Dir(folder)), storage.SyncFolder(aside),
		os.RemoveAll(aside)); err != nil {
		return refusal.Store(aside, "cannot remove", err)
	}
	return nil
}

// sweepVersions removes what is neither current nor retained, and what is unfinished. The caller has the store's lock.
func (s *Store) sweepVersions() {
	os.Remove(filepath.Join(s.root, newLink))
	all := filepath.Join(s.root, discovery.VersionsFolder)
	names, err := os.ReadDir(all)
	if err != nil {
		return
	}
	for _, name := range names {
		s.sweepName(name.Name())
	}
	os.Remove(all) // where it is empty
}

func (s *Store) sweepName(name string) {
	keep, err := s.retained(name)
	if err != nil {
		return // what cannot be told apart stays
	}
	current, err := s.pointed(name)
	if err != nil {
		return
	}
	folder, link := s.versions(name), filepath.Join(s.root, name)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		switch {
		case e.IsDir() && path != current && !keep.has(e.Name()):
			_ = s.discard(path) // the next change tries again
		case isUnfinished(path, e):
			os.Remove(path)
		}
	}
	storage.Sweep(folder)
	if len(keep.Before)+len(keep.After) > 0 {
		return
	}
	if filepath.Dir(current) != s.root { // a link to a version that is gone
		if _, err := os.Lstat(current); errors.Is(err, fs.ErrNotExist) {
			os.Remove(link)
		}
	}
	if _, err := os.Lstat(link); errors.Is(err, fs.ErrNotExist) {
		os.Remove(filepath.Join(folder, retainedName))
		os.Remove(folder) // where it is empty
	}
}

// isUnfinished reports a link that turn made, and that is in its place no more.
func isUnfinished(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	text, err := os.Readlink(path)
	return err == nil && strings.HasPrefix(text, discovery.VersionsFolder)
}

// settle takes folders of a name that are no more out of the record of what was verified. What a process that ended
// left there is true of the files still, and goes with the next change of the name.
func (s *Store) settle(ctx context.Context, name string) error {
	known, err := s.trust.Read()
	if err != nil || !s.withdraw(known, name) {
		return err // most often there is nothing to write
	}
	return s.trust.Update(ctx, func(known *trust.Content) { s.withdraw(known, name) })
}

// withdraw takes folders of a name that are no more out of what is recorded, and reports whether there were any.
func (s *Store) withdraw(known *trust.Content, name string) (any bool) {
	place, versions := filepath.Join(s.root, name), s.versions(name)+string(filepath.Separator)
	for _, v := range known.Plugins {
		for _, folder := range v.Folders {
			if folder != place && !strings.HasPrefix(folder, versions) {
				continue
			}
			if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
				known.Withdraw(folder, v.Files)
				any = true
			}
		}
	}
	return any
}
