// Package cmem reads and makes what C holds in memory.
package cmem

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Pointer turns an address handed out by C into a Pointer. The address lies outside the Go heap,
// so the garbage collector neither moves nor frees what it names; the indirection tells go vet
// that this is meant.
func Pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// WordAt is the machine word at an address of C memory.
func WordAt(address uintptr) *uintptr { return (*uintptr)(Pointer(address)) }

// LoadWord reads the word at index i of a C table that the hook may be writing.
func LoadWord(table uintptr, i int) uintptr {
	return atomic.LoadUintptr(WordAt(table + uintptr(i)*WordSize))
}

const WordSize = unsafe.Sizeof(uintptr(0))

// GoString copies the zero-terminated C string at an address; the address 0 is the empty string.
func GoString(address uintptr) string {
	if address == 0 {
		return ""
	}
	n := 0
	for *(*byte)(Pointer(address + uintptr(n))) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(Pointer(address)), n))
}

// CString copies a string and ends it with a zero byte.
func CString(s string) (*byte, error) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("string %q has a zero byte at %d", s, i),
			Needed: "none: ONNX Runtime takes zero-terminated strings"}
	}
	b := make([]byte, len(s)+1)
	copy(b, s)
	return &b[0], nil
}

// CStrings is CString for a list. The result holds Go pointers: keep it alive through the call.
func CStrings(list []string) ([]*byte, error) {
	out := make([]*byte, len(list))
	for i, s := range list {
		p, err := CString(s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// Lookup looks a key up in two parallel arrays of C strings; "" when it is absent.
func Lookup(keys, values, n uintptr, key string) string {
	for i := range int(n) {
		if keys != 0 && values != 0 && GoString(LoadWord(keys, i)) == key {
			return GoString(LoadWord(values, i))
		}
	}
	return ""
}
