// Package sealed reads a file once, into memory that nobody can change, so that the bytes that were hashed are those
// that are parsed and loaded, whatever happens to the file meanwhile.
package sealed

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/storage"
)

// File is the content of a file as it was when it was read.
type File struct {
	SHA256 string // in hexadecimal
	Size   int64  // in bytes

	memory *os.File
	name   string // of the file that was read, without its folder
}

// Read reads a regular file of at most limit bytes.
func Read(path string, limit int64) (*File, error) {
	from, err := storage.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("found %d bytes, needed at most %d", info.Size(), limit)
	}
	return newFile(filepath.Base(path), from, limit)
}

// From is the content of a file of this name, which was read.
func From(name string, content []byte) (*File, error) {
	return newFile(name, bytes.NewReader(content), int64(len(content)))
}

func newFile(name string, from io.Reader, limit int64) (*File, error) {
	f := &File{name: name}
	var err error
	if f.memory, err = newMemory(name); err != nil {
		return nil, err
	}
	hash := sha256.New()
	f.Size, err = io.Copy(io.MultiWriter(f.memory, hash), io.LimitReader(from, limit+1))
	if err == nil && f.Size > limit {
		err = fmt.Errorf("found more than %d bytes, needed at most that", limit)
	}
	if err == nil {
		err = seal(f.memory)
	}
	if err != nil {
		f.memory.Close()
		return nil, err
	}
	f.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return f, nil
}

// ReadAt reads of the content.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.memory.ReadAt(p, offset) }

// Close gives the memory back. A library that was loaded from it needs its File open: the C library knows libraries by
// path, and another file would get the same.
func (f *File) Close() error { return f.memory.Close() }

// Loadable is a path under which the system's loader finds exactly this content, and that is not taken. done is called
// when it has been loaded.
func (f *File) Loadable(taken func(path string) bool) (path string, done func(), err error) {
	if path := fmt.Sprintf("/proc/self/fd/%d", f.memory.Fd()); f.executable(path) && !taken(path) {
		return path, func() {}, nil
	}
	return f.private()
}

// memoryFolder is a folder in memory that most systems have, and containers whose root cannot be written.
const memoryFolder = "/dev/shm"

// private writes the content into a folder that only this user can read: where there is no /proc, or where memory files
// may not be executed.
func (f *File) private() (path string, done func(), err error) {
	folder, err := storage.Temporary("")
	if err != nil {
		var other error
		if folder, other = storage.Temporary(memoryFolder); other != nil {
			return "", nil, err
		}
	}
	done = func() { folder.Remove() }
	path = filepath.Join(folder.Path, f.name)
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err == nil {
		_, err = io.Copy(to, io.NewSectionReader(f.memory, 0, f.Size))
		if closeErr := to.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		done()
		return "", nil, err
	}
	return path, done, nil
}

// unnamed is a temporary file that nobody else can open: its name is gone, and was readable by this user alone.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "graft-library-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
