package session

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile is a file that no folder holds, and the path by which this process may open it. It is gone when it is
// closed.
func memoryFile(name string) (f *os.File, path string, err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), name), fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// mapped hands over a file's bytes.
func mapped(f *os.File, use func([]byte) error) error {
	at, err := f.Stat()
	if err != nil {
		return err
	}
	if at.Size() <= 0 || at.Size() > math.MaxInt {
		return fmt.Errorf("ONNX Runtime wrote %d bytes", at.Size())
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(at.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(b)
	return use(b)
}
