package plan

import (
	"github.com/opgraft/graft/host/graph"
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
	var order []*graph.Node
	inside := map[*graph.Node]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		if v == nil || border[v] || v.Producer == nil || inside[v.Producer] {
			return
		}
		n := v.Producer
		inside[n] = true
		for i, in := range n.In {
			if i > 0 && n.Is("Reshape", "Expand", "Squeeze", "Unsqueeze", "Slice", "Gather") {
				break // the rest is shape arithmetic
			}
			visit(in)
		}
		order = append(order, n)
	}
	for _, v := range outs {
		visit(v)
	}
	// What something outside reads has to stay, and with it what it reads.
	for changed := true; changed; {
		changed = false
		for _, n := range order {
			if !inside[n] {
				continue
			}
			for _, o := range n.Out {
				if o != nil && !made[o] && (o.IsOutput || readOutside(o, inside)) {
					inside[n] = false
					changed = true
				}
			}
		}
	}
	var list []*graph.Node
	for _, n := range order {
		if inside[n] {
			list = append(list, n)
		}
	}
	return list
}

func readOutside(v *graph.Value, inside map[*graph.Node]bool) bool {
	for _, u := range v.Uses {
		if !inside[u.Node] && !u.Node.Is("Shape") {
			return true
		}
	}
	return false
}
