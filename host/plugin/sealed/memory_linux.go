package sealed

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/memory"
)

// maxName bounds the name of a memory file, which /proc/PID/maps shows.
const maxName = 200

// newMemory makes a file in memory, which can be mapped as code and not be run as a program: administrators may
// forbid the latter. On a kernel without such files it is one that has no name any more.
func newMemory(name string) (*os.File, error) {
	name = name[:min(len(name), maxName)]
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err != nil { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return unnamed()
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal forbids every change, by anyone, for as long as the file exists.
func seal(f *os.File) error {
	err := memory.Seal(f.Fd(), unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	if errors.Is(err, unix.EINVAL) {
		return nil // not a memory file
	}
	return err
}

// executable reports whether the loader will find this file at the path and may map its code.
func (f *File) executable(path string) bool {
	var here, there unix.Stat_t
	if unix.Fstat(int(f.memory.Fd()), &here) != nil || unix.Stat(path, &there) != nil || here.Dev != there.Dev ||
		here.Ino != there.Ino {
		return false
	}
	if seals, err := unix.FcntlInt(f.memory.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_WRITE == 0 {
		return false
	}
	code, err := unix.Mmap(int(f.memory.Fd()), 0, int(min(f.Size, int64(os.Getpagesize()))), unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	return unix.Munmap(code) == nil
}
