package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/plugin/pattern"
)

// withs reads what stands in place of a pattern: a mapping for all of its forms, or a list of which the first is
// taken that is for a form.
func (r *reader) withs(n *yaml.Node, what string) (out Withs) {
	if n.Kind != yaml.SequenceNode {
		if w, ok := r.with(n, what, "nodes", "fold"); ok {
			out = Withs{w}
		}
		return out
	}
	for i, item := range r.list(n, what, maxNodes) {
		if w, ok := r.with(item, fmt.Sprintf("%s[%d]", what, i), "if", "unless", "nodes", "fold"); ok {
			out = append(out, w)
		}
	}
	if len(n.Content) == 0 {
		r.fail(n.Line, "%s is empty, needed at least one replacement", what)
	}
	return out
}

func (r *reader) with(n *yaml.Node, what string, known ...string) (w With, ok bool) {
	f := r.fields(n, what, known...)
	if f == nil {
		return w, false
	}
	if f["nodes"] == nil {
		r.fail(n.Line, "%s.nodes is missing; add it", what)
		return w, false
	}
	before := len(r.problems)
	w.line = n.Line
	for i, item := range r.list(f["nodes"], what+".nodes", maxNodes) {
		at := fmt.Sprintf("%s.nodes[%d]", what, i)
		if f := r.fields(item, at, "op", "domain", "in", "out", "attributes"); f != nil {
			w.Nodes = append(w.Nodes, r.nodeOf(item, f, at, false))
		}
	}
	if len(w.Nodes) == 0 && len(r.problems) == before {
		r.fail(f["nodes"].Line, "%s.nodes is empty, needed at least one node", what)
	}
	if f["fold"] != nil {
		w.Fold = r.names(f["fold"], what+".fold", false)
	}
	w.If, w.Unless = r.condition(f["if"], what+".if"), r.condition(f["unless"], what+".unless")
	return w, len(r.problems) == before
}

// condition reads one name or a list of them.
func (r *reader) condition(n *yaml.Node, what string) []string {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		return r.names(n, what, false)
	}
	return []string{r.match(n, what, valuePattern, aValueName)}
}

// holds reports a replacement that is for a form.
func (w *With) holds(f *pattern.Form) bool {
	return !slices.ContainsFunc(w.If, func(name string) bool { return !f.Has(name) }) &&
		!slices.ContainsFunc(w.Unless, f.Has)
}

// replacements finds what stands in place of each form, and checks it against the form.
func (r *reader) replacements(op *Operator, forms []pattern.Form, what string) {
	p := op.Replaces.Pattern
	before := len(r.problems)
	for _, w := range op.With {
		for _, name := range slices.Concat(w.If, w.Unless) {
			r.knownValue(w.line, what, name, p)
		}
		if len(w.Fold) > 0 && !slices.ContainsFunc(p.Constants, func(c pattern.Constant) bool { return c.Any }) {
			r.fail(w.line, "%s.fold has nothing to fold: the pattern has no constant with any: true; add one", what)
		}
	}
	used := make([]bool, len(op.With))
	for i := range forms {
		form := &forms[i]
		at := slices.IndexFunc(op.With, func(w With) bool { return w.holds(form) })
		if at < 0 {
			continue
		}
		in := what
		if len(forms) > 1 {
			in = fmt.Sprintf("%s, in the form %s", what, form.Choices)
		}
		resolved := r.resolve(&op.With[at], form, in)
		if len(r.problems) > before {
			return
		}
		if !used[at] {
			op.With[at].Nodes = inOrder(op.With[at].Nodes, resolved.Nodes)
		}
		used[at] = true
		op.forms = append(op.forms, Replacement{Form: form, With: resolved})
	}
	for i, w := range op.With {
		if !used[i] {
			r.fail(w.line, "%s[%d] is for no form of the pattern, or others before it are for all that it is for; correct if "+
				"and unless, or remove it", what, i)
		}
	}
	r.captured(op, what)
}

// inOrder gives the nodes of the file the order that they have in a form, where that has all of them.
func inOrder(nodes, resolved []WithNode) []WithNode {
	if len(nodes) != len(resolved) {
		return nodes
	}
	out := slices.Clone(nodes)
	slices.SortStableFunc(out, func(a, b WithNode) int {
		at := func(n WithNode) int {
			return slices.IndexFunc(resolved,
				func(o WithNode) bool { return o.line == n.line && o.Op == n.Op && slices.Equal(o.Out, n.Out) })
		}
		return at(a) - at(b)
	})
	return out
}

