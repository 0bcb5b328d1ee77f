package model

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
)

func TestFailuresNameTheMend(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, "found permission denied; check the permissions of the file and its folder"},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "found read-only file system; choose a folder that can be written"},
		{&os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.ENOSPC}, "found no space left on device; free some space or choose another folder"},
		{&fs.PathError{Op: "stat", Path: "x", Err: syscall.ELOOP}, "found links that lead in a circle; point them at the file"},
		{syscall.EIO, "found input/output error"},
	} {
		wantError(t, failure("x", "write the file", c.err), "x: cannot write the file: "+c.want)
	}
}
