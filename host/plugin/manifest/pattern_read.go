package manifest

import (
	"fmt"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/diagnostic"
)

// names reads a list of value names; optional lets "" stand for an absent one.
func (r *reader) names(n *yaml.Node, what string, optional bool) []string {
	var out []string
	for i, item := range r.list(n, what, maxValues) {
		at := fmt.Sprintf("%s[%d]", what, i)
		if optional && item.Kind == yaml.ScalarNode && item.Tag == "!!str" && item.Value == "" {
			out = append(out, "")
			continue
		}
		out = append(out, r.match(item, at, valuePattern, "the name of a value: a letter or _, then letters, digits, _ . -"))
	}
	return out
}

func (r *reader) pattern(n *yaml.Node, what string) *Pattern {
	f := r.fields(n, what, "inputs", "outputs", "nodes", "constants", "shapes")
	if f == nil {
		return nil
	}
	before := len(r.problems)
	for _, key := range []string{"inputs", "outputs", "nodes"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	p := &Pattern{}
	if f["inputs"] != nil {
		p.Inputs = r.names(f["inputs"], what+".inputs", false)
	}
	if f["outputs"] != nil {
		p.Outputs = r.names(f["outputs"], what+".outputs", false)
	}
	if f["constants"] != nil {
		p.Constants = r.constants(f["constants"], what+".constants")
	}
	if f["nodes"] != nil {
		p.Nodes = r.patternNodes(f["nodes"], what+".nodes")
	}
	if len(r.problems) > before {
		return p
	}
	s := newScope(r, what)
	for _, name := range p.Inputs {
		s.define(name, "an input", f["inputs"].Line)
	}
	for _, c := range p.Constants {
		s.define(c.Name, "a constant", c.line)
	}
	for i, node := range p.Nodes {
		for _, name := range node.Out {
			s.define(name, fmt.Sprintf("an output of nodes[%d] (%s)", i, node.Op), node.line)
		}
	}
	if len(r.problems) > before {
		return p
	}
	if f["shapes"] != nil {
		p.Shapes = r.shapes(f["shapes"], what+".shapes", s)
	}
	r.checkPattern(p, s, f)
	return p
}

// shapes reads what shapes values must have.
func (r *reader) shapes(n *yaml.Node, what string, s *scope) (out []Shape) {
	entries, _ := r.entries(n, what)
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if _, ok := s.values[e.key]; !ok {
			r.fail(e.line, "%s: the pattern has no value %q%s", what, diagnostic.Clip(e.key), suggestion(e.key, s.known()))
			continue
		}
		shape := Shape{Value: e.key}
		for i, item := range r.list(e.value, name, maxValues) {
			at := fmt.Sprintf("%s[%d]", name, i)
			switch {
			case item.Kind == yaml.ScalarNode && item.Tag == "!!int":
				shape.Dims = append(shape.Dims, fmt.Sprint(r.integer(item, at, 0, math.MaxInt64)))
			case item.Value == Rest && i == 0:
				shape.Dims = append(shape.Dims, Rest)
			default:
				shape.Dims = append(shape.Dims, r.match(item, at, valuePattern, "a length, a name for one, or ... in the first place"))
			}
		}
		out = append(out, shape)
	}
	return out
}

// checkPattern checks what Pattern promises of its graph and sorts the nodes.
func (r *reader) checkPattern(p *Pattern, s *scope, f map[string]*yaml.Node) {
	what := s.what
	switch {
	case len(p.Nodes) == 0:
		r.fail(f["nodes"].Line, "%s.nodes is empty, needed at least one node", what)
	case len(p.Inputs) == 0:
		r.fail(f["inputs"].Line, "%s.inputs is empty, needed at least one value", what)
	case len(p.Outputs) == 0:
		r.fail(f["outputs"].Line, "%s.outputs is empty, needed at least one value", what)
	}
	edges := make([]node, len(p.Nodes))
	for i, n := range p.Nodes {
		edges[i] = node{op: n.Op, in: n.In, out: n.Out, line: n.line}
	}
	order, ok := s.sort(edges)
	if !ok {
		return
	}
	s.outputs(p.Outputs, f["outputs"].Line, edges)
	s.allUsed(what, "value")
	if !s.connected(edges) {
		r.fail(f["nodes"].Line, "%s: the nodes fall into parts that share no value; make an operator of each part", what)
	}
	sorted := make([]PatternNode, len(order))
	for i, at := range order {
		sorted[i] = p.Nodes[at]
	}
	p.Nodes = sorted
}

