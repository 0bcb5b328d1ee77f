package plugin

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
)

// UnverifiedVariable, set to 1, makes Open load libraries that are not recorded.
const UnverifiedVariable = "GRAFT_PLUGIN_UNVERIFIED"

func acceptUnverified() bool { return os.Getenv(UnverifiedVariable) == "1" }

// Check says why Open would refuse a plugin's library, but for what its device lacks, where no unverified ones are
// accepted. It runs nothing.
func Check(folder string, opts OpenOptions) error {
	p, err := prepare(folder, opts.Device)
	if err != nil {
		return err
	}
	defer p.release()
	return p.requireTrust(opts.Trust)
}

// require refuses what is not recorded, where opts ask for that, and a library and a folder with other files than
// opts name.
func (p *Plugin) require(opts OpenOptions) error {
	if opts.SHA256 != "" && opts.SHA256 != p.SHA256 {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: p.Path, Found: "found sha256 " + p.SHA256,
			Needed: opts.SHA256 + ", with which it was opened before",
			Fix:    "start the program again, with the library that is there now"}
	}
	if opts.Files != nil {
		files, err := p.files(content.ReadAny)
		if err != nil {
			return err
		}
		if name, how := files.Difference(opts.Files); name != "" {
			return &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(p.Folder, name), Found: how,
				Needed: "a folder that does not change while it is checked", Fix: "wait until its build is done, then try again"}
		}
	}
	if opts.Locked != nil {
		if err := p.requireLock(opts.Locked); err != nil {
			return err
		}
	}
	if opts.AcceptUnverified || acceptUnverified() {
		return nil
	}
	return p.requireTrust(opts.Trust)
}

// requireLock refuses a plugin that a lock does not name, and a folder that is not what it says: of manifest and
// library, the bytes that were read.
func (p *Plugin) requireLock(lock *lockfile.File) error {
	entry := lock.Plugin(p.Manifest.Name)
	if entry == nil {
		return &diagnostic.Error{Kind: refusal.ErrLock, Path: p.Folder, Found: "found the plugin " + p.Manifest.Name,
			Needed: "one that " + lock.Path() + " names"}
	}
	files, err := p.files(content.ReadAny)
	if err != nil {
		return err
	}
	return lock.Check(entry, p.Folder, files)
}

// requireTrust refuses a folder whose content is not recorded.
func (p *Plugin) requireTrust(t *trust.Record) error {
	files, err := p.files(content.Read)
	if err == nil && embedded.Vouch(files) {
		return nil
	}
	if t == nil {
		var err error
		if t, err = trust.User(); err != nil {
			return err
		}
	}
	known, readErr := t.Read()
	if readErr != nil {
		return readErr
	}
	again := fmt.Sprintf("run: graft plugin install %s (or, to use it where it is: graft plugin verify %s)",
		diagnostic.Quote(p.Folder), diagnostic.Quote(p.Folder))
	before := known.At(p.Folder)
	if err != nil || known.Accepts(files, p.Variant.File) {
		return err
	}
	if before != nil {
		name, how := files.Difference(before.Files)
		if name != "" && name != p.Variant.File {
			return &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(p.Folder, name), Found: how,
				Needed: "the plugin's folder as it was when it was verified", Fix: again}
		}
	}
	return &diagnostic.Error{Kind: refusal.ErrUnverified, Path: p.Path,
		Found:  fmt.Sprintf("found a library that has not been verified here (sha256 %s...)", p.SHA256[:12]),
		Needed: "one that graft has run apart from this program first",
		Fix:    again,
	}
}

// files are those of the folder, as read reads them, or those inside of the program, which were checked when they
// were read.
func (p *Plugin) files(read func(folder string, known map[string]string) (content.Files, error)) (content.Files,
	error) {
	if own := embedded.At(p.Folder); own != nil {
		return own.Files, nil
	}
	return read(p.Folder, p.read())
}

// read is what is known of the folder's files. Manifest and library have the hashes of what was read of them; those
// of other variants are not read: they are held against the record when they are opened.
func (p *Plugin) read() map[string]string {
	known := map[string]string{}
	for i := range p.Manifest.Variants {
		known[p.Manifest.Variants[i].File] = ""
	}
	known[manifest.FileName] = p.Manifest.SHA256()
	known[p.Variant.File] = p.SHA256
	return known
}
