//go:build unix

package model

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps size bytes of f for reading. The mapping outlives f.
func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
