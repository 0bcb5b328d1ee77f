package store

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// Installation is what Install, Upgrade and InstallLocked did.
type Installation struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Folder   string `json:"folder"`
	Replaced string `json:"replaced,omitempty"` // the version that was current
	Retained bool   `json:"retained,omitempty"` // it stays beside this one
	// this version was current before, with the same files: nothing was done
	Already  bool                   `json:"already,omitempty"`
	Source   string                 `json:"source"`
	Key      string                 `json:"key,omitempty"`      // as in Record
	Unsigned bool                   `json:"unsigned,omitempty"` // as in Record
	Checked  []verification.Checked `json:"checked"`
	Skipped  []verification.Skipped `json:"skipped"` // libraries for this platform that were not run
	Tests    []matching.Tested      `json:"tests"`   // graphs that patterns must and must not match
}

// Install brings a plugin, from its folder or from an archive of it (.tar.gz, .tgz, .tar), into the
// store. An archive is signed by a trusted key, unless opts say that it need not be. Install copies into a staging
// folder on the same file system, checks the manifest and the ELF files, runs the libraries for this machine in a
// child process, records the hashes, moves the folder into place and makes it the current version in one step; the
// version that was current is removed. Files that are there already are not run again, unless one of them could not
// run before: a GPU may have come. A plugin of the same name from another source is replaced, or hidden, only where
// opts name it. On any error, and when ctx ends, the store is as it was.
func (s *Store) Install(ctx context.Context, source string, opts verification.Options) (*Installation, error) {
	return s.bring(ctx, source, opts, false, func(p *prepared) error { return s.mayTake(p, opts) })
}

// bring installs what may be installed: may is asked before anything of it runs, and again when nobody else changes
// the store.
func (s *Store) bring(ctx context.Context, source string, opts verification.Options, retain bool,
	may func(*prepared) error) (*Installation, error) {
	p, err := s.prepare(ctx, source, opts, may)
	if err != nil {
		return nil, err
	}
	defer p.staging.remove()
	return s.place(ctx, p, opts, retain, may)
}

// prepared is a plugin in a staging folder, that may be placed.
type prepared struct {
	staging  *staging
	source   string // for people
	folder   string
	manifest *manifest.Manifest
	files    content.Files
	signer   *signing.Signer      // of the archive; nil for a folder, and for an archive that is accepted without one
	done     *verification.Result // nil where the same files are in the store and ran there
	record   Record
}

// prepare copies or unpacks a source, and runs what it brings apart.
func (s *Store) prepare(ctx context.Context, source string, opts verification.Options,
	may func(*prepared) error) (p *prepared, err error) {
	source, err = filepath.Abs(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: source, Found: err.Error(), Cause: err}
	}
	info, err := os.Stat(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: source, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "a plugin's folder or an archive of it", Cause: err}
	}
	if !info.IsDir() && !archive.Is(source) {
		need, fix := "a plugin's folder or an archive of it (.tar.gz, .tgz, .tar)", ""
		if strings.HasSuffix(source, ".so") {
			fix = "run: graft plugin install " + diagnostic.Quote(filepath.Dir(source))
		}
		return nil, &diagnostic.Error{Kind: refusal.ErrArchive, Path: source, Found: "found a single file", Needed: need,
			Fix: fix}
	}
	staging, err := s.stage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			staging.remove()
		}
	}()

	p = &prepared{staging: staging, source: cmp.Or(opts.From, source)}
	opts.Report(0, 0, "copying %s", p.source)
	if info.IsDir() {
		err = archive.Copy(ctx, source, staging.content)
	} else {
		p.signer, err = s.unpack(ctx, source, staging, opts)
	}
	if err != nil {
		return nil, relabel(relabel(err, staging.content, p.source), source, p.source)
	}
	if p.folder, err = pluginFolder(staging.content, p.source); err != nil {
		return nil, err
	}
	if p.manifest, err = manifest.Read(p.folder); err == nil {
		p.files, err = content.Read(p.folder, map[string]string{manifest.FileName: p.manifest.SHA256()})
	}
	if err == nil {
		err = asMeant(p.folder, p.source, p.signer, opts)
	}
	if err == nil {
		err = may(p)
	}
	if err == nil && !s.ran(p) {
		err = s.check(ctx, p, opts)
	}
	if err != nil {
		// The staging folder is gone when the message is read: name what the user has.
		return nil, relabel(err, p.folder, p.source)
	}
	p.record = Record{Name: p.manifest.Name, Version: p.manifest.Version, Source: p.source,
		Time:     time.Now().UTC().Truncate(time.Second),
		Unsigned: p.signer == nil && !info.IsDir()}
	if p.signer != nil {
		p.record.Key = p.signer.Key
	}
	err = writeRecord(p.folder, p.record)
	return p, err
}

// check runs the libraries of what is staged apart.
func (s *Store) check(ctx context.Context, p *prepared, opts verification.Options) (err error) {
	if p.done, err = verification.Folder(ctx, p.folder, opts); err != nil {
		return err
	}
	p.manifest, p.files = p.done.Manifest, p.done.Files
	for i := range p.done.Skipped {
		p.done.Skipped[i].Reason = relabelText(p.done.Skipped[i].Reason, p.folder, p.source)
	}
	return nil
}

// ran reports that the store holds the same files, and that every library for this machine among them ran there; of
// those that were just run apart, every one that could run.
func (s *Store) ran(p *prepared) bool {
	folder := s.holds(p)
	if folder == "" {
		return false
	}
	known, err := s.trust.Read()
	if err != nil || !known.Holds(folder, p.files) {
		return false
	}
	before := known.Plugins[p.files.Digest()].Libraries
	if p.done != nil {
		for file := range p.done.Verified(folder).Libraries {
			if _, ran := before[file]; !ran {
				return false
			}
		}
		return true
	}
	for _, variant := range p.manifest.Present(p.folder, manifest.ThisPlatform) {
		if _, ran := before[variant.File]; !ran {
			return false
		}
	}
	return true
}

// holds is the folder of the store that has the same files, current or retained, "" where there is none.
func (s *Store) holds(p *prepared) string {
	folders, err := s.all(p.manifest.Name)
	if err != nil {
		return ""
	}
	for _, folder := range folders {
		if _, err := readRecord(folder); err != nil {
			continue
		}
		if files, err := content.Read(folder, nil); err == nil && files.Digest() == p.files.Digest() {
			return folder
		}
	}
	return ""
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
	s.sweepVersions()
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
	return "", &diagnostic.Error{Kind: refusal.ErrManifest, Path: source, Found: "found no " + manifest.FileName,
		Needed: "it at the top, beside the libraries",
		Fix:    "point at the folder that holds " + manifest.FileName}
}
