package isolation

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is memory that a worker shares. Its pages are taken as they are used.
type region struct {
	file  *os.File
	bytes []byte
	once  sync.Once
}

// newRegion makes one of a size that nobody can change. A worker can read one of constants, and not write to it (from
// Linux 5.1).
func newRegion(name string, size int64, constants bool) (r *region, err error) {
	if err := roomFor(size); err != nil {
		return nil, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err != nil { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("no memory file can be made: %w", err)
	}
	r = &region{file: os.NewFile(uintptr(fd), name)}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, fmt.Errorf("a memory file cannot have %d bytes: %w", size, err)
	}
	if r.bytes, err = mapped(fd, size, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, err
	}
	for _, advice := range []int{unix.MADV_DONTFORK, unix.MADV_DONTDUMP} { // a child of the program's is no part of this
		if err := unix.Madvise(r.bytes, advice); err != nil {
			return nil, fmt.Errorf("shared memory cannot be held out of children and core files: %w", err)
		}
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	if constants {
		// before Linux 5.1
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err == unix.EINVAL {
			constants = false
		} else if err != nil {
			return nil, fmt.Errorf("a memory file cannot be sealed: %w", err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("a memory file cannot be sealed: %w", err)
	}
	return r, nil
}

// roomFor refuses a size beyond the process's limit on files: a memory file that cannot grow would end it.
func roomFor(size int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < uint64(size) {
		return fmt.Errorf("the limit of file sizes (ulimit -f) is %d bytes, needed are %d", limit.Cur, size)
	}
	return nil
}

// mapped maps a memory file.
func mapped(fd int, size int64, protection int) ([]byte, error) {
	at, err := unix.MmapPtr(fd, 0, nil, uintptr(size), protection, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of shared memory cannot be mapped: %w", size, err)
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// close gives it back. Nothing may use it afterwards.
func (r *region) close() {
	if r == nil {
		return
	}
	r.once.Do(func() {
		if r.bytes != nil {
			_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(r.bytes)), uintptr(len(r.bytes))) // it is what was mapped
		}
		r.file.Close()
	})
}

// give returns pages to the system, whose content is zeros from then on.
func (r *region) give(b []byte) {
	_ = unix.Madvise(b, unix.MADV_REMOVE) // else they stay, which is no harm
}

const (
	protRead      = unix.PROT_READ
	protReadWrite = unix.PROT_READ | unix.PROT_WRITE
)
