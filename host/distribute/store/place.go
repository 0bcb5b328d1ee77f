package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
)

// place makes what is prepared the current version, on the disk when it returns. The version that was current is
// retained beside it, or removed.
func (s *Store) place(ctx context.Context, p *prepared, opts verification.Options, retain bool,
	may func(*prepared) error) (*Installation, error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { lock.Close() }()
	if p.done == nil && !s.ran(p) { // removed meanwhile
		lock.Close()
		if err := s.check(ctx, p, opts); err != nil {
			return nil, relabel(err, p.folder, p.source)
		}
		if lock, err = s.lock(ctx); err != nil {
			return nil, err
		}
	}
	if err := may(p); err != nil { // another process may have installed one
		return nil, relabel(err, p.folder, p.source)
	}
	name, id := p.manifest.Name, identity(p.manifest.Version, p.files)
	in := &Installation{Name: name, Version: p.manifest.Version, Folder: filepath.Join(s.root, name),
		Checked: []verification.Checked{}, Skipped: []verification.Skipped{}, Tests: []matching.Tested{},
		Source: p.record.Source, Key: p.record.Key, Unsigned: p.record.Unsigned}
	if p.done != nil {
		in.Checked, in.Skipped, in.Tests = p.done.Checked, p.done.Skipped, p.done.Tests
		for i := range in.Checked {
			in.Checked[i].Path = filepath.Join(in.Folder, filepath.Base(in.Checked[i].Path))
		}
	}
	old, err := s.current(name)
	if err != nil {
		return nil, err
	}
	oldID := ""
	if old != "" {
		info, err := os.Lstat(old)
		if err == nil {
			oldID, err = s.asVersion(old)
		}
		switch {
		case err != nil && retain:
			return nil, err // it would be lost
		case err != nil:
			oldID = "unreadable"
		case info.Mode()&fs.ModeSymlink != 0:
			retain = false // a link of the user's own, which points to where it lies
		}
	}
	if in.Already = oldID == id && s.ran(p); in.Already {
		if record, err := readRecord(old); err == nil && record.Source == p.record.Source && record.Key == p.record.Key &&
			record.Unsigned == p.record.Unsigned {
			_ = s.settle(ctx, name) // after a process that ended before it did
			return in, nil
		}
	}
	if old != "" && oldID != id {
		if before, err := manifest.Read(old); err == nil {
			in.Replaced = before.Version
		}
		in.Retained = retain
	}
	return in, s.install(ctx, p, id, old, oldID, retain)
}

// install moves a prepared folder among the versions and turns the name to it. What is recorded of it is recorded
// first: from the moment that it is current, programs may load it.
func (s *Store) install(ctx context.Context, p *prepared, id, old, oldID string, retain bool) error {
	name := p.manifest.Name
	versions := s.versions(name)
	final := filepath.Join(versions, id)
	for _, folder := range []string{filepath.Dir(versions), versions} {
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return refusal.Store(folder, "cannot make the folder", err)
		}
		if err := s.sync(filepath.Dir(folder)); err != nil {
			return err
		}
	}
	before, err := s.record(ctx, p, final, old, oldID)
	if err != nil {
		return err
	}
	err = s.store(p.folder, final)
	if err == nil && oldID != id {
		err = s.change(name, id, old, oldID, retain)
	} else if err == nil && old != final { // the same files, in the store's folder itself
		err = s.turn(name, id, oldID+rest)
	}
	if err != nil {
		// One that is current stays recorded, though it may not be on the disk yet.
		if at, failed := s.pointed(name); !before && failed == nil && at != final {
			err = errors.Join(err, s.trust.Update(context.WithoutCancel(ctx),
				func(known *trust.Content) { known.Withdraw(final, p.files) }))
		}
		return err
	}
	// The new version is in place, whatever becomes of what is left.
	s.sweepName(name)
	_ = s.settle(ctx, name)
	return nil
}

// rest ends the names of folders that are no versions.
const rest = ".rest"

// record notes what is prepared, and that a version in the store's folder itself is moved to the versions. before
// says that it was noted already.
func (s *Store) record(ctx context.Context, p *prepared, final, old, oldID string) (before bool, err error) {
	err = s.trust.Update(ctx, func(known *trust.Content) {
		before = known.Holds(final, p.files)
		if p.done != nil {
			known.Add(p.done.Verified(final))
		} else if v, found := known.Plugins[p.files.Digest()]; found {
			v.Folders = []string{final}
			known.Add(v)
		}
		s.moved(known, old, oldID)
	})
	return before, err
}

// moved notes where a version that lies in the store's folder itself is about to lie.
func (s *Store) moved(known *trust.Content, old, oldID string) {
	if v := known.At(old); old != "" && filepath.Dir(old) == s.root && v != nil {
		there := *v
		there.Folders = []string{filepath.Join(s.versions(filepath.Base(old)), oldID)}
		known.Add(there)
	}
}

// store moves a folder among the versions. One of the same name there has the same files, or was damaged, and is
// replaced.
func (s *Store) store(folder, final string) error {
	err := os.Rename(folder, final)
	if err != nil {
		if _, statErr := os.Lstat(final); statErr != nil {
			return refusal.Store(final, "cannot move it into place", err)
		}
		// Exchanged, the old folder lies in the staging folder, which goes away.
		done, err := swap(folder, final)
		if err == nil && !done {
			if err = os.Rename(final, folder+".old"); err == nil {
				if err = os.Rename(folder, final); err != nil {
					err = errors.Join(err, os.Rename(folder+".old", final))
				}
			}
		}
		if err != nil {
			return refusal.Store(final, "cannot move it into place", err)
		}
	}
	return s.sync(filepath.Dir(final))
}

// change turns a name from one version to another. The caller has the store's lock.
func (s *Store) change(name, id, old, oldID string, retain bool) error {
	keep, err := s.retained(name)
	if err != nil {
		return err
	}
	after := keep
	after.without(id)
	inPlace := old != "" && filepath.Dir(old) == s.root
	if retain && old != "" {
		after.without(oldID)
		after.Before = append(after.Before, oldID)
	}
	if retain && old != "" || inPlace {
		// Where turning takes two steps, the old one is no rest in between.
		write := after
		if !retain {
			write.Before = append(write.Before, oldID)
		}
		if err := s.retain(name, write); err != nil {
			return err
		}
	}
	if err := s.turn(name, id, oldID); err != nil {
		return err
	}
	if inPlace && !retain {
		return s.retain(name, after)
	}
	return nil
}
