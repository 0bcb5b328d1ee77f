package store

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// maxRecordBytes bounds the record of an installed plugin.
const maxRecordBytes = 4 << 20

// Record is what Install noted of a plugin.
type Record struct {
	SchemaVersion int       `json:"schema_version"`
	Name          string    `json:"name"`
	Version       string    `json:"version"`
	Source        string    `json:"source"` // the folder, the archive, or where it was brought from
	Time          time.Time `json:"time"`
	Key           string    `json:"key,omitempty"`      // public, that signed the archive and was trusted
	Unsigned      bool      `json:"unsigned,omitempty"` // an archive that no trusted key signed, which was accepted
}

// writeRecord writes the record of a folder. What the folder holds is not in it, but in the record of verified plugins.
func writeRecord(folder string, r Record) error {
	r.SchemaVersion = 1
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, content.RecordName)
	if err := storage.Write(path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(path, "cannot write", err)
	}
	return nil
}

// readRecord reads the record of an installed plugin.
func readRecord(folder string) (*Record, error) {
	path := filepath.Join(folder, content.RecordName)
	data, err := storage.ReadRegular(path, maxRecordBytes)
	r := &Record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err == nil && r.SchemaVersion != 1 {
		err = fmt.Errorf("found schema_version %d, needed 1", r.SchemaVersion)
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found: "cannot read the record of the installed files: " + diagnostic.Cause(err),
			Fix:   "install the plugin again: graft plugin install DIR", Cause: err}
	}
	return r, nil
}

// unchanged compares an installed plugin's folder with what was recorded of it: every file there, unchanged, and no
// other.
func (s *Store) unchanged(folder string) error {
	known, err := s.trust.Read()
	if err != nil {
		return err
	}
	before := known.At(folder)
	if before == nil {
		return nil // the record was removed: what is there is verified anew
	}
	files, err := content.Read(folder, nil)
	if err != nil {
		return err
	}
	if name, how := files.Difference(before.Files); name != "" {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: filepath.Join(folder, filepath.FromSlash(name)),
			Found:  how,
			Needed: "the folder as it was installed", Fix: "install the plugin again: graft plugin install DIR"}
	}
	return nil
}
