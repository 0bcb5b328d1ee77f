package ort

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// pointer turns an address handed out by C into a pointer. The address lies outside the Go heap,
// so the garbage collector neither moves nor frees what it names; the indirection tells go vet
// that this is meant.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// wordAt is the machine word at an address of C memory.
func wordAt(address uintptr) *uintptr { return (*uintptr)(pointer(address)) }

// loadWord reads the word at index i of a C table that the hook may be writing.
func loadWord(table uintptr, i int) uintptr {
	return atomic.LoadUintptr(wordAt(table + uintptr(i)*wordSize))
}

const wordSize = unsafe.Sizeof(uintptr(0))

// goString copies the zero-terminated C string at an address; the address 0 is the empty string.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	n := 0
	for *(*byte)(pointer(address + uintptr(n))) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(pointer(address)), n))
}

// cString copies a string and ends it with a zero byte.
func cString(s string) (*byte, error) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("string %q has a zero byte at %d", s, i),
			Needed: "none: ONNX Runtime takes zero-terminated strings"}
	}
	b := make([]byte, len(s)+1)
	copy(b, s)
	return &b[0], nil
}

// cStrings is cString for a list. The result holds Go pointers: keep it alive through the call.
func cStrings(list []string) ([]*byte, error) {
	out := make([]*byte, len(list))
	for i, s := range list {
		p, err := cString(s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}
