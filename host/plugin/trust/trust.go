// Package trust records which libraries have run apart from the host and passed.
package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/file"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/storage"
)

// Record is the record of the libraries that have been run apart and passed, by hash. It lies in the
// user's data folder, never in a plugin's own: a folder cannot vouch for itself.
type Record struct {
	path string
}

// FileName is the name of the record in the data folder.
const FileName = "verified.json"

// maxTrustBytes bounds the record; an entry takes some 200 bytes.
const maxTrustBytes = 16 << 20

// User is the record in the user's data folder.
func User() (*Record, error) {
	data, err := file.DataFolder()
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Found: err.Error(), Cause: err}
	}
	return At(data), nil
}

// At is the record in a folder of the caller's.
func At(folder string) *Record { return &Record{path: filepath.Join(folder, FileName)} }

// Verified is what is recorded of a library.
type Verified struct {
	Name    string              `json:"name"` // of the plugin
	Version string              `json:"version"`
	Device  string              `json:"device"`
	ABI     manifest.ABIVersion `json:"abi"`
	Cases   int                 `json:"cases"` // how many passed
	Time    time.Time           `json:"time"`
	Folders []string            `json:"folders"` // of the plugins that hold it, where it was verified
}

// Content is the file.
type Content struct {
	SchemaVersion int                 `json:"schema_version"`
	Libraries     map[string]Verified `json:"libraries"` // by SHA-256 in hexadecimal
}

// Read gives the content; a missing file is an empty record.
func (t *Record) Read() (*Content, error) {
	content := &Content{SchemaVersion: 1, Libraries: map[string]Verified{}}
	data, err := storage.ReadRegular(t.path, maxTrustBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return content, nil
	}
	if err == nil {
		err = json.Unmarshal(data, content)
	}
	if err == nil && content.SchemaVersion != 1 {
		err = fmt.Errorf("found schema_version %d, needed 1", content.SchemaVersion)
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: t.path, Found: "cannot read the record of verified libraries: " + diagnostic.Cause(err),
			Fix: "remove the file and install the plugins again", Cause: err}
	}
	if content.Libraries == nil {
		content.Libraries = map[string]Verified{}
	}
	return content, nil
}

// Lookup finds what is recorded of a hash.
func (t *Record) Lookup(sha string) (Verified, bool, error) {
	content, err := t.Read()
	if err != nil {
		return Verified{}, false, err
	}
	v, ok := content.Libraries[sha]
	return v, ok, nil
}

// Forget takes libraries of a plugin that is no longer in the folder out of the record. One that was
// verified in another folder too stays.
func Forget(libraries map[string]Verified, files map[string]string, folder string) {
	for _, sha := range files {
		v, ok := libraries[sha]
		if !ok {
			continue
		}
		v.Folders = slices.DeleteFunc(slices.Clone(v.Folders), func(f string) bool { return f == folder })
		if libraries[sha] = v; len(v.Folders) == 0 {
			delete(libraries, sha)
		}
	}
}

// Update changes the record under its lock and puts it in place in one step.
func (t *Record) Update(ctx context.Context, change func(libraries map[string]Verified)) error {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return refusal.Store(filepath.Dir(t.path), "cannot make the folder", err)
	}
	lock, err := storage.Lock(ctx, t.path+".lock", nil)
	if err != nil {
		return refusal.Locking(ctx, t.path, err)
	}
	defer lock.Close()
	content, err := t.Read()
	if err != nil {
		return err
	}
	change(content.Libraries)
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	if err := storage.Write(t.path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(t.path, "cannot write", err)
	}
	return nil
}
