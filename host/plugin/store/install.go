package store

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/archive"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signing"
	"github.com/opgraft/graft/host/plugin/trust"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/host/storage"
)

// Installation is what Install did.
type Installation struct {
	Name     string                 `json:"name"`
	Version  string                 `json:"version"`
	Folder   string                 `json:"folder"`
	Replaced string                 `json:"replaced,omitempty"` // the version that was there
	Source   string                 `json:"source"`
	Key      string                 `json:"key,omitempty"`      // as in Record
	Unsigned bool                   `json:"unsigned,omitempty"` // as in Record
	Checked  []verification.Checked `json:"checked"`
	Skipped  []verification.Skipped `json:"skipped"` // libraries for this platform that were not run
	Tests    []matching.Tested      `json:"tests"`   // graphs that patterns must and must not match
}

// Install brings a plugin, from its folder or from an archive of it (.tar.gz, .tgz, .tar, .zip), into the
// store. An archive is signed by a trusted key, unless opts say that it need not be. Install copies into a staging folder on the same
// file system, checks the manifest and the ELF files,
// runs the libraries for this machine in a child process, records the hashes, and moves the folder into
// place in one step; a version that is there is replaced in the same step. A plugin of the same name from another source is
// replaced, or hidden, only where opts name it. On any error, and when ctx ends, the store is as it was.
func (s *Store) Install(ctx context.Context, source string, opts verification.Options) (*Installation, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: source, Found: err.Error(), Cause: err}
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: source, Found: "cannot read: " + diagnostic.Cause(err), Needed: "a plugin's folder or an archive of it", Cause: err}
	}
	if !info.IsDir() && !archive.Is(source) {
		need, fix := "a plugin's folder or an archive of it (.tar.gz, .tgz, .tar, .zip)", ""
		if strings.HasSuffix(source, ".so") {
			fix = "run: graft plugin install " + diagnostic.Quote(filepath.Dir(source))
		}
		return nil, &diagnostic.Error{Kind: refusal.ErrArchive, Path: source, Found: "found a single file", Needed: need, Fix: fix}
	}
	staging, err := s.stage(ctx)
	if err != nil {
		return nil, err
	}
	defer staging.remove()

	opts.Report(0, 0, "copying %s", cmp.Or(opts.From, source))
	var signer *signing.Signer
	if info.IsDir() {
		err = archive.Copy(ctx, source, staging.content)
	} else {
		signer, err = s.unpack(ctx, source, staging, opts)
	}
	source = cmp.Or(opts.From, source)
	if err != nil {
		return nil, relabel(err, staging.content, source)
	}
	folder, err := pluginFolder(staging.content, source)
	if err != nil {
		return nil, err
	}
	if err := asMeant(folder, source, signer, opts); err != nil {
		return nil, relabel(err, folder, source)
	}
	if err := s.mayTake(folder, source, signer, opts); err != nil {
		return nil, relabel(err, folder, source)
	}
	done, err := verification.Folder(ctx, folder, opts)
	if err != nil {
		// The staging folder is gone when the message is read: name what the user has.
		return nil, relabel(err, folder, source)
	}
	m, checked := done.Manifest, done.Checked
	for i := range done.Skipped {
		done.Skipped[i].Reason = relabelText(done.Skipped[i].Reason, folder, source)
	}
	record := Record{Name: m.Name, Version: m.Version, Source: source, Time: time.Now().UTC().Truncate(time.Second), Unsigned: signer == nil && !info.IsDir()}
	if signer != nil {
		record.Key = signer.Key
	}
	if err := writeRecord(folder, record); err != nil {
		return nil, err
	}
	result := &Installation{Name: m.Name, Version: m.Version, Folder: filepath.Join(s.root, m.Name), Checked: checked, Skipped: done.Skipped,
		Tests: done.Tests, Source: source, Key: record.Key, Unsigned: record.Unsigned}
	for i := range checked {
		checked[i].Path = filepath.Join(result.Folder, filepath.Base(checked[i].Path))
	}
	// Recorded first: from the moment it is in place, programs may load it. What is recorded is true of the content wherever it
	// lies; that of a process that ends in between is forgotten with the next install of the name.
	before := false
	if err := s.trust.Update(ctx, func(known *trust.Content) {
		before = known.Holds(result.Folder, done.Files)
		known.Add(done.Verified(result.Folder))
	}); err != nil {
		return nil, err
	}
	if result.Replaced, err = s.place(ctx, folder, result.Folder); err != nil {
		if !before {
			err = errors.Join(err, s.trust.Update(context.WithoutCancel(ctx), func(known *trust.Content) { known.Withdraw(result.Folder, done.Files) }))
		}
		return nil, err
	}
	return result, s.trust.Update(ctx, func(known *trust.Content) { known.Forget(result.Folder, done.Files) })
}

