package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// maxBytes bounds a file: the largest table takes some 100 KB.
const maxBytes = 8 << 20

// ReadRecord reads a file of the cache folder into a pointer to a struct, which must have every field that the
// file has. The error of a file that is not there is os.ErrNotExist; anything else
// that is wrong is an error that names the file and how to fix it.
func ReadRecord(path string, version int, into any) error {
	data, err := storage.ReadOwn(path, maxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil {
		return damaged(path, errors.New(diagnostic.Cause(err)))
	}
	var head struct {
		SchemaVersion int `json:"schema_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return damaged(path, err)
	}
	if head.SchemaVersion != version {
		return damaged(path, fmt.Errorf("found schema_version %d, need %d", head.SchemaVersion, version))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return damaged(path, err)
	}
	return nil
}

// ErrDamaged is the kind of error of a file that cannot be read as what it should be.
var ErrDamaged = errors.New("is no record of graft's")

func damaged(path string, err error) error {
	return fmt.Errorf("%s %w: %w; remove it, it is measured again", path, ErrDamaged, err)
}

// WriteRecord puts a file in place in one step, and its folder where there is none.
func WriteRecord(path string, from any) error {
	data, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = storage.Write(path, append(data, '\n'), storage.Private)
	}
	if err != nil {
		return fmt.Errorf("cannot store what was measured in %s: %w", path, err)
	}
	return nil
}
