package pattern

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// misshaped says which value of a match is not known to have the shape, type or rank that its pattern asks for, or "".
func (s *search) misshaped() string {
	lengths := map[string]graph.Dim{}
	var rest []graph.Dim
	rested := false
	for _, want := range s.form.Shapes {
		f := s.finder.shapes.Of(s.values[want.Value])
		names, dims := want.Dims, f.Dims
		wrong := fmt.Sprintf("the shape of %s is not known to be [%s]", want.Value, strings.Join(want.Dims, ", "))
		if f.Rank < 0 {
			return wrong
		}
		if len(names) > 0 && names[0] == Rest {
			names = names[1:]
			at := len(dims) - len(names)
			if at < 0 || rested && !equalLengths(rest, dims[:at]) {
				return wrong
			}
			rest, rested, dims = dims[:at], true, dims[at:]
		}
		if len(names) != len(dims) {
			return wrong
		}
		for i, name := range names {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				if !dims[i].Is(n) {
					return wrong
				}
			} else if d, bound := lengths[name]; bound && !d.Equal(dims[i]) {
				return wrong
			}
			lengths[name] = dims[i]
		}
	}
	return s.mistyped()
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

// mistyped is misshaped for element types and ranks.
func (s *search) mistyped() string {
	named := map[string]onnx.Tensor_DataType{}
	for _, want := range s.form.Types {
		got := s.finder.shapes.Of(s.values[want.Value]).DType
		switch {
		case got == onnx.Tensor_UNDEFINED:
			return fmt.Sprintf("the element type of %s is not known", want.Value)
		case want.Name == "":
			if !slices.Contains(want.OneOf, model.TypeName(got)) {
				return fmt.Sprintf("%s is of %s, and not of %s", want.Value, model.TypeName(got), strings.Join(want.OneOf, " or "))
			}
		case named[want.Name] == onnx.Tensor_UNDEFINED:
			named[want.Name] = got
		case named[want.Name] != got:
			return fmt.Sprintf("%s is of %s, where other values of type %s are of %s", want.Value, model.TypeName(got),
				want.Name, model.TypeName(named[want.Name]))
		}
	}
	for _, want := range s.form.Ranks {
		if rank := s.finder.shapes.Of(s.values[want.Value]).Rank; rank < want.Min || rank > want.Max {
			return fmt.Sprintf("the rank of %s is not known to be from %d to %d", want.Value, want.Min, want.Max)
		}
	}
	return ""
}