// staging is a folder in the store that is not a plugin yet.
type staging struct {
	folder  string
	content string // what will be the plugin's folder, or has it in it
	lock    *os.File
}

// stage makes a staging folder, and removes those whose process died.
func (s *Store) stage(ctx context.Context) (*staging, error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	s.sweep()
	folder, err := os.MkdirTemp(s.root, stagingPrefix)
	if err != nil {
		return nil, refusal.Store(s.root, "cannot write", err)
	}
	st := &staging{folder: folder, content: filepath.Join(folder, "plugin")}
	// The lock tells a later sweep that this process lives.
	if st.lock, err = storage.Lock(ctx, filepath.Join(folder, ".lock"), nil); err == nil {
		err = os.Mkdir(st.content, 0o755)
	}
	if err != nil {
		st.remove()
		return nil, refusal.Store(folder, "cannot write", err)
	}
	return st, nil
}

func (st *staging) remove() {
	os.RemoveAll(st.folder)
	if st.lock != nil {
		st.lock.Close()
	}
}

// sweep removes what processes that were killed left behind. The caller has the store's lock.
func (s *Store) sweep() {
	removed, _ := filepath.Glob(filepath.Join(s.root, removedPrefix+"*"))
	for _, folder := range removed {
		os.RemoveAll(folder)
	}
	staged, _ := filepath.Glob(filepath.Join(s.root, stagingPrefix+"*"))
	for _, folder := range staged {
		f, err := os.OpenFile(filepath.Join(folder, ".lock"), os.O_RDWR, 0)
		if err != nil {
			os.RemoveAll(folder) // died before it had its lock
			continue
		}
		if free, err := storage.TryLock(f); free && err == nil {
			os.RemoveAll(folder)
		}
		f.Close()
	}
}

// pluginFolder finds the manifest: in the folder, or in the only folder in it, as archives often have one.
func pluginFolder(folder, source string) (string, error) {
	if manifest.Exists(folder) {
		return folder, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", refusal.Store(folder, "cannot read", err)
	}
	if len(entries) == 1 && entries[0].IsDir() {
		if inner := filepath.Join(folder, entries[0].Name()); manifest.Exists(inner) {
			return inner, nil
		}
	}
	return "", &diagnostic.Error{Kind: refusal.ErrManifest, Path: source, Found: "found no " + manifest.FileName, Needed: "it at the top, beside the libraries",
		Fix: "point at the folder that holds " + manifest.FileName}
}

// place moves a finished folder to its place, on the disk when it returns, and gives the version that it replaced.
func (s *Store) place(ctx context.Context, folder, final string) (replaced string, err error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	defer func() {
		if err != nil {
			return
		}
		if err = storage.SyncFolder(s.root); err != nil {
			err = refusal.Store(s.root, "cannot sync", err)
		}
	}()
	if old, err := manifest.Read(final); err == nil {
		replaced = old.Version
	}
	err = os.Rename(folder, final)
	if err == nil {
		return "", nil
	}
	if _, statErr := os.Lstat(final); statErr != nil {
		return "", refusal.Store(final, "cannot move it into place", err)
	}
	// Something is there. Exchanged, the old version lies in the staging folder, which goes away.
	done, err := swap(folder, final)
	if err != nil {
		return "", refusal.Store(final, "cannot move it into place", err)
	}
	if done {
		return replaced, nil
	}
	aside := folder + ".old"
	if err := os.Rename(final, aside); err != nil {
		return "", refusal.Store(final, "cannot move the old version away", err)
	}
	if err := os.Rename(folder, final); err != nil {
		return "", errors.Join(refusal.Store(final, "cannot move it into place", err), os.Rename(aside, final))
	}
	return replaced, nil
}
