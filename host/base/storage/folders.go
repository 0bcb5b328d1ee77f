package storage

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// DataFolder is where graft stores what belongs to the user: $XDG_DATA_HOME/graft, else
// ~/.local/share/graft.
func DataFolder() (string, error) {
	// A relative XDG_DATA_HOME is invalid by its specification, and would be the working directory.
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "graft"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", errors.New("neither XDG_DATA_HOME nor HOME is set to an absolute path; set one")
	}
	return filepath.Join(home, ".local", "share", "graft"), nil
}

// CacheFolder is where graft stores what can be made again: $XDG_CACHE_HOME/graft, else ~/.cache/graft.
func CacheFolder() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(base) {
		return "", &diagnostic.Error{Found: "found no cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute " +
			"path", Fix: "set one", Cause: err}
	}
	return filepath.Join(base, "graft"), nil
}
