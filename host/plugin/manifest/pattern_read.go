package manifest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/pattern"
)

// names reads a list of value names; optional lets "" stand for an absent one.
func (r *reader) names(n *yaml.Node, what string, optional bool) []string {
	return r.marked(n, what, optional, false)
}

const aValueName = "the name of a value: a letter or _, then letters, digits, _ . -"

// marked is names, which may end with ? where lacking says so.
func (r *reader) marked(n *yaml.Node, what string, optional, lacking bool) []string {
	var out []string
	for i, item := range r.list(n, what, maxValues) {
		at := fmt.Sprintf("%s[%d]", what, i)
		if optional && item.Kind == yaml.ScalarNode && item.Tag == "!!str" && item.Value == "" {
			out = append(out, "")
			continue
		}
		if lacking && item.Kind == yaml.ScalarNode && strings.HasSuffix(item.Value, "?") {
			plain := *item
			plain.Value = pattern.Plain(item.Value)
			out = append(out, r.match(&plain, at, valuePattern, aValueName)+"?")
			continue
		}
		out = append(out, r.match(item, at, valuePattern, aValueName))
	}
	return out
}

// pattern reads a pattern and the forms that it stands for.
func (r *reader) pattern(n *yaml.Node, what string) (*Pattern, []pattern.Form) {
	f := r.fields(n, what, "inputs", "outputs", "nodes", "constants", "shapes", "types", "ranks", "recompute")
	if f == nil {
		return nil, nil
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
		p.Outputs = r.marked(f["outputs"], what+".outputs", false, true)
	}
	if f["constants"] != nil {
		p.Constants = r.constants(f["constants"], what+".constants")
	}
	if f["nodes"] != nil {
		p.Parts = r.parts(f["nodes"], what+".nodes", p, 0)
	}
	if len(r.problems) > before {
		return p, nil
	}
	switch {
	case len(p.Parts) == 0:
		r.fail(f["nodes"].Line, "%s.nodes is empty, needed at least one node", what)
	case len(p.Inputs) == 0:
		r.fail(f["inputs"].Line, "%s.inputs is empty, needed at least one value", what)
	case len(p.Outputs) == 0:
		r.fail(f["outputs"].Line, "%s.outputs is empty, needed at least one value", what)
	}
	if f["shapes"] != nil {
		p.Shapes = r.shapes(f["shapes"], what+".shapes", p)
	}
	if f["types"] != nil {
		p.Types = r.types(f["types"], what+".types", p)
	}
	if f["ranks"] != nil {
		p.Ranks = r.ranks(f["ranks"], what+".ranks", p)
	}
	if f["recompute"] != nil {
		p.Recompute = r.names(f["recompute"], what+".recompute", false)
		for _, name := range p.Recompute {
			r.knownValue(f["recompute"].Line, what+".recompute", name, p)
			if slices.Contains(p.Outputs, name) || slices.Contains(p.Outputs, name+"?") {
				r.fail(f["recompute"].Line, "%s.recompute names %s, which is an output, that anything may read; remove it", what,
					name)
			}
		}
	}
	if len(r.problems) > before {
		return p, nil
	}
	forms, err := p.Expand()
	if err != nil {
		r.fail(f["nodes"].Line, "%s %v", what, err)
		return p, nil
	}
	return p, r.checkForms(p, forms, what, f)
}

// checkForms checks what Form promises of each form, sorts their nodes, and sees that each input and constant is of
// some form.
func (r *reader) checkForms(p *Pattern, forms []pattern.Form, what string, f map[string]*yaml.Node) []pattern.Form {
	before := len(r.problems)
	for i := range forms {
		r.checkForm(&forms[i], p, what, f, len(forms) == 1)
		if len(r.problems) > before {
			return nil // other forms are likely to have the same problem
		}
	}
	if simple := !slices.ContainsFunc(p.Parts, func(part pattern.Part) bool { return part.Node == nil }); simple &&
		len(forms) == 1 {
		for i := range p.Parts { // in the order of the form
			p.Parts[i] = pattern.Part{Node: &forms[0].Nodes[i], Line: forms[0].Nodes[i].Line}
		}
	}
	for _, name := range p.Inputs {
		if !slices.ContainsFunc(forms, func(f pattern.Form) bool { return f.Has(name) }) {
			r.fail(f["inputs"].Line, "%s: value %s is an input but nothing uses it; remove it or make it an output", what, name)
		}
	}
	for _, c := range p.Constants {
		if !slices.ContainsFunc(forms, func(f pattern.Form) bool { return f.Has(c.Name) }) {
			r.fail(c.Line, "%s: value %s is a constant but nothing uses it; remove it", what, c.Name)
		}
	}
	for _, name := range p.Recompute {
		if !slices.ContainsFunc(forms, func(f pattern.Form) bool { return slices.Contains(f.Recompute, f.Resolve(name)) }) {
			r.fail(f["recompute"].Line, "%s.recompute names %s, which no node makes; remove it", what, name)
		}
	}
	return forms
}

