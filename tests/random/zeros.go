package random

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// cleared is an output of ONNX Runtime as a session that leaves out hidden rows has it: zeros there, where got must
// have them.
func (r *run) cleared(how, name string, want, got *ort.Value) (*ort.Value, error) {
	h := r.hidden[how]
	if h == nil || !slices.Contains(h.Outputs, name) {
		return want, nil
	}
	hides, err := r.hides(h, name, want.Shape())
	if err != nil {
		return nil, err
	}
	from, err := want.Bytes()
	if err != nil {
		return nil, err
	}
	all := slices.Clone(from)
	answer, err := got.Bytes()
	if err != nil {
		return nil, err
	}
	if len(answer) != len(all) {
		return want, nil
	}
	for i, hidden := range hides {
		size := len(all) / len(hides)
		if !hidden {
			continue
		}
		clear(all[i*size:][:size])
		if slices.ContainsFunc(answer[i*size:][:size], func(b byte) bool { return b != 0 }) {
			return nil, fmt.Errorf("%s, output %s %v: element %d is not 0, though its token is hidden", how, name, want.Shape(),
				i)
		}
	}
	out, err := r.library.NewTensorBytes(want.Element(), want.Shape(), all)
	if err == nil {
		r.opened = append(r.opened, out)
	}
	return out, err
}

// hides says of each element of an output whether it belongs to a hidden token.
func (r *run) hides(h *session.Hidden, name string, shape []int64) ([]bool, error) {
	mask := r.feed[h.Mask]
	dims, known := r.graph.Rows[name]
	if !known {
		return nil, fmt.Errorf("output %s: which of its axes are tokens is not known", name)
	}
	sequences, tokens := mask.Shape[0], mask.Shape[len(mask.Shape)-1]
	size := int64(len(mask.Data)) / max(sequences*tokens, 1)
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	out := make([]bool, n)
	for i := range n {
		b, t, rest := int64(0), int64(0), i
		for axis := len(dims) - 1; axis >= 0; axis-- {
			at := rest % shape[axis]
			rest /= shape[axis]
			switch dims[axis].text {
			case "batch":
				b = at
			case "tokens":
				t = at
			case "(batch*tokens)":
				b, t = at/tokens, at%tokens
			}
		}
		element := mask.Data[(b*tokens+t)*size:][:size]
		zero := !slices.ContainsFunc(element, func(b byte) bool { return b != 0 })
		if kind := mask.Kind; kind == onnx.Tensor_FLOAT || kind == onnx.Tensor_FLOAT16 {
			zero = floats(element, kind)[0] == 0
		}
		out[i] = zero != h.Added
	}
	return out, nil
}
