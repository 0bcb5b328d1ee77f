package graph

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// missing reports a node that reads what nothing before it makes, in its subgraphs too.
func (g *Graph) missing(n *onnx.Node) bool {
	found := false
	reads(n, nil, func(name string) { found = found || name != "" && g.Lookup(name) == nil })
	return found
}

// reads names what a node reads of the graph it stands in, and of those around that. Within are the names that graphs
// inside it define.
func reads(n *onnx.Node, within []map[string]bool, read func(name string)) {
	for _, name := range n.GetInput() {
		defined := false
		for _, names := range within {
			defined = defined || names[name]
		}
		if !defined {
			read(name)
		}
	}
	for _, a := range n.GetAttribute() {
		for _, sub := range subgraphs(a) {
			names := map[string]bool{}
			for _, v := range sub.GetInput() {
				names[v.GetName()] = true
			}
			for _, t := range sub.GetInitializer() {
				names[t.GetName()] = true
			}
			for _, t := range sub.GetSparseInitializer() {
				names[t.GetValues().GetName()] = true
			}
			for _, inner := range sub.GetNode() {
				for _, name := range inner.GetOutput() {
					names[name] = true
				}
			}
			inside := append(within[:len(within):len(within)], names)
			for _, inner := range sub.GetNode() {
				reads(inner, inside, read)
			}
			for _, out := range sub.GetOutput() { // which may be a value of a graph around
				reads(&onnx.Node{Input: []string{out.GetName()}}, inside, read)
			}
		}
	}
}

// inOrder puts nodes after those that make what they read, and leaves them in their order otherwise. ONNX asks for
// such an order; tools of ONNX Runtime's own write others, since the runtime puts them in order itself.
func inOrder(nodes []*onnx.Node) error {
	maker := map[string]int{}
	for i, n := range nodes {
		for _, name := range n.GetOutput() {
			if name != "" {
				maker[name] = i
			}
		}
	}
	needs := func(i int) (list []int) {
		reads(nodes[i], nil, func(name string) {
			if m, ok := maker[name]; ok {
				list = append(list, m)
			}
		})
		return list
	}
	type step struct {
		node int
		left []int
	}
	const waiting, open, placed = 0, 1, 2
	state := make([]byte, len(nodes))
	order := make([]*onnx.Node, 0, len(nodes))
	var way []step // chains of nodes are as long as a model makes them
	for i := range nodes {
		if state[i] == waiting {
			state[i], way = open, append(way, step{i, needs(i)})
		}
		for len(way) > 0 {
			at := &way[len(way)-1]
			if len(at.left) == 0 {
				state[at.node] = placed
				order, way = append(order, nodes[at.node]), way[:len(way)-1]
				continue
			}
			m := at.left[0]
			at.left = at.left[1:]
			switch state[m] {
			case open:
				n := nodes[m]
				return fmt.Errorf("node %q (%s) depends on itself: the graph has a cycle", n.GetName(), n.GetOpType())
			case waiting:
				state[m], way = open, append(way, step{m, needs(m)})
			}
		}
	}
	copy(nodes, order)
	return nil
}
