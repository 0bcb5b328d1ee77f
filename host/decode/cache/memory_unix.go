//go:build unix

package cache

import "syscall"

// reserve maps zeroed memory that costs nothing until it is touched.
func reserve(bytes int64) ([]byte, error) {
	return syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|noReserve)
}

func release(memory []byte) error {
	if memory == nil {
		return nil
	}
	return syscall.Munmap(memory)
}
