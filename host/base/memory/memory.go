// Package memory holds large numbers of floats outside Go's heap, in large pages
// where the system has them.
package memory

import (
	"fmt"
	"unsafe"
)

// Region is zeroed memory that takes up room only where it was touched.
type Region struct {
	mapping, bytes []byte
}

// Reserve maps a region. Its first byte lies at the start of a large page.
func Reserve(bytes int64) (*Region, error) {
	mapping, memory, err := reserve(bytes)
	if err != nil {
		return nil, fmt.Errorf("reserving %d bytes: %w", bytes, err)
	}
	return &Region{mapping, memory}, nil
}

// Bytes is the whole region, Size how many bytes that is; 0 for none.
func (r *Region) Bytes() []byte { return r.bytes }

func (r *Region) Size() int64 {
	if r == nil {
		return 0
	}
	return int64(len(r.bytes))
}

// Floats is the whole region.
func (r *Region) Floats() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(r.bytes))), len(r.bytes)/4)
}

// Close gives the memory back. Nothing may use the region afterwards.
func (r *Region) Close() error {
	if r == nil || r.mapping == nil {
		return nil
	}
	mapping := r.mapping
	r.mapping, r.bytes = nil, nil
	return release(mapping)
}

// Discard gives the memory of a part of the region back, but for the pages that it has in common with others. Nothing
// may use the part afterwards.
func (r *Region) Discard(part []byte) { discard(part) }

// Half is half of the machine's memory in bytes, or 4 GiB where that is not known.
func Half() int64 {
	if all := total(); all > 0 {
		return all / 2
	}
	return 4 << 30
}

// address is where a slice lies.
func address(b []byte) int64 { return int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
