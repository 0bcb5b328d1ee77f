package author

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/abi"
	"github.com/opgraft/graft/host/base/storage"
	kernels "github.com/opgraft/graft/kernels-cuda"
)

// SDK writes the headers, the kits and the CMake module into a folder, which is made where there is none, and gives
// their paths in it. Files that hold what they should are left, so that builds which depend on them do nothing.
func SDK(folder string) ([]string, error) {
	files := map[string][]byte{}
	for _, part := range []struct {
		files embed.FS
		under string
	}{{abi.SDK, ""}, {kernels.Headers, cudaFolder}} {
		err := fs.WalkDir(part.files, ".", func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files[path.Join(part.under, at)], err = part.files.ReadFile(at)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(folder)), 0o755); err != nil {
		return nil, cannotWrite(folder, err)
	}
	if err := lay(folder, files); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// cudaFolder holds the headers of CUDA variants.
const cudaFolder = "cuda"

// lay puts files into a folder. Where it is not there, it comes with all of them in one step. Elsewhere all are on the
// disk before the first has its name, and those that hold what they should are left.
func lay(folder string, files map[string][]byte) error {
	folder = filepath.Clean(folder)
	in := folder
	_, err := os.Lstat(folder)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		in = filepath.Dir(folder)
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !holds(filepath.Join(folder, name), files[name]) {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	stage, err := storage.Temporary(in)
	if err != nil {
		return cannotWrite(folder, err)
	}
	defer stage.Remove()
	whole := filepath.Join(stage.Path, filepath.Base(folder))
	for _, name := range changed {
		if err := put(filepath.Join(whole, name), files[name]); err != nil {
			return cannotWrite(filepath.Join(folder, name), err)
		}
	}
	if fresh {
		if err := storage.Place(whole, folder); err != nil {
			return cannotWrite(folder, err)
		}
		return nil
	}
	for _, name := range changed {
		to := filepath.Join(folder, name)
		if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
			err = storage.Place(filepath.Join(whole, name), to)
		}
		if err != nil {
			return cannotWrite(to, err)
		}
	}
	return nil
}

// write puts a file in place, unless it is there already, and makes the folders above it.
func write(path string, text []byte) error {
	if holds(path, text) {
		return nil
	}
	if err := put(path, text); err != nil {
		return cannotWrite(path, err)
	}
	return nil
}

func holds(path string, text []byte) bool {
	old, err := storage.ReadRegular(path, int64(len(text)))
	return err == nil && bytes.Equal(old, text)
}

func put(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return storage.Write(path, text, storage.Shared)
}
