package plan

import (
	"strconv"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// shaped reports that the values of a match are known to have the shapes that its pattern asks for.
func (s *search) shaped() bool {
	lengths := map[string]graph.Dim{}
	var rest []graph.Dim
	rested := false
	for _, want := range s.pattern.Shapes {
		f := s.shapes.Of(s.values[want.Value])
		names, dims := want.Dims, f.Dims
		if f.Rank < 0 {
			return false
		}
		if len(names) > 0 && names[0] == manifest.Rest {
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
