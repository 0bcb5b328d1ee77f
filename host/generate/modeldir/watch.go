package modeldir

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model"
)

// Watch is a model folder as it was: the files that graphs, tokenizers and configurations are read of.
type Watch struct {
	folder string
	files  map[string]model.Identity
}

// NewWatch looks at a folder, and at its subfolder onnx.
func NewWatch(folder string) *Watch { return &Watch{folder, look(folder)} }

// Unchanged is an error of kind [model.ErrInUse] where a file was replaced, written to, made or removed since:
// what was read may be of two versions of the model.
func (w *Watch) Unchanged() error {
	files := look(w.folder)
	for _, path := range slices.Sorted(maps.Keys(w.files)) {
		if files[path] != w.files[path] {
			return changed(path)
		}
		delete(files, path)
	}
	for path := range files {
		return changed(path)
	}
	return nil
}

func changed(path string) error {
	return &diagnostic.Error{Kind: model.ErrInUse, Path: path, Found: "the file changed while the model's folder was read",
		Needed: "files of one version", Fix: "open the folder again when all of it is in place"}
}

// look gives the identities of the files of a model that are there. What cannot be looked at cannot be read: whoever
// needs it says so.
func look(folder string) map[string]model.Identity {
	files := map[string]model.Identity{}
	for _, in := range []string{folder, filepath.Join(folder, "onnx")} {
		entries, _ := os.ReadDir(in)
		for _, e := range entries {
			if !ofModel(e.Name()) {
				continue
			}
			path := filepath.Join(in, e.Name())
			if id, err := model.Look(path); err == nil {
				files[path] = id
			}
		}
	}
	return files
}

// ofModel says whether a file of this name may be read of a model: not what a program writes beside it.
func ofModel(name string) bool {
	return strings.Contains(name, ".onnx") || slices.Contains([]string{".json", ".spm"}, filepath.Ext(name))
}
