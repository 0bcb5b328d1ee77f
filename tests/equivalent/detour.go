package equivalent

import (
	"math/rand/v2"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// detour puts nodes that change nothing before one input of a node, or between
// a node and the graph's output.
func (d *writer) detour(n *graph.Node) bool {
	if len(n.Subgraphs) > 0 {
		return false
	}
	if o := n.Out[0]; len(n.Out) == 1 && o.IsOutput && d.rand.IntN(2) == 0 {
		return d.beforeOutput(n.Graph, o)
	}
	if len(n.In) == 0 {
		return false
	}
	i := d.rand.IntN(len(n.In))
	// ONNX Runtime 1.30 takes a Cast away where it fuses a simplified layer
	// normalization, and then refuses the model if a copy reads it as well.
	if n.In[i] == nil || n.In[i].Producer.Is("Cast") {
		return false
	}
	v := n.In[i]
	to := detours[d.rand.IntN(len(detours))](d, n.Graph, v, d.of(v))
	if to == nil {
		return false
	}
	n.SetInput(i, to)
	return true
}

func (d *writer) beforeOutput(g *graph.Graph, o *graph.Value) bool {
	f := d.of(o)
	if f.DType == onnx.Tensor_UNDEFINED {
		return false
	}
	to := d.node(g, "Identity", f, []*graph.Value{o})
	g.Replace(o, to)
	to.Producer.SetInput(0, o)
	return true
}

// detours give the same value again: nil where they do not fit.
var detours = []func(*writer, *graph.Graph, *graph.Value, graph.Fact) *graph.Value{
	copied, copied, transposed, unsqueezed, merged, cut, flattened, expanded,
}

// copied is the value after an Identity, a Cast to its own type, or a Dropout
// that is not training.
func copied(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if f.DType == onnx.Tensor_UNDEFINED {
		return nil
	}
	switch d.rand.IntN(3) {
	case 0:
		return d.node(g, "Cast", f, []*graph.Value{v}, intAttribute("to", int64(f.DType)))
	case 1:
		if f.DType == onnx.Tensor_FLOAT {
			return d.node(g, "Dropout", f, []*graph.Value{v})
		}
	}
	return d.node(g, "Identity", f, []*graph.Value{v})
}

func permutation(r *rand.Rand, n int) (p, inverse []int64) {
	p, inverse = make([]int64, n), make([]int64, n)
	for i, x := range r.Perm(n) {
		p[i], inverse[x] = int64(x), int64(i)
	}
	return p, inverse
}

func permuted(f graph.Fact, p []int64) graph.Fact {
	dims := make([]graph.Dim, len(p))
	for i, x := range p {
		dims[i] = f.Dims[x]
	}
	return like(f, dims...)
}

// ofData reports a tensor of data, rather than a shape or an axis, whose
// dimensions are known.
func ofData(f graph.Fact, rank int) bool {
	return f.Rank >= rank && f.Rank <= 5 && (f.DType == onnx.Tensor_FLOAT || f.DType == onnx.Tensor_BOOL)
}

// transposed is the value after two transposes that undo each other.
func transposed(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if !ofData(f, 2) {
		return nil
	}
	p, inverse := permutation(d.rand, f.Rank)
	t := d.node(g, "Transpose", permuted(f, p), []*graph.Value{v}, intsAttribute("perm", p))
	return d.node(g, "Transpose", f, []*graph.Value{t}, intsAttribute("perm", inverse))
}

// unsqueezed is the value given an axis and relieved of it.
func unsqueezed(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if f.Rank < 0 || f.Rank > 5 || f.DType == onnx.Tensor_UNDEFINED || g.Opset("") < 13 { // axes were an attribute before
		return nil
	}
	at := d.rand.IntN(f.Rank + 1)
	dims := append(append(append([]graph.Dim{}, f.Dims[:at]...), graph.DimInt(1)), f.Dims[at:]...)
	u := d.node(g, "Unsqueeze", like(f, dims...), []*graph.Value{v, d.ints(g, int64(at))})
	return d.node(g, "Squeeze", f, []*graph.Value{u, d.ints(g, int64(at))})
}

// merged is the value with its last two dimensions made one and parted again.
func merged(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if !ofData(f, 2) {
		return nil
	}
	a, ok := f.Dim(-2).Const()
	b, both := f.Dim(-1).Const()
	if !ok || !both || a == 0 || b == 0 {
		return nil
	}
	back := make([]int64, f.Rank) // zeros keep a dimension
	back[f.Rank-2], back[f.Rank-1] = a, b
	there := append(make([]int64, f.Rank-2), a*b)
	dims := append(append([]graph.Dim{}, f.Dims[:f.Rank-2]...), graph.DimInt(a*b))
	t := d.node(g, "Reshape", like(f, dims...), []*graph.Value{v, d.ints(g, there...)})
	return d.node(g, "Reshape", f, []*graph.Value{t, d.ints(g, back...)})
}

// cut is the value with its last dimension halved and made one again.
func cut(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if !ofData(f, 1) {
		return nil
	}
	n, ok := f.Dim(-1).Const()
	if !ok || n < 4 || n%2 != 0 {
		return nil
	}
	there := append(make([]int64, f.Rank-1), n/2, 2)
	back := append(make([]int64, f.Rank-1), n)
	dims := append(append([]graph.Dim{}, f.Dims[:f.Rank-1]...), graph.DimInt(n/2), graph.DimInt(2))
	t := d.node(g, "Reshape", like(f, dims...), []*graph.Value{v, d.ints(g, there...)})
	return d.node(g, "Reshape", f, []*graph.Value{t, d.ints(g, back...)})
}

// neverEmpty reports lengths that are above zero in any run; a past may be empty,
// and zero in a shape means another thing than no elements.
func neverEmpty(f graph.Fact) bool {
	for _, n := range f.Dims {
		if c, ok := n.Const(); ok && c > 0 {
			continue
		}
		if !n.Known() || n.Is(0) || strings.Contains(n.String(), "past") || strings.Contains(n.String(), "-") {
			return false
		}
	}
	return f.Rank >= 0
}

// flattened is the value as a row or a matrix, and in its own shape again.
func flattened(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if !ofData(f, 2) || !neverEmpty(f) {
		return nil
	}
	count := func(dims []graph.Dim) graph.Dim {
		n := graph.DimInt(1)
		for _, x := range dims {
			n = n.Mul(x)
		}
		return n
	}
	var t *graph.Value
	if at := d.rand.IntN(f.Rank + 1); at > 0 {
		t = d.node(g, "Flatten", like(f, count(f.Dims[:at]), count(f.Dims[at:])), []*graph.Value{v},
			intAttribute("axis", int64(at)))
	} else {
		t = d.node(g, "Reshape", like(f, count(f.Dims)), []*graph.Value{v, d.ints(g, -1)})
	}
	shape := d.node(g, "Shape",
		graph.Fact{DType: onnx.Tensor_INT64, Rank: 1, Dims: []graph.Dim{graph.DimInt(int64(f.Rank))}}, []*graph.Value{v})
	return d.node(g, "Reshape", f, []*graph.Value{t, shape})
}

// expanded is the value after an Expand that repeats nothing.
func expanded(d *writer, g *graph.Graph, v *graph.Value, f graph.Fact) *graph.Value {
	if !ofData(f, 1) {
		return nil
	}
	ones := make([]int64, f.Rank)
	for i := range ones {
		ones[i] = 1
	}
	if d.rand.IntN(2) == 0 {
		return d.node(g, "Expand", f, []*graph.Value{v, d.ints(g, ones...)})
	}
	shape := d.node(g, "Shape",
		graph.Fact{DType: onnx.Tensor_INT64, Rank: 1, Dims: []graph.Dim{graph.DimInt(int64(f.Rank))}}, []*graph.Value{v})
	return d.node(g, "Expand", f, []*graph.Value{v, shape})
}
