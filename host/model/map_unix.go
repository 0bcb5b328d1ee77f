//go:build unix

package model

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps size bytes of f for reading. The mapping outlives f.
func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return b, func() error { return unix.Munmap(b) }, nil
}

// forget lets the system take back the pages that lie wholly inside b, a part of
// a mapping: they are read again when they are touched.
func forget(b []byte) error {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := (page - start%page) % page
	if uintptr(len(b)) < skip+page {
		return nil
	}
	return unix.Madvise(b[skip:skip+(uintptr(len(b))-skip)/page*page], unix.MADV_DONTNEED)
}
