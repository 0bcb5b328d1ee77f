// Package content says what a plugin's folder holds: the hash of every file in it. It refuses folders that others can
// change.
package content

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// RecordName is graft's own file in an installed plugin, which is no part of the content.
const RecordName = ".graft-record.json"

// Limits of a folder; archives have narrower ones.
const (
	maxFiles = 4096
	maxBytes = 16 << 30
)

// File is a file of a folder.
type File struct {
	SHA256     string `json:"sha256"` // in hexadecimal; "" for one that was not read
	Executable bool   `json:"executable,omitempty"`
}

// Files are the files of a folder by path, with slashes. A link that stays inside is the file that it points at.
type Files map[string]File

// Read hashes the files of a folder. Those in known were read elsewhere, and have the hash that stands there, "" for
// any. What is neither file nor folder is refused, and so is a folder that others can change.
func Read(folder string, known map[string]string) (Files, error) {
	guard, err := newGuard(folder)
	if err != nil {
		return nil, err
	}
	return read(folder, known, guard)
}

// ReadAny is Read of a folder that others may change. A child that runs apart reads it so: who owns what, it cannot
// see.
func ReadAny(folder string, known map[string]string) (Files, error) {
	return read(folder, known, &guard{closed: true})
}

func read(folder string, known map[string]string, guard *guard) (Files, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, unreadable(folder, err)
	}
	defer root.Close()
	files, left := Files{}, int64(maxBytes)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		path := filepath.Join(folder, name)
		if err != nil {
			return unreadable(path, err)
		}
		if name == RecordName {
			return nil
		}
		info, err := root.Stat(name) // a link that leaves the folder is an error
		if err == nil {
			err = guard.check(path, info)
		}
		switch {
		case err != nil:
			return unreadable(path, err)
		case info.IsDir() && entry.IsDir():
			return nil
		case !info.Mode().IsRegular() || len(files) == maxFiles:
			return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
				Found:  "found a " + kind(info.Mode(), entry.Type()),
				Needed: fmt.Sprintf("plain files and folders, at most %d", maxFiles), Fix: "remove it from the plugin's folder"}
		}
		f := File{Executable: info.Mode()&0o111 != 0}
		if sha, ok := known[name]; ok {
			f.SHA256 = sha
		} else if f.SHA256, err = hash(root, name, &left); err != nil {
			return unreadable(path, err)
		}
		files[name] = f
		return nil
	})
	return files, err
}

// kind names what stands in a file's place.
func kind(at, entry fs.FileMode) string {
	if at.IsRegular() {
		return "file too many"
	}
	if entry&fs.ModeSymlink != 0 && at.IsDir() {
		return "link to a folder"
	}
	return storage.Kind(at)
}

// hash is the SHA-256 of a regular file, whose bytes count against what is left.
func hash(root *os.Root, name string, left *int64) (string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = fmt.Errorf("found a folder of more than %d bytes, needed at most that", int64(maxBytes))
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// unreadable is an error of a file's, unless it is one already.
func unreadable(path string, err error) error {
	if e, ok := err.(*diagnostic.Error); ok {
		return e
	}
	return refusal.Store(path, "cannot read", err)
}

// Digest is one hash of all: of names, hashes and whether files are executable, in hexadecimal.
func (f Files) Digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(h, "%q %s %v\n", name, f[name].SHA256, f[name].Executable)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Difference is the first file that is not as it was, and in which way; "" where all are. A file that was not read is
// as it was.
func (f Files) Difference(before Files) (name, how string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		now, there := f[name]
		switch was := before[name]; {
		case !there:
			return name, "found that the file is gone"
		case now.SHA256 != "" && now.SHA256 != was.SHA256:
			return name, fmt.Sprintf("found sha256 %.12s..., needed %.12s...", now.SHA256, was.SHA256)
		case now.Executable != was.Executable:
			return name, "found other permissions to execute the file"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if _, there := before[name]; !there {
			return name, "found a file that was not there"
		}
	}
	return "", ""
}
