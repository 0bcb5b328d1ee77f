package session

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/ort"
)

// Hidden says which outputs of a patched session hold zeros in place of a model's rows of hidden tokens: an output
// (B, S, ..) where the input Mask (B, S), or with axes of one between them, is 0 or, when it is Added to scores, is
// not.
type Hidden struct {
	Mask    string
	Added   bool
	Outputs []string
}

// MaskName is that of the mask, "" for none.
func (h *Hidden) MaskName() string {
	if h == nil {
		return ""
	}
	return h.Mask
}

// Clear makes a model's own output what the patched session has: zeros in rows of hidden tokens. It changes nothing
// of an output that holds no such rows, nor of one that does not fit the mask.
func (h *Hidden) Clear(name string, output, mask *ort.Value) error {
	if h == nil || mask == nil || !slices.Contains(h.Outputs, name) {
		return nil
	}
	shape, rows := output.Shape(), mask.Shape()
	if len(rows) < 2 || len(shape) < 2 || shape[0] != rows[0] || shape[1] != rows[len(rows)-1] ||
		mask.Len() != shape[0]*shape[1] || mask.Len() == 0 {
		return nil
	}
	visible, err := truthsOf(mask)
	if err != nil {
		return err
	}
	b, err := output.Bytes()
	if err != nil {
		return err
	}
	width := len(b) / len(visible)
	for i, seen := range visible {
		if seen == h.Added {
			clear(b[i*width : (i+1)*width])
		}
	}
	return nil
}

// truthsOf says which elements of a mask are not 0.
func truthsOf(v *ort.Value) ([]bool, error) {
	switch v.Element() {
	case ort.Int64:
		return truths[int64](v)
	case ort.Int32:
		return truths[int32](v)
	case ort.Float32:
		return truths[float32](v)
	}
	b, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	n := int(v.Len())
	list := make([]bool, n)
	switch v.Element() {
	case ort.Bool:
		for i := range list {
			list[i] = b[i] != 0
		}
	case ort.Float16:
		for i := range list {
			x := half.ToFloat(uint16(b[2*i]) | uint16(b[2*i+1])<<8)
			list[i] = x != 0 || math.IsNaN(x)
		}
	default:
		return nil, fmt.Errorf("a mask has elements of type %v, needed are integers, booleans or floats", v.Element())
	}
	return list, nil
}

func truths[T int64 | int32 | float32](v *ort.Value) ([]bool, error) {
	data, err := ort.Data[T](v)
	if err != nil {
		return nil, err
	}
	list := make([]bool, len(data))
	for i, x := range data {
		list[i] = x != 0
	}
	return list, nil
}
