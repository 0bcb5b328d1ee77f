package encoder

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/opgraft/graft/host/base/npy"
)

// npyHeader is the length of the header of a file of NumPy, whatever is in it: rows are written before their number
// is known.
const npyHeader = 128

// NPY writes vectors as one array of float32, [rows, width], in NumPy's format. A line without a vector is a row of
// NaN.
type NPY struct {
	to    io.WriteSeeker
	width int
	rows  int
	gaps  int // rows of NaN that wait for the width
	line  []byte
}

// NewNPY begins a file. width is that of a vector, 0 where the first one says it.
func NewNPY(to io.WriteSeeker, width int) (*NPY, error) {
	n := &NPY{to: to, width: width}
	_, err := to.Write(make([]byte, npyHeader))
	return n, err
}

// Write adds a row; nil for one without a vector.
func (n *NPY) Write(v []float32) error {
	if v == nil && n.width == 0 {
		n.gaps++
		return nil
	}
	if n.width == 0 {
		n.width = len(v)
	}
	for ; n.gaps > 0; n.gaps-- {
		if err := n.row(nil); err != nil {
			return err
		}
	}
	if v != nil && len(v) != n.width {
		return fmt.Errorf("a vector of %d numbers after others of %d", len(v), n.width)
	}
	return n.row(v)
}

func (n *NPY) row(v []float32) error {
	n.line = n.line[:0]
	for d := range n.width {
		x := float32(math.NaN())
		if v != nil {
			x = v[d]
		}
		n.line = binary.LittleEndian.AppendUint32(n.line, math.Float32bits(x))
	}
	n.rows++
	_, err := n.to.Write(n.line)
	return err
}

// Close writes the header, and leaves the place of writing at its end.
func (n *NPY) Close() error {
	n.rows += n.gaps // of no width
	header := npy.Header{Type: "<f4", Shape: []int64{int64(n.rows), int64(n.width)}}.Append(nil, npyHeader)
	if _, err := n.to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := n.to.Write(header)
	return err
}
