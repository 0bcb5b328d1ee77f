package equivalent

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

var rules = []rule{
	{"commute", (*writer).commute},
	{"compare from the other side", (*writer).compare},
	{"negate a condition", (*writer).negate},
	{"count the axis from the other end", (*writer).axis},
	{"detour", (*writer).detour},
	{"detour again", (*writer).detour},
	{"constant as node or initializer", (*writer).constants},
	{"split a transpose", (*writer).splitTranspose},
	{"merge transposes", (*writer).mergeTransposes},
	{"split a reshape", (*writer).splitReshape},
	{"merge reshapes", (*writer).mergeReshapes},
	{"write a factor otherwise", (*writer).refactor},
	{"scale before a view", (*writer).scaleBefore},
	{"scale after a view", (*writer).scaleAfter},
	{"scale before a matmul", (*writer).scaleOperands},
	{"scale after a matmul", (*writer).scaleMatMul},
	{"slices for a split", (*writer).slices},
	{"split for slices", (*writer).split},
	{"matmul and sum for a Gemm", (*writer).ungemm},
	{"Gemm for a matmul", (*writer).gemm},
	{"repeat by other means", (*writer).repeat},
}

func (d *writer) commute(n *graph.Node) bool {
	if !n.Is("Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min") || len(n.In) != 2 {
		return false
	}
	a, b := n.In[0], n.In[1]
	n.SetInput(0, b)
	n.SetInput(1, a)
	return true
}

func (d *writer) compare(n *graph.Node) bool {
	to := map[string]string{"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual",
		"GreaterOrEqual": "LessOrEqual"}[n.Op()]
	if to == "" {
		return false
	}
	n.Proto.OpType = proto.String(to)
	a, b := n.In[0], n.In[1]
	n.SetInput(0, b)
	n.SetInput(1, a)
	return true
}

func (d *writer) negate(n *graph.Node) bool {
	if !n.Is("Where") {
		return false
	}
	c, a, b := n.In[0], n.In[1], n.In[2]
	n.SetInput(0, d.node(n.Graph, "Not", d.of(c), []*graph.Value{c}))
	n.SetInput(1, b)
	n.SetInput(2, a)
	return true
}

func (d *writer) axis(n *graph.Node) bool {
	a := n.Attr("axis")
	rank := int64(d.of(n.Input(0)).Rank)
	if !n.Is("Softmax", "Concat", "Split", "Gather") || a == nil || rank <= 0 {
		return false
	}
	if a.GetI() < 0 {
		a.I = proto.Int64(a.GetI() + rank)
	} else {
		a.I = proto.Int64(a.GetI() - rank)
	}
	return true
}

// constants writes a Constant as an initializer, or a small initializer that a
// node reads as a Constant.
func (d *writer) constants(n *graph.Node) bool {
	if n.Is("Constant") {
		if n.Out[0].Tensor == nil || n.Out[0].IsOutput {
			return false
		}
		t := proto.Clone(n.Out[0].Tensor).(*onnx.Tensor)
		t.Name = nil
		v := n.Graph.AddInitializer(t)
		d.facts[v] = d.of(n.Out[0])
		d.names[v.Name] = n.Out[0].Name
		d.replace(n, v)
		return true
	}
	for i, v := range n.In {
		if v == nil || v.Tensor == nil || v.Producer != nil {
			continue
		}
		count, err := graph.Elements(v.Tensor)
		raw, readable := n.Graph.Data(v.Tensor)
		if err != nil || readable != nil || count > 256 {
			continue
		}
		t := &onnx.Tensor{DataType: v.Tensor.DataType, Dims: v.Tensor.Dims, RawData: raw}
		c := d.node(n.Graph, "Constant", d.of(v), nil,
			&onnx.Attribute{Name: proto.String("value"), Type: onnx.Attribute_TENSOR.Enum(), T: t})
		c.Tensor = t
		d.names[c.Name] = v.Name
		n.SetInput(i, c)
		return true
	}
	return false
}

