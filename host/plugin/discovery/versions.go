package discovery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// VersionsFolder is the folder of a store in which versions of plugins lie, VersionsFolder/NAME/VERSION-HASH. Of
// those of a name, the link NAME beside it points at the one that is current.
const VersionsFolder = ".versions"

// Current is the folder of the version that a store's link points at; any other folder is itself. Whoever reads a
// plugin through the link could read files of two versions, when it is turned to another in between.
func Current(folder string) string {
	at, err := Pointed(folder)
	if err != nil {
		return folder
	}
	return at
}

// Pointed is Current, with the error of a link that cannot be read.
func Pointed(folder string) (string, error) {
	text, err := os.Readlink(folder)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrNotExist): // no link
		return folder, nil
	case err != nil:
		return "", err
	case !strings.HasPrefix(text, filepath.Join(VersionsFolder, filepath.Base(folder))+string(filepath.Separator)) ||
		!filepath.IsLocal(text):
		return folder, nil // a link of the user's own
	}
	return filepath.Join(filepath.Dir(folder), text), nil
}

// Linked is the link that points at a version's folder, which stays when another version is current; any other folder
// is itself.
func Linked(folder string) string {
	name := filepath.Dir(folder)
	link := filepath.Join(filepath.Dir(filepath.Dir(name)), filepath.Base(name))
	if filepath.Base(filepath.Dir(name)) == VersionsFolder && Current(link) == folder {
		return link
	}
	return folder
}

// Versions are the folders of the versions of a plugin that a store in this folder holds, current or not, in the
// order of their names. One that lies in the store's folder itself, where it is without a link, is not among them.
func Versions(plugins, name string) []string {
	entries, err := os.ReadDir(filepath.Join(plugins, VersionsFolder, name))
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if folder := filepath.Join(plugins, VersionsFolder, name, e.Name()); e.IsDir() && manifest.Exists(folder) {
			list = append(list, folder)
		}
	}
	return list
}
