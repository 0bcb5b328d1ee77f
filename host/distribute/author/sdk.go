package author

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/opgraft/graft/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
	kernels "github.com/opgraft/graft/kernels-cuda"
)

// SDK writes the headers, the kits and the CMake module into a folder, which is made where there is none, and gives
// their paths in it. Files that hold what they should are left, so that builds which depend on them do nothing.
func SDK(folder string) ([]string, error) {
	var list []string
	for _, part := range []struct {
		files embed.FS
		under string
	}{{abi.SDK, ""}, {kernels.Headers, cudaFolder}} {
		err := fs.WalkDir(part.files, ".", func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := part.files.ReadFile(at)
			if err != nil {
				return err
			}
			list = append(list, path.Join(part.under, at))
			return write(filepath.Join(folder, part.under, filepath.FromSlash(at)), text)
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// cudaFolder holds the headers of CUDA variants.
const cudaFolder = "cuda"

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
		return &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: "cannot write: " + diagnostic.Cause(err),
			Fix: "make the folder writable, or name another one", Cause: err}
	}
	return nil
}
