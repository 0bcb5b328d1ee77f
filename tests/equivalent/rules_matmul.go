package equivalent

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// scaleBefore writes view(x)*c as view(x*c).
func (d *writer) scaleBefore(n *graph.Node) bool {
	x, c, ok := d.factor(n)
	if !ok || !isView(x.Producer) || !sole(x) || x.Producer.In[0].Graph != n.Graph {
		return false
	}
	view := x.Producer
	d.replace(n, d.again(view, d.scaled(view.In[0], c), d.of(x)))
	return true
}

// scaleAfter writes view(x*c) as view(x)*c.
func (d *writer) scaleAfter(n *graph.Node) bool {
	if !isView(n) || !sole(n.In[0]) {
		return false
	}
	x, c, ok := d.factor(n.In[0].Producer)
	if !ok {
		return false
	}
	d.replace(n, d.scaled(d.again(n, x, d.of(n.Out[0])), c))
	return true
}

func (d *writer) isMatMul(n *graph.Node) bool {
	return n.Is("MatMul") && d.of(n.Input(0)).Rank >= 3 && d.of(n.Input(1)).Rank >= 3 && n.In[0].Graph == n.Graph &&
		n.In[1].Graph == n.Graph
}

// scaleOperands writes (a b)*c as (a*c) b, a (b*c), or with half of c on each.
func (d *writer) scaleOperands(n *graph.Node) bool {
	x, c, ok := d.factor(n)
	if !ok || !d.isMatMul(x.Producer) || !sole(x) {
		return false
	}
	a, b := x.Producer.In[0], x.Producer.In[1]
	switch d.rand.IntN(3) {
	case 0:
		a = d.scaled(a, c)
	case 1:
		b = d.scaled(b, c)
	default:
		a, b = d.scaled(a, c/math.Sqrt(math.Abs(c))), d.scaled(b, math.Sqrt(math.Abs(c)))
	}
	d.replace(n, d.node(n.Graph, "MatMul", d.of(n.Out[0]), []*graph.Value{a, b}))
	return true
}

// scaleMatMul writes (a*c) b or a (b*c) as (a b)*c.
func (d *writer) scaleMatMul(n *graph.Node) bool {
	if !d.isMatMul(n) {
		return false
	}
	for i := range 2 {
		if n.In[i].Producer == nil || !sole(n.In[i]) {
			continue
		}
		if x, c, ok := d.factor(n.In[i].Producer); ok && x.Graph == n.Graph {
			in := slices.Clone(n.In)
			in[i] = x
			d.replace(n, d.scaled(d.node(n.Graph, "MatMul", d.of(n.Out[0]), in), c))
			return true
		}
	}
	return false
}

// slices writes a Split as one Slice for each part.
func (d *writer) slices(n *graph.Node) bool {
	if !n.Is("Split") || d.of(n.In[0]).Rank < 1 {
		return false
	}
	axis := n.Int("axis", 0)
	var bounds []int64
	end := int64(0)
	for _, o := range n.Out {
		size, ok := d.of(o).Dim(int(axis)).Const()
		if !ok {
			return false
		}
		end += size
		bounds = append(bounds, end)
	}
	g, start := n.Graph, int64(0)
	for i, o := range n.Out {
		to := d.node(g, "Slice", d.of(o), []*graph.Value{n.In[0], d.ints(g, start), d.ints(g, bounds[i]), d.ints(g, axis)})
		g.Replace(o, to)
		start = bounds[i]
	}
	g.Remove(n)
	return true
}

// run is the part of an axis that a Slice takes, when it is known.
func (d *writer) run(n *graph.Node) (axis, start, end int64, ok bool) {
	rank := int64(d.of(n.Input(0)).Rank)
	if !n.Is("Slice") || len(n.In) < 4 || len(n.In) > 5 || rank < 1 {
		return 0, 0, 0, false
	}
	one := func(i int) (int64, bool) {
		list := d.of(n.Input(i)).Elems
		if ints, ok := n.Input(i).Ints(); ok && len(ints) == 1 {
			return ints[0], true
		}
		if len(list) != 1 {
			return 0, false
		}
		return list[0].Const()
	}
	if len(n.In) == 5 && n.In[4] != nil {
		if step, ok := one(4); !ok || step != 1 {
			return 0, 0, 0, false
		}
	}
	start, a := one(1)
	end, b := one(2)
	axis, c := one(3)
	if axis < 0 {
		axis += rank
	}
	length, known := d.of(n.In[0]).Dim(int(axis)).Const()
	if start < 0 {
		start += length
	}
	if end < 0 {
		end += length
	}
	return axis, start, min(end, length), a && b && c && known
}

// split writes two Slices that share out an axis as one Split.
func (d *writer) split(n *graph.Node) bool {
	axis, start, end, ok := d.run(n)
	if !ok || start != 0 || n.Graph.Opset("") < 13 { // sizes were an attribute before
		return false
	}
	length, _ := d.of(n.In[0]).Dim(int(axis)).Const()
	for _, u := range n.In[0].Uses {
		m := u.Node
		if a, s, e, ok := d.run(m); !ok || m == n || m.Graph != n.Graph || m.In[0] != n.In[0] || a != axis || s != end ||
			e != length {
			continue
		}
		g := n.Graph
		split, err := g.AddNode(&onnx.Node{OpType: proto.String("Split"),
			Attribute: []*onnx.Attribute{intAttribute("axis", axis)}},
			[]*graph.Value{n.In[0], d.ints(g, end, length-end)}, []string{g.FreshName("variant"), g.FreshName("variant")})
		if err != nil {
			panic(err) // fresh names are never taken
		}
		for i, part := range []*graph.Node{n, m} {
			d.facts[split.Out[i]] = d.of(part.Out[0])
			d.replace(part, split.Out[i])
		}
		return true
	}
	return false
}

