package rewrite

import "github.com/opgraft/graft/host/onnx/graph"

// order knows where the nodes of a graph that is being edited stand: a node stands no earlier
// than what it reads, and than what its subgraphs do. What comes from a node is looked for among
// later ones alone, however large the graph is.
type order struct {
	main  *graph.Graph
	place map[*graph.Node]int // nil when it has to be found anew
	gone  map[*graph.Node]bool
}

// vanish notes nodes that nothing will read, wherever they stand.
func (o *order) vanish(nodes ...*graph.Node) {
	if o.gone == nil {
		o.gone = map[*graph.Node]bool{}
	}
	for _, n := range nodes {
		o.gone[n] = true
	}
}

// renew finds the places where edits made them wrong.
func (o *order) renew() {
	if o.place != nil {
		return
	}
	o.place = map[*graph.Node]int{}
	nodes := o.main.Nodes
	if o.main.Sort() != nil {
		return // all stand at one place, until the edits are over and this is an error
	}
	o.number(o.main)
	o.main.Nodes = nodes
}

func (o *order) number(g *graph.Graph) {
	g.Spend(len(g.Nodes))
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs {
			o.number(s)
		}
		o.place[n] = len(o.place) + 1
	}
}

// of is the place of a node.
func (o *order) of(n *graph.Node) int { return o.place[n] }

// added gives a new node the place of the last that it reads.
func (o *order) added(n *graph.Node) {
	if o.place == nil {
		return
	}
	at := 0
	for _, v := range n.In {
		if v != nil && v.Producer != nil {
			at = max(at, o.of(v.Producer))
		}
	}
	o.place[n] = at
}

// moved checks the places of those that read a value now.
func (o *order) moved(v *graph.Value) {
	if v.Producer == nil || o.place == nil {
		return
	}
	at := o.of(v.Producer)
	v.Graph.Spend(len(v.Uses))
	for _, u := range v.Uses {
		if o.of(u.Node) < at && !o.gone[u.Node] {
			o.place = nil
			return
		}
	}
}

// lowest is the first place of the nodes that make some values; false where none does.
func (e *Editor) lowest(list []*graph.Value) (place int, any bool) {
	e.order.renew()
	for _, v := range list {
		if v == nil || v.Producer == nil {
			continue
		}
		if at := e.order.of(v.Producer); !any || at < place {
			place, any = at, true
		}
	}
	return place, any
}
