package rewrite

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// lengthKey is a length, or a list of them, as a tensor in one graph.
type lengthKey struct {
	graph  *graph.Graph
	length string
}

// list makes a tensor of lengths, (n) int64, from constants and from the shapes
// of the inputs, once for each graph.
func (e *Editor) list(g *graph.Graph, dims []graph.Dim) (*graph.Value, error) {
	key := lengthKey{g, fmt.Sprint(dims)}
	if v := e.lengths[key]; v != nil {
		return v, nil
	}
	v, err := e.makeList(g, dims)
	if err == nil {
		e.lengths[key] = v
	}
	return v, err
}

func (e *Editor) makeList(g *graph.Graph, dims []graph.Dim) (*graph.Value, error) {
	constants := make([]int64, len(dims))
	all := true
	for i, d := range dims {
		n, ok := d.Const()
		constants[i], all = n, all && ok
	}
	if all {
		return g.AddInitializer(graph.Int64Tensor("", []int64{int64(len(dims))}, constants...)), nil
	}
	parts := make([]*graph.Value, len(dims))
	for i, d := range dims {
		v, err := e.length(g, d)
		if err != nil {
			return nil, err
		}
		parts[i] = v
	}
	n, err := e.AddNode(g, "", "Concat", parts, []string{g.FreshName("graft_shape")}, "axis", 0)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// length makes one length as a tensor of one element: a constant, an axis of an
// input, or a sum of products of them. The value is made once for each graph.
func (e *Editor) length(g *graph.Graph, d graph.Dim) (*graph.Value, error) {
	key := lengthKey{g, d.String()}
	if v := e.lengths[key]; v != nil {
		return v, nil
	}
	v, err := e.makeLength(g, d)
	if err == nil {
		e.lengths[key] = v
	}
	return v, err
}

func (e *Editor) makeLength(g *graph.Graph, d graph.Dim) (*graph.Value, error) {
	if n, ok := d.Const(); ok {
		return g.AddInitializer(graph.Int64Tensor("", []int64{1}, n)), nil
	}
	if !d.Known() {
		return nil, fmt.Errorf("a length is not known")
	}
	if symbols := d.Symbols(); len(symbols) == 1 && d.Equal(graph.DimSym(symbols[0])) {
		return e.symbol(g, symbols[0])
	}
	var sum *graph.Value
	for _, t := range d.Terms() {
		v, err := e.length(g, graph.DimInt(t.Coefficient))
		if err != nil {
			return nil, err
		}
		for i, s := range t.Symbols {
			f, err := e.length(g, graph.DimSym(s))
			if err != nil {
				return nil, err
			}
			if i == 0 && t.Coefficient == 1 {
				v = f
				continue
			}
			if v, err = e.binary(g, "Mul", v, f); err != nil {
				return nil, err
			}
		}
		if sum == nil {
			sum = v
		} else if sum, err = e.binary(g, "Add", sum, v); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (e *Editor) binary(g *graph.Graph, op string, a, b *graph.Value) (*graph.Value, error) {
	n, err := e.AddNode(g, "", op, []*graph.Value{a, b}, []string{g.FreshName("graft_length")})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// symbol reads a symbolic length off the input that has it, of the graph or of
// one around it.
func (e *Editor) symbol(g *graph.Graph, name string) (*graph.Value, error) {
	in, i := e.input(g, graph.DimSym(name))
	if in == nil && e.block != nil {
		in, i = e.value(g, name)
	}
	if in == nil {
		return nil, fmt.Errorf("no input has the length %s", name)
	}
	shape, err := e.AddNode(g, "", "Shape", []*graph.Value{in}, []string{g.FreshName("graft_shape")})
	if err != nil {
		return nil, err
	}
	at := g.AddInitializer(graph.Int64Tensor("", []int64{1}, int64(i)))
	axis, err := e.AddNode(g, "", "Gather", []*graph.Value{shape.Out[0], at}, []string{g.FreshName("graft_length")},
		"axis",
		0)
	if err != nil {
		return nil, err
	}
	return axis.Out[0], nil
}

// input finds an axis of an input that has a length; nil when none has. In a branch,
// inputs that it reads come first: it says more about them than the other does.
func (e *Editor) input(g *graph.Graph, length graph.Dim) (v *graph.Value, axis int) {
	branch := g
	for ; g != nil; g = g.Parent {
		g.Spend(len(g.Inputs))
		for _, in := range g.Inputs {
			i := slices.IndexFunc(e.shapes.Of(in).Dims, length.Equal)
			switch {
			case i < 0:
			case readIn(in, branch):
				return in, i
			case v == nil:
				v, axis = in, i
			}
		}
	}
	return v, axis
}

// readIn reports a value that nodes of a graph, or of graphs inside it, read.
func readIn(v *graph.Value, g *graph.Graph) bool {
	return slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		for at := u.Node.Graph; at != nil; at = at.Parent {
			if at == g {
				return true
			}
		}
		return false
	})
}

// value finds the value that a symbol was made for, where a graph can read it.
func (e *Editor) value(g *graph.Graph, symbol string) (v *graph.Value, axis int) {
	v, axis = e.shapes.Origin(symbol)
	for ; v != nil && g != nil; g = g.Parent {
		if now := e.Current(v); v.Graph == g && e.before(now, e.block) {
			return now, axis
		}
	}
	return nil, 0
}
