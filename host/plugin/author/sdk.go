package author

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/abi"
	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/storage"
)

// SDK writes the headers, the kits and the CMake module into a folder, which is made where there is none, and gives
// their paths in it. Files that hold what they should are left, so that builds which depend on them do nothing.
func SDK(folder string) ([]string, error) {
	var list []string
	err := fs.WalkDir(abi.SDK, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := abi.SDK.ReadFile(path)
		if err != nil {
			return err
		}
		list = append(list, path)
		return write(filepath.Join(folder, filepath.FromSlash(path)), text)
	})
	return list, err
}

// write puts a file in place, unless it is there already, and makes the folders above it.
func write(path string, text []byte) error {
	if old, err := storage.ReadRegular(path, int64(len(text))); err == nil && bytes.Equal(old, text) {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = storage.Write(path, text, storage.Shared)
	}
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: "cannot write: " + diagnostic.Cause(err), Fix: "make the folder writable, or name another one", Cause: err}
	}
	return nil
}
