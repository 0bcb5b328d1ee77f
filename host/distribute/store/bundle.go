package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Bundled is what Bundle wrote.
type Bundled struct {
	Path    string   `json:"path"`
	Plugins []string `json:"plugins"` // the archives' names
	// Repacked are those of them that were packed here, because the archive that the plugin came in is not there: they
	// have no signature.
	Repacked []string `json:"repacked,omitempty"`
}

// Bundle writes all that a lock names, and the lock, to a new folder, or to one archive where path is a .tar.gz:
// InstallLocked installs from it. A plugin's archive is that which it was installed from, with its signature, where
// that is here or at an address; else the folder that is as the lock says is packed: of the store, or one that a
// search finds. On an error nothing is there.
func (s *Store) Bundle(ctx context.Context, lock *lockfile.File, path string,
	fetch func(ctx context.Context, source, folder string) (string, error), search discovery.Options) (*Bundled, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: err.Error(), Cause: err}
	}
	packed := archive.Is(path)
	if packed && !strings.HasSuffix(path, archive.Suffix) {
		return nil, &diagnostic.Error{Kind: refusal.ErrArchive, Path: path, Found: "found the name of another archive",
			Needed: "a folder, or a file that ends with " + archive.Suffix}
	}
	if entries, err := os.ReadDir(path); !packed &&
		(err == nil && len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: "found something there",
			Needed: "a new or an empty folder", Fix: "name another, or remove it"}
	}
	temporary, err := storage.Temporary(filepath.Dir(path))
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: filepath.Dir(path),
			Found: "cannot write: " + diagnostic.Cause(err), Fix: "make the folder writable, or name another", Cause: err}
	}
	defer temporary.Remove()
	b := &bundler{store: s, lock: lock, fetch: fetch, search: search, folder: filepath.Join(temporary.Path, "bundle"),
		temporary: temporary.Path, done: &Bundled{Path: path, Plugins: []string{}}}
	if err := os.Mkdir(b.folder, 0o755); err != nil {
		return nil, b.failed(b.folder, err)
	}
	for i := range lock.Plugins {
		if err := b.add(ctx, &lock.Plugins[i]); err != nil {
			return nil, relabel(err, b.folder, path)
		}
	}
	data, err := storage.ReadRegular(lock.Path(), maxRecordBytes)
	if err == nil {
		err = storage.Write(filepath.Join(b.folder, lockfile.FileName), data, storage.Shared)
	}
	if err == nil && packed {
		name := strings.TrimSuffix(filepath.Base(path), archive.Suffix)
		err = storage.WriteFrom(path, storage.Shared,
			func(w io.Writer) error { return archive.PackFolder(w, b.folder, name) })
	} else if err == nil {
		if err = os.Rename(b.folder, path); err == nil {
			err = storage.SyncFolder(filepath.Dir(path))
		}
	}
	if err != nil {
		return nil, relabel(b.failed(path, err), b.folder, path)
	}
	return b.done, nil
}

// bundler writes a bundle.
type bundler struct {
	store             *Store
	lock              *lockfile.File
	fetch             func(ctx context.Context, source, folder string) (string, error)
	search            discovery.Options
	folder, temporary string
	done              *Bundled
}

func (b *bundler) failed(path string, err error) error {
	var known *diagnostic.Error
	if errors.As(err, &known) {
		return err
	}
	return &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: "cannot write: " + diagnostic.Cause(err),
		Fix: "free the disk, or name another folder", Cause: err}
}

// add writes one plugin's archive.
func (b *bundler) add(ctx context.Context, entry *lockfile.Plugin) error {
	original, failed := b.original(ctx, entry)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if original != "" {
		return b.copy(original, entry)
	}
	folder := b.held(entry)
	if folder == "" {
		found := fmt.Sprintf("found %s %s neither installed as it says nor at its source", entry.Name, entry.Version)
		if failed != nil {
			found += " (" + failed.Error() + ")"
		}
		return &diagnostic.Error{Kind: refusal.ErrLock, Path: b.lock.Path(), Found: found, Needed: "all that the lock names",
			Fix: b.lock.Fix(), Cause: failed}
	}
	name := entry.Name + "-" + entry.Version + archive.Suffix
	to := filepath.Join(b.folder, name)
	if err := storage.WriteFrom(to, storage.Shared,
		func(w io.Writer) error { return archive.Pack(w, folder) }); err != nil {
		return b.failed(to, err)
	}
	b.done.Plugins = append(b.done.Plugins, name)
	if entry.Key != "" {
		b.done.Repacked = append(b.done.Repacked, name)
	}
	return nil
}

// original is the archive that a plugin was installed from, when it is as the lock says. Without a signature it is
// not brought from an address where the folder is here: packed, that is the same plugin.
func (b *bundler) original(ctx context.Context, entry *lockfile.Plugin) (path string, err error) {
	source := b.lock.Resolve(entry.Source)
	if source == "" {
		return "", nil
	}
	work := filepath.Join(b.temporary, "source-"+entry.Name)
	if err := os.Mkdir(work, 0o700); err != nil {
		return "", b.failed(work, err)
	}
	if lockfile.IsAddress(source) {
		if entry.Key == "" && b.held(entry) != "" {
			return "", nil
		}
		if path, err = b.fetch(ctx, source, work); err != nil {
			return "", err
		}
	} else if path = source; !archive.Is(path) {
		return "", nil // a folder
	}
	unpacked := filepath.Join(work, "plugin")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return "", b.failed(unpacked, err)
	}
	defer os.RemoveAll(unpacked)
	if err := archive.Unpack(ctx, path, unpacked); err != nil {
		return "", relabel(err, unpacked, source)
	}
	folder, err := pluginFolder(unpacked, source)
	if err != nil {
		return "", err
	}
	files, err := content.ReadAny(folder, nil)
	if err != nil {
		return "", err
	}
	if err := b.lock.Check(entry, source, files); err != nil {
		return "", err
	}
	return path, nil
}

// copy writes an archive, and its signature where there is one.
func (b *bundler) copy(from string, entry *lockfile.Plugin) error {
	suffix := archive.Suffix
	for _, other := range []string{".tgz", ".tar"} {
		if strings.HasSuffix(strings.ToLower(from), other) {
			suffix = other
		}
	}
	name := entry.Name + "-" + entry.Version + suffix
	for _, file := range []struct {
		suffix   string
		required bool
	}{{signing.Suffix, false}, {"", true}} {
		source, err := storage.OpenRegular(from + file.suffix)
		if errors.Is(err, fs.ErrNotExist) && !file.required {
			continue
		}
		to := filepath.Join(b.folder, name+file.suffix)
		if err == nil {
			err = storage.WriteFrom(to, storage.Shared, func(w io.Writer) error { _, err := io.Copy(w, source); return err })
			source.Close()
		}
		if err != nil {
			return b.failed(to, err)
		}
	}
	b.done.Plugins = append(b.done.Plugins, name)
	return nil
}

// held is a folder that is as the lock says: of the store, or one that a search finds.
func (b *bundler) held(entry *lockfile.Plugin) string {
	if folder := b.store.locked(entry, false); folder != "" {
		return folder
	}
	for _, f := range discovery.Find(b.search).Found {
		if f.Manifest == nil || f.Manifest.Name != entry.Name || f.Manifest.SHA256() != entry.Files[manifest.FileName] {
			continue
		}
		files, err := content.ReadAny(f.Folder, nil)
		if err != nil {
			continue
		}
		if name, _ := entry.Difference(files); name == "" {
			return f.Folder
		}
	}
	return ""
}