// resolve gives the nodes of a replacement the names that values have in a form, without what the form has not, and
// checks that they are a graph from its inputs to its outputs.
func (r *reader) resolve(w *With, form *pattern.Form, what string) With {
	out := With{Fold: w.Fold, line: w.line}
	before := len(r.problems)
	inner := map[string]bool{} // what the replacement itself makes
	for _, n := range w.Nodes {
		for _, name := range n.Out {
			inner[name] = name != ""
		}
	}
	known := slices.Concat(form.Pattern.Values(), w.Fold)
	for _, n := range w.Nodes {
		resolved := n
		resolved.In, resolved.Out = nil, nil
		for _, name := range n.In {
			list, isList := form.Lists[strings.TrimSuffix(name, "...")]
			switch {
			case isList && strings.HasSuffix(name, "..."):
				resolved.In = append(resolved.In, list...)
			case isList:
				r.fail(n.line, "%s: node %s reads %s, of which each repetition has its own; write %s... for all of them", what,
					n.Op, name, name)
			case !slices.Contains(known, name) || slices.Contains(w.Fold, name) || inner[name]:
				resolved.In = append(resolved.In, name)
			default:
				resolved.In = append(resolved.In, form.Resolve(name))
			}
		}
		for _, name := range n.Out {
			if slices.Contains(known, name) && !slices.Contains(form.Outputs, name) && optionalOutput(form, name) {
				name = ""
			}
			resolved.Out = append(resolved.Out, name)
		}
		resolved.In, resolved.Out = withoutEnd(resolved.In), withoutEnd(resolved.Out)
		if len(resolved.Out) > 0 {
			out.Nodes = append(out.Nodes, resolved)
		}
	}
	if len(r.problems) > before {
		return out
	}
	s := newScope(r, what)
	for _, name := range form.Inputs {
		s.define(name, "an input of the pattern", w.line)
	}
	for _, c := range form.Constants {
		s.define(c.Name, "a constant of the pattern", w.line)
	}
	for _, name := range w.Fold {
		s.define(name, "a folded constant", w.line)
	}
	edges := make([]node, len(out.Nodes))
	for i, n := range out.Nodes {
		edges[i] = node{op: n.Op, in: n.In, out: n.Out, line: n.line}
		for _, name := range n.Out {
			s.define(name, fmt.Sprintf("an output of nodes[%d] (%s)", i, n.Op), n.line)
		}
	}
	if len(r.problems) > before {
		return out
	}
	order, ok := s.sort(edges)
	if !ok {
		return out
	}
	s.outputs(form.Outputs, w.line, edges)
	// Inputs and constants of the pattern may go unused; what the replacement itself brings may not.
	for _, name := range form.Inputs {
		s.used[name] = true
	}
	for _, c := range form.Constants {
		s.used[c.Name] = true
	}
	s.allUsed(what, "value")
	sorted := make([]WithNode, len(order))
	for i, at := range order {
		sorted[i] = out.Nodes[at]
	}
	out.Nodes = sorted
	return out
}

// optionalOutput reports an output of the pattern that forms may be without.
func optionalOutput(form *pattern.Form, name string) bool {
	return slices.Contains(form.Pattern.Outputs, name+"?")
}

// withoutEnd leaves out the names at the end that stand for nothing.
func withoutEnd(names []string) []string {
	for len(names) > 0 && names[len(names)-1] == "" {
		names = names[:len(names)-1]
	}
	return names
}

// captured checks that the pattern captures every attribute value that the replacement uses.
func (r *reader) captured(op *Operator, what string) {
	names := op.Replaces.Pattern.Captures()
	for _, w := range op.With {
		for _, n := range w.Nodes {
			for _, a := range n.Attributes {
				if c, ok := a.Value.(Capture); ok && !slices.Contains(names, string(c)) {
					r.fail(n.line, "%s: attribute %s uses ?%s, which no node of the pattern captures%s; write %s: \"?%s\" there",
						what, a.Name, c, suggestion(string(c), names), a.Name, c)
				}
			}
		}
	}
}
