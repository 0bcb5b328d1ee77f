package blocks

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// Region lists the nodes that lie between the inputs and outputs of a block and
// that feed nothing else: they vanish when an operator takes the block. Nodes
// whose shape alone is read elsewhere vanish too, since shapes can be had from
// the graph's inputs.
func Region(ins, outs []*graph.Value) []*graph.Node {
	border := map[*graph.Value]bool{}
	for _, v := range ins {
		border[v] = true
	}
	made := map[*graph.Value]bool{}
	for _, v := range outs {
		made[v] = true
	}
	order, inside := above(outs, border)
	// What something outside reads has to stay, and with it what it reads.
	var stay []*graph.Node
	for _, n := range order {
		if slices.ContainsFunc(n.Out, func(o *graph.Value) bool {
			return o != nil && !made[o] && (o.IsOutput || readOutside(o, inside))
		}) {
			stay = append(stay, n)
		}
	}
	for _, n := range stay {
		inside[n] = false
	}
	for len(stay) > 0 {
		n := stay[len(stay)-1]
		stay = stay[:len(stay)-1]
		n.Graph.Spend(1 + len(n.In))
		for _, v := range n.In {
			if v != nil && v.Producer != nil && inside[v.Producer] && !made[v] && !n.Is("Shape") {
				inside[v.Producer] = false
				stay = append(stay, v.Producer)
			}
		}
	}
	return slices.DeleteFunc(order, func(n *graph.Node) bool { return !inside[n] })
}

// above lists the nodes that lead to values and not beyond a border, each after what it
// reads.
func above(to []*graph.Value, border map[*graph.Value]bool) (order []*graph.Node, inside map[*graph.Node]bool) {
	inside = map[*graph.Node]bool{}
	type step struct {
		n    *graph.Node
		left []*graph.Value
	}
	var way []step // chains of nodes are as long as a model makes them
	visit := func(v *graph.Value) {
		if v == nil || border[v] || v.Producer == nil || inside[v.Producer] {
			return
		}
		n := v.Producer
		n.Graph.Spend(1 + len(n.In))
		inside[n] = true
		left := n.In
		if n.Is("Reshape", "Expand", "Squeeze", "Unsqueeze", "Slice", "Gather") {
			left = left[:min(1, len(left))] // the rest is shape arithmetic
		}
		way = append(way, step{n, left})
	}
	for _, v := range to {
		visit(v)
		for len(way) > 0 {
			at := &way[len(way)-1]
			if len(at.left) == 0 {
				order, way = append(order, at.n), way[:len(way)-1]
				continue
			}
			next := at.left[0]
			at.left = at.left[1:]
			visit(next)
		}
	}
	return order, inside
}

func readOutside(v *graph.Value, inside map[*graph.Node]bool) bool {
	for i, u := range v.Uses {
		if !inside[u.Node] && !u.Node.Is("Shape") {
			v.Graph.Spend(i)
			return true
		}
	}
	v.Graph.Spend(len(v.Uses))
	return false
}
