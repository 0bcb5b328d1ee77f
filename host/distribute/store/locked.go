package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// Sources say where plugins that a lock names are brought from.
type Sources struct {
	// Mirror holds archives and plugins' folders. nil is none: what the lock says is the source is used. With one, no
	// source is.
	Mirror *Mirror
	// Unsigned accepts an archive without the signature of a trusted key, and a folder, where the lock names no key for
	// the plugin: it is somebody's word for the bytes, such as that of a lock that was reviewed, and that did not come
	// with them.
	Unsigned bool
	// Fetch brings an archive from an address to a folder, and gives its path.
	Fetch func(ctx context.Context, source, folder string) (path string, err error)
}

// InstallLocked installs what a lock names, to the hash of every file, and makes it current; versions that were
// current are retained. What the store holds already is not brought again, unless the lock names a key by which it
// was not signed. Anything else is refused before it runs. All is brought and has run before the first is current.
func (s *Store) InstallLocked(ctx context.Context, lock *lockfile.File, from Sources,
	opts verification.Options) ([]*Installation, error) {
	work, err := temporary()
	if err != nil {
		return nil, err
	}
	defer work.Remove()
	all := make([]*prepared, len(lock.Plugins)) // nil for those that the store holds
	defer func() {
		for _, p := range all {
			if p != nil {
				p.staging.remove()
			}
		}
	}()
	for i := range lock.Plugins {
		entry := &lock.Plugins[i]
		if s.locked(entry, !opts.AllowUnsigned) != "" {
			continue
		}
		if all[i], err = s.prepareLocked(ctx, lock, entry, from, filepath.Join(work.Path, fmt.Sprint("source-", i)),
			opts); err != nil {
			return nil, err
		}
	}
	done := []*Installation{}
	for i := range lock.Plugins {
		in, err := s.placeLocked(ctx, lock, &lock.Plugins[i], all[i], opts)
		if err != nil {
			return done, err
		}
		done = append(done, in)
	}
	return done, nil
}

// Mirror is a folder of archives, or what an archive of one holds, as Bundle writes them.
type Mirror struct {
	Folder    string
	path      string
	temporary *storage.Folder
}

// OpenMirror opens a folder or an archive. Close it.
func OpenMirror(ctx context.Context, path string) (m *Mirror, err error) {
	m = &Mirror{}
	m.path, err = filepath.Abs(path)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(m.path)
	}
	switch {
	case err != nil:
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: path, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "a folder of plugins' archives, or an archive of one", Cause: err}
	case info.IsDir():
		m.Folder = m.path
		return m, nil
	case !archive.Is(path):
		return nil, &diagnostic.Error{Kind: refusal.ErrArchive, Path: path, Found: "found a single file",
			Needed: "a folder of plugins' archives, or an archive of one (.tar.gz, .tgz, .tar)"}
	}
	if m.temporary, err = temporary(); err != nil {
		return nil, err
	}
	m.Folder = filepath.Join(m.temporary.Path, "mirror")
	if err = os.Mkdir(m.Folder, 0o700); err == nil {
		err = archive.Unpack(ctx, m.path, m.Folder)
	}
	if err != nil {
		m.temporary.Remove()
		return nil, relabel(err, m.Folder, path)
	}
	// What Bundle packs lies below one folder.
	if entries, err := os.ReadDir(m.Folder); err == nil && len(entries) == 1 && entries[0].IsDir() {
		m.Folder = filepath.Join(m.Folder, entries[0].Name())
	}
	return m, nil
}

// Close removes what was unpacked.
func (m *Mirror) Close() error {
	if m.temporary == nil {
		return nil
	}
	return m.temporary.Remove()
}

