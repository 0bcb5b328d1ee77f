package pattern

import (
	"slices"
	"strconv"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
)

// shaped reports that the values of a match are known to have the shapes that its pattern asks for.
func (s *search) shaped() bool {
	lengths := map[string]graph.Dim{}
	var rest []graph.Dim
	rested := false
	for _, want := range s.form.Shapes {
		f := s.finder.shapes.Of(s.values[want.Value])
		names, dims := want.Dims, f.Dims
		if f.Rank < 0 {
			return false
		}
		if len(names) > 0 && names[0] == Rest {
			names = names[1:]
			at := len(dims) - len(names)
			if at < 0 || rested && !equalLengths(rest, dims[:at]) {
				return false
			}
			rest, rested, dims = dims[:at], true, dims[at:]
		}
		if len(names) != len(dims) {
			return false
		}
		for i, name := range names {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				if !dims[i].Is(n) {
					return false
				}
			} else if d, bound := lengths[name]; bound && !d.Equal(dims[i]) {
				return false
			}
			lengths[name] = dims[i]
		}
	}
	return true
}

func equalLengths(a, b []graph.Dim) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

// typed reports that the values of a match have the element types and ranks that its pattern asks for.
func (s *search) typed() bool {
	named := map[string]onnx.Tensor_DataType{}
	for _, want := range s.form.Types {
		got := s.finder.shapes.Of(s.values[want.Value]).DType
		switch {
		case got == onnx.Tensor_UNDEFINED:
			return false
		case want.Name == "":
			if !slices.Contains(want.OneOf, model.TypeName(got)) {
				return false
			}
		case named[want.Name] == onnx.Tensor_UNDEFINED:
			named[want.Name] = got
		case named[want.Name] != got:
			return false
		}
	}
	return !slices.ContainsFunc(s.form.Ranks, func(want Rank) bool {
		rank := s.finder.shapes.Of(s.values[want.Value]).Rank
		return rank < want.Min || rank > want.Max || rank < 0
	})
}