func (r *reader) checkForm(form *pattern.Form, p *Pattern, what string, f map[string]*yaml.Node, only bool) {
	before := len(r.problems)
	inputs, constants := form.Inputs, form.Constants
	if only && len(form.Lists) == 0 {
		inputs, constants = p.Inputs, p.Constants // those that nothing uses are reported with all else
	} else {
		what = fmt.Sprintf("%s, in the form %s", what, form.Choices)
	}
	s := newScope(r, what)
	for _, name := range inputs {
		s.define(name, "an input", f["inputs"].Line)
	}
	for _, c := range constants {
		s.define(c.Name, "a constant", c.Line)
	}
	edges := make([]node, len(form.Nodes))
	for i, n := range form.Nodes {
		edges[i] = node{op: n.Op, in: n.In, out: n.Out, line: n.Line}
		for _, name := range n.Out {
			s.define(name, fmt.Sprintf("an output of nodes[%d] (%s)", i, n.Op), n.Line)
		}
	}
	if len(r.problems) > before {
		return
	}
	switch {
	case len(form.Nodes) == 0:
		r.fail(f["nodes"].Line, "%s: there is no node, needed at least one in each form", what)
		return
	case len(inputs) == 0:
		r.fail(f["inputs"].Line, "%s: no node reads an input, needed at least one in each form", what)
		return
	}
	order, ok := s.sort(edges)
	if !ok {
		return
	}
	s.outputs(form.Outputs, f["outputs"].Line, edges)
	s.allUsed(what, "value")
	if !s.connected(edges) {
		r.fail(f["nodes"].Line, "%s: the nodes fall into parts that share no value; make an operator of each part", what)
	}
	sorted := make([]pattern.Node, len(order))
	for i, at := range order {
		sorted[i] = form.Nodes[at]
	}
	form.Nodes = sorted
}

// knownValue reports a name that the pattern gives to no value.
func (r *reader) knownValue(line int, what, name string, p *Pattern) bool {
	if slices.Contains(p.Values(), name) {
		return true
	}
	r.fail(line, "%s: the pattern has no value %q%s", what, diagnostic.Clip(name), suggestion(name, p.Values()))
	return false
}

// shapes reads what shapes values must have.
func (r *reader) shapes(n *yaml.Node, what string, p *Pattern) (out []pattern.Shape) {
	entries, _ := r.entries(n, what)
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !r.knownValue(e.line, what, e.key, p) {
			continue
		}
		shape := pattern.Shape{Value: e.key}
		for i, item := range r.list(e.value, name, maxValues) {
			at := fmt.Sprintf("%s[%d]", name, i)
			switch {
			case item.Kind == yaml.ScalarNode && item.Tag == "!!int":
				shape.Dims = append(shape.Dims, fmt.Sprint(r.integer(item, at, 0, math.MaxInt64)))
			case item.Value == pattern.Rest && i == 0:
				shape.Dims = append(shape.Dims, pattern.Rest)
			default:
				shape.Dims = append(shape.Dims,
					r.match(item, at, valuePattern, "a length, a name for one, or ... in the first place"))
			}
		}
		out = append(out, shape)
	}
	return out
}

// types reads which element types values may have.
func (r *reader) types(n *yaml.Node, what string, p *Pattern) (out []pattern.Type) {
	entries, _ := r.entries(n, what)
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !r.knownValue(e.line, what, e.key, p) {
			continue
		}
		t := pattern.Type{Value: e.key}
		if e.value.Kind == yaml.ScalarNode && typeNamePattern.MatchString(e.value.Value) {
			t.Name = r.text(e.value, name)
		} else if e.value.Kind == yaml.ScalarNode {
			t.OneOf = []string{r.elementType(e.value, name)}
		} else {
			for i, item := range r.list(e.value, name, maxValues) {
				t.OneOf = append(t.OneOf, r.elementType(item, fmt.Sprintf("%s[%d]", name, i)))
			}
			if e.value.Kind == yaml.SequenceNode && len(t.OneOf) == 0 {
				r.fail(e.line, "%s is an empty list, which no type is in; list the allowed types", name)
			}
		}
		out = append(out, t)
	}
	return out
}

func (r *reader) elementType(n *yaml.Node, what string) string {
	before := len(r.problems)
	s := r.text(n, what)
	if len(r.problems) == before && !slices.Contains(ElementTypes, s) {
		r.fail(n.Line, "%s is %q, needed an element type such as float32, or a name such as T that stands for one type "+
			"wherever it is%s",
			what, diagnostic.Clip(s), suggestion(s, ElementTypes))
	}
	return s
}

// ranks reads how many dimensions values may have.
func (r *reader) ranks(n *yaml.Node, what string, p *Pattern) (out []pattern.Rank) {
	const most = 32
	entries, _ := r.entries(n, what)
	for _, e := range entries {
		name := what + "." + diagnostic.Clip(e.key)
		if !r.knownValue(e.line, what, e.key, p) {
			continue
		}
		rank := pattern.Rank{Value: e.key, Max: most}
		if e.value.Kind == yaml.ScalarNode {
			rank.Min = int(r.integer(e.value, name, 0, most))
			rank.Max = rank.Min
		} else if f := r.fields(e.value, name, "min", "max"); f != nil {
			rank.Min = int(r.integer(f["min"], name+".min", 0, most))
			if f["max"] != nil {
				rank.Max = int(r.integer(f["max"], name+".max", 0, most))
			}
			switch {
			case f["min"] == nil && f["max"] == nil:
				r.fail(e.value.Line, "%s has neither min nor max; give at least one", name)
			case rank.Min > rank.Max:
				r.fail(e.value.Line, "%s has min %d above max %d, which no rank is in; exchange them", name, rank.Min, rank.Max)
			}
		}
		out = append(out, rank)
	}
	return out
}
