package ort

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// protecting serialises changes of page protection: two hooks may share a page.
var protecting sync.Mutex

// replaceWord writes to in place of from in memory that is normally read-only, and leaves the
// page's protection as it was. It does nothing where the word is not from. Readers on other
// threads see one value or the other.
func replaceWord(address, from, to uintptr) (err error) {
	protecting.Lock()
	defer protecting.Unlock()
	word := wordAt(address)
	if atomic.LoadUintptr(word) != from {
		return nil
	}
	maps, err := readMaps()
	if err != nil {
		return err
	}
	where, ok := maps.at(address)
	if !ok {
		return fmt.Errorf("address %#x is not mapped", address)
	}
	before := where.protection()
	if before&syscall.PROT_WRITE == 0 {
		size := uintptr(os.Getpagesize())
		page := unsafe.Slice((*byte)(pointer(address&^(size-1))), size)
		if err := syscall.Mprotect(page, before|syscall.PROT_WRITE); err != nil {
			return fmt.Errorf("making the function table writable: %w", err)
		}
		defer func() {
			if failed := syscall.Mprotect(page, before); failed != nil {
				err = errors.Join(err, fmt.Errorf("making the function table read-only again: %w", failed))
			}
		}()
	}
	atomic.CompareAndSwapUintptr(word, from, to)
	return nil
}

func (m mapping) protection() int {
	p := 0
	for i, bit := range []int{syscall.PROT_READ, syscall.PROT_WRITE, syscall.PROT_EXEC} {
		if len(m.perm) > i && m.perm[i] == "rwx"[i] {
			p |= bit
		}
	}
	return p
}
