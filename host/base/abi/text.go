package abi

import (
	"strings"
	"unsafe"
)

// CString makes a zero-terminated copy.
func CString(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// GoString copies a C string of at most 4096 bytes; a longer one is cut, null is "", and what is not
// UTF-8 becomes question marks.
func GoString(p *byte) string {
	const limit = 4096
	if p == nil {
		return ""
	}
	n := 0
	for n < limit && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return strings.ToValidUTF8(string(unsafe.Slice(p, n)), "?")
}
