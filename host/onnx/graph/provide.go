package graph

import "slices"

// Provide notes that nodes of an operator, named as Node.Op names it, do in this model what a name stands for.
func (g *Graph) Provide(name, op string) {
	if g.root.provide == nil {
		g.root.provide = map[string][]string{}
	}
	if !slices.Contains(g.root.provide[name], op) {
		g.root.provide[name] = append(g.root.provide[name], op)
	}
}

// Provider is the first operator for which Provide noted a name; "" for none.
func (g *Graph) Provider(name string) string {
	if list := g.root.provide[name]; list != nil {
		return list[0]
	}
	return ""
}

// Provides reports whether Provide noted a name for the node's operator.
func (n *Node) Provides(name string) bool {
	return n != nil && slices.Contains(n.Graph.root.provide[name], n.Op())
}
