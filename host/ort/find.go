package ort

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/fetch"
)

// EnvPath is the environment variable that names the user's own libonnxruntime.
const EnvPath = "GRAFT_ONNXRUNTIME"

// fetchHint is the fix for every runtime that is missing or unusable.
const fetchHint = "run `graft doctor --fetch` (or `make runtime` in the repository), or set " + EnvPath +
	" to a libonnxruntime of your own"

// ErrNotFound reports that no libonnxruntime was found; the error lists every path tried.
var ErrNotFound = errors.New("onnxruntime was not found")

// A Location is a place where [Find] looks for libonnxruntime.
type Location struct {
	// Source says why the place is looked at: "option", "GRAFT_ONNXRUNTIME", "cache",
	// "executable" or "system".
	Source string `json:"source"`
	Path   string `json:"path"`
}

// Locations lists where Find looks, in order. option is the path that the user gave, "" for none.
func Locations(option string) []Location {
	var list []Location
	if option != "" {
		return append(list, Location{"option", option})
	}
	if path := os.Getenv(EnvPath); path != "" {
		return append(list, Location{EnvPath, path})
	}
	if dir, err := fetch.Dir(); err == nil {
		list = append(list, Location{"cache", filepath.Join(dir, fetch.LibraryName)})
	}
	if exe, err := os.Executable(); err == nil {
		if resolved, err := filepath.EvalSymlinks(exe); err == nil {
			exe = resolved
		}
		for _, name := range libraryNames {
			list = append(list, Location{"executable", filepath.Join(filepath.Dir(exe), name)})
		}
	}
	for _, dir := range systemDirs() {
		for _, name := range libraryNames {
			list = append(list, Location{"system", filepath.Join(dir, name)})
		}
	}
	return list
}

// libraryNames are the names in use, the one that says its major version first.
var libraryNames = []string{fetch.LibraryName, "libonnxruntime.so"}

// systemDirs are the folders of the dynamic linker on the distributions in use.
func systemDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	// A relative or empty element means the working folder, which anyone may have filled.
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), func(dir string) bool {
		return !filepath.IsAbs(dir)
	})
	dirs = append(dirs, "/usr/local/lib")
	if triplet != "" {
		dirs = append(dirs, "/usr/lib/"+triplet, "/lib/"+triplet)
	}
	return append(dirs, "/usr/local/lib64", "/usr/lib64", "/usr/lib", "/lib64", "/lib")
}

// Find looks for libonnxruntime: the option alone when it is given, or GRAFT_ONNXRUNTIME alone
// when it is set, and otherwise the user's cache (package fetch fills it), the executable's folder and
// the system's library folders. It does not map the library; [Open] does.
func Find(option string) (Location, error) {
	locations := Locations(option)
	for _, l := range locations {
		if info, err := os.Stat(l.Path); err == nil && info.Mode().IsRegular() {
			return l, nil
		}
	}
	var places strings.Builder
	for _, l := range locations {
		places.WriteString("\n  " + l.Path + " (" + l.Source + ")")
	}
	return Location{}, &diagnostic.Error{Kind: ErrNotFound, Found: ErrNotFound.Error(),
		Needed: "it at one of:" + places.String(), Fix: fetchHint}
}

// FindAndOpen is [Find] followed by [Open].
func FindAndOpen(option string) (*Library, error) {
	l, err := Find(option)
	if err != nil {
		return nil, err
	}
	return Open(l.Path)
}
