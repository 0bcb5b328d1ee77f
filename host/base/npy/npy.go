// Package npy reads and writes the heads of arrays in NumPy's format, of which the numbers stand behind the head.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Magic begins an array.
const Magic = "\x93NUMPY"

// Bounds of what is read.
const (
	maxHead = 1 << 20 // bytes
	maxRank = 64
)

// Header says what an array holds.
type Header struct {
	Type    string // NumPy's descr, "<f4" say
	Fortran bool   // the first axis varies fastest, the last one else
	Shape   []int64
}

var (
	descrKey = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]+)['"]`)
	orderKey = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeKey = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
)

// ReadHeader reads a head, up to where the numbers begin. Arrays of records are not understood.
func ReadHeader(r io.Reader) (h Header, err error) {
	start := make([]byte, len(Magic)+4)
	if n, err := io.ReadFull(r, start); n < len(Magic) || string(start[:len(Magic)]) != Magic {
		return h, errors.New("it is no NumPy array")
	} else if err != nil {
		return h, fmt.Errorf("it ends in its head: %w", err)
	}
	size := int(binary.LittleEndian.Uint16(start[len(Magic)+2:]))
	if start[len(Magic)] > 1 {
		more := make([]byte, 2)
		if _, err := io.ReadFull(r, more); err != nil {
			return h, fmt.Errorf("it ends in its head: %w", err)
		}
		size |= int(binary.LittleEndian.Uint16(more)) << 16
	}
	if size > maxHead {
		return h, fmt.Errorf("it has a head of %d bytes, of which at most %d are read", size, maxHead)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, fmt.Errorf("it ends in its head: %w", err)
	}
	descr, order, shape := descrKey.FindSubmatch(text), orderKey.FindSubmatch(text), shapeKey.FindSubmatch(text)
	if descr == nil || order == nil || shape == nil {
		return h, fmt.Errorf("it has a head that is not understood: %.80q", text)
	}
	h.Type, h.Fortran = string(descr[1]), string(order[1]) == "True"
	for part := range strings.SplitSeq(string(shape[1]), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil || d < 0 || len(h.Shape) == maxRank {
			return h, fmt.Errorf("its shape (%.80s) is not read", shape[1])
		}
		h.Shape = append(h.Shape, d)
	}
	return h, nil
}

// Rows gives elements of some bytes each in the order in which the last axis varies fastest. They are as many as the
// shape says.
func (h Header) Rows(data []byte, size int) []byte {
	if !h.Fortran || len(h.Shape) < 2 {
		return data
	}
	out := make([]byte, len(data))
	index := make([]int64, len(h.Shape))
	for to := 0; to < len(out); to += size {
		from, stride := int64(0), int64(size)
		for axis, n := range h.Shape {
			from += index[axis] * stride
			stride *= n
		}
		copy(out[to:to+size], data[from:])
		for axis := len(index) - 1; axis >= 0; axis-- {
			if index[axis]++; index[axis] < h.Shape[axis] {
				break
			}
			index[axis] = 0
		}
	}
	return out
}

// Append appends the head, of at least so many bytes, which is a multiple of 64.
func (h Header) Append(b []byte, least int) []byte {
	order, shape := "False", ""
	if h.Fortran {
		order = "True"
	}
	for i, n := range h.Shape {
		if i > 0 {
			shape += " "
		}
		shape += strconv.FormatInt(n, 10) + ","
	}
	if len(h.Shape) > 1 {
		shape = strings.TrimSuffix(shape, ",")
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", h.Type, order, shape)
	const before = len(Magic) + 4
	whole := max((before+len(text)+1+63)/64*64, least)
	text += strings.Repeat(" ", whole-before-len(text)-1) + "\n"
	return append(binary.LittleEndian.AppendUint16(append(b, Magic+"\x01\x00"...), uint16(len(text))), text...)
}
