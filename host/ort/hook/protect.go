package hook

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/procmaps"
)

// protecting serialises changes of page protection: two hooks may share a page.
var protecting sync.Mutex

// replaceWord writes to in place of from in memory that is normally read-only, and leaves the
// page's protection as it was. It does nothing where the word is not from. Readers on other
// threads see one value or the other.
func replaceWord(address, from, to uintptr) (err error) {
	protecting.Lock()
	defer protecting.Unlock()
	word := cmem.WordAt(address)
	if atomic.LoadUintptr(word) != from {
		return nil
	}
	maps, err := procmaps.Read()
	if err != nil {
		return err
	}
	where, ok := maps.At(address)
	if !ok {
		return fmt.Errorf("address %#x is not mapped", address)
	}
	before := where.Protection()
	if before&syscall.PROT_WRITE == 0 {
		size := uintptr(os.Getpagesize())
		page := unsafe.Slice((*byte)(cmem.Pointer(address&^(size-1))), size)
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
