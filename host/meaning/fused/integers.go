package fused

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// NBits multiplies with a weight of integers of a few bits.
const NBits = "com.microsoft.MatMulNBits"

// WholeNBits says why a MatMulNBits is not taken apart, or "": its integers cannot be laid out in panels.
func WholeNBits(n *graph.Node) string {
	_, _, why := integersOf(n)
	return why
}

func integersOf(n *graph.Node) (m *model.Model, q *model.Integers, why string) {
	m, ok := n.Graph.Source().(*model.Model)
	switch {
	case !ok:
		return nil, nil, "it has no model"
	case n.Graph.Owner != nil:
		return nil, nil, "it is in a branch"
	case n.Graph.Opset("") < minOpset:
		return nil, nil, "its model is of an older version of ONNX's operators"
	}
	q, why = model.NBits(n.Proto, func(name string) *onnx.Tensor {
		if v := n.Graph.Lookup(name); v != nil && !v.IsInput && !v.IsOutput {
			return v.Tensor
		}
		return nil
	})
	if why == "" {
		why = q.Unfit()
	}
	return m, q, why
}

// integers lets a MatMulNBits be the matmul of the numbers that its integers stand for, and the sum with its bias.
// [model.Model.IntegersOf] knows the integers of such a weight. The last of the nodes has the name that it had.
func (t *taker) integers(n *graph.Node) (taken bool) {
	m, q, why := integersOf(n)
	if why != "" {
		return false
	}
	numbers, err := m.Dequantized(n.In[1].Name+"_numbers", *q)
	if err != nil {
		t.err = err
		return false
	}
	x, bias := n.Input(0), n.Input(model.NBitsBias)
	own(n)
	name(t.g, n)
	n.Proto.Domain, n.Proto.Attribute = nil, nil
	for i := range n.In {
		n.SetInput(i, nil)
	}
	w, rows := t.g.AddConstant(numbers), x
	if n.Proto.OpType = proto.String("MatMul"); bias != nil {
		n.Proto.OpType = proto.String("Add")
		rows, w = t.op("MatMul", x, w), bias
	}
	read(n, 0, rows)
	read(n, 1, w)
	shorten(n)
	return true
}

// putIntegersBack makes a MatMulNBits again of a matmul with its numbers, and of the sum with its bias where that
// follows.
func (p *Parts) putIntegersBack(g *graph.Graph) {
	m, ok := g.Source().(*model.Model)
	if !ok || len(p.integers) == 0 {
		return
	}
	taken := map[string]bool{}
	for _, name := range p.integers {
		taken[name] = true
	}
	constants := map[string]*graph.Value{}
	constant := func(t *onnx.Tensor) *graph.Value {
		v := constants[t.GetName()]
		if v == nil {
			if v = g.Lookup(t.GetName()); v == nil || v.Tensor == nil { // it was dropped
				v = g.AddInitializer(proto.CloneOf(t))
			}
			constants[t.GetName()] = v
		}
		return v
	}
	for _, n := range slices.Clone(g.Nodes) {
		g.Spend(1)
		if !n.Is("MatMul") || n.Input(1) == nil || n.Input(1).Tensor == nil {
			continue
		}
		q := m.IntegersOf(n.Input(1).Tensor)
		if q == nil || !q.Packed {
			continue
		}
		in := []*graph.Value{n.In[0], constant(q.Quantized), constant(q.Scales)}
		if q.Zeros != nil {
			in = append(in, constant(q.Zeros))
		}
		whole := n
		if sum := biased(n, taken); sum != nil {
			in = append(in, make([]*graph.Value, model.NBitsBias-len(in))...)
			in, whole = append(in, sum.In[1]), sum
		}
		own(whole)
		whole.Proto.OpType, whole.Proto.Domain, whole.Proto.Attribute = q.Node.OpType, q.Node.Domain,
			slices.Clone(q.Node.Attribute)
		for i := range whole.In {
			whole.SetInput(i, nil)
		}
		for i, v := range in {
			read(whole, i, v)
		}
	}
}

// biased is the sum with a bias that alone reads a node, and that was taken out of a product, or nil.
func biased(n *graph.Node, taken map[string]bool) *graph.Node {
	if !alone(n.Out[0]) {
		return nil
	}
	sum := n.Out[0].Uses[0].Node
	if !sum.Is("Add") || sum.Graph != n.Graph || !taken[sum.Proto.GetName()] || sum.In[0] != n.Out[0] {
		return nil
	}
	return sum
}