// Lock is the lock file in the mirror, nil where there is none.
func (m *Mirror) Lock() (*lockfile.File, error) {
	data, err := storage.ReadRegular(filepath.Join(m.Folder, lockfile.FileName), maxRecordBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	path := filepath.Join(m.path, lockfile.FileName)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrLockFile, Path: path, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	return lockfile.Parse(path, data)
}

func temporary() (*storage.Folder, error) {
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: os.TempDir(),
			Found: "cannot write: " + diagnostic.Cause(err), Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	return folder, nil
}

// locked is the folder of the store that is as a lock says, and whose libraries ran; "" where there is none. signed
// leaves out those that did not come with the signature of the key that the lock names.
func (s *Store) locked(entry *lockfile.Plugin, signed bool) string {
	folders, err := s.all(entry.Name)
	if err != nil {
		return ""
	}
	known, err := s.trust.Read()
	if err != nil {
		return ""
	}
	for _, folder := range folders {
		m, err := manifest.Read(folder)
		if err != nil || m.SHA256() != entry.Files[manifest.FileName] {
			continue
		}
		files, err := content.Read(folder, map[string]string{manifest.FileName: m.SHA256()})
		if err != nil {
			continue
		}
		if name, _ := entry.Difference(files); name != "" {
			continue
		}
		if record, err := readRecord(folder); signed && entry.Key != "" && (err != nil || record.Key != entry.Key) {
			continue
		}
		if slices.ContainsFunc(m.ForPlatform(manifest.ThisPlatform),
			func(v *manifest.Variant) bool { return known.Accepts(files, v.File) }) {
			return folder
		}
	}
	return ""
}

// prepareLocked brings one plugin of a lock into a staging folder.
func (s *Store) prepareLocked(ctx context.Context, lock *lockfile.File, entry *lockfile.Plugin, from Sources,
	folder string, opts verification.Options) (*prepared, error) {
	sources, err := sourcesOf(ctx, lock, entry, from, folder)
	if err != nil {
		return nil, err
	}
	opts.AllowUnsigned = opts.AllowUnsigned || from.Unsigned && entry.Key == ""
	var first error
	for _, source := range sources {
		switch {
		case from.Mirror != nil:
			opts.From = relabelText(source, from.Mirror.Folder, from.Mirror.path)
		case lockfile.IsAddress(entry.Source):
			opts.From = entry.Source
		}
		if !opts.AllowUnsigned {
			if err := signedAs(lock, entry, source, cmp.Or(opts.From, source)); err != nil {
				return nil, err
			}
		}
		p, err := s.prepare(ctx, source, opts, func(p *prepared) error { return asLocked(lock, entry, p) })
		if err == nil && entry.Source != "" {
			// Recorded is what the lock says: with the same files it is the same plugin.
			p.record.Source = lock.Resolve(entry.Source)
			err = writeRecord(p.folder, p.record)
		}
		if err == nil || !errors.Is(err, refusal.ErrLock) {
			return p, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// signedAs refuses a folder, and an archive without a signature, where the word of a lock is not enough. named is
// what people call the source.
func signedAs(lock *lockfile.File, entry *lockfile.Plugin, source, named string) error {
	info, err := os.Stat(source)
	if err != nil {
		return nil // prepare says what is wrong
	}
	if !info.IsDir() {
		if signature, err := signing.Read(source); err != nil || signature != nil {
			return nil
		}
	}
	e := &diagnostic.Error{Kind: signing.ErrUntrusted, Path: named, Found: "found no signature beside it",
		Needed: "that of a trusted key, as the lock came with it",
		Fix:    "ask its author for it, or install it unchecked: add --allow-unsigned"}
	if info.IsDir() {
		e.Found = "found a folder, which nobody signed"
	}
	if entry.Key != "" {
		e.Needed = fmt.Sprintf("the archive of %s %s with the signature of the key %s, as %s says", entry.Name, entry.Version,
			entry.Key, lock.Path())
	}
	return e
}

// asLocked refuses what is prepared where it is not what a lock says.
func asLocked(lock *lockfile.File, entry *lockfile.Plugin, p *prepared) error {
	refuse := func(path, found, needed string) error {
		return &diagnostic.Error{Kind: refusal.ErrLock, Path: path, Found: found, Needed: needed,
			Fix: "do not install it; ask who published it, or write the lock again where the change is meant"}
	}
	m := p.manifest
	if m.Name != entry.Name || m.Version != entry.Version {
		return refuse(p.source, fmt.Sprintf("found %s %s", m.Name, m.Version),
			fmt.Sprintf("%s %s as %s says", entry.Name, entry.Version, lock.Path()))
	}
	if name, how := entry.Difference(p.files); name != "" {
		return refuse(lockfile.Join(p.source, name), how,
			fmt.Sprintf("what %s says of %s %s", lock.Path(), entry.Name, entry.Version))
	}
	if p.signer != nil && entry.Key != "" && p.signer.Key != entry.Key {
		return refuse(p.source, "found the signature of the key "+p.signer.Key,
			fmt.Sprintf("that of the key %s, as %s says of %s %s", entry.Key, lock.Path(), entry.Name, entry.Version))
	}
	return nil
}

// sourcesOf are where a plugin of a lock may lie, best first.
func sourcesOf(ctx context.Context, lock *lockfile.File, entry *lockfile.Plugin, from Sources, folder string) ([]string,
	error) {
	if from.Mirror != nil {
		return inMirror(from.Mirror, entry)
	}
	source := lock.Resolve(entry.Source)
	switch {
	case source == "":
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: lock.Path(),
			Found:  fmt.Sprintf("found no source of %s %s, which is not installed", entry.Name, entry.Version),
			Needed: "a source, or a folder that holds it", Fix: "name the folder with --mirror"}
	case lockfile.IsAddress(source):
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, refusal.Store(folder, "cannot write", err)
		}
		path, err := from.Fetch(ctx, source, folder)
		return []string{path}, err
	}
	return []string{source}, nil
}

// inMirror are the archives and folders of a mirror that have a plugin's name and version, best first.
func inMirror(mirror *Mirror, entry *lockfile.Plugin) ([]string, error) {
	entries, err := os.ReadDir(mirror.Folder)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: mirror.path,
			Found: "cannot read: " + diagnostic.Cause(err), Needed: "a folder of plugins' archives", Cause: err}
	}
	exact := entry.Name + "-" + entry.Version
	var named, others []string
	for _, e := range entries {
		path := filepath.Join(mirror.Folder, e.Name())
		name := strings.ReplaceAll(e.Name(), "_", "+") // as a + is in the tag of a registry
		switch {
		case e.IsDir():
			if m, err := manifest.Read(path); err == nil && m.Name == entry.Name && m.Version == entry.Version {
				others = append(others, path)
			}
		case !archive.Is(e.Name()):
		case archive.Is(strings.TrimPrefix(name, exact)) && strings.HasPrefix(name, exact+"."):
			named = append(named, path)
		case strings.Contains(name, entry.Name) && strings.Contains(name, entry.Version):
			others = append(others, path)
		}
	}
	if named = append(named, others...); len(named) == 0 {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: mirror.path,
			Found: fmt.Sprintf("found no archive and no folder of %s %s", entry.Name, entry.Version), Needed: exact + ".tar.gz",
			Fix: "run graft plugin bundle where it is installed"}
	}
	return named, nil
}

