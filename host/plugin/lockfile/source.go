package lockfile

import (
	"path/filepath"
	"strings"
)

// IsAddress reports a source on a server, and no path.
func IsAddress(source string) bool { return strings.Contains(source, "://") }

// Join is a file of a source, by its path with slashes there.
func Join(source, name string) string {
	if IsAddress(source) {
		return source + "/" + name
	}
	return filepath.Join(source, filepath.FromSlash(name))
}

// Relative is a source as the lock has it: a path below the lock's folder is relative to that, so that both can be
// moved.
func (f *File) Relative(source string) string {
	if source == "" || IsAddress(source) {
		return source
	}
	folder, err := filepath.Abs(filepath.Dir(f.path))
	if err != nil {
		return source
	}
	relative, err := filepath.Rel(folder, source)
	if err != nil || !filepath.IsLocal(relative) {
		return source
	}
	return "./" + filepath.ToSlash(relative)
}

// Resolve is the path or the address that a source in the lock means.
func (f *File) Resolve(source string) string {
	if source == "" || IsAddress(source) || filepath.IsAbs(source) {
		return source
	}
	return filepath.Join(filepath.Dir(f.path), filepath.FromSlash(source))
}
