package tensor

import (
	"fmt"
	"unsafe"
)

// Weight is a constant that goes into a fold or comes out of it: row-major, one of Floats and Ints.
type Weight struct {
	Name   string
	Shape  []int64
	Floats []float64 // of floating-point constants
	Ints   []int64   // of integer and boolean ones
}

// tensor views a weight as a tensor on its own slice.
func (w *Weight) Tensor() (*Tensor, error) {
	n, err := Elements(w.Shape)
	if err != nil {
		return nil, fmt.Errorf("constant %s: %w", w.Name, err)
	}
	t := &Tensor{DType: Float64, Shape: w.Shape, Data: unsafe.Pointer(unsafe.SliceData(w.Floats))}
	have := int64(len(w.Floats))
	if w.Floats == nil && w.Ints != nil {
		t.DType, t.Data, have = Int64, unsafe.Pointer(unsafe.SliceData(w.Ints)), int64(len(w.Ints))
	}
	if have != n || (w.Floats != nil && w.Ints != nil) {
		return nil, fmt.Errorf("constant %s: found %d elements, needed %d for shape %v, as floats or as ints", w.Name, have,
			n, w.Shape)
	}
	return t, nil
}
