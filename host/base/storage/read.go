//go:build unix

package storage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// OpenRegular opens a regular file for reading. A named pipe or a device that stands in its place is refused and never
// waited for. A link is followed.
func OpenRegular(path string) (*os.File, error) { return openRegular(path, os.O_RDONLY) }

func openRegular(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(path, "found a "+Kind(info.Mode()), "a regular file", "")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenOwn opens a file that this user wrote for reading: a regular one, no link, that belongs to the user or to root,
// and that others cannot write to.
func OpenOwn(path string) (*os.File, error) { return openOwn(path, os.O_RDONLY) }

func openOwn(path string, flags int) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(path, "found a "+Kind(info.Mode()), "a regular file", "remove it")
	}
	f, err := openRegular(path, flags|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	if err := owned(path, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// owned refuses what others own or can write to.
func owned(path string, f *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return refuse(path, fmt.Sprintf("found that it belongs to the user %d", stat.Uid), "what this user or root made",
			"remove it")
	case stat.Mode&0o022 != 0:
		return refuse(path, fmt.Sprintf("found that others can write to it (mode %03o)", stat.Mode&0o777),
			"what only its owner can change",
			"run: chmod go-w "+diagnostic.Quote(path))
	}
	return nil
}

// refuse is an error as the system's are, with a path that diagnostic.Cause drops.
func refuse(path, found, needed, fix string) error {
	return &fs.PathError{Op: "open", Path: path, Err: &diagnostic.Error{Found: found, Needed: needed, Fix: fix}}
}

// ReadOwn reads a file that this user wrote (see OpenOwn), of at most limit bytes.
func ReadOwn(path string, limit int64) ([]byte, error) { return readAll(OpenOwn, path, limit) }

// ReadRegular reads a regular file of at most limit bytes.
func ReadRegular(path string, limit int64) ([]byte, error) { return readAll(OpenRegular, path, limit) }

func readAll(open func(string) (*os.File, error), path string, limit int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, refuse(path, fmt.Sprintf("found more than %d bytes", limit), "at most that", "")
	}
	return data, nil
}

// Kind names what is not a regular file.
func Kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// Until reads from r until a context ends: what is read of a large file or of a network.
func Until(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