func (r *reader) constants(n *yaml.Node, what string) []Constant {
	entries, _ := r.entries(n, what)
	if len(entries) > maxValues {
		r.fail(n.Line, "%s has %d entries, needed at most %d", what, len(entries), maxValues)
		return nil
	}
	var out []Constant
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !valuePattern.MatchString(e.key) {
			r.fail(e.line, "%s: %q is not the name of a value, needed a letter or _, then letters, digits, _ . -", what, diagnostic.Clip(e.key))
			continue
		}
		f := r.fields(e.value, name, "value", "tolerance", "any", "rank")
		if f == nil {
			continue
		}
		c := Constant{Name: e.key, Rank: -1, line: e.line}
		c.Any = r.flag(f["any"], name+".any")
		switch {
		case f["value"] != nil && c.Any:
			r.fail(e.line, "%s has both value and any, needed one", name)
		case f["value"] == nil && !c.Any:
			r.fail(e.line, "%s has neither value nor any: true, needed one", name)
		case c.Any:
			if f["tolerance"] != nil {
				r.fail(f["tolerance"].Line, "%s has a tolerance without a value; remove it", name)
			}
			if f["rank"] != nil {
				c.Rank = int(r.integer(f["rank"], name+".rank", 0, 32))
			}
		default:
			if f["rank"] != nil {
				r.fail(f["rank"].Line, "%s has a rank beside a value, which matches whatever the rank; remove it", name)
			}
			v := r.finite(f["value"], name+".value")
			c.Value = &v
			// A float32 that was written from the decimal in the file is within this.
			c.Tolerance = 1e-6
			if f["tolerance"] != nil {
				c.Tolerance = r.finite(f["tolerance"], name+".tolerance")
				if c.Tolerance < 0 || c.Tolerance >= 1 {
					r.fail(f["tolerance"].Line, "%s.tolerance is %v, needed 0 or more and below 1", name, c.Tolerance)
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// Matches reports whether an element of a tensor is the constant's value.
func (c *Constant) Matches(element float64) bool {
	if c.Value == nil {
		return c.Any
	}
	bound := c.Tolerance
	if *c.Value != 0 {
		bound *= math.Abs(*c.Value)
	}
	return math.Abs(element-*c.Value) <= bound
}

// nodeFields reads what pattern nodes and replacement nodes have in common.
func (r *reader) nodeFields(n *yaml.Node, what string) (out WithNode, ok bool) {
	f := r.fields(n, what, "op", "domain", "in", "out", "attributes")
	if f == nil {
		return out, false
	}
	for _, key := range []string{"op", "in", "out"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	out.line = n.Line
	out.Op = r.match(f["op"], what+".op", operatorPattern, "an operator type such as MatMul")
	if d := r.text(f["domain"], what+".domain"); d != "ai.onnx" { // the long name of the default domain
		out.Domain = d
	}
	if f["in"] != nil {
		out.In = r.names(f["in"], what+".in", true)
	}
	if f["out"] != nil {
		out.Out = r.names(f["out"], what+".out", true)
		if !slices.ContainsFunc(out.Out, func(s string) bool { return s != "" }) {
			r.fail(f["out"].Line, "%s.out names no value, needed at least one", what)
		}
	}
	if f["attributes"] != nil {
		out.Attributes = r.attributes(f["attributes"], what+".attributes", true)
	}
	return out, true
}

func (r *reader) patternNodes(n *yaml.Node, what string) []PatternNode {
	var out []PatternNode
	for i, item := range r.list(n, what, maxNodes) {
		if f, ok := r.nodeFields(item, fmt.Sprintf("%s[%d]", what, i)); ok {
			for i := range f.Attributes {
				if a := &f.Attributes[i]; a.Value == "any" {
					a.Value = Any{}
				}
			}
			out = append(out, PatternNode(f))
		}
	}
	return out
}