func perm(n *graph.Node, rank int) []int64 {
	if p, ok := n.Ints("perm"); ok {
		return p
	}
	p := make([]int64, rank)
	for i := range p {
		p[i] = int64(rank - 1 - i)
	}
	return p
}

func (d *writer) splitTranspose(n *graph.Node) bool {
	f := d.of(n.Input(0))
	if !n.Is("Transpose") || f.Rank < 2 {
		return false
	}
	p := perm(n, f.Rank)
	first, inverse := permutation(d.rand, f.Rank)
	second := make([]int64, f.Rank)
	for i := range p {
		second[i] = inverse[p[i]]
	}
	t := d.node(n.Graph, "Transpose", permuted(f, first), []*graph.Value{n.In[0]}, intsAttribute("perm", first))
	d.replace(n, d.node(n.Graph, "Transpose", d.of(n.Out[0]), []*graph.Value{t}, intsAttribute("perm", second)))
	return true
}

func (d *writer) mergeTransposes(n *graph.Node) bool {
	f := d.of(n.Input(0))
	if !n.Is("Transpose") || !n.In[0].Producer.Is("Transpose") || n.In[0].Graph != n.Graph || f.Rank < 2 {
		return false
	}
	before := n.In[0].Producer
	p, q := perm(before, f.Rank), perm(n, f.Rank)
	both := make([]int64, f.Rank)
	for i := range q {
		both[i] = p[q[i]]
	}
	d.replace(n, d.node(n.Graph, "Transpose", d.of(n.Out[0]), []*graph.Value{before.In[0]}, intsAttribute("perm", both)))
	return true
}

// free reports a Reshape to a shape without zeros, which would take a length
// from the input's own shape.
func (d *writer) free(n *graph.Node) bool {
	if !n.Is("Reshape") || n.Int("allowzero", 0) != 0 || !neverEmpty(d.of(n.Out[0])) {
		return false
	}
	list := d.of(n.Input(1)).Elems
	if list == nil {
		ints, ok := n.Input(1).Ints()
		return ok && !slices.Contains(ints, 0)
	}
	return !slices.ContainsFunc(list, func(x graph.Dim) bool { return !x.Known() || x.Is(0) })
}

// splitReshape writes a Reshape through a row, or through one more dimension.
func (d *writer) splitReshape(n *graph.Node) bool {
	if !d.free(n) {
		return false
	}
	f := d.of(n.In[0])
	t := d.node(n.Graph, "Reshape", like(f, f.Count()), []*graph.Value{n.In[0], d.ints(n.Graph, -1)})
	n.SetInput(0, t)
	return true
}

func (d *writer) mergeReshapes(n *graph.Node) bool {
	if !d.free(n) || !n.In[0].Producer.Is("Reshape", "Squeeze", "Unsqueeze", "Flatten") {
		return false
	}
	n.SetInput(0, n.In[0].Producer.In[0])
	return true
}

// refactor writes x*c as x/(1/c), as two factors, or with its operands commuted.
func (d *writer) refactor(n *graph.Node) bool {
	x, c, ok := d.factor(n)
	if !ok || x.Graph != n.Graph {
		return false
	}
	d.replace(n, d.scaled(x, c))
	return true
}

// again writes a view of another value.
func (d *writer) again(n *graph.Node, x *graph.Value, known graph.Fact) *graph.Value {
	in := append([]*graph.Value{x}, n.In[1:]...)
	attributes := make([]*onnx.Attribute, len(n.Proto.Attribute))
	for i, a := range n.Proto.Attribute {
		attributes[i] = proto.Clone(a).(*onnx.Attribute)
	}
	return d.node(n.Graph, n.Proto.GetOpType(), known, in, attributes...)
}

func isView(n *graph.Node) bool {
	return n.Is("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
}