// ungemm writes a Gemm as a matmul and a sum.
func (d *writer) ungemm(n *graph.Node) bool {
	if !n.Is("Gemm") || n.Int("transA", 0) != 0 || n.Float("alpha", 1) != 1 || n.Float("beta", 1) != 1 {
		return false
	}
	g, f := n.Graph, d.of(n.Out[0])
	w := n.In[1]
	if n.Int("transB", 0) != 0 {
		w = d.node(g, "Transpose", permuted(d.of(w), []int64{1, 0}), []*graph.Value{w}, intsAttribute("perm", []int64{1, 0}))
	}
	to := d.node(g, "MatMul", f, []*graph.Value{n.In[0], w})
	if c := n.Input(2); c != nil {
		in := []*graph.Value{to, c}
		if d.rand.IntN(2) == 0 {
			in = []*graph.Value{c, to}
		}
		to = d.node(g, "Add", f, in)
	}
	d.replace(n, to)
	return true
}

// gemm writes the matmul of activations and a weight as a Gemm over a matrix,
// with the bias that follows it, if one does.
func (d *writer) gemm(n *graph.Node) bool {
	x, f := d.of(n.Input(0)), d.of(n.Out[0])
	if !n.Is("MatMul") || x.Rank != 3 || n.In[1].Tensor == nil || len(n.In[1].Tensor.Dims) != 2 ||
		x.DType != onnx.Tensor_FLOAT || !neverEmpty(x) {
		return false
	}
	g, w := n.Graph, n.In[1]
	inputs, width := w.Tensor.Dims[0], w.Tensor.Dims[1]
	rows := like(x, x.Dims[0].Mul(x.Dims[1]), graph.DimInt(inputs))
	in := []*graph.Value{d.node(g, "Reshape", rows, []*graph.Value{n.In[0], d.ints(g, -1, inputs)}), w}
	last := n
	if sole(n.Out[0]) && n.Out[0].Uses[0].Node.Is("Add") {
		add := n.Out[0].Uses[0].Node
		if c := add.In[1-n.Out[0].Uses[0].Index]; c.Tensor != nil && slices.Equal(c.Tensor.Dims, []int64{width}) {
			in, last = append(in, c), add
		}
	}
	var attributes []*onnx.Attribute
	if d.rand.IntN(2) == 0 {
		in[1] = d.node(g, "Transpose", permuted(d.of(w), []int64{1, 0}), []*graph.Value{w},
			intsAttribute("perm", []int64{1, 0}))
		attributes = append(attributes, intAttribute("transB", 1))
	}
	y := d.node(g, "Gemm", like(x, rows.Dims[0], graph.DimInt(width)), in, attributes...)
	long := graph.Fact{DType: onnx.Tensor_INT64, Rank: 1, Dims: []graph.Dim{graph.DimInt(3)}}
	front := graph.Fact{DType: onnx.Tensor_INT64, Rank: 1, Dims: []graph.Dim{graph.DimInt(2)}}
	shape := d.node(g, "Shape", long, []*graph.Value{n.In[0]})
	shape = d.node(g, "Slice", front, []*graph.Value{shape, d.ints(g, 0), d.ints(g, 2), d.ints(g, 0)})
	shape = d.node(g, "Concat", long, []*graph.Value{shape, d.ints(g, width)}, intAttribute("axis", 0))
	to := d.node(g, "Reshape", f, []*graph.Value{y, shape})
	d.replace(last, to)
	if last != n {
		g.Remove(n)
	}
	return true
}

// repeat writes an Expand of one dimension by a constant as a Tile, or as a
// Concat of copies.
func (d *writer) repeat(n *graph.Node) bool {
	in, out := d.of(n.Input(0)), d.of(n.Out[0])
	if !n.Is("Expand") || in.Rank != out.Rank || in.Rank < 1 {
		return false
	}
	at, times := -1, int64(0)
	repeats := make([]int64, in.Rank)
	for i := range repeats {
		repeats[i] = 1
		if in.Dims[i].Equal(out.Dims[i]) {
			continue
		}
		r, ok := out.Dims[i].Const()
		if !ok || at >= 0 || !in.Dims[i].Is(1) || r > 8 {
			return false
		}
		at, times, repeats[i] = i, r, r
	}
	if at < 0 {
		return false
	}
	if d.rand.IntN(2) == 0 {
		d.replace(n, d.node(n.Graph, "Tile", out, []*graph.Value{n.In[0], d.ints(n.Graph, repeats...)}))
		return true
	}
	copies := slices.Repeat([]*graph.Value{n.In[0]}, int(times))
	d.replace(n, d.node(n.Graph, "Concat", out, copies, intAttribute("axis", int64(at))))
	return true
}
