package manifest

import (
	"os"
	"path/filepath"
)

// Exists reports whether a folder holds a manifest.
func Exists(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, FileName))
	return err == nil
}
