// Package trust records which plugins have run apart from the host and passed, with all that their folders held.
package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Record is the record of the plugins whose libraries have been run apart and passed, by the content of their
// folders. It lies in the user's data folder, never in a plugin's own: a folder cannot vouch for itself.
type Record struct {
	path string
}

// FileName is the name of the record in the data folder.
const FileName = "verified.json"

// schemaVersion 1 had hashes of libraries alone: nothing there says what their folders held.
const schemaVersion = 2

// maxTrustBytes bounds the record; a plugin takes some 1,000 bytes.
const maxTrustBytes = 16 << 20

// User is the record in the user's data folder.
func User() (*Record, error) {
	data, err := storage.DataFolder()
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Found: err.Error(), Cause: err}
	}
	return At(data), nil
}

// At is the record in a folder of the caller's.
func At(folder string) *Record { return &Record{path: filepath.Join(folder, FileName)} }

// Verified is what is recorded of a plugin.
type Verified struct {
	Name      string              `json:"name"`
	Version   string              `json:"version"`
	ABI       manifest.ABIVersion `json:"abi"`
	Time      time.Time           `json:"time"`
	Folders   []string            `json:"folders"`   // that hold it, where it was verified
	Files     content.Files       `json:"files"`     // all of the folder's
	Libraries map[string]Ran      `json:"libraries"` // by file: those that ran and passed
}

// Ran is what is recorded of a library.
type Ran struct {
	Device string `json:"device"`
	Cases  int    `json:"cases"` // how many passed
}

// Content is the file.
type Content struct {
	SchemaVersion int                 `json:"schema_version"`
	Plugins       map[string]Verified `json:"plugins"` // by content.Files.Digest
}

// Read gives the content; a missing file is an empty record. One that others can change is refused.
func (t *Record) Read() (*Content, error) {
	known := &Content{SchemaVersion: schemaVersion}
	data, err := storage.ReadOwn(t.path, maxTrustBytes)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		if err = content.Guarded(t.path); err != nil {
			return nil, err
		}
		err = json.Unmarshal(data, known)
	}
	if err == nil && known.SchemaVersion != schemaVersion && known.SchemaVersion != 1 {
		err = fmt.Errorf("found schema_version %d, needed %d", known.SchemaVersion, schemaVersion)
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: t.path,
			Found: "cannot read the record of verified libraries: " + diagnostic.Cause(err),
			Fix:   "remove the file and install the plugins again", Cause: err}
	}
	if known.SchemaVersion = schemaVersion; known.Plugins == nil {
		known.Plugins = map[string]Verified{}
	}
	return known, nil
}

// Accepts reports whether a folder with these files is one whose library was run and passed.
func (c *Content) Accepts(files content.Files, library string) bool {
	for _, v := range c.Plugins {
		if _, ran := v.Libraries[library]; ran {
			if name, _ := files.Difference(v.Files); name == "" {
				return true
			}
		}
	}
	return false
}

// At is what was last recorded of a folder, nil when nothing was.
func (c *Content) At(folder string) *Verified {
	var last *Verified
	for _, v := range c.Plugins {
		if slices.Contains(v.Folders, folder) && (last == nil || v.Time.After(last.Time)) {
			last = &v
		}
	}
	return last
}

// Add records a plugin. What is recorded of the same content stays: other folders, and libraries for devices that
// this machine lacks now.
func (c *Content) Add(v Verified) {
	digest := v.Files.Digest()
	old := c.Plugins[digest]
	for _, folder := range old.Folders {
		if !slices.Contains(v.Folders, folder) {
			v.Folders = append(v.Folders, folder)
		}
	}
	libraries := maps.Clone(v.Libraries)
	for file, ran := range old.Libraries {
		if _, again := libraries[file]; !again {
			libraries[file] = ran
		}
	}
	v.Libraries = libraries
	c.Plugins[digest] = v
}

// Forget takes a folder out of the record, but for what it holds now, nil for nothing. A plugin that was verified in
// another folder too stays.
func (c *Content) Forget(folder string, now content.Files) {
	for digest, v := range c.Plugins {
		if now == nil || digest != now.Digest() {
			c.Withdraw(folder, v.Files)
		}
	}
}

// Holds reports whether a folder is recorded with these files.
func (c *Content) Holds(folder string, files content.Files) bool {
	return slices.Contains(c.Plugins[files.Digest()].Folders, folder)
}

// Withdraw takes a folder out of the record of these files.
func (c *Content) Withdraw(folder string, files content.Files) {
	digest := files.Digest()
	v, found := c.Plugins[digest]
	if !found {
		return
	}
	v.Folders = slices.DeleteFunc(slices.Clone(v.Folders), func(f string) bool { return f == folder })
	if c.Plugins[digest] = v; len(v.Folders) == 0 {
		delete(c.Plugins, digest)
	}
}

// Update changes the record under its lock and puts it in place in one step.
func (t *Record) Update(ctx context.Context, change func(*Content)) error {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return refusal.Store(filepath.Dir(t.path), "cannot make the folder", err)
	}
	lock, err := storage.Lock(ctx, t.path+".lock", nil)
	if err != nil {
		return refusal.Locking(ctx, t.path, err)
	}
	defer lock.Close()
	known, err := t.Read()
	if err != nil {
		return err
	}
	change(known)
	data, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	if err := storage.Write(t.path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(t.path, "cannot write", err)
	}
	return nil
}
