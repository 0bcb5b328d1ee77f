//go:build unix

package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of temporary folders, and of the file in each whose lock says that its process lives.
const (
	folderPrefix = "graft-run-"
	folderLock   = ".graft-lock"
)

// Folder is a temporary folder of this process.
type Folder struct {
	Path string
	lock *os.File
}

// Temporary makes a folder in another, os.TempDir() where that is "", that only this user reads. Folders there whose
// processes were killed are removed.
func Temporary(in string) (*Folder, error) {
	if in == "" {
		in = os.TempDir()
	}
	sweepFolders(in)
	for {
		path, err := os.MkdirTemp(in, folderPrefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(path, folderLock), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // taken for that of a dead process before it had its lock
		}
		f := &Folder{path, lock}
		mine := false
		if err == nil {
			mine, err = claim(lock)
		}
		if err == nil && mine {
			return f, nil
		}
		f.Remove()
		if err != nil {
			return nil, err
		}
	}
}

// Remove removes the folder and all in it.
func (f *Folder) Remove() error {
	err := removeFolder(f.Path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
		f.lock = nil
	}
	return err
}

// removeFolder removes the lock last: killed in between, the next run goes on.
func removeFolder(path string) error {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.Name() != folderLock {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(path))
}

// sweepFolders removes the folders of processes that were killed. Age says nothing: a process may live for months.
func sweepFolders(in string) {
	entries, err := os.ReadDir(in)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(in, e.Name())
		var stat unix.Stat_t
		if !e.IsDir() || !strings.HasPrefix(e.Name(), folderPrefix) || unix.Lstat(path, &stat) != nil ||
			int(stat.Uid) != os.Geteuid() {
			continue
		}
		lock, err := openOwn(filepath.Join(path, folderLock), os.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) {
			os.Remove(path) // one that is not empty stays: it is not graft's
			continue
		}
		if err != nil {
			continue
		}
		if free, err := TryLock(lock); err == nil && free {
			removeFolder(path)
		}
		lock.Close()
	}
}

// Place moves a finished folder to a path on the same file system, in one step, where nothing is or an empty folder; or
// a finished file, where nothing is or a file. Its files are on the disk already; their names are when it returns.
func Place(from, path string) error {
	if err := SyncFolder(from); err != nil {
		return err
	}
	if err := os.Rename(from, path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}