// placeLocked makes a plugin of a lock current: what was prepared, or what the store holds.
func (s *Store) placeLocked(ctx context.Context, lock *lockfile.File, entry *lockfile.Plugin, p *prepared,
	opts verification.Options) (*Installation, error) {
	if p != nil {
		return s.place(ctx, p, opts, true, func(p *prepared) error { return asLocked(lock, entry, p) })
	}
	held, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	s.sweep()
	s.sweepVersions()
	in := &Installation{Name: entry.Name, Version: entry.Version, Folder: filepath.Join(s.root, entry.Name),
		Checked: []verification.Checked{}, Skipped: []verification.Skipped{}, Tests: []matching.Tested{}}
	now, err := s.current(entry.Name)
	if err != nil {
		return nil, err
	}
	folder := s.locked(entry, !opts.AllowUnsigned)
	if record, err := readRecord(folder); err == nil {
		in.Source, in.Key, in.Unsigned = record.Source, record.Key, record.Unsigned
	}
	switch {
	case folder == "":
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: s.root,
			Found: fmt.Sprintf("found that %s %s was removed meanwhile", entry.Name, entry.Version), Fix: "try again"}
	case folder == now:
		in.Already = true
		return in, nil
	}
	if m, err := manifest.Read(now); err == nil {
		in.Replaced, in.Retained = m.Version, true
	}
	return in, s.switchTo(ctx, entry.Name, folder, now)
}

// Locked is what a lock says of a plugin's folder, with source and key from its record where it is installed.
func (s *Store) Locked(folder string) (lockfile.Plugin, error) {
	m, err := manifest.Read(folder)
	if err != nil {
		return lockfile.Plugin{}, err
	}
	files, err := content.ReadAny(folder, map[string]string{manifest.FileName: m.SHA256()})
	if err != nil {
		return lockfile.Plugin{}, err
	}
	p := lockfile.Of(m, files)
	if s.has(folder) {
		record, err := readRecord(folder)
		if err != nil {
			return p, err
		}
		p.Source, p.Key = record.Source, record.Key
	}
	return p, nil
}

// LockedCurrent is Locked of the version of an installed plugin that is current.
func (s *Store) LockedCurrent(name string) (lockfile.Plugin, error) {
	folder, err := s.folderOf(name)
	if err != nil {
		return lockfile.Plugin{}, err
	}
	return s.Locked(folder)
}
