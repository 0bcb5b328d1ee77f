package profile

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Ran is a node that the runtime ran, and what it stands for.
type Ran struct {
	*Node
	// At is the node in the graph that the runtime made of the model; nil where that is not known.
	At *graph.Node
	// Covers are the model's nodes that it stands for, each under one Ran alone: several for a node that the runtime or
	// graft fused, none for one that they added.
	Covers []*graph.Node
}

// Attribute finds the nodes of a profile in the graph that the runtime ran, which its optimisations made, and what
// they stand for in the model. Names of nodes change in that, and those of values do not: a node stands for what lies
// in the model between the values that it makes and those that are there in the graph that ran. Without that graph,
// nil, names of nodes are all there is. Of a patched model, stands are its values that were put in the place of the
// model's, by name (graph.Stands).
func (p *Profile) Attribute(ran, model *graph.Graph, stands map[string]string) []Ran {
	a := &attribution{stands: stands, made: map[string]bool{}, inside: map[*Node][]*Node{}, at: map[*Node]*graph.Node{},
		within: map[*graph.Graph]*graph.Graph{ran: model}, covered: map[*graph.Node]bool{}}
	for _, n := range p.Nodes {
		a.inside[n.Parent] = append(a.inside[n.Parent], n)
	}
	if ran != nil {
		for to, old := range stands {
			if v := ran.Lookup(to); v != nil {
				a.made[old] = true
			}
		}
		a.find(a.inside[nil], []*graph.Graph{ran})
	}
	named := byName(model)
	list := make([]Ran, len(p.Nodes))
	for i, n := range p.Nodes {
		list[i] = Ran{Node: n, At: a.at[n]}
		if at := list[i].At; at != nil {
			list[i].Covers = a.covers(at)
		}
	}
	for i := range list {
		r := &list[i]
		if m := named[r.Name]; len(r.Covers) == 0 && m != nil && !a.covered[m] {
			a.covered[m] = true
			r.Covers = []*graph.Node{m}
		}
	}
	return list
}

// byName are the nodes of a model that have a name which no other has.
func byName(model *graph.Graph) map[string]*graph.Node {
	named := map[string]*graph.Node{}
	model.Walk(func(n *graph.Node) {
		name := n.Proto.GetName()
		if _, twice := named[name]; twice {
			n = nil
		}
		named[name] = n
	})
	delete(named, "")
	return named
}

type attribution struct {
	stands  map[string]string
	made    map[string]bool               // values of the model for which others stand in the main graph that ran
	inside  map[*Node][]*Node             // nodes of subgraphs by the node that has these
	at      map[*Node]*graph.Node         // in the graph that ran
	within  map[*graph.Graph]*graph.Graph // graphs of the model by those that ran
	covered map[*graph.Node]bool
}

// called is how a profile calls a node, which it names itself where the node has no name.
type called struct{ name, operator string }

func (n *Node) called() called {
	if n.Name == n.Operator+"_"+strconv.Itoa(n.Index) {
		return called{"", n.Operator}
	}
	return called{n.Name, n.Operator}
}

// find finds nodes in graphs of which one or more ran. Those that are called the same stand in both in the order of
// execution.
func (a *attribution) find(nodes []*Node, graphs []*graph.Graph) {
	type candidates map[called][]*graph.Node
	of := make([]candidates, len(graphs))
	hits := make([]int, len(graphs))
	order := make([]int, len(graphs))
	for i, g := range graphs {
		order[i], of[i] = i, candidates{}
		for _, n := range g.Nodes {
			c := called{n.Proto.GetName(), n.Proto.GetOpType()}
			of[i][c] = append(of[i][c], n)
		}
		seen := map[called]int{}
		for _, n := range nodes {
			c := n.called()
			if seen[c]++; seen[c] <= len(of[i][c]) {
				hits[i]++
			}
		}
	}
	// Branches may have equal names; that which has the most of what ran, and the least else, is that which ran.
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(hits[j], hits[i]), cmp.Compare(len(graphs[i].Nodes), len(graphs[j].Nodes)))
	})
	for _, n := range nodes {
		for _, i := range order {
			c := n.called()
			if len(of[i][c]) == 0 && c.name == "" {
				c.name = n.Name // a node that is named as the profile names those without one
			}
			if list := of[i][c]; len(list) > 0 {
				a.at[n], of[i][c] = list[0], list[1:]
				break
			}
		}
		if at := a.at[n]; at != nil && len(at.Subgraphs) > 0 {
			a.find(a.inside[n], at.Subgraphs)
		}
	}
}

// covers are the model's nodes that a node of the graph that ran stands for.
func (a *attribution) covers(at *graph.Node) (list []*graph.Node) {
	model := a.within[at.Graph]
	if model == nil {
		return nil
	}
	var pending []*graph.Node
	visit := func(n *graph.Node) {
		if n != nil && !a.covered[n] && n.Graph == model {
			a.covered[n] = true
			list, pending = append(list, n), append(pending, n)
		}
	}
	for _, v := range at.Out {
		if v == nil {
			continue
		}
		same := model.Lookup(v.Name)
		if same == nil {
			same = model.Lookup(a.stands[v.Name])
		}
		if same != nil {
			visit(same.Producer)
		}
	}
	for len(pending) > 0 {
		n := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		n.EachRead(func(v *graph.Value) {
			if v != nil && v.Producer != nil && at.Graph.Lookup(v.Name) == nil && !a.made[v.Name] {
				visit(v.Producer)
			}
		})
	}
	for _, n := range list {
		a.enter(at, n)
	}
	return list
}

// enter notes which subgraphs of two nodes that are the same are the same.
func (a *attribution) enter(ran, model *graph.Node) {
	if ran.Op() != model.Op() {
		return
	}
	to := map[string]*graph.Graph{}
	for i, name := range subgraphNames(model) {
		to[name] = model.Subgraphs[i]
	}
	for i, name := range subgraphNames(ran) {
		if g := to[name]; g != nil {
			a.within[ran.Subgraphs[i]] = g
		}
	}
}

// subgraphNames are the attributes that a node's subgraphs are in, in their order; nil where it has lists of them.
func subgraphNames(n *graph.Node) (names []string) {
	for _, attribute := range n.Proto.GetAttribute() {
		if attribute.GetType() == onnx.Attribute_GRAPH && attribute.GetG() != nil {
			names = append(names, attribute.GetName())
		}
	}
	if len(names) != len(n.Subgraphs) {
		return nil
	}
	return names
}
