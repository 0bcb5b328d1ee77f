package manifest

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// with reads a replacement and checks it against the pattern whose place it takes.
func (r *reader) with(n *yaml.Node, what string, p *Pattern) *With {
	f := r.fields(n, what, "nodes", "fold")
	if f == nil {
		return nil
	}
	if f["nodes"] == nil {
		r.fail(n.Line, "%s.nodes is missing; add it", what)
		return nil
	}
	before := len(r.problems)
	w := &With{}
	for i, item := range r.list(f["nodes"], what+".nodes", maxNodes) {
		if node, ok := r.nodeFields(item, fmt.Sprintf("%s.nodes[%d]", what, i)); ok {
			w.Nodes = append(w.Nodes, node)
		}
	}
	if len(w.Nodes) == 0 && len(r.problems) == before {
		r.fail(f["nodes"].Line, "%s.nodes is empty, needed at least one node", what)
	}
	if f["fold"] != nil {
		w.Fold = r.names(f["fold"], what+".fold", false)
	}
	if len(r.problems) > before {
		return w
	}

	s := newScope(r, what)
	for _, name := range p.Inputs {
		s.define(name, "an input of the pattern", n.Line)
	}
	for _, c := range p.Constants {
		s.define(c.Name, "a constant of the pattern", n.Line)
	}
	for _, name := range w.Fold {
		s.define(name, "a folded constant", f["fold"].Line)
	}
	if len(w.Fold) > 0 && !slices.ContainsFunc(p.Constants, func(c Constant) bool { return c.Any }) {
		r.fail(f["fold"].Line, "%s.fold has nothing to fold: the pattern has no constant with any: true; add one", what)
	}
	edges := make([]node, len(w.Nodes))
	for i, node := range w.Nodes {
		edges[i].op, edges[i].in, edges[i].out, edges[i].line = node.Op, node.In, node.Out, node.line
		for _, name := range node.Out {
			s.define(name, fmt.Sprintf("an output of nodes[%d] (%s)", i, node.Op), node.line)
		}
	}
	if len(r.problems) > before {
		return w
	}
	order, ok := s.sort(edges)
	if !ok {
		return w
	}
	s.outputs(p.Outputs, f["nodes"].Line, edges)
	// Inputs and constants of the pattern may go unused; what the replacement itself brings may not.
	for _, name := range slices.Concat(p.Inputs, constantNames(p)) {
		s.used[name] = true
	}
	s.allUsed(what, "value")
	r.captured(w, what, p)
	sorted := make([]WithNode, len(order))
	for i, at := range order {
		sorted[i] = w.Nodes[at]
	}
	w.Nodes = sorted
	return w
}

// captured checks that the pattern captures every attribute value that the replacement uses.
func (r *reader) captured(w *With, what string, p *Pattern) {
	var names []string
	for _, n := range p.Nodes {
		for _, a := range n.Attributes {
			if c, ok := a.Value.(Capture); ok {
				names = append(names, string(c))
			}
		}
	}
	for _, n := range w.Nodes {
		for _, a := range n.Attributes {
			if c, ok := a.Value.(Capture); ok && !slices.Contains(names, string(c)) {
				r.fail(n.line, "%s: attribute %s uses ?%s, which no node of the pattern captures%s; write %s: \"?%s\" there",
					what, a.Name, c, suggestion(string(c), names), a.Name, c)
			}
		}
	}
}

func constantNames(p *Pattern) []string {
	names := make([]string, len(p.Constants))
	for i, c := range p.Constants {
		names[i] = c.Name
	}
	return names
}
