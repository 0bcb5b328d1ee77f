//go:build unix

// Package storage is how graft writes: files that are whole or not there, in one step and on the disk when it is done;
// folders and temporary files of its own, which the next run removes where one was killed; and reading back what it
// wrote, from nobody else.
package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Access says who may read what is written.
type Access fs.FileMode

const (
	// Private: the user, 0600. What was there may have been opened to others: it is no longer.
	Private Access = 0o600
	// Shared: as the umask says, or as the file that is replaced.
	Shared Access = 0o666
)

// temporary ends the names of unfinished files: ".NAME.HEX.tmp" beside NAME.
const temporary = ".tmp"

// File is a file that is being written under another name in the folder of its own.
type File struct {
	*os.File
	path string
	lock *os.File // the same file, open until it has its name: it tells other processes that this one lives
}

// Create begins a file at path. Nothing is at path before Commit. What killed processes left of the same file is
// removed.
func Create(path string, access Access) (*File, error) {
	sweep(filepath.Dir(path), "."+filepath.Base(path)+".")
	for {
		f, err := os.OpenFile(Beside(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(access))
		if err != nil {
			return nil, err
		}
		w := &File{File: f, path: path}
		mine, err := w.claim(access)
		if err == nil && mine {
			return w, nil
		}
		w.Discard()
		if err != nil {
			return nil, &fs.PathError{Op: "create", Path: path, Err: err}
		}
	}
}

// claim locks a new file, as claim does, and gives it the permissions of the one that it replaces.
func (w *File) claim(access Access) (mine bool, err error) {
	lock, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	w.lock = os.NewFile(uintptr(lock), w.Name())
	if mine, err = claim(w.lock); err != nil || !mine {
		return false, err
	}
	if there, err := os.Lstat(w.path); access == Shared && err == nil && there.Mode().IsRegular() {
		return true, w.Chmod(there.Mode().Perm())
	}
	return true, nil
}

// Beside is an unused hidden name in the folder of path, which sweeps know as unfinished.
func Beside(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x%s", filepath.Base(path), rand.Uint64(), temporary))
}

// Finish brings what was written to the disk and closes the file. It has no name of its own yet.
func (w *File) Finish() error {
	if w.File == nil {
		return nil
	}
	err := errors.Join(Sync(w.File), w.Close())
	w.File = nil
	return err
}

// Commit puts the file in place, on the disk when it returns. On an error nothing is left of it, and what was
// at its path is there still.
func (w *File) Commit() error {
	defer w.Discard()
	err := w.Finish()
	if err == nil {
		err = os.Rename(w.lock.Name(), w.path)
	}
	if err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(w.path))
}

// Discard removes the file, unless it was committed.
func (w *File) Discard() {
	for _, f := range []*os.File{w.File, w.lock} {
		if f != nil {
			os.Remove(f.Name()) // gone when it was renamed
			f.Close()
		}
	}
	w.File, w.lock = nil, nil
}

// Write puts a file with this content in place, in one step.
func Write(path string, content []byte, access Access) error {
	return WriteFrom(path, access, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteFrom is Write of what a function writes.
func WriteFrom(path string, access Access, content func(io.Writer) error) error {
	f, err := Create(path, access)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := content(f); err != nil {
		return err
	}
	return f.Commit()
}

// SyncFolder brings the names in a folder to the disk.
func SyncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(Sync(d), d.Close())
}

// Sync brings a file to the disk, if it lies on one.
func Sync(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// Sweep removes what killed processes left in a folder that is graft's: unfinished files of this user that nobody has
// locked.
func Sweep(folder string) { sweep(folder, "") }

func sweep(folder, prefix string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), temporary) {
			removeAbandoned(filepath.Join(folder, e.Name()))
		}
	}
}

// removeAbandoned removes a file of this user that nobody has locked.
func removeAbandoned(path string) {
	f, err := openOwn(path, os.O_RDWR)
	if err != nil {
		return
	}
	defer f.Close()
	if free, err := TryLock(f); err == nil && free {
		os.Remove(path)
	}
}
