package blocks

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
)

// guises knows which values are one and the same: a copy, a pair of transposes
// that undo each other, a reshape there and back. Exporters and optimizers leave
// such detours anywhere, and no rule should have to think of them: rules ask for
// the first value that holds the same elements in the same shape, and for who
// reads it under any of its guises. A value that is written twice, by other views
// of the same one, is one value too.
type guises struct {
	first   map[*graph.Value]*graph.Value
	written map[arrangement]*graph.Value
	uses    map[*graph.Value][]graph.Use  // by first value
	outputs map[*graph.Value]*graph.Value // first value to the graph output it is
}

// arrangement is what a value is, seen from the furthest value that it is a view of.
type arrangement struct {
	graph *graph.Graph
	of    *graph.Value
	axes  string // of the value, in the dimensions of that one
	shape string
}

// disguise gathers readers and outputs of a graph and its subgraphs.
func (f *finder) disguise(g *graph.Graph) {
	f.guises = guises{make(map[*graph.Value]*graph.Value, len(g.Nodes)), f.guises.written,
		make(map[*graph.Value][]graph.Use, len(g.Nodes)), map[*graph.Value]*graph.Value{}}
	handOut := func(g *graph.Graph) {
		for _, o := range g.Outputs {
			f.guises.outputs[f.first(o)] = o
		}
	}
	handOut(g)
	g.Walk(func(n *graph.Node) {
		for i, v := range n.In {
			if v != nil {
				c := f.first(v)
				f.guises.uses[c] = append(f.guises.uses[c], graph.Use{Node: n, Index: i})
			}
		}
		for _, s := range n.Subgraphs {
			handOut(s)
		}
	})
}

// first is the furthest value upstream with the same elements in the same shape.
func (f *finder) first(v *graph.Value) *graph.Value {
	f.main.Spend(1)
	if v == nil || v.Producer == nil {
		return v
	}
	if c, ok := f.guises.first[v]; ok {
		return c
	}
	if !isView(v.Producer) {
		f.guises.first[v] = v
		return v
	}
	defer func(before *graph.Graph) { f.inside = before }(f.inside)
	f.inside = v.Graph
	c := v
	at := view{value: v, dims: [][]axis{}, scale: 1}
	for i, d := range f.shapes.Of(v).Dims {
		at.dims = append(at.dims, []axis{{role: strconv.Itoa(i), size: d}})
	}
	for range maxDetour {
		next, ok := f.stepUp(at, false)
		if !ok {
			break
		}
		at = next
		if at.unchanged() {
			c = at.value
			if _, ok := f.guises.first[c]; ok && c.Graph == v.Graph && f.sameSizes(c, v) {
				break // the way on from here was gone before
			}
		}
	}
	if c != v {
		c = f.first(c)
	} else if at.value != v && f.guises.written != nil { // a view, and maybe not the only one of its kind
		a := arrangement{v.Graph, at.value, at.text(), fmt.Sprint(f.shapes.Of(v).Dims)}
		if twin := f.guises.written[a]; twin != nil {
			c = twin
		} else {
			f.guises.written[a] = v
		}
	}
	f.guises.first[v] = c
	return c
}

// maxDetour is how many views in a row are followed at once.
const maxDetour = 64

// sameSizes reports that the same is known of the lengths of two values.
func (f *finder) sameSizes(a, b *graph.Value) bool {
	return slices.EqualFunc(f.shapes.Of(a).Dims, f.shapes.Of(b).Dims, func(x, y graph.Dim) bool {
		return x.Equal(y) || !x.Known() && !y.Known()
	})
}

// unchanged reports that every dimension holds the axis that it began with.
func (v view) unchanged() bool {
	for i, d := range v.dims {
		if len(d) != 1 || d[0].role != strconv.Itoa(i) || d[0].part != "" {
			return false
		}
	}
	return true
}

// in is the first guise of an input.
func (f *finder) in(n *graph.Node, i int) *graph.Value { return f.first(n.Input(i)) }

// maker is the node that makes a value, detours left out; nil for inputs and constants.
func (f *finder) maker(v *graph.Value) *graph.Node {
	if v = f.first(v); v == nil {
		return nil
	}
	return v.Producer
}

// output is the graph output that a value is handed out as, or nil.
func (f *finder) output(v *graph.Value) *graph.Value { return f.guises.outputs[f.first(v)] }

// readers lists who reads the elements of a value, under any of its guises.
// Readers of its shape do not count, nor do nodes that only lead back to it.
func (f *finder) readers(v *graph.Value) []graph.Use {
	c := f.first(v)
	if list, ok := f.read[c]; ok {
		return list
	}
	var list []graph.Use
	for _, u := range f.guises.uses[c] {
		if !u.Node.Is("Shape", "Size") && !f.leadsBack(u.Node, c, 8) {
			list = append(list, u)
		}
	}
	f.read[c] = list
	return list
}

func (f *finder) leadsBack(n *graph.Node, c *graph.Value, depth int) bool {
	f.main.Spend(1)
	if depth == 0 || len(n.Subgraphs) > 0 || len(n.Out) != 1 && !n.Is("Dropout") || !isView(n) {
		return false
	}
	o := n.Output(0)
	if f.first(o) == c {
		return true
	}
	if o.IsOutput || len(o.Uses) == 0 {
		return false
	}
	for _, u := range o.Uses {
		if !u.Node.Is("Shape", "Size") && !f.leadsBack(u.Node, c, depth-1) {
			return false
		}
	}
	return true
}

// alike reports values that are one, or are computed twice in the same way, as
// far up as depth goes.
func (f *finder) alike(a, b *graph.Value, depth int) bool {
	a, b = f.first(a), f.first(b)
	switch {
	case a == b:
		return true
	case a == nil || b == nil:
		return false
	case a.Tensor != nil && b.Tensor != nil:
		f.main.Spend(len(a.Tensor.Dims) + len(b.Tensor.Dims))
		if a.Tensor.GetDataType() != b.Tensor.GetDataType() || !slices.Equal(a.Tensor.Dims, b.Tensor.Dims) {
			return false // before either is read from its file
		}
		x, err := a.Graph.Data(a.Tensor)
		y, err2 := b.Graph.Data(b.Tensor)
		return err == nil && err2 == nil && bytes.Equal(x, y)
	}
	m, n := a.Producer, b.Producer
	if depth == 0 || m == nil || n == nil || m.Op() != n.Op() || len(m.In) != len(n.In) || len(m.Subgraphs) > 0 ||
		slices.Index(m.Out, a) != slices.Index(n.Out, b) || len(m.Proto.Attribute) != len(n.Proto.Attribute) {
		return false
	}
	f.main.Spend(len(m.Proto.Attribute) * len(n.Proto.Attribute))
	for _, attribute := range m.Proto.Attribute {
		if !proto.Equal(attribute, n.Attr(attribute.GetName())) {
			return false
		}
	}
	for i := range m.In {
		if !f.alike(m.In[i], n.In[i], depth-1) {
			return false
		}
	}
	return true
}

// isView reports a node that may only rearrange or repeat its first input.
func isView(n *graph.Node) bool {
	return n.Is("Identity", "Dropout", "Cast", "Transpose", "Expand", "Tile", "Concat") || reshapes(n)
}
