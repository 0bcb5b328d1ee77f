package store

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/file"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/storage"
)

// recordName is the file in an installed plugin that lists what was installed.
const recordName = ".graft-record.json"

// maxRecordBytes bounds the record of an installed plugin.
const maxRecordBytes = 4 << 20

// Record is what Install noted of a plugin.
type Record struct {
	SchemaVersion int               `json:"schema_version"`
	Name          string            `json:"name"`
	Version       string            `json:"version"`
	Source        string            `json:"source"` // the folder or archive
	Time          time.Time         `json:"time"`
	Files         map[string]string `json:"files"` // path in the folder, with slashes, to SHA-256
}

// hashFolder hashes every file of a folder but the record.
func hashFolder(folder string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return refusal.Store(path, "cannot read", err)
		}
		if entry.IsDir() {
			return nil
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == recordName {
			return err
		}
		if !entry.Type().IsRegular() {
			files[filepath.ToSlash(name)] = "a " + storage.Kind(entry.Type())
			return nil
		}
		sha, err := file.SHA256(path)
		files[filepath.ToSlash(name)] = sha
		return err
	})
	return files, err
}

// writeRecord hashes the folder and writes its record.
func writeRecord(folder string, r Record) error {
	var err error
	if r.Files, err = hashFolder(folder); err != nil {
		return err
	}
	r.SchemaVersion = 1
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, recordName)
	if err := storage.Write(path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(path, "cannot write", err)
	}
	return nil
}

// readRecord reads the record of an installed plugin.
func readRecord(folder string) (*Record, error) {
	path := filepath.Join(folder, recordName)
	data, err := storage.ReadRegular(path, maxRecordBytes)
	r := &Record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err == nil && r.SchemaVersion != 1 {
		err = fmt.Errorf("found schema_version %d, needed 1", r.SchemaVersion)
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path, Found: "cannot read the record of the installed files: " + diagnostic.Cause(err),
			Fix: "install the plugin again: graft plugin install DIR", Cause: err}
	}
	return r, nil
}

// check compares the folder with the record: every file there, unchanged, and no other.
func (r *Record) check(folder string) error {
	files, err := hashFolder(folder)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		found, ok := files[name]
		switch {
		case !ok:
			return changed(folder, name, "found that the file is gone")
		case found != r.Files[name]:
			return changed(folder, name, fmt.Sprintf("found sha256 %.12s..., needed %.12s... as recorded when it was installed", found, r.Files[name]))
		}
		delete(files, name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		return changed(folder, name, "found a file that was not installed")
	}
	return nil
}

func changed(folder, name, found string) error {
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(folder, filepath.FromSlash(name)), Found: found, Fix: "install the plugin again: graft plugin install DIR"}
}
