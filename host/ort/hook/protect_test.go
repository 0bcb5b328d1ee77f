package hook

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/procmaps"
	"github.com/opgraft/graft/internal/must"
)

// TestReplaceWord writes to a read-only page of its own.
func TestReplaceWord(t *testing.T) {
	page, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must.Succeed(t, err)
	at := uintptr(unsafe.Pointer(&page[0]))
	permissions := func() string {
		maps := must.Value(procmaps.Read())(t)
		m, _ := maps.At(at)
		return m.Permissions()
	}
	for _, step := range []struct{ from, to, want uintptr }{
		{0, 7, 7},
		{0, 9, 7}, // somebody else's value stays
		{7, 8, 8},
	} {
		if err := replaceWord(at, step.from, step.to); err != nil || *cmem.WordAt(at) != step.want {
			t.Errorf("%d -> %d: %v, the word is %d, want %d", step.from, step.to, err, *cmem.WordAt(at), step.want)
		}
		if p := permissions(); p != "r--p" {
			t.Errorf("the page is %s afterwards", p)
		}
	}
	must.Succeed(t, syscall.Mprotect(page, syscall.PROT_READ|syscall.PROT_WRITE))
	if err := replaceWord(at, 8, 1); err != nil || *cmem.WordAt(at) != 1 || permissions() != "rw-p" {
		t.Errorf("a writable page: %v, %d, %s", err, *cmem.WordAt(at), permissions())
	}
	must.Succeed(t, syscall.Munmap(page))
}
