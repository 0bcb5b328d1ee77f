package linear

import (
	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/rewrite"
)

// A gate is activation(a) b, where a and b are linear layers of one x side by side (Dauphin et al., 2017; Shazeer,
// 2020).

// gate lets a linear layer end with the gate that alone reads it, and reports that it does.
func gate(g *graph.Graph, n *graph.Node, shapes *graph.Shapes) (bool, error) {
	a, b := halves(n, shapes)
	if a == nil || n.Int("columns", 0)%(2*abi.PanelColumns) != 0 || n.Input(residualOperand) != nil {
		return false, nil
	}
	name, activated := activationOf(a)
	if name == "" || activated.IsOutput || len(activated.Uses) != 1 || len(b.Uses) != 1 || b.IsOutput {
		return false, nil
	}
	product := activated.Uses[0].Node
	if !product.Is("Mul") || b.Uses[0].Node != product || product.Out[0].IsOutput {
		return false, nil
	}
	made, old := shapes.Of(product.Out[0]), shapes.Of(a)
	if made.Rank < 1 || !rewrite.SameDims(made.Dims, old.Dims) {
		return false, nil
	}
	r := rewrite.NewEditor(g, shapes)
	attributes := []any{"columns", n.Int("columns", 0), "gated", int64(1), "activation", name}
	attributes = append(attributes, normAttributes(n)...)
	if a := n.Attr("activations"); a != nil { // of weights that are integers
		attributes = append(attributes, "activations", string(a.S))
	}
	gated, err := r.AddNode(g, n.Proto.GetDomain(), n.Proto.GetOpType(), n.In, []string{g.FreshName("graft_gated")},
		attributes...)
	if err != nil {
		return false, err
	}
	shapes.Know(gated.Out[0], made)
	r.Declare(gated.Out[0], product.Out[0], true)
	g.Replace(product.Out[0], gated.Out[0])
	return true, nil // what nothing reads any more goes with Prune
}

// halves are the two halves of a linear layer's columns, where nothing else reads them: its two parts, what a Split
// makes, or two Slices. Nodes that only compute where those begin may read its shape.
func halves(n *graph.Node, shapes *graph.Shapes) (a, b *graph.Value) {
	if n.Int("parts", 1) == 2 {
		return n.Out[0], n.Out[1]
	}
	y, columns := n.Out[0], n.Int("columns", 0)
	rank := shapes.Of(y).Rank
	if n.Int("parts", 1) != 1 || y.IsOutput || rank < 1 {
		return nil, nil
	}
	ends := map[*graph.Node]bool{}
	for _, u := range y.Uses {
		switch {
		case u.Node.Is("Split") && u.Index == 0 && len(u.Node.Out) == 2 && a == nil && b == nil:
			if axis := u.Node.Int("axis", 0); axis != -1 && axis != int64(rank-1) {
				return nil, nil
			}
			a, b = u.Node.Out[0], u.Node.Out[1]
		case u.Node.Is("Slice") && u.Index == 0:
			from, to, ok := lastAxis(u.Node, shapes, rank)
			switch {
			case ok && a == nil && from == 0 && to == columns/2:
				a = u.Node.Out[0]
			case ok && b == nil && from == columns/2 && to >= columns:
				b = u.Node.Out[0]
			default:
				return nil, nil
			}
		case !u.Node.Is("Shape"):
			return nil, nil
		}
		ends[u.Node] = true
	}
	if a == nil || b == nil || !shapes.Of(a).Dim(-1).Is(columns/2) || !shapes.Of(b).Dim(-1).Is(columns/2) {
		return nil, nil
	}
	for n := range ends {
		if n.Is("Shape") && !leadsTo(n, ends, 8) {
			return nil, nil
		}
	}
	return a, b
}

// lastAxis is what a Slice takes of the last axis, and of no other.
func lastAxis(n *graph.Node, shapes *graph.Shapes, rank int) (from, to int64, ok bool) {
	one := func(at int, otherwise int64) (int64, bool) {
		v := n.Input(at)
		if v == nil {
			return otherwise, true
		}
		elems := shapes.Of(v).Elems
		if len(elems) != 1 {
			return 0, false
		}
		return elems[0].Const()
	}
	from, known := one(1, 0)
	to, ends := one(2, 0)
	axis, axes := one(3, 0)
	step, steps := one(4, 1)
	return from, to, known && ends && axes && steps && n.Input(1) != nil && n.Input(2) != nil && n.Input(3) != nil &&
		step == 1 && (axis == -1 || axis == int64(rank-1))
}

// leadsTo reports that all that is made of a node's outputs ends in some nodes.
func leadsTo(n *graph.Node, ends map[*graph.Node]bool, depth int) bool {
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		if v.IsOutput {
			return false
		}
		for _, u := range v.Uses {
			if !ends[u.Node] && (depth == 0 || len(u.Node.Subgraphs) > 0 || !leadsTo(u.Node, ends, depth-1)) {
				return false
			}
		}
	}
	return true
}

// activationOf is the function of a value that alone reads it, as the operator of a linear layer calls it, and its
// result.
func activationOf(v *graph.Value) (string, *graph.Value) {
	if v.IsOutput {
		return "", nil
	}
	if len(v.Uses) == 1 {
		n := v.Uses[0].Node
		return activation(n), n.Out[0]
	}
	if len(v.Uses) != 2 {
		return "", nil
	}
	for i, u := range v.Uses { // v sigmoid(v)
		product := v.Uses[1-i].Node
		if u.Node.Is("Sigmoid") && product.Is("Mul") && !u.Node.Out[0].IsOutput && len(u.Node.Out[0].Uses) == 1 &&
			u.Node.Out[0].Uses[0].Node == product {
			return "silu", product.Out[0]
		}
	}
	return "", nil
}
