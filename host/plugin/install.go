package plugin

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
)

// Installation is what Install did.
type Installation struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Folder   string    `json:"folder"`
	Replaced string    `json:"replaced,omitempty"` // the version that was there
	Checked  []Checked `json:"checked"`
	Skipped  []Skipped `json:"skipped"` // libraries for this platform that were not run
}

// Install brings a plugin, from its folder or from an archive of it (.tar.gz, .tgz, .tar, .zip), into the
// store. It copies into a staging folder on the same file system, checks the manifest and the ELF files,
// runs the libraries for this machine in a child process, records the hashes, and moves the folder into
// place in one step; a version that is there is replaced in the same step. On any error, and when ctx
// ends, the store is as it was.
func (s *Store) Install(ctx context.Context, source string, opts CheckOptions) (*Installation, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrNotFound, Path: source, Found: err.Error(), Cause: err}
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrNotFound, Path: source, Found: "cannot read: " + plainCause(err), Needed: "a plugin's folder or an archive of it", Cause: err}
	}
	if !info.IsDir() && !isArchive(source) {
		need, fix := "a plugin's folder or an archive of it (.tar.gz, .tgz, .tar, .zip)", ""
		if strings.HasSuffix(source, ".so") {
			fix = "run: graft plugin install " + shellQuote(filepath.Dir(source))
		}
		return nil, &diagnostic.Error{Kind: ErrArchive, Path: source, Found: "found a single file", Needed: need, Fix: fix}
	}
	staging, err := s.stage(ctx)
	if err != nil {
		return nil, err
	}
	defer staging.remove()

	opts.progress(0, 0, "copying %s", source)
	if info.IsDir() {
		err = copyFolder(ctx, source, staging.content, defaultLimits)
	} else {
		err = unpack(ctx, source, staging.content, defaultLimits)
	}
	if err != nil {
		return nil, relabel(err, staging.content, source)
	}
	folder, err := pluginFolder(staging.content, source)
	if err != nil {
		return nil, err
	}
	done, err := checkFolder(ctx, folder, opts)
	if err != nil {
		// The staging folder is gone when the message is read: name what the user has.
		return nil, relabel(err, folder, source)
	}
	m, checked := done.manifest, done.run
	for i := range done.skipped {
		done.skipped[i].Reason = relabelText(done.skipped[i].Reason, folder, source)
	}
	if err := writeRecord(folder, Record{Name: m.Name, Version: m.Version, Source: source, Time: time.Now().UTC().Truncate(time.Second)}); err != nil {
		return nil, err
	}
	result := &Installation{Name: m.Name, Version: m.Version, Folder: filepath.Join(s.root, m.Name), Checked: checked, Skipped: done.skipped}
	for i := range checked {
		checked[i].Path = filepath.Join(result.Folder, filepath.Base(checked[i].Path))
	}
	// Recorded first: from the moment it is in place, programs may load it.
	if err := s.recordChecked(ctx, m, checked); err != nil {
		return nil, err
	}
	// Read before it is gone: what only the old version held is forgotten.
	before, _ := readRecord(result.Folder)
	if result.Replaced, err = s.place(ctx, folder, result.Folder); err != nil {
		return nil, err
	}
	if before == nil {
		return result, nil
	}
	for _, c := range checked {
		maps.DeleteFunc(before.Files, func(_, sha string) bool { return sha == c.SHA256 })
	}
	return result, s.trust.update(ctx, func(libraries map[string]Verified) { forget(libraries, before.Files, result.Folder) })
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
		return nil, storeError(s.root, "cannot write", err)
	}
	st := &staging{folder: folder, content: filepath.Join(folder, "plugin")}
	// The lock tells a later sweep that this process lives.
	if st.lock, err = lockFile(ctx, filepath.Join(folder, ".lock")); err == nil {
		err = os.Mkdir(st.content, 0o755)
	}
	if err != nil {
		st.remove()
		return nil, storeError(folder, "cannot write", err)
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
		if free, err := tryLock(f); free && err == nil {
			os.RemoveAll(folder)
		}
		f.Close()
	}
}

// pluginFolder finds the manifest: in the folder, or in the only folder in it, as archives often have one.
func pluginFolder(folder, source string) (string, error) {
	if hasManifest(folder) {
		return folder, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", storeError(folder, "cannot read", err)
	}
	if len(entries) == 1 && entries[0].IsDir() {
		if inner := filepath.Join(folder, entries[0].Name()); hasManifest(inner) {
			return inner, nil
		}
	}
	return "", &diagnostic.Error{Kind: ErrManifest, Path: source, Found: "found no " + ManifestName, Needed: "it at the top, beside the libraries",
		Fix: "point at the folder that holds " + ManifestName}
}

// place moves a finished folder to its place and gives the version that it replaced.
func (s *Store) place(ctx context.Context, folder, final string) (replaced string, err error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if old, err := ReadManifest(final); err == nil {
		replaced = old.Version
	}
	err = os.Rename(folder, final)
	if err == nil {
		return "", nil
	}
	if _, statErr := os.Lstat(final); statErr != nil {
		return "", storeError(final, "cannot move it into place", err)
	}
	// Something is there. Exchanged, the old version lies in the staging folder, which goes away.
	done, err := swap(folder, final)
	if err != nil {
		return "", storeError(final, "cannot move it into place", err)
	}
	if done {
		return replaced, nil
	}
	aside := folder + ".old"
	if err := os.Rename(final, aside); err != nil {
		return "", storeError(final, "cannot move the old version away", err)
	}
	if err := os.Rename(folder, final); err != nil {
		return "", errors.Join(storeError(final, "cannot move it into place", err), os.Rename(aside, final))
	}
	return replaced, nil
}

// relabel makes an error about a file in one folder speak of another.
func relabel(err error, from, to string) error { return &relabelled{err, from, to} }

type relabelled struct {
	err      error
	from, to string
}

func (r *relabelled) Error() string { return relabelText(r.err.Error(), r.from, r.to) }
func (r *relabelled) Unwrap() error { return r.err }

func relabelText(text, from, to string) string { return strings.ReplaceAll(text, from, to) }
