package models

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/storage"
)

// Cached makes the full-size subject name in the user's cache, unless it is
// there, and returns its folder, which is named after the subject and the graphs
// it was made from. report, which may be nil, is told before anything is made.
// The folder appears whole or not at all.
func Cached(name string, report func(dir string)) (string, error) {
	cache, err := storage.CacheFolder()
	if err != nil {
		return "", err
	}
	files, err := Files(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range files {
		graph, err := f.Graph()
		if err != nil {
			return "", err
		}
		h.Write(graph)
		if f.conditioned {
			fmt.Fprint(h, conditionedShare)
		}
	}
	dir := filepath.Join(cache, "models", fmt.Sprintf("%s-%.4x", name, h.Sum(nil)))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if report != nil {
		report(dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temp, err := storage.Temporary(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	defer temp.Remove()
	staging := filepath.Join(temp.Path, name)
	if _, err := Build(name, staging, DefaultSeed); err != nil {
		return "", err
	}
	if err := os.Rename(staging, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // another process was faster, with the same bytes
		}
		return "", err
	}
	return dir, storage.SyncFolder(filepath.Dir(dir))
}
