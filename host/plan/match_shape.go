package plan

import (
	"fmt"
	"maps"
	"slices"
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

// unequal says which values of a match meet in an operator that broadcasts them and are not known to have one shape, or "". Only
// those count that come from different inputs of the pattern, of whose shapes it says nothing: an operator that stands for
// x + y gives what has the shape of x.
func (e *estimator) unequal(m *Match) string {
	p := m.Operator.Replaces.Pattern
	names := map[*graph.Value]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Values)) {
		names[m.Values[name]] = name
	}
	told := map[string]bool{}
	for _, s := range p.Shapes {
		told[s.Value] = true
	}
	from := m.sources()
	for _, n := range m.Nodes {
		if !n.Is("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "PRelu", "Where", "And", "Or", "Xor",
			"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor") {
			continue
		}
		for i, b := range n.In {
			for _, a := range n.In[:i] {
				if len(from(a)) == 0 || len(from(b)) == 0 || slices.Equal(from(a), from(b)) || e.sameShape(a, b) || told[names[a]] && told[names[b]] {
					continue
				}
				both := slices.Concat(from(a), from(b))
				if slices.ContainsFunc(both, func(name string) bool { return !told[name] }) {
					return fmt.Sprintf("%s and %s are not known to have one shape for %s, and its pattern has no shapes of its inputs", names[a], names[b], n.Op())
				}
			}
		}
	}
	return ""
}

// sources tells of the values of a match which of the pattern's inputs they are made from, in order.
func (m *Match) sources() func(v *graph.Value) []string {
	known := map[*graph.Value][]string{}
	for _, name := range m.Operator.Replaces.Pattern.Inputs {
		known[m.Values[name]] = []string{name}
	}
	var from func(v *graph.Value) []string
	from = func(v *graph.Value) []string {
		list, before := known[v]
		if before || v == nil || !slices.Contains(m.Nodes, v.Producer) {
			return list
		}
		for _, in := range v.Producer.In {
			list = append(list, from(in)...)
		}
		slices.Sort(list)
		known[v] = slices.Compact(list)
		return known[v]
	}
	return from
}

func (e *estimator) sameShape(a, b *graph.Value) bool {
	f, g := e.shapes.Of(a), e.shapes.Of(b)
	return f.Rank >= 0 && f.Rank == g.Rank && equalLengths(f.Dims, g.Dims)
}
