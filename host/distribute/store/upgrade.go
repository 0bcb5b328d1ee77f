package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
)

// Upgrade installs a newer version of a plugin that is installed, from wherever it comes, as Install does. The
// version that was current is retained beside it: Rollback returns to it. An older version, and other files of the
// same version, are refused.
func (s *Store) Upgrade(ctx context.Context, name, source string, opts verification.Options) (*Installation, error) {
	if _, err := s.folderOf(name); err != nil {
		return nil, err
	}
	return s.bring(ctx, source, opts, true, func(p *prepared) error { return s.isNewer(name, p) })
}

// isNewer refuses what is no newer version of a plugin than the current one, nor that.
func (s *Store) isNewer(name string, p *prepared) error {
	m := p.manifest
	if m.Name != name {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: p.source, Found: "found the plugin " + m.Name,
			Needed: diagnostic.Quote(diagnostic.Clip(name)) + ", which is to be upgraded",
			Fix:    "run: graft plugin install " + diagnostic.Quote(p.source)}
	}
	folder, err := s.folderOf(name)
	if err != nil {
		return err
	}
	now, err := manifest.Read(folder)
	if err != nil {
		return nil // what cannot be read is no version
	}
	order := manifest.CompareVersions(m.Version, now.Version)
	refuse := func(found, fix string) error {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: p.source, Found: found,
			Needed: "a newer version than " + now.Version + ", which is installed", Fix: fix}
	}
	replace := fmt.Sprintf("run: graft plugin install --replace %s %s", name, diagnostic.Quote(p.source))
	switch {
	case order > 0 || sameFiles(folder, p.folder):
		return nil
	case order == 0:
		return refuse(fmt.Sprintf("found version %s with other files", m.Version), replace+", if that is meant")
	}
	if _, err := s.version(name, m.Version); err == nil {
		return refuse("found version "+m.Version, fmt.Sprintf("run: graft plugin rollback %s --to %s", name, m.Version))
	}
	return refuse("found version "+m.Version, replace+", if that is meant")
}

// Change is what Rollback did.
type Change struct {
	Name    string `json:"name"`
	Version string `json:"version"` // that is current now
	From    string `json:"from"`    // that was, and is retained
	Folder  string `json:"folder"`
	Already bool   `json:"already,omitempty"` // the version was current before: nothing was done
}

// Rollback makes a retained version of a plugin current: the one that was current before, or the version to, if that
// is not "". What is current now is retained. A version that was changed since it was installed is refused.
func (s *Store) Rollback(ctx context.Context, name, to string) (*Change, error) {
	if _, err := s.folderOf(name); err != nil {
		return nil, err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	s.sweep()
	s.sweepVersions()
	old, err := s.folderOf(name)
	if err != nil {
		return nil, err
	}
	target, err := s.before(name, to)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Read(target)
	if err != nil {
		return nil, err
	}
	c := &Change{Name: name, Version: m.Version, From: m.Version, Folder: filepath.Join(s.root, name)}
	if c.Already = target == old; c.Already {
		return c, nil
	}
	if now, err := manifest.Read(old); err == nil {
		c.From = now.Version
	}
	return c, s.switchTo(ctx, name, target, old)
}

// before is the folder of the version to return to.
func (s *Store) before(name, to string) (string, error) {
	if to != "" {
		return s.version(name, to)
	}
	keep, err := s.retained(name)
	if err != nil {
		return "", err
	}
	if len(keep.Before) == 0 {
		return "", &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root,
			Found: "found no version of " + name + " that was current before this one", Needed: "one that an upgrade left",
			Fix: "name a retained version with --to; graft plugin list shows them"}
	}
	return filepath.Join(s.versions(name), keep.Before[len(keep.Before)-1]), nil
}

// switchTo turns a name to a version that the store holds, and retains the one that was current. The caller has the
// store's lock.
func (s *Store) switchTo(ctx context.Context, name, target, old string) error {
	if _, err := readRecord(target); err != nil {
		return err
	}
	if err := s.unchanged(target); err != nil {
		return err
	}
	keep, err := s.retained(name)
	if err != nil {
		return err
	}
	oldID, err := s.asVersion(old)
	if err != nil {
		return err
	}
	id := filepath.Base(target)
	// Returning to one that was current before leaves those after it; any other one comes after what is current. The
	// target itself stays among them until it is current.
	if i := slices.Index(keep.Before, id); i >= 0 {
		keep.After = append(keep.After, keep.Before[i+1:]...)
		keep.Before = keep.Before[:i+1]
		keep.After = append(keep.After, oldID)
	} else {
		keep.Before = append(keep.Before, oldID)
	}
	if err := s.retain(name, keep); err != nil {
		return err
	}
	if err := s.trust.Update(ctx, func(known *trust.Content) { s.moved(known, old, oldID) }); err != nil {
		return err
	}
	if err := s.turn(name, id, oldID); err != nil {
		return errors.Join(err, s.settle(context.WithoutCancel(ctx), name))
	}
	_ = s.settle(ctx, name) // it is in place, whatever becomes of the record of where it lay
	return nil
}
