package ort

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile is a file that no folder holds, and the path by which this process may open it. It is gone when it is closed.
func memoryFile(name string) (f *os.File, path string, err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), name), fmt.Sprintf("/proc/self/fd/%d", fd), nil
}
