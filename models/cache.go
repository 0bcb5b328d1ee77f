package models

import (
	"os"
	"path/filepath"
)

// Cached makes the full-size subject name in the user's cache, unless it is
// there, and returns its folder. report, which may be nil, is told before
// anything is made. The folder appears whole or not at all.
func Cached(name string, report func(dir string)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "graft", "models", name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if report != nil {
		report(dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	staging, err := os.MkdirTemp(filepath.Dir(dir), "."+name+".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(staging)
	if _, err := Build(name, staging, DefaultSeed); err != nil {
		return "", err
	}
	if err := os.Rename(staging, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // another process was faster, with the same bytes
		}
		return "", err
	}
	return dir, nil
}
